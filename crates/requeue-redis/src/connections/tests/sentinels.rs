//! Connections to a master through its sentinels.

use super::*;
use crate::address::Secret;
use requeue_testkit::servers::{Sentinels, free_port};

#[test]
fn calls_and_messages_follow_the_master() {
    let mut sentinels = Sentinels::start();
    let (link, signals) = link(&sentinels.url());
    echo(&link, "t", "a").unwrap();
    link.subscribe("{t}:wake");
    assert_eq!(next(&signals), "resumed");
    sentinels.kill_master();
    until_it_works(&link);
    message(&signals, "resumed");
    published(&signals, sentinels.master(), "{t}:wake", "1");
}

#[test]
fn a_master_that_becomes_a_replica_is_no_longer_used_with_sentinels() {
    let mut sentinels = Sentinels::start();
    let (link, signals) = link(&sentinels.url());
    echo(&link, "t", "a").unwrap();
    link.subscribe("{t}:wake");
    assert_eq!(next(&signals), "resumed");
    sentinels.fail_over();
    until_it_works(&link);
    message(&signals, "resumed");
    published(&signals, sentinels.master(), "{t}:wake", "2");
}

#[test]
fn a_sentinel_that_is_down_is_not_needed() {
    let sentinels = Sentinels::start();
    let gone = format!("redis+sentinel://127.0.0.1:{},", free_port());
    let url = sentinels.url().replace("redis+sentinel://", &gone);
    link(&url);
    // One sentinel is enough.
    let one = format!("redis+sentinel://{}/main", sentinels.sentinels()[2].address());
    link(&one);
}

#[test]
fn a_sentinel_with_an_old_master_does_not_mislead() {
    let sentinels = Sentinels::start();
    let (behind, _) = fake(|_, line| match line {
        "SETINFO" => NO_SETINFO,
        // No server listens there.
        "GET-MASTER-ADDR-BY-NAME" => "*2\r\n$9\r\n127.0.0.1\r\n$1\r\n9\r\n",
        _ => "",
    });
    let with_it = format!("redis+sentinel://{behind},");
    let url = sentinels.url().replace("redis+sentinel://", &with_it);
    for _ in 0..10 {
        link(&url);
    }
}

#[test]
fn errors_of_sentinels_are_reported() {
    let sentinels = Sentinels::start();
    let url = sentinels.url().replace("/main", "/other");
    let error = refused(&url, &quick());
    assert!(matches!(error, RedisConnectError::Unfit { .. }), "{error}");
    assert!(error.to_string().ends_with("the sentinels know no master named \"other\""), "{error}");
    // A sentinel is not a server.
    let sentinel = &sentinels.sentinels()[0];
    let error = refused(&sentinel.url(), &quick());
    assert!(error.to_string().contains("redis+sentinel://"), "{error}");
    // Nor is a server a sentinel.
    let url = format!("redis+sentinel://{}/main", sentinels.master().address());
    let error = refused(&url, &quick());
    assert!(matches!(error, RedisConnectError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("unknown command 'SENTINEL'"), "{error}");
    // Sentinels have their own passwords.
    for sentinel in sentinels.sentinels() {
        let set = ["ACL", "SETUSER", "default", "resetpass", ">hunter2"];
        assert_eq!(sentinel.command(&set), "OK");
    }
    let error = refused(&sentinels.url(), &quick());
    assert!(matches!(error, RedisConnectError::Refused { .. }), "{error}");
    let mut options = quick();
    options.sentinel_password = Some(Secret::from("hunter3"));
    let text = refused(&sentinels.url(), &options).to_string();
    assert!(text.contains("wrong password") && !text.contains("hunter"), "{text}");
    options.sentinel_password = Some(Secret::from("hunter2"));
    open(&sentinels.url(), &options).unwrap();
}

#[test]
fn connecting_fails_if_all_sentinels_are_down() {
    let (one, two) = (free_port(), free_port());
    let url = format!("redis+sentinel://127.0.0.1:{one},127.0.0.1:{two}/main");
    let error = refused(&url, &quick());
    assert!(matches!(error, RedisConnectError::Unavailable { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&one.to_string()) && text.contains(&two.to_string()), "{text}");
}

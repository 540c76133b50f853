//! What is not used at all, and what is said about it.

use super::*;
use requeue_testkit::servers::{RedisServer, free_port, until};
use std::net::TcpListener;
use std::sync::atomic::Ordering;

#[test]
fn without_a_server_there_is_no_link() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let error = refused(&url, &quick());
    assert!(matches!(error, RedisConnectError::Unavailable { .. }), "{error}");
    let told = error.to_string();
    let address = url.strip_prefix("redis://").unwrap();
    assert!(told.starts_with(&format!("{address} is not available: ")), "{told}");
    assert!(told.contains("refused"), "{told}");
}

#[test]
fn a_server_that_accepts_and_never_answers_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let mut options = quick();
    options.connect_timeout = Duration::from_millis(200);
    let told = refused(&url, &options).to_string();
    assert!(told.ends_with("is not available: no answer within 200ms"), "{told}");
}

#[test]
fn wrong_passwords_are_not_shown() {
    let server = RedisServer::with(&["--requirepass", "right"]);
    let host = server.address();
    for (login, told) in [
        (":hunter2@", "wrong password, or no user \"default\""),
        ("nobody:hunter2@", "wrong password, or no user \"nobody\""),
        ("", "NOAUTH Authentication required."),
    ] {
        let error = refused(&format!("redis://{login}{host}"), &quick());
        assert_eq!(error.to_string(), format!("{host} denied access: {told}"));
        assert!(matches!(error, RedisConnectError::Refused { .. }), "{error}");
    }
}

#[test]
fn a_user_without_rights_is_told_which() {
    let server = RedisServer::start();
    let host = server.address();
    for (rights, told) in [
        (&["~*", "&*", "+ping"][..], "to run the 'info' command"),
        (&["~other", "&*", "+@all"], "to access one of the keys"),
        (&["~*", "&*", "+info", "+get"], "to run the 'set' command"),
    ] {
        server.command(&[&["ACL", "SETUSER", "poor", "reset", "on", ">p"], rights].concat());
        let error = refused(&format!("redis://poor:p@{host}"), &quick());
        assert!(matches!(error, RedisConnectError::Refused { .. }), "{error}");
        assert!(error.to_string().contains("NOPERM"), "{error}");
        assert!(error.to_string().contains(told), "{error}");
    }
}

#[test]
fn a_database_that_is_not_there_is_refused() {
    let server = RedisServer::start();
    let error = refused(&format!("{}/99", server.url()), &quick());
    assert!(matches!(error, RedisConnectError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("DB index is out of range"), "{error}");
}

#[test]
fn a_server_that_would_drop_jobs_is_refused() {
    let server = RedisServer::with(&["--maxmemory-policy", "allkeys-lru"]);
    let error = refused(&server.url(), &quick());
    assert!(matches!(error, RedisConnectError::Unfit { .. }), "{error}");
    let told = error.to_string();
    assert!(told.contains("maxmemory-policy is allkeys-lru"), "{told}");
    assert!(told.contains("CONFIG SET maxmemory-policy noeviction"), "{told}");
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    link(&server.url());
}

#[test]
fn jobs_of_another_format_are_refused_and_left_alone() {
    let server = RedisServer::start();
    server.command(&["SET", "{requeue}:format", "2"]);
    let error = refused(&server.url(), &quick());
    let told = r#"has jobs in format "2" ({requeue}:format), but this version supports "1""#;
    assert_eq!(error.to_string(), format!("{} {told}", server.address()));
    assert_eq!(server.command(&["GET", "{requeue}:format"]), "2");
    // They are somebody else's.
    let mut options = quick();
    options.prefix = "mine".to_owned();
    open(&server.url(), &options).unwrap();
    assert_eq!(server.command(&["GET", "{mine}:format"]), "1");
}

#[test]
fn a_replica_is_refused_and_names_its_master() {
    let master = RedisServer::start();
    let of_it = format!("127.0.0.1 {}", master.port());
    let replica = RedisServer::with(&["--replicaof", &of_it]);
    let told = refused(&replica.url(), &quick()).to_string();
    assert!(told.contains(&format!("it is a replica of {}", master.address())), "{told}");
}

#[test]
fn an_old_server_is_refused() {
    let (host, _) = fake(|_, line| match line {
        "INFO" => "$45\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\n\r\n",
        "SETINFO" => NO_SETINFO,
        _ => "",
    });
    let error = refused(&format!("redis://{host}"), &quick());
    let told = "cannot be used: it is Redis 6.2.14, and 7.0 or newer is needed";
    assert_eq!(error.to_string(), format!("{host} {told}"));
}

#[test]
fn an_attempt_that_fails_is_closed() {
    let (host, closed) = fake(|number, line| match (line, number) {
        ("SETINFO", _) => NO_SETINFO,
        ("INFO", 0) => {
            "$86\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\n\
             maxmemory_policy:noeviction\r\nrole:master\r\n\r\n"
        }
        ("GET", 0) => "$1\r\n1\r\n",
        ("PING", 0) => "close",
        // Those that come after the first wait for ever.
        _ => "",
    });
    let connect_timeout = Duration::from_millis(100);
    let options = Options { connect_timeout, ..quick() };
    let (link, _signals) = open(&format!("redis://{host}"), &options).unwrap();
    drop(call(&link, &["PING"]));
    until("attempts are closed", || closed.load(Ordering::SeqCst) >= 4);
}

#[test]
fn what_goes_wrong_later_is_told_as_well() {
    let server = RedisServer::start();
    let mut options = quick();
    options.connect_timeout = Duration::from_millis(300);
    let (link, _signals) = open(&server.url(), &options).unwrap();
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    let mut told = String::new();
    while !told.contains("maxmemory-policy is allkeys-lru") {
        match echo(&link, "t", "a") {
            Err(CommandError::NotDone(reason)) => told = reason,
            Err(CommandError::Unknown(_)) | Ok(_) => {}
        }
    }
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    until_it_works(&link);
}

#[test]
fn options_are_checked_first() {
    let mut options = quick();
    options.prefix = "a b".to_owned();
    let error = refused("redis://127.0.0.1:1", &options);
    assert!(matches!(error, RedisConnectError::Options { .. }), "{error}");
}

//! Servers that cannot be used, and the errors that report why.

use super::*;
use requeue_testkit::servers::{RedisServer, free_port, until};
use std::net::TcpListener;
use std::sync::atomic::Ordering;

#[test]
fn connecting_fails_if_the_server_is_down() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let error = refused(&url, &quick());
    assert!(matches!(error, RedisConnectError::Unavailable { .. }), "{error}");
    let text = error.to_string();
    let address = url.strip_prefix("redis://").unwrap();
    assert!(text.starts_with(&format!("{address} is not available: ")), "{text}");
    assert!(text.contains("refused"), "{text}");
}

#[test]
fn connecting_to_a_server_that_never_replies_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let mut options = quick();
    options.connect_timeout = Duration::from_millis(200);
    let text = refused(&url, &options).to_string();
    assert!(text.ends_with("is not available: no reply within 200ms"), "{text}");
}

#[test]
fn wrong_passwords_are_not_shown() {
    let server = RedisServer::with(&["--requirepass", "right"]);
    let host = server.address();
    for (login, text) in [
        (":hunter2@", "wrong password, or no user \"default\""),
        ("nobody:hunter2@", "wrong password, or no user \"nobody\""),
        ("", "NOAUTH Authentication required."),
    ] {
        let error = refused(&format!("redis://{login}{host}"), &quick());
        assert_eq!(error.to_string(), format!("{host} denied access: {text}"));
        assert!(matches!(error, RedisConnectError::Refused { .. }), "{error}");
    }
}

#[test]
fn the_error_names_the_missing_permission() {
    let server = RedisServer::start();
    let host = server.address();
    for (rights, text) in [
        (&["~*", "&*", "+ping"][..], "to run the 'info' command"),
        (&["~other", "&*", "+@all"], "to access one of the keys"),
        (&["~*", "&*", "+info", "+get"], "to run the 'set' command"),
    ] {
        server.command(&[&["ACL", "SETUSER", "poor", "reset", "on", ">p"], rights].concat());
        let error = refused(&format!("redis://poor:p@{host}"), &quick());
        assert!(matches!(error, RedisConnectError::Refused { .. }), "{error}");
        assert!(error.to_string().contains("NOPERM"), "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn a_missing_database_is_rejected() {
    let server = RedisServer::start();
    let error = refused(&format!("{}/99", server.url()), &quick());
    assert!(matches!(error, RedisConnectError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("DB index is out of range"), "{error}");
}

#[test]
fn a_server_that_would_evict_jobs_is_rejected() {
    let server = RedisServer::with(&["--maxmemory-policy", "allkeys-lru"]);
    let error = refused(&server.url(), &quick());
    assert!(matches!(error, RedisConnectError::Unfit { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("maxmemory-policy is allkeys-lru"), "{text}");
    assert!(text.contains("CONFIG SET maxmemory-policy noeviction"), "{text}");
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    link(&server.url());
}

#[test]
fn an_unknown_format_or_feature_is_rejected_and_left_unchanged() {
    let server = RedisServer::start();
    for (format, reason) in [
        ("3", "supports only format 1"),
        ("", "supports only format 1"),
        ("1 groups", "does not know the feature \"groups\""),
    ] {
        server.command(&["SET", "{requeue}:format", format]);
        let error = refused(&server.url(), &quick());
        let text = format!("in format {format:?} ({{requeue}}:format), but this version {reason}");
        assert_eq!(error.to_string(), format!("{} has jobs {text}", server.address()));
        assert_eq!(server.command(&["GET", "{requeue}:format"]), format);
    }
    // Another prefix is independent of it.
    let mut options = quick();
    options.prefix = "mine".to_owned();
    open(&server.url(), &options).unwrap();
    assert_eq!(server.command(&["GET", "{mine}:format"]), "1");
}

#[test]
fn a_replica_is_rejected_and_the_error_names_its_master() {
    let master = RedisServer::start();
    let of_it = format!("127.0.0.1 {}", master.port());
    let replica = RedisServer::with(&["--replicaof", &of_it]);
    let text = refused(&replica.url(), &quick()).to_string();
    assert!(text.contains(&format!("it is a replica of {}", master.address())), "{text}");
}

#[test]
fn an_old_server_is_rejected() {
    let (host, _) = fake(|_, line| match line {
        "INFO" => "$45\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\n\r\n",
        "SETINFO" => NO_SETINFO,
        _ => "",
    });
    let error = refused(&format!("redis://{host}"), &quick());
    let text = "cannot be used: it is Redis 6.2.14, but 7.0 or newer is required";
    assert_eq!(error.to_string(), format!("{host} {text}"));
}

#[test]
fn a_reply_that_is_too_long_ends_the_connection_before_it_arrives() {
    let (host, _) = fake(|number, line| match (line, number) {
        ("SETINFO", _) => NO_SETINFO,
        ("INFO", _) => {
            "$86\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\n\
             maxmemory_policy:noeviction\r\nrole:master\r\n\r\n"
        }
        // The format, and then a value of 512 MB that never arrives, on the first connection only.
        ("GET", _) => "$1\r\n1\r\n",
        ("HGET", 0) => "$536870912\r\n",
        ("HGET", _) => "$2\r\nok\r\n",
        _ => "",
    });
    let (link, _signals) = open(&format!("redis://{host}"), &quick()).unwrap();
    let Err(CommandError::Unknown(reason)) = call(&link, &["HGET", "{t}:meta", "lease"]) else {
        panic!("the reply was accepted")
    };
    assert!(reason.contains("more than 134217728 bytes"), "{reason}");
    assert_eq!(call(&link, &["HGET", "{t}:meta", "lease"]).unwrap(), text("ok"));
}

#[test]
fn failed_attempts_close_their_connections() {
    let (host, closed) = fake(|number, line| match (line, number) {
        ("SETINFO", _) => NO_SETINFO,
        ("INFO", 0) => {
            "$86\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\n\
             maxmemory_policy:noeviction\r\nrole:master\r\n\r\n"
        }
        ("GET", 0) => "$1\r\n1\r\n",
        ("PING", 0) => "close",
        // Later connections get no reply.
        _ => "",
    });
    let connect_timeout = Duration::from_millis(100);
    let options = Options { connect_timeout, ..quick() };
    let (link, _signals) = open(&format!("redis://{host}"), &options).unwrap();
    drop(call(&link, &["PING"]));
    until("the connections of the attempts are closed", || closed.load(Ordering::SeqCst) >= 4);
}

#[test]
fn a_failed_check_after_a_reconnect_is_reported() {
    let server = RedisServer::start();
    let mut options = quick();
    options.connect_timeout = Duration::from_millis(300);
    let (link, _signals) = open(&server.url(), &options).unwrap();
    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    let mut text = String::new();
    while !text.contains("maxmemory-policy is allkeys-lru") {
        match echo(&link, "t", "a") {
            Err(CommandError::NotDone(reason)) => text = reason,
            Err(CommandError::Unknown(_)) | Ok(_) => {}
        }
    }
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    until_it_works(&link);
}

#[test]
fn options_are_checked_before_connecting() {
    let mut options = quick();
    options.prefix = "a b".to_owned();
    let error = refused("redis://127.0.0.1:1", &options);
    assert!(matches!(error, RedisConnectError::Options { .. }), "{error}");
}

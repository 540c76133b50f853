//! Connections over TLS.

use super::*;
use requeue_testkit::servers::RedisServer;
use std::fs;

/// Options with the CA of a server, and with the certificate and key of a client.
fn trusting(server: &RedisServer) -> Options {
    Options {
        ca_file: Some(server.dir().join("ca.crt")),
        certificate_file: Some(server.dir().join("client.crt")),
        key_file: Some(server.dir().join("client.key")),
        ..quick()
    }
}

#[test]
fn calls_and_messages_go_over_tls() {
    let server = RedisServer::with_tls(&[]);
    let (link, signals) = open(&server.tls_url(), &trusting(&server)).unwrap();
    assert_eq!(echo(&link, "t", "a").unwrap(), text("a"));
    // More than fits into one TLS record.
    let long = "x".repeat(1 << 20);
    assert_eq!(echo(&link, "t", &long).unwrap(), text(&long));
    link.subscribe("{t}:wake");
    assert_eq!(next(&signals), "resumed");
    server.command(&["PUBLISH", "{t}:wake", "1"]);
    assert_eq!(next(&signals), "{t}:wake 1");
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    until_it_works(&link);
}

#[test]
fn an_untrusted_server_is_rejected() {
    let server = RedisServer::with_tls(&[]);
    let mut options = trusting(&server);
    options.ca_file = None;
    let error = refused(&server.tls_url(), &options);
    assert!(matches!(error, RedisConnectError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    // The certificate is for the IP address, not for this name.
    let named = server.tls_url().replace("127.0.0.1", "localhost");
    let error = refused(&named, &trusting(&server));
    assert!(error.to_string().contains("not valid for name"), "{error}");
    // This port of the server does not support TLS.
    let plain = server.url().replace("redis:", "rediss:");
    let error = refused(&plain, &trusting(&server));
    assert!(matches!(error, RedisConnectError::Unavailable { .. }), "{error}");
}

#[test]
fn a_server_with_the_certificate_of_a_ca_is_rejected_with_advice() {
    let server = RedisServer::with_tls(&["--tls-cert-file", "ca.crt", "--tls-key-file", "ca.key"]);
    let error = refused(&server.tls_url(), &trusting(&server)).to_string();
    assert!(error.contains("is that of a CA") && error.contains("CA:FALSE"), "{error}");
}

#[test]
fn the_client_certificate_is_sent_to_servers_that_require_it() {
    let server = RedisServer::with_tls(&[]);
    let mut options = trusting(&server);
    (options.certificate_file, options.key_file) = (None, None);
    let error = refused(&server.tls_url(), &options);
    assert!(matches!(error, RedisConnectError::Unavailable { .. }), "{error}");
    server.command(&["CONFIG", "SET", "tls-auth-clients", "no"]);
    open(&server.tls_url(), &options).unwrap();
}

#[test]
fn errors_name_the_invalid_file() {
    let server = RedisServer::with_tls(&[]);
    let error_after = |set: &dyn Fn(&mut Options)| {
        let mut options = trusting(&server);
        set(&mut options);
        let error = refused(&server.tls_url(), &options);
        assert!(matches!(error, RedisConnectError::Options { .. }), "{error}");
        error.to_string()
    };
    let missing = server.dir().join("missing.pem");
    let empty = server.dir().join("empty.pem");
    fs::write(&empty, "nothing").unwrap();
    let wrong = error_after(&|options| options.ca_file = Some(missing.clone()));
    assert!(wrong.contains("missing.pem"), "{wrong}");
    let wrong = error_after(&|options| options.ca_file = Some(empty.clone()));
    assert!(wrong.contains("empty.pem: the file contains no certificate"), "{wrong}");
    let wrong = error_after(&|options| options.key_file = Some(empty.clone()));
    assert!(wrong.contains("empty.pem"), "{wrong}");
    let other = server.dir().join("server.key");
    let wrong = error_after(&|options| options.key_file = Some(other.clone()));
    assert!(wrong.contains("server.key"), "{wrong}");
}

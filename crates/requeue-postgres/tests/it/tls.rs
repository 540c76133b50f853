//! TLS, with the meaning that `sslmode` has for libpq.

use crate::support::{connect, fresh, put, put_all};
use requeue_postgres::{PostgresConnectError, PostgresStore};
use requeue_testkit::block_on;
use requeue_testkit::servers::{PostgresServer, PostgresTls, PostgresVersion};

fn url(server: &PostgresServer, host: &str, parameters: &str) -> String {
    let (port, dir) = (server.port(), server.dir().display());
    let parameters = parameters.replace("DIR", &dir.to_string());
    format!("postgres://requeue@{host}:{port}/requeue?{parameters}")
}

/// Whether the connection of a store is encrypted.
fn is_encrypted(server: &PostgresServer) -> bool {
    let sql = "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) \
               where application_name = 'requeue'";
    server.query(sql) == "t"
}

fn error(url: &str) -> PostgresConnectError {
    match block_on(PostgresStore::connect_with(url, fresh())) {
        Ok(_) => panic!("{url} is accepted"),
        Err(error) => error,
    }
}

#[test]
fn a_connection_is_encrypted_unless_the_url_forbids_it() {
    let [_, newest] = PostgresVersion::all();
    let server = PostgresServer::with_tls(&newest, PostgresTls::Allowed, &[]);
    for (parameters, encrypted) in [
        ("", true),
        ("sslmode=prefer", true),
        ("sslmode=require", true),
        ("sslmode=disable", false),
    ] {
        let store = connect(&url(&server, "127.0.0.1", parameters), fresh());
        put_all(&store, vec![put("a")]);
        assert_eq!(is_encrypted(&server), encrypted, "{parameters}");
        drop(store);
        let sessions = "select count(*) from pg_stat_activity where application_name = 'requeue'";
        requeue_testkit::servers::until("it ends", || server.query(sessions) == "0");
    }
}

#[test]
fn a_server_without_tls_is_used_only_if_the_url_allows_it() {
    let server = PostgresServer::start();
    drop(connect(&url(&server, "127.0.0.1", "sslmode=prefer"), fresh()));
    for mode in ["require", "verify-ca&sslrootcert=/dev/null", "verify-full&sslrootcert=/dev/null"]
    {
        let error = error(&url(&server, "127.0.0.1", &format!("sslmode={mode}")));
        assert!(
            error.to_string().contains("TLS") || error.to_string().contains("no cert"),
            "{error}"
        );
    }
}

#[test]
fn the_certificate_and_the_name_of_the_server_are_verified_if_the_url_demands_it() {
    let server = PostgresServer::with_tls(&PostgresVersion::chosen(), PostgresTls::Required, &[]);
    let other = PostgresServer::with_tls(&PostgresVersion::chosen(), PostgresTls::Required, &[]);
    let right = "sslrootcert=DIR/ca.crt";
    let wrong = format!("sslrootcert={}/ca.crt", other.dir().display());
    // The certificate is for 127.0.0.1.
    for (host, mode, root, is_accepted) in [
        ("127.0.0.1", "verify-full", right, true),
        ("127.0.0.1", "verify-ca", right, true),
        ("127.0.0.1", "require", right, true),
        ("127.0.0.1", "verify-full", &wrong, false),
        ("127.0.0.1", "verify-ca", &wrong, false),
        ("127.0.0.1", "require", &wrong, false),
        ("localhost", "verify-ca", right, true),
        ("localhost", "verify-full", right, false),
    ] {
        let url = url(&server, host, &format!("sslmode={mode}&{root}"));
        if is_accepted {
            drop(connect(&url, fresh()));
        } else {
            let error = error(&url).to_string();
            assert!(error.contains("invalid peer certificate"), "{error}");
        }
    }
    let error = error(&url(&server, "127.0.0.1", "sslmode=disable"));
    assert!(matches!(error, PostgresConnectError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("no pg_hba.conf entry"), "{error}");
}

#[test]
fn a_certificate_of_the_client_is_sent_if_the_url_names_it() {
    let version = PostgresVersion::chosen();
    let server = PostgresServer::with_tls(&version, PostgresTls::ClientCertificate, &[]);
    let own =
        "sslmode=verify-full&sslrootcert=DIR/ca.crt&sslcert=DIR/client.crt&sslkey=DIR/client.key";
    put_all(&connect(&url(&server, "127.0.0.1", own), fresh()), vec![put("a")]);
    let none = error(&url(&server, "127.0.0.1", "sslmode=verify-full&sslrootcert=DIR/ca.crt"));
    assert!(none.to_string().contains("valid client certificate"), "{none}");
    for (parameters, reason) in [
        ("sslmode=require&sslcert=DIR/client.crt", "sslcert and sslkey must be set together"),
        ("sslmode=verify-full&sslrootcert=DIR/absent.crt", "absent.crt"),
        ("sslmode=verify-full&sslrootcert=DIR/client.key", "contains no certificate"),
        ("sslmode=sometimes", "it must be disable, prefer, require, verify-ca or verify-full"),
    ] {
        let error = error(&url(&server, "127.0.0.1", parameters));
        let is_local =
            matches!(error, PostgresConnectError::Tls { .. } | PostgresConnectError::Url { .. });
        assert!(is_local && error.to_string().contains(reason), "{error}");
    }
}

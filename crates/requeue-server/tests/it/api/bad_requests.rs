//! Requests that violate HTTP, and slow clients: they are rejected or disconnected, have no effect,
//! and do not affect other clients.

use crate::api::support::{Client, JSON, Server, TestResponse, detail, request};
use requeue_server::Limits;
use requeue_server::listen::Options;
use serde_json::json;
use std::time::Duration;

/// A timeout that the test reaches.
const SOON: Duration = Duration::from_millis(100);

/// A server with a job that must still exist at the end.
fn server(options: Options) -> Server {
    let server = Server::with(Limits::default(), options);
    server.call("PUT", "/v1/kinds/kept/jobs/kept", json!({"body": "kept"})).json();
    server
}

/// Asserts that the server still works and that only the job exists.
#[track_caller]
fn assert_unaffected(server: &Server) {
    assert_eq!(server.get("/v1/kinds/kept/jobs/kept").json()["body"], "kept");
    let kinds = server.get("/v1/kinds").json();
    assert_eq!(kinds["kinds"].as_array().map(Vec::len), Some(1), "{kinds}");
    assert_eq!(kinds["kinds"][0]["pending"], 1);
}

/// Sends these bytes, and returns all responses until the server closes the connection.
fn responses(server: &Server, bytes: &[u8]) -> Vec<TestResponse> {
    let mut client = server.client();
    client.send(bytes);
    std::iter::from_fn(|| client.try_response("GET")).collect()
}

/// Does the same, and closes the sending half of the connection.
fn cut(server: &Server, bytes: &[u8]) -> Vec<TestResponse> {
    let mut client = server.client();
    client.send(bytes);
    client.end();
    std::iter::from_fn(|| client.try_response("GET")).collect()
}

#[test]
fn invalid_requests_are_rejected_and_the_connection_closed() {
    let server = server(Options::default());
    let put = "PUT /v1/kinds/mail/jobs/a HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let (fields, long) = ("x: y\r\n".repeat(101), "x".repeat(40_000));
    for (text, statuses) in [
        ("nonsense\r\n\r\n".to_owned(), &[400][..]),
        ("\0\0\0\0".to_owned(), &[400]),
        ("GET\r\n\r\n".to_owned(), &[400]),
        ("GET /v1/kinds\r\n\r\n".to_owned(), &[400]),
        ("GET /v1/kinds HTTP/9.9\r\n\r\n".to_owned(), &[400]),
        ("GET /v1/kinds HTTP/2.0\r\n\r\n".to_owned(), &[400]),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), &[]),
        ("GET /v1/ki\u{1}nds HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), &[400]),
        ("GET v1/kinds HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(), &[400]),
        ("GET /v1/kinds HTTP/1.1\r\nno colon\r\n\r\n".to_owned(), &[400]),
        ("GET /v1/kinds HTTP/1.1\r\nx : y\r\n\r\n".to_owned(), &[400]),
        ("GET /v1/kinds HTTP/1.1\r\n x: y\r\n\r\n".to_owned(), &[400]),
        (format!("GET /v1/kinds HTTP/1.1\r\n{fields}\r\n"), &[431]),
        (format!("GET /v1/kinds HTTP/1.1\r\nx: {long}\r\n\r\n"), &[431]),
        (format!("GET /v1/kinds?{long} HTTP/1.1\r\nhost: x\r\n\r\n"), &[431, 414]),
        (format!("{put}content-length: -1\r\n\r\n{{}}"), &[400]),
        (format!("{put}content-length: two\r\n\r\n{{}}"), &[400]),
        (format!("{put}content-length: 99999999999999999999\r\n\r\n{{}}"), &[400]),
        (format!("{put}content-length: 2\r\ncontent-length: 3\r\n\r\n{{}}"), &[400]),
        (format!("{put}transfer-encoding: chunked\r\n\r\nzz\r\n{{}}\r\n0\r\n\r\n"), &[400]),
        (format!("{put}transfer-encoding: chunked\r\n\r\n2\r\n{{}}xx0\r\n\r\n"), &[400]),
        (format!("{put}transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{{}}\r\n"), &[400]),
        (format!("{put}transfer-encoding: chunked\r\n\r\n-2\r\n{{}}\r\n0\r\n\r\n"), &[400]),
        (format!("{put}transfer-encoding: nonsense\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"), &[400]),
        (
            format!("{put}transfer-encoding: chunked, identity\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"),
            &[400],
        ),
    ] {
        let got: Vec<u16> =
            responses(&server, text.as_bytes()).iter().map(|one| one.status).collect();
        let shown: String = text.chars().take(120).collect();
        assert!(
            got.len() <= 1 && got.iter().all(|status| statuses.contains(status)),
            "{shown:?}: {got:?}"
        );
        assert_eq!(got.is_empty(), statuses.is_empty(), "{shown:?}");
        assert_unaffected(&server);
    }
}

#[test]
fn a_request_with_two_lengths_is_rejected() {
    let server = server(Options::default());
    // By its content length, the body of the first request contains a second one.
    let hidden = "PUT /v1/kinds/hidden/jobs/a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                  content-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    let two = |length: &str| {
        format!(
            "POST /v1/reap HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{length}\
             transfer-encoding: chunked\r\n\r\n9\r\n{{\"max\":1}}\r\n0\r\n\r\n{hidden}"
        )
    };
    let statuses = |text: String| -> Vec<u16> {
        responses(&server, text.as_bytes()).iter().map(|one| one.status).collect()
    };
    // By its chunks, it is a request and a second one. The second must not be served: a proxy in
    // front may have read the bytes in the other way (request smuggling).
    let got = statuses(two("content-length: 5\r\n"));
    assert!(matches!(*got, [200] | [400]), "{got:?}");
    assert_unaffected(&server);
    assert_eq!(statuses(two("")), [200, 200], "without the length it is served");
}

#[test]
fn an_incomplete_request_has_no_effect() {
    let server = server(Options::default());
    let whole = request("PUT", "/v1/kinds/mail/jobs/a", JSON, br#"{"body": 1}"#);
    for length in 1..whole.len() {
        let got = cut(&server, &whole[..length]);
        assert!(got.iter().all(|one| one.status == 400), "{length}: {got:?}");
    }
    let chunked = "PUT /v1/kinds/mail/jobs/a HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                   transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    for length in 1..chunked.len() {
        let got = cut(&server, &chunked.as_bytes()[..length]);
        assert!(got.iter().all(|one| one.status == 400), "{length}: {got:?}");
    }
    // The client closes the whole connection.
    for length in [10, whole.len() - 11, whole.len() - 1] {
        let mut client = server.client();
        client.send(&whole[..length]);
        drop(client);
    }
    assert_unaffected(&server);
    let mut client = server.client();
    client.send(chunked.as_bytes());
    assert_eq!(client.response().status, 200, "the whole of it is one");
}

#[test]
fn garbage_after_a_valid_request_is_rejected() {
    let server = server(Options::default());
    let mut bytes = request("GET", "/healthz", "", b"");
    bytes.extend(request("GET", "/v1/kinds/kept/jobs/kept", "", b""));
    bytes.extend(b"\xff\xfe garbage\r\n\r\n");
    bytes.extend(request("DELETE", "/v1/kinds/kept/jobs/kept", "", b""));
    let got: Vec<u16> = responses(&server, &bytes).iter().map(|one| one.status).collect();
    assert_eq!(got, [200, 200, 400], "nothing behind it is done");
    assert_unaffected(&server);
    // An unexpected body is skipped or ends the connection; it is never taken for a request.
    let mut bytes =
        request("GET", "/healthz", JSON, b"DELETE /v1/kinds/kept/jobs/kept HTTP/1.1\r\n\r\n");
    bytes.extend(b"GET /v1/kinds HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let got: Vec<u16> = responses(&server, &bytes).iter().map(|one| one.status).collect();
    assert!(got == [200, 200] || got == [200], "{got:?}");
    assert_unaffected(&server);
}

#[test]
fn http_1_0_clients_are_served() {
    let server = server(Options::default());
    let got = responses(&server, b"GET /v1/kinds/kept/jobs/kept HTTP/1.0\r\n\r\n");
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].json()["body"], "kept");
    let put = "PUT /v1/kinds/kept/jobs/kept HTTP/1.0\r\ncontent-type: application/json\r\n\
               content-length: 15\r\n\r\n{\"body\":\"kept\"}";
    assert_eq!(responses(&server, put.as_bytes())[0].json()["outcome"], "updated");
    // An export has no content length, and HTTP/1.0 has no chunks.
    let got = responses(&server, b"GET /v1/export HTTP/1.0\r\n\r\n");
    assert!(got[0].text().trim_end().lines().last().is_some_and(|line| line.contains("end")));
    // Without a content length there is no body.
    let got = responses(
        &server,
        b"POST /v1/reap HTTP/1.0\r\ncontent-type: application/json\r\n\r\n{\"max\":1}",
    );
    assert_eq!(got[0].status, 400);
    assert_unaffected(&server);
}

/// Asserts the response to a request that was not read completely.
#[track_caller]
fn assert_rejected(response: &TestResponse, name: &str, word: &str) {
    let problem = response.is(name);
    assert!(detail(&problem).contains(word), "{word}: {problem}");
}

#[test]
fn a_request_that_is_too_large_is_rejected_before_it_is_read() {
    let server = server(Options { max_request: 1000, ..Options::default() });
    let large = vec![b' '; 1001];
    let path = "/v1/kinds/mail/jobs/a";
    let mut client = server.client();
    client.send(&request("PUT", path, JSON, &large));
    assert_rejected(&client.response(), "too-large", "1000 bytes");
    let mut client = server.client();
    let head = format!(
        "PUT {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\n\r\n3e9\r\n"
    );
    client.send(&[head.as_bytes(), &large, b"\r\n0\r\n\r\n"].concat());
    assert_rejected(&client.response(), "too-large", "1000 bytes");
    // The maximum size.
    let mut client = server.client();
    let fits = [&b"{}"[..], &large[..998]].concat();
    assert_eq!(
        client.send_json("PUT", "/v1/kinds/kept/jobs/kept", &fits).json()["outcome"],
        "updated"
    );
    client.call("PUT", "/v1/kinds/kept/jobs/kept", json!({"body": "kept"})).json();
    assert_unaffected(&server);
}

#[test]
fn a_client_that_is_too_slow_times_out() {
    let options = Options { body_timeout: SOON, head_timeout: SOON, ..Options::default() };
    let server = server(options);
    let whole = request("PUT", "/v1/kinds/mail/jobs/a", JSON, br#"{"body": 1}"#);
    let mut client = server.client();
    client.send(&whole[..whole.len() - 1]);
    assert_rejected(&client.response(), "too-slow", "100ms");
    // Also for imports, which may have any size.
    let mut client = server.client();
    client.send(b"POST /v1/import HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{\"");
    assert_rejected(&client.response(), "too-slow", "100ms");
    // An unfinished head gets no response.
    let mut client = server.client();
    client.send(b"GET /v1/kinds HTTP/1.1\r\nhost: x\r\nx: ");
    assert!(client.try_response("GET").is_none());
    assert_unaffected(&server);
}

/// Sends a request that is padded with white space to nearly 1 MiB, without its last byte.
fn send_padded(server: &Server, method: &str, path: &str, body: &str) -> Client {
    let mut client = server.client();
    let padded = format!("{body}{}", " ".repeat(1_000_000 - body.len()));
    let bytes = request(method, path, JSON, padded.as_bytes());
    client.send(&bytes[..bytes.len() - 1]);
    client
}

#[test]
fn slow_and_padded_requests_do_not_affect_others() {
    let options = Options {
        max_request: 1 << 20,
        max_buffered: 4 << 20,
        slow_after: SOON,
        ..Options::default()
    };
    let server = server(options);
    let put_and_ack = |id: &str, body: String| {
        let mut client = server.client();
        let path = format!("/v1/kinds/mail/jobs/{id}");
        client.call("PUT", &path, json!({"body_text": body})).json();
        let claimed = client.call("POST", "/v1/claim", json!({"kinds": ["mail"]})).json();
        let lease = json!({"receipt": claimed["jobs"][0]["receipt"]});
        let acked = client.call("POST", "/v1/ack", json!({"leases": [lease]}));
        assert_eq!(acked.results()[0]["result"], "done");
    };
    // They have sent nearly everything, and send no more.
    let slow: Vec<Client> =
        (0..8).map(|_| send_padded(&server, "PUT", "/v1/kinds/mail/jobs/a", "{}")).collect();
    put_and_ack("small", String::new());
    put_and_ack("large", "x".repeat(900_000));
    drop(slow);
    // They are complete and wait for jobs: what they were padded with is not kept meanwhile.
    let wait = r#"{"kinds":["none"],"wait":"1m"}"#;
    let waiting: Vec<Client> = (0..8)
        .map(|count| {
            let path = if count % 2 == 0 { "/v1/claim" } else { "/v1/wait" };
            let mut client = send_padded(&server, "POST", path, wait);
            client.send(b" ");
            server.until_waiting(count + 1);
            client
        })
        .collect();
    put_and_ack("small", String::new());
    put_and_ack("large", "x".repeat(900_000));
    drop(waiting);
    server.until_waiting(0);
    assert_unaffected(&server);
}

#[test]
fn a_request_must_have_one_host() {
    let server = server(Options::default());
    let path = "/v1/kinds/kept/jobs/kept";
    for (line, hosts, status) in [
        (path, &["localhost"][..], 200),
        (path, &["localhost:7654"], 200),
        (path, &["[::1]:7654"], 200),
        (path, &[""], 200),
        ("http://localhost/v1/kinds", &["LOCALHOST"], 200),
        // Two hosts, of which a proxy may have looked at the other one.
        (path, &["localhost", "localhost"], 400),
        (path, &["localhost", "example.org"], 400),
        ("http://example.org/v1/kinds", &["localhost"], 400),
        (path, &[], 400),
        (path, &["a b"], 400),
        (path, &["user@localhost"], 400),
        (path, &["localhost:port"], 400),
        (path, &["localhost/v1"], 400),
        // Targets that are not a path.
        ("*", &["localhost"], 404),
        ("localhost:80", &["localhost"], 400),
    ] {
        let hosts: String = hosts.iter().map(|host| format!("host: {host}\r\n")).collect();
        let text = format!("GET {line} HTTP/1.1\r\n{hosts}connection: close\r\n\r\n");
        let got = responses(&server, text.as_bytes());
        assert_eq!(got.len(), 1, "{text}");
        assert_eq!(got[0].status, status, "{text}: {}", got[0].text());
        if status == 400 && !line.starts_with("localhost") {
            assert!(detail(&got[0].is("malformed")).contains("Host"), "{text}");
        }
    }
    assert_unaffected(&server);
}

//! Kinds whose jobs the server sends to a URL.

use crate::api::support::{Server, detail, until};
use crate::support;
use requeue_jobs::{Jobs, Kind, PushSetting, Settings, Store, WallClock};
use requeue_redis::RedisStore;
use requeue_server::{App, Limits};
use requeue_testkit::block_on;
use requeue_testkit::servers::RedisServer;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

const KIND: &str = "/v1/kinds/order.close";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const ALLOWED: &str = "127.0.0.0/8";

/// A request that a receiver got.
#[derive(Debug, Clone)]
struct Received {
    headers: BTreeMap<String, String>,
    body: String,
}

/// A server that responds to every request with 200.
struct Receiver {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let received = Arc::new(Mutex::default());
        let all = Arc::clone(&received);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let all = Arc::clone(&all);
                thread::spawn(move || while respond(&stream, &all).is_some() {});
            }
        });
        Receiver { address, received }
    }

    fn url(&self) -> String {
        format!("http://{}/hooks", self.address)
    }

    fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no panic").clone()
    }
}

/// Reads a request and responds to it. Returns `None` at the end of the connection.
fn respond(mut stream: &TcpStream, all: &Mutex<Vec<Received>>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut headers = BTreeMap::new();
    let mut line = String::new();
    while reader.read_line(&mut line).ok()? > 0 && line != "\r\n" {
        if let Some((name, value)) = line.trim_end().split_once(": ") {
            headers.insert(name.to_owned(), value.to_owned());
        }
        line.clear();
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).ok()?;
    all.lock().expect("no panic").push(Received { headers, body });
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()
}

fn push(server: &Server, push: Value) -> Value {
    server.call("PATCH", KIND, json!({"push": push})).json()["push"].take()
}

fn put(server: &Server, id: &str) {
    server.call("PUT", &format!("{KIND}/jobs/{id}"), json!({"body": {"order": id}})).json();
}

fn is_gone(server: &Server, id: &str) -> bool {
    server.get(&format!("{KIND}/jobs/{id}")).status == 404
}

#[test]
fn a_job_is_sent_to_the_url_and_acked() {
    let (server, receiver) = (Server::pushing(ALLOWED), Receiver::start());
    put(&server, "before");
    let headers = json!({"Authorization": "Bearer 7"});
    let mut setting = json!({"url": receiver.url(), "headers": headers, "secrets": [SECRET]});
    // A slow machine must not lead to a second delivery.
    setting["timeout"] = json!("1h");
    push(&server, setting);
    put(&server, "after");
    until("both are acked", || is_gone(&server, "before") && is_gone(&server, "after"));
    let done = r#"requeue_push_deliveries_total{kind="order.close",result="done"} 2"#;
    until("both are counted", || server.get("/metrics").text().contains(done));
    let metrics = server.get("/metrics").text().to_owned();
    let open = format!("requeue_push_circuit_open{{target=\"http://{}\"}} 0", receiver.address);
    for line in [done, &open, "requeue_push_duration_seconds_count 2"] {
        assert!(metrics.lines().any(|found| found == line), "{line} in:\n{metrics}");
    }
    let received = receiver.received();
    let mut bodies: Vec<_> = received.iter().map(|request| request.body.as_str()).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, [r#"{"order":"after"}"#, r#"{"order":"before"}"#]);
    for Received { headers, .. } in &received {
        assert_eq!(headers["authorization"], "Bearer 7");
        assert_eq!(headers["requeue-kind"], "order.close");
        assert!(headers["webhook-signature"].starts_with("v1,"));
    }
}

#[test]
fn secrets_and_header_values_are_in_no_response_and_in_no_export() {
    let server = Server::start();
    let set = json!({
        "url": "https://example.com/hooks", "headers": {"Authorization": "Bearer 7"},
        "secrets": [SECRET],
    });
    let shown = json!({
        "url": "https://example.com/hooks", "headers": {"authorization": "…"}, "timeout": "10s",
        "concurrency": 10, "secrets": ["whsec_…LaSw"], "format": "plain",
    });
    assert_eq!(push(&server, set), shown);
    put(&server, "a");
    assert_eq!(server.get(KIND).json()["settings"]["push"], shown);
    assert_eq!(server.get(&format!("{KIND}/settings")).json()["push"], shown);
    for path in [KIND, "/v1/kinds", "/v1/export", "/v1/stats", "/metrics"] {
        let text = server.get(path).text().to_owned();
        assert!(!text.contains("Bearer 7") && !text.contains("MfKQ9r8G"), "{path}: {text}");
    }
    assert_eq!(server.get("/v1/kinds").json()["kinds"][0]["push"], true);
    let settings = server.ask(async |store| store.settings(kind()).await.expect("it works"));
    let secrets = settings.push.as_ref().expect("it is set").secrets.expose();
    assert!(secrets.contains(SECRET) && secrets.contains("Bearer 7"));
    assert!(!format!("{settings:?}").contains("MfKQ9r8G"));
}

fn kind() -> Kind {
    Kind::new("order.close").expect("a valid kind")
}

fn stored(server: &Server) -> PushSetting {
    let settings = server.ask(async |store| store.settings(kind()).await);
    settings.expect("it works").push.expect("it is set")
}

#[test]
fn a_patch_keeps_what_it_leaves_out_and_null_resets_it() {
    let server = Server::start();
    let headers = json!({"x-a": "1", "x-b": "2"});
    push(&server, json!({"url": "https://a.test/1", "headers": headers, "secrets": [SECRET]}));
    let shown = push(&server, json!({"url": "https://a.test/2", "timeout": "1m"}));
    assert_eq!((&shown["url"], &shown["timeout"]), (&json!("https://a.test/2"), &json!("1m")));
    assert!(stored(&server).secrets.expose().contains(SECRET));
    // A change of another setting keeps it, too.
    let patch = server.call("PATCH", KIND, json!({"max_attempts": 3})).json();
    assert_eq!(patch["push"], shown);
    let shown = push(&server, json!({"headers": {"X-A": null, "X-C": "3"}, "timeout": null}));
    assert_eq!(shown["headers"], json!({"x-b": "…", "x-c": "…"}));
    assert_eq!(shown["timeout"], "10s");
    let shown = push(&server, json!({"headers": null, "secrets": null}));
    assert_eq!((&shown["headers"], &shown["secrets"]), (&json!({}), &json!([])));
    assert!(!stored(&server).secrets.expose().contains(SECRET));
    assert_eq!(server.call("PUT", KIND, json!({})).json()["push"], Value::Null);
}

#[test]
fn secrets_are_not_sent_to_another_origin_unless_they_are_given_again() {
    let server = Server::start();
    let headers = json!({"authorization": "Bearer 7"});
    let set = json!({"url": "https://a.test/", "headers": headers, "secrets": [SECRET]});
    push(&server, set);
    let before = stored(&server);
    let header = json!({"authorization": "Bearer 8"});
    for (patch, field) in [
        (json!({"url": "https://b.test/"}), "push.headers"),
        (json!({"url": "http://a.test/"}), "push.headers"),
        (json!({"url": "https://a.test:8443/"}), "push.headers"),
        (json!({"url": "https://b.test/", "headers": {"x-other": "1"}}), "push.headers"),
        (json!({"url": "https://b.test/", "headers": header}), "push.secrets"),
        (json!({"url": "https://b.test/", "headers": null}), "push.secrets"),
        (json!({"url": "https://b.test/", "secrets": [OTHER_SECRET]}), "push.headers"),
    ] {
        let problem = server.call("PATCH", KIND, json!({"push": patch})).is("invalid");
        assert_eq!(problem["field"], field, "{problem}");
        assert!(detail(&problem).contains("give the"), "{problem}");
    }
    assert_eq!(stored(&server), before);
    push(&server, json!({"url": "https://A.test:443/x"}));
    push(&server, json!({"url": "https://b.test/", "headers": header, "secrets": [OTHER_SECRET]}));
    let secrets = stored(&server).secrets;
    assert!(!secrets.expose().contains(SECRET) && !secrets.expose().contains("Bearer 7"));
}

#[test]
fn an_invalid_setting_is_rejected_with_the_name_of_its_field() {
    let server = Server::start();
    let with = |field: &str, value: Value| {
        let mut push = json!({"url": "https://a.test/"});
        push[field] = value;
        push
    };
    let three = [SECRET, SECRET, SECRET];
    for (push, field, text) in [
        (json!({}), "push.url", "missing"),
        (with("url", json!("ftp://a.test/")), "push.url", "http or https"),
        (with("headers", json!({"host": "b"})), "push.headers", "reserved"),
        (with("headers", json!({"A": "1", "a": "2"})), "push.headers", "twice"),
        (with("headers", json!({"a": "…"})), "push.headers", "leave the field out to keep it"),
        (with("timeout", json!("2h")), "push.timeout", "100ms to 1h"),
        (with("concurrency", json!(0)), "push.concurrency", "1 to 10000"),
        (with("secrets", json!(["hunter2"])), "push.secrets", "whsec_"),
        (with("secrets", json!(three)), "push.secrets", "the limit is 2"),
        (with("secrets", json!(["whsec_…LaSw"])), "push.secrets", "leave the field out"),
        (with("format", json!("xml")), "push.format", "cloudevents"),
    ] {
        for method in ["PUT", "PATCH"] {
            let problem = server.call(method, KIND, json!({"push": push})).is("invalid");
            assert_eq!(problem["field"], field, "{push}: {problem}");
            assert!(detail(&problem).contains(text), "{push}: {problem}");
            assert!(!detail(&problem).contains("hunter2"), "{problem}");
        }
    }
    for push in [json!([]), json!("https://a.test/"), with("uri", json!(1)), with("url", json!(7))]
    {
        server.call("PUT", KIND, json!({"push": push})).is("malformed");
    }
    assert_eq!(server.get("/v1/kinds").json(), json!({"kinds": []}));
}

#[test]
fn a_kind_that_is_pushed_cannot_be_claimed_until_the_setting_is_removed() {
    let server = Server::start();
    let claim = json!({"kinds": ["mail", "order.close"]});
    put(&server, "a");
    push(&server, json!({"url": "https://a.test/"}));
    let problem = server.call("POST", "/v1/claim", claim.clone()).is("pushed");
    assert_eq!(problem["field"], "kinds[1]");
    assert!(detail(&problem).contains("order.close"), "{problem}");
    server.call("POST", "/v1/claim", json!({"kinds": ["mail"]})).json();
    assert_eq!(push(&server, Value::Null), Value::Null);
    let claimed = server.call("POST", "/v1/claim", claim).json();
    assert_eq!(claimed["jobs"][0]["id"], "a");
}

#[test]
fn a_setting_that_another_node_stored_is_noticed() {
    let receiver = Receiver::start();
    let server = Server::pushing(ALLOWED);
    let url = receiver.url();
    let push = PushSetting { config: json!({"url": url}).to_string(), secrets: Default::default() };
    let mut settings = Settings::default();
    settings.push = Some(push);
    server.ask(async |store| store.set(kind(), settings).await).expect("it works");
    // A change of any kind reads all settings again; otherwise, that takes ten seconds.
    server.call("PUT", "/v1/kinds/other", json!({"push": {"url": "https://a.test/"}})).json();
    put(&server, "a");
    until("it is acked", || is_gone(&server, "a"));
    let claim = || server.call("POST", "/v1/claim", json!({"kinds": ["order.close"]}));
    until("it cannot be claimed", || claim().status == 409);
}

#[test]
fn nothing_is_sent_to_an_internal_address_that_is_not_allowed() {
    let (server, receiver) = (Server::pushing("10.0.0.0/8"), Receiver::start());
    push(&server, json!({"url": receiver.url()}));
    put(&server, "a");
    let failures = || server.get(&format!("{KIND}/jobs/a")).json()["failures"].take();
    until("the delivery fails", || failures()[0]["error"].is_string());
    let failures = failures();
    let error = failures[0]["error"].as_str().expect("a text");
    assert!(error.contains("127.0.0.1"), "{error}");
    let state = server.get(KIND).json()["push_state"].take();
    assert_eq!((&state["last_error"]["error"], &state["problem"]), (&json!(error), &Value::Null));
    assert_eq!(state["target"], format!("http://{}", receiver.address));
    assert!(receiver.received().is_empty());
}

#[test]
fn a_kind_that_was_imported_without_its_secrets_is_delivered_once_they_are_set() {
    let (from, to, receiver) = (Server::start(), Server::pushing(ALLOWED), Receiver::start());
    push(&from, json!({"url": receiver.url(), "headers": {"x-a": "1"}, "secrets": [SECRET]}));
    let export = from.get("/v1/export").text().to_owned();
    to.client().send_json("POST", "/v1/import", export.as_bytes()).json();
    let problem = || to.get(KIND).json()["push_state"]["problem"].take();
    until("it is noticed", || problem().is_string());
    let shown = to.get(KIND).json()["settings"]["push"].take();
    assert_eq!((&shown["headers"], &shown["secrets"]), (&json!({"x-a": "…"}), &json!([])));
    let claim = || to.call("POST", "/v1/claim", json!({"kinds": ["order.close"]}));
    until("it cannot be claimed", || claim().status == 409);
    put(&to, "a");
    for (patch, field) in [
        (json!({"timeout": "5s"}), "push.headers"),
        (json!({"headers": null}), "push.secrets"),
        (json!({"secrets": [SECRET]}), "push.headers"),
    ] {
        let problem = to.call("PATCH", KIND, json!({"push": patch})).is("invalid");
        assert_eq!(problem["field"], field, "{problem}");
    }
    assert!(receiver.received().is_empty());
    push(&to, json!({"headers": {"x-a": "1"}, "secrets": [SECRET]}));
    until("it is acked", || is_gone(&to, "a"));
    assert!(receiver.received()[0].headers.contains_key("webhook-signature"));
    until("the problem is over", || problem().is_null());
}

#[test]
fn an_export_by_the_client_is_imported_without_being_delivered_unsigned() {
    let (from, to) = (Server::start(), Server::start());
    push(&from, json!({"url": "https://a.test/", "headers": {"x-a": "1"}, "secrets": [SECRET]}));
    let settings = block_on(support::client(from.address).settings(kind())).expect("it works");
    to.ask(async |store| store.set(kind(), settings).await).expect("it works");
    let shown = to.get(KIND).json()["settings"]["push"].take();
    assert_eq!((&shown["headers"], &shown["secrets"]), (&json!({"x-a": "…"}), &json!([])));
    let patch = json!({"push": {"headers": {"x-a": "1"}}});
    let problem = to.call("PATCH", KIND, patch).is("invalid");
    assert_eq!(problem["field"], "push.secrets");
    // A setting without secrets can be copied from a store to a server.
    push(&from, json!({"headers": null, "secrets": null}));
    let mut settings = Settings::default();
    settings.push = Some(stored(&from));
    block_on(support::client(to.address).set(kind(), settings)).expect("it works");
    assert_eq!(to.get(KIND).json()["settings"]["push"]["headers"], json!({}));
}

#[test]
fn the_client_keeps_a_setting_that_it_has_read_and_rejects_one_of_another_server() {
    let (server, other) = (Server::start(), Server::start());
    push(&server, json!({"url": "https://a.test/", "secrets": [SECRET]}));
    let before = stored(&server);
    let client = support::client(server.address);
    let mut settings = block_on(client.settings(kind())).expect("it works");
    settings.max_attempts = 7;
    block_on(client.set(kind(), settings.clone())).expect("it works");
    assert_eq!(stored(&server), before);
    assert_eq!(block_on(client.settings(kind())).expect("it works").max_attempts, 7);
    let error = block_on(support::client(other.address).set(kind(), settings.clone()));
    assert!(error.expect_err("the secret is unknown").to_string().contains("masked"));
    settings.push = Some(PushSetting { config: "[]".to_owned(), secrets: Default::default() });
    let error = block_on(client.set(kind(), settings)).expect_err("it is no object");
    assert!(error.to_string().contains("not a JSON object"), "{error}");
}

#[test]
fn two_servers_on_one_redis_deliver_each_job_once() {
    let (redis, receiver) = (RedisServer::start(), Receiver::start());
    let nodes: Vec<_> = (0..2).map(|_| node(&redis.url())).collect();
    let clients: Vec<_> = nodes.iter().map(|(_, server)| server.client()).collect();
    for client in &clients {
        let mut settings = Settings::default();
        let config =
            json!({"url": receiver.url(), "secrets": [SECRET], "timeout": "1h"}).to_string();
        settings.push = Some(PushSetting { config, secrets: Default::default() });
        block_on(client.set(kind(), settings)).expect("it works");
    }
    let ids: Vec<_> = (0..40).map(|n| n.to_string()).collect();
    for (n, id) in ids.iter().enumerate() {
        let jobs = Jobs::new(Arc::new(clients[n % 2].clone()));
        block_on(jobs.put("order.close", id, id.as_str()).into_future()).expect("it works");
    }
    let left = || block_on(clients[0].kinds()).expect("it works")[0].counts;
    until("all are acked", || left().pending + left().leased == 0);
    let mut received: Vec<usize> = receiver
        .received()
        .iter()
        .map(|request| request.headers["requeue-id"].parse().unwrap())
        .collect();
    received.sort_unstable();
    assert_eq!(received, (0..40).collect::<Vec<_>>());
}

fn node(url: &str) -> (App, support::Server) {
    let store = block_on(RedisStore::connect(url)).expect("the server is up");
    let mut limits = Limits::default();
    limits.push.allowed = ALLOWED.parse().expect("valid targets");
    let app = App::new(Arc::new(store), WallClock::system(), limits);
    let server = support::Server::in_full(&app);
    (app, server)
}

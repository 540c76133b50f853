//! The move from rabbitmq-delayed-message-exchange, as `docs/bridge.md` describes it.

use super::client::{ask, python, rabbit};
use super::process::{BridgeProcess, count, serve};
use crate::support::{Dir, Done, Server, until};
use requeue_http::times::parse_time;
use requeue_jobs::Timestamp;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;

/// What the password of the user `shop` begins with. Nothing may show it.
const PASSWORD: &str = "hunter2";

#[test]
fn a_client_of_the_plugin_only_changes_the_exchange() {
    let Some(rabbit) = rabbit() else { return };
    let dir = Dir::new();
    rabbit.ctl(&["add_user", "shop", &format!("{PASSWORD}/@:")]);
    rabbit.ctl(&["set_permissions", "shop", ".*", ".*", ".*"]);
    // The exchange has its real type.
    ask(&dir, &rabbit, &["declare", "orders", "archive", "archive"]);
    let mut command = serve(&dir, &[&rabbit.address()], &["--data", "d", "--log", "trace"]);
    command.stderr(File::create(dir.path("serve.log")).unwrap());
    let server = Server::of(command);
    let url = |user: &str, exchange: &str| format!("amqp://{user}{}{exchange}", rabbit.address());
    let shop = format!("shop:{PASSWORD}%2F%40%3A@");
    let mut command = dir.command(&["bridge", "orders", "--server", &server.url, "--log", "trace"]);
    command.env("REQUEUE_BRIDGE_FROM", url(&shop, "/orders.delayed"));
    command.env("REQUEUE_BRIDGE_TO", url(&shop, "/orders"));
    let bridge = BridgeProcess::of(&dir, command);
    bridge.await_consuming();

    let args = [&url(&shop, ""), "orders.delayed"];
    let output = python(&dir, "plugin_client.py", &args).output().expect("it starts");
    check(&Done::new(&args, output).ok().lines());

    // Nothing is left that could arrive a second time.
    until("the last ack", || (count(&dir, &server, "orders") == 0).then_some(()));
    assert_eq!(ask(&dir, &rabbit, &["drain", "billing"]).out, "");
    let stopped = bridge.stop(Signal::TERM).ok();
    assert_eq!(stopped.out, "6 messages put, 0 jobs cancelled, 0 messages rejected\n");

    let wrong = url(&format!("shop:{PASSWORD}-wrong@"), "/orders.delayed");
    let args = ["orders", "--server", &server.url, "--log", "trace"];
    let denied = BridgeProcess::start(&dir, &wrong, &args);
    denied.await_log("ACCESS_REFUSED");
    let denied = denied.stop(Signal::TERM).ok();

    let shown = format!("amqp://shop:…@{}/orders", rabbit.address());
    let text = dir.run(&["kind", "orders", "--server", &server.url]).ok().says(&shown);
    let json = dir.run(&["kind", "orders", "--json", "--server", &server.url]).ok();
    assert_eq!(json.json()["push"]["url"], shown);
    let exported = dir.run(&["export", "-", "--server", &server.url]).ok();
    let api =
        dir.http_body(&server.url, "/v1/kinds/orders") + &dir.http_body(&server.url, "/v1/push");
    drop(server);
    let log = dir.read("serve.log");
    for printed in [&text.out, &json.out, &exported.out, &api, &stopped.err, &denied.err, &log] {
        assert!(!printed.contains(PASSWORD), "{printed}");
    }
}

/// Checks what the program has printed: each message has arrived once, as it was published, in the order of
/// due times, and not early.
fn check(lines: &[Value]) {
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    let id = |line: &Value| line["message_id"].to_string();
    let consumed = of("consumed");
    let mut published: BTreeMap<_, _> =
        of("published").into_iter().map(|line| (id(line), line)).collect();
    assert_eq!((published.len(), consumed.len()), (6, 6), "{lines:#?}");
    let mut last_due = Timestamp::from_millis(0);
    for message in consumed {
        let sent = published.remove(&id(message)).unwrap_or_else(|| panic!("{message:#}"));
        check_contents(sent, message);
        let due = message["headers"]["requeue-due"].as_str().expect("a text");
        let due = parse_time(due, last_due, None).expect("a time");
        assert!(due >= last_due, "in the wrong order: {lines:#?}");
        last_due = due;
        // The delay counts from when the bridge receives the message, in whole milliseconds: not from before the
        // millisecond in which it was published.
        let milliseconds = |at: &Value| at.as_f64().expect("a number") * 1000.0;
        let due_ms = due.as_millis() as f64;
        let delay = sent["delay"].as_f64().unwrap_or(0.0);
        let sent_at = milliseconds(&sent["published_at"]).floor();
        assert!(due_ms >= sent_at + delay, "{sent:#} {message:#}");
        assert!(milliseconds(&message["at"]) >= due_ms, "early: {sent:#} {message:#}");
    }
}

/// Checks that a message was consumed as it was published, except for the headers that `docs/bridge.md` lists.
fn check_contents(sent: &Value, message: &Value) {
    let id = sent["message_id"].as_str().expect("a text");
    let n: u64 = id.strip_prefix("order-").and_then(|n| n.parse().ok()).expect("a number");
    let found = &message["headers"];
    let mut headers = json!({
        "tenant": "acme", "attempt": n, "tags": ["new", "vip"], "vat": {"rate": 19, "due": true},
        "requeue-attempt": "1", "requeue-id": id, "requeue-kind": "orders",
        // These are different each time.
        "requeue-due": found["requeue-due"], "requeue-fence": found["requeue-fence"],
        "x-deduplication-header": found["x-deduplication-header"],
    });
    if let Some(delay) = sent["delay"].as_i64() {
        headers["x-delay"] = json!(-delay);
    }
    let expected = json!({
        "event": "consumed", "at": message["at"], "redelivered": false, "headers": headers,
        "exchange": "orders", "routing_key": (["eu", "us"][n as usize % 2]),
        "message_id": id, "correlation_id": format!("cart-{n}"), "reply_to": "answers",
        "content_type": "application/json", "delivery_mode": 2, "timestamp": 1_790_000_000 + n,
        "type": "order.created", "app_id": "shop", "priority": n,
        "body": format!("{{\"order\": {n}, \"name\": \"Zoë\"}}"),
    });
    assert_eq!(*message, expected);
    assert!(found["x-deduplication-header"].to_string().starts_with(&format!("\"orders/{id}/")));
}

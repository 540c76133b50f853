//! The command line of `requeue bridge`.

use super::process::BridgeProcess;
use crate::support::{Dir, Server};
use rustix::process::Signal;
use serde_json::json;

/// The password in all URLs. Nothing may show it.
const PASSWORD: &str = "hunter2";

#[test]
fn invalid_urls_are_rejected_with_a_reason_and_without_the_password() {
    let dir = Dir::served();
    let at = format!("shop:{PASSWORD}@127.0.0.1:1");
    let to = format!("amqp://{at}/orders");
    let from = format!("amqp://{at}/orders.delayed");
    let rejected = |from: &str, to: &str, reason: &str| {
        let done = dir.ask(&["bridge", "orders", "--from", from, "--to", to]).code(2);
        let done = done.complains(reason);
        assert_eq!(done.out, "");
        assert!(!done.err.contains(PASSWORD), "{done:#?}");
        let json = dir.ask(&["bridge", "orders", "--from", from, "--to", to, "--json"]).code(2);
        assert!(!json.err.contains(PASSWORD), "{json:#?}");
    };
    for (from, reason) in [
        (format!("http://{at}/orders.delayed"), "--from"),
        (format!("{at}/orders.delayed"), "--from"),
        (String::new(), "--from"),
        (format!("amqp://{at}"), "must name the exchange"),
        (format!("amqp://{at}/"), "must name the exchange"),
        (format!("amqp://{at}/a/b/c"), "must be a virtual host and an exchange"),
        (format!("amqp://{at}/orders?queue=delays"), "an exchange and a queue"),
        (format!("amqp://{at}/orders?que=x"), "\"que\" is unknown; there are queue, queue_type"),
        (format!("amqp://{at}/orders?queue_type=lazy"), "quorum or classic"),
        (format!("amqp://{at},other/orders"), "several hosts"),
        (format!("amqp://shop:{PASSWORD}@127.0.0.1:port/orders"), "port"),
        (format!("amqp://{at}/orders#part"), "'#'"),
    ] {
        rejected(&from, &to, reason);
    }
    for (to, reason) in [
        (format!("amqp://{at}"), "must name an exchange"),
        (
            format!("amqp://{at}/orders?key=x"),
            "\"key\" is unknown; there are routing_key, mandatory",
        ),
        (format!("amqp://{at}/orders?mandatory=maybe"), "true or false"),
        (format!("amqp://{at}/orders?routing_key={{name}}"), "name"),
        (format!("ftp://{at}/orders"), "scheme"),
    ] {
        rejected(&from, &to, reason);
    }
    let kind = dir.ask(&["kind", "orders", "--json"]).ok().json();
    assert_eq!(kind["push"], json!(null), "a rejected command has changed the setting");
    dir.ask(&["bridge", "no such kind", "--from", &from]).code(2).complains("kind");
    dir.ask(&["bridge", "orders"]).code(2).complains("--from");
}

#[test]
fn a_bridge_without_its_broker_tries_again_until_it_is_stopped() {
    let dir = Dir::new();
    let server = Server::start(&dir, &["--data", "d"]);
    let (from, to) = (
        format!("amqp://shop:{PASSWORD}@127.0.0.1:1/orders.delayed"),
        format!("amqp://shop:{PASSWORD}@127.0.0.1:1/orders"),
    );
    let start = |args: &[&str]| {
        let fixed = ["bridge", "orders", "--server", &server.url, "--log", "trace"];
        let mut command = dir.command(&[&fixed[..], args].concat());
        command.env("REQUEUE_BRIDGE_FROM", &from).env("REQUEUE_BRIDGE_TO", &to);
        let bridge = BridgeProcess::of(&dir, command);
        bridge.await_log("no connection; trying again");
        bridge
    };
    let stopped = start(&[]).stop(Signal::TERM).ok();
    assert_eq!(stopped.out, "0 messages put, 0 jobs cancelled, 0 messages rejected\n");
    assert!(!stopped.err.contains(PASSWORD), "{stopped:#?}");
    assert!(stopped.err.contains("127.0.0.1:1"), "{stopped:#?}");
    let stopped = start(&["--json"]).stop(Signal::INT).ok();
    let counts = json!({"put": 0, "cancelled": 0, "rejected": 0, "connections": 0});
    assert_eq!(stopped.json(), counts);
    let stopped = start(&["--log-format", "json"]).stop(Signal::HUP).ok();
    assert!(!stopped.err.contains(PASSWORD), "{stopped:#?}");

    // The environment is not part of the help.
    let mut help = dir.command(&["bridge", "--help"]);
    help.env("REQUEUE_BRIDGE_FROM", &from).env("REQUEUE_BRIDGE_TO", &to);
    let help = String::from_utf8(help.output().unwrap().stdout).unwrap();
    assert!(help.contains("REQUEUE_BRIDGE_FROM") && !help.contains(PASSWORD), "{help}");

    // The setting is stored, and its password is not shown. The masked URL keeps it.
    let masked = "amqp://shop:…@127.0.0.1:1/orders";
    for _ in 0..2 {
        let args = ["kind", "orders", "--json", "--push", masked, "--server", &server.url];
        let kind = dir.run(&args).ok();
        assert_eq!(kind.json()["push"]["url"], masked);
        assert!(!kind.out.contains(PASSWORD), "{kind:#?}");
    }
}

#[test]
fn a_bridge_without_its_store_fails_before_it_consumes_anything() {
    let dir = Dir::new();
    let from = format!("amqp://shop:{PASSWORD}@127.0.0.1:1/orders.delayed");
    let bridge = |place: [&str; 2]| {
        dir.run(&[&["bridge", "orders", "--from", &from, "--to", &from], &place[..]].concat())
    };
    let done = bridge(["--server", "http://127.0.0.1:1"]).code(4);
    assert!(!done.err.contains(PASSWORD), "{done:#?}");
    bridge(["--data", "missing"]).code(1).complains("missing");
}

#[test]
fn a_bridge_opens_a_data_directory_once_for_its_jobs_and_its_target() {
    let dir = Dir::new();
    dir.ask(&["put", "orders", "a", "x"]).ok();
    let from = "amqp://127.0.0.1:1/orders.delayed";
    let args = ["bridge", "orders", "--data", "d", "--to", "amqp://127.0.0.1:1/orders"];
    let mut command = dir.command(&args);
    command.env("REQUEUE_BRIDGE_FROM", from);
    let bridge = BridgeProcess::of(&dir, command);
    bridge.await_log("no connection; trying again");
    bridge.stop(Signal::TERM).ok();
    let kind = dir.ask(&["kind", "orders", "--json"]).ok().json();
    assert_eq!(kind["push"]["url"], "amqp://127.0.0.1:1/orders");
}

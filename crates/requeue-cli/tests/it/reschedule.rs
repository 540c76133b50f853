//! `requeue reschedule`, on a server, a data directory, Redis and Postgres.

use crate::support::{Dir, Server};
use requeue_testkit::servers::{PostgresServer, RedisServer};
use serde_json::{Value, json};

const PUT: [&str; 8] = ["put", "mail", "a", "{\"n\":1}", "--in", "1h", "--priority", "3"];

#[test]
fn what_a_reschedule_does_not_name_stays_on_every_store() {
    let (redis, postgres) = (RedisServer::start(), PostgresServer::start());
    for dir in [Dir::served(), Dir::new(), Dir::at(redis.url()), Dir::at(postgres.url())] {
        what_is_not_named_stays(&dir);
        states(&dir);
    }
}

fn generation(job: &Value) -> u64 {
    job["generation"].as_u64().expect("a generation")
}

fn what_is_not_named_stays(dir: &Dir) {
    dir.ask(&PUT).ok();
    let before = dir.job("mail", "a");
    let moved = dir.ask(&["reschedule", "mail", "a", "--in", "3d", "--json"]).ok().json();
    assert_eq!((&moved["kind"], &moved["id"]), (&json!("mail"), &json!("a")));
    assert_eq!(moved["outcome"], "updated");
    assert!(generation(&moved) > generation(&before), "{moved}");
    let job = dir.job("mail", "a");
    assert_eq!((&job["body"], &job["priority"]), (&json!({"n": 1}), &json!(3)));
    assert_eq!(
        (&job["state"], &job["content_type"]),
        (&"waiting".into(), &"application/json".into())
    );
    dir.ask(&["get", "mail", "a"]).ok().says("(in 2d 23h)");

    let due = job["due"].clone();
    dir.ask(&["reschedule", "mail/a", "--priority", "9"])
        .ok()
        .says("updated mail/a as generation ");
    let job = dir.job("mail", "a");
    assert_eq!((&job["due"], &job["priority"], &job["body"]["n"]), (&due, &9.into(), &1.into()));

    dir.write("letter", "dear ann");
    dir.ask(&["reschedule", "mail", "a", "--body", "@letter"]).ok();
    let job = dir.job("mail", "a");
    assert_eq!((&job["due"], &job["priority"]), (&due, &9.into()));
    assert_eq!(
        (&job["body_text"], &job["content_type"]),
        (&"dear ann".into(), &"text/plain; charset=utf-8".into())
    );
    let changed = ["reschedule", "mail", "a", "--body", "-", "--content-type", "text/csv"];
    dir.feed(&changed, b"a,b").ok();
    assert_eq!(dir.job("mail", "a")["content_type"], "text/csv");
    dir.ask(&["reschedule", "mail", "a", "--body", "{", "--text"]).ok();
    assert_eq!(dir.job("mail", "a")["body_text"], "{");

    let job = dir.job("mail", "a");
    let wrong = ["reschedule", "mail", "a", "--in", "0s", "--if-generation", "0"];
    let refused = dir.ask(&wrong).code(1);
    refused.complains("expected generation 0").complains("hint: ");
    assert_eq!(dir.job("mail", "a"), job, "it has changed nothing");
    let number = generation(&job).to_string();
    let right = ["reschedule", "mail", "a", "--delay", "0s", "--if-generation", &number];
    dir.ask(&right).ok();
    assert_eq!(dir.job("mail", "a")["state"], "ready");
    dir.ask(&["reschedule", "mail", "a", "--due", "tomorrow 09:00 Asia/Tokyo"]).ok();
    let due = dir.job("mail", "a")["due"].to_string();
    assert!(due.ends_with("T00:00:00.000Z\""), "{due}");
    dir.ask(&["cancel", "mail", "a"]).ok();
}

/// Jobs that are absent, leased, dead and done.
fn states(dir: &Dir) {
    let absent = dir.ask(&["reschedule", "mail", "zz", "--in", "1h"]).code(3);
    absent.complains("there is no job \"zz\" of kind mail").complains("requeue put");
    dir.ask(&["get", "mail", "zz"]).code(3);

    // The run goes on, and another one follows with the body.
    dir.ask(&["put", "sms", "a", "hello"]).ok();
    let receipt = dir.ask(&["claim", "sms", "--json"]).ok().json()["receipt"].clone();
    let receipt = receipt.as_str().expect("a receipt");
    let leased = dir.ask(&["reschedule", "sms", "a", "--in", "1h"]).ok();
    leased.says("coalesced sms/a as generation ").complains("note: the job is leased");
    dir.ask(&["ack", receipt]).ok();
    let job = dir.job("sms", "a");
    assert_eq!((&job["state"], &job["body_text"]), (&"waiting".into(), &"hello".into()));

    // Dead: stays dead, or is revived by a due time.
    dir.ask(&["run-now", "sms", "a"]).ok();
    let receipt = dir.ask(&["claim", "sms", "--json"]).ok().json()["receipt"].clone();
    dir.ask(&["bury", receipt.as_str().expect("a receipt")]).ok();
    dir.ask(&["reschedule", "sms", "a", "--priority", "2"]).ok();
    let job = dir.job("sms", "a");
    assert_eq!((&job["state"], &job["priority"]), (&"dead".into(), &2.into()));
    dir.ask(&["reschedule", "sms", "a", "--in", "0s"]).ok().says("revived sms/a");
    assert_eq!(dir.job("sms", "a")["state"], "ready");

    dir.ask(&["kind", "sms", "--keep-done", "1d"]).ok();
    let receipt = dir.ask(&["claim", "sms", "--json"]).ok().json()["receipt"].clone();
    dir.ask(&["ack", receipt.as_str().expect("a receipt")]).ok();
    dir.ask(&["reschedule", "sms", "a", "--in", "0s"]).code(1).complains("is done");
}

#[test]
fn an_invalid_reschedule_is_rejected_before_a_store_is_opened() {
    let dir = Dir::new();
    let rejected = |args: &[&str], message: &str| {
        dir.ask(&[&["reschedule", "mail", "a"], args].concat()).code(2).complains(message);
    };
    rejected(&[], "at least one of --in, --at, --priority and --body");
    rejected(&["--if-generation", "7"], "nothing to change");
    rejected(&["--in", "1h", "--at", "09:00"], "cannot be used with");
    rejected(&["--in", "5"], "write 5s or 5m");
    rejected(&["--priority", "10"], "0..=9");
    rejected(&["--text", "--in", "1h"], "need --body BODY");
    rejected(&["--content-type", "text/csv", "--in", "1h"], "need --body BODY");
    rejected(&["--body", "{\"n\":"], "is not valid JSON");
    dir.ask(&["reschedule", "mail", "--in", "1h"]).code(2).complains("the id is missing");
    dir.ask(&["reschedule", "mail/a", "b", "--in", "1h"]).code(2).complains("unexpected argument");
    dir.write("large", vec![b'x'; (1 << 20) + 1]);
    dir.ask(&PUT).ok();
    rejected(&["--body", "@large"], "the limit is 1048576");
    rejected(&["--in", "4000 days"], "the delay is");
    assert_eq!(dir.job("mail", "a")["body"], json!({"n": 1}));
}

#[test]
fn a_token_that_may_only_read_cannot_reschedule() {
    let dir = Dir::new();
    let (full, read) = ("f".repeat(32), "r".repeat(32));
    dir.write("tokens", format!("full {full}\nread {read}\n"));
    let server = Server::start(&dir, &["--tokens", "tokens"]);
    let ask = |token: &str, args: &[&str]| {
        let mut command = dir.command(&[args, &["--server", &server.url]].concat());
        command.env("REQUEUE_TOKEN", token).output().expect("it starts").status.code()
    };
    assert_eq!(ask(&full, &PUT), Some(0));
    let get = ["get", "mail", "a", "--json"];
    assert_eq!(ask(&read, &get), Some(0));
    for args in [
        &["reschedule", "mail", "a", "--in", "0s"][..],
        &["cancel", "mail", "--all", "--yes"],
        &["kind", "delete", "mail", "--yes"],
        &["pause", "mail"],
    ] {
        assert_eq!(ask(&read, args), Some(1), "{args:?}");
        assert_eq!(ask("wrong-wrong-wrong-wrong-wrong-wr", args), Some(1), "{args:?}");
    }
    // It may count.
    assert_eq!(ask(&read, &["cancel", "mail", "--all", "--dry-run"]), Some(0));
    assert_eq!(ask(&full, &["reschedule", "mail", "a", "--in", "0s"]), Some(0));
}

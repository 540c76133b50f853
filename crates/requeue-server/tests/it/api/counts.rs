//! Counting jobs by filter, and grouping dead jobs by error.

use crate::api::lists::filled;
use crate::api::support::{Client, Server};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn a_count_is_the_number_of_jobs_in_the_list() {
    let server = filled();
    let mut client = server.client();
    for (query, matched, scanned) in [
        // The store has these counts.
        ("", 31, 0),
        ("?state=waiting", 10, 0),
        ("?state=ready", 10, 0),
        ("?state=leased", 1, 0),
        ("?state=dead", 10, 0),
        ("?state=done", 0, 0),
        ("?prefix=", 31, 0),
        // These jobs are examined.
        ("?prefix=d", 10, 10),
        ("?state=dead&prefix=w", 0, 0),
        ("?priority=3", 10, 31),
        ("?state=dead&error=refused", 5, 10),
        ("?error=refused", 5, 31),
        ("?state=dead&error_group=no+such+address", 5, 10),
        ("?died_before=2026-12-01T08:05:00Z", 5, 31),
        ("?state=dead&expired=true", 0, 10),
        ("?after=d8", 22, 22),
        ("?state=ready&after=r7", 2, 2),
    ] {
        let counted = client.get(&format!("/v1/kinds/mail/count{query}")).json();
        let expected = json!({"matched": matched, "scanned": scanned, "cursor": null});
        assert_eq!(counted, expected, "{query}");
        let listed = client.get(&format!("/v1/kinds/mail/jobs{query}")).json();
        assert_eq!(listed["jobs"].as_array().map(Vec::len), Some(matched), "{query}");
    }
    let unused = client.get("/v1/kinds/other/count").json();
    assert_eq!(unused, json!({"matched": 0, "scanned": 0, "cursor": null}));
}

fn put(client: &mut Client, id: &str) {
    client.call("PUT", &format!("/v1/kinds/mail/jobs/{id}"), json!({})).json();
}

/// Puts a job that dies of this error, one minute after the one before.
fn bury(server: &Server, client: &mut Client, id: &str, error: &str) {
    put(client, id);
    let claimed = client.call("POST", "/v1/claim", json!({"kinds": ["mail"]})).json();
    let lease = json!({"receipt": claimed["jobs"][0]["receipt"], "error": error});
    client.call("POST", "/v1/bury", json!({"leases": [lease]})).json();
    server.clock.advance(Duration::from_secs(60));
}

/// Two groups of errors, the group of expired leases, and an empty error.
fn with_dead_jobs() -> Server {
    let server = Server::start();
    let mut client = server.client();
    client.call("PATCH", "/v1/kinds/mail", json!({"max_attempts": 1})).json();
    for (id, error) in [
        ("order-7", "order 4711 not found"),
        ("order-8", "connection refused\n  at smtp.rs:7"),
        ("order-9", "order 4712  not found"),
        ("order-1", "order 1 not found"),
        ("order-2", ""),
    ] {
        bury(&server, &mut client, id, error);
    }
    put(&mut client, "slow");
    client.call("POST", "/v1/claim", json!({"kinds": ["mail"], "lease": "1m"})).json();
    server.clock.advance(Duration::from_secs(60));
    client.call("POST", "/v1/reap", json!({"max": 10})).json();
    put(&mut client, "ready");
    server
}

#[test]
fn dead_jobs_are_grouped_by_their_errors() {
    let server = with_dead_jobs();
    let mut client = server.client();
    let group = |group: Value, count: u64, id: &str, error: Value, first: u64, last: u64| {
        let at = |minute: u64| format!("2026-12-01T08:{minute:02}:00.000Z");
        json!({
            "error_group": group, "count": count, "example": {"id": id, "error": error},
            "first_died_at": at(first), "last_died_at": at(last),
        })
    };
    let refused = "connection refused\n  at smtp.rs:7";
    let expected = json!([
        group(json!("order * not found"), 3, "order-1", json!("order 1 not found"), 0, 3),
        group(json!(null), 1, "slow", json!(null), 6, 6),
        group(json!(""), 1, "order-2", json!(""), 4, 4),
        group(json!("connection refused"), 1, "order-8", json!(refused), 1, 1),
    ]);
    let all = client.get("/v1/kinds/mail/errors").json();
    assert_eq!(all, json!({"groups": expected, "other": 0, "scanned": 6, "cursor": null}));
    let some = client.get("/v1/kinds/mail/errors?after=order-8").json();
    assert_eq!(some["scanned"], 2);
    assert_eq!(some["groups"][1]["error_group"], "order * not found");
    let none = client.get("/v1/kinds/other/errors").json();
    assert_eq!(none, json!({"groups": [], "other": 0, "scanned": 0, "cursor": null}));
}

#[test]
fn the_jobs_of_a_group_are_selected_by_it() {
    let server = with_dead_jobs();
    let mut client = server.client();
    for group in client.get("/v1/kinds/mail/errors").json()["groups"].as_array().expect("groups") {
        let mut filter = json!({"state": "dead"});
        match &group["error_group"] {
            Value::Null => filter["expired"] = json!(true),
            text => filter["error_group"] = text.clone(),
        }
        // Only dead jobs are in the group of expired leases here, with or without the state.
        let query = match filter["error_group"].as_str() {
            Some(text) => format!("error_group={}", text.replace(' ', "+")),
            None => "expired=true".to_owned(),
        };
        let counted = client.get(&format!("/v1/kinds/mail/count?{query}")).json();
        assert_eq!(counted["matched"], group["count"], "{group}");
        let revived = client.call("POST", "/v1/kinds/mail/revive", json!({"all": filter})).json();
        assert_eq!((&revived["matched"], &revived["changed"]), (&group["count"], &group["count"]));
    }
    assert_eq!(client.get("/v1/kinds/mail/errors").json()["groups"], json!([]));
    assert_eq!(client.get("/v1/kinds/mail/count?state=ready").json()["matched"], 7);
}

#[test]
fn an_error_selects_its_group() {
    let server = with_dead_jobs();
    let query = "/v1/kinds/mail/count?error_group=order+99+not+found%0A+at+main";
    assert_eq!(server.get(query).json()["matched"], 3);
}

#[test]
fn a_dead_job_that_was_restored_without_failures_is_in_the_group_without_an_error() {
    let server = Server::start();
    let time = "2026-12-01T08:00:00.000Z";
    let job = json!({
        "kind": "mail", "id": "a", "state": "dead", "content_type": "text/plain", "due": time,
        "generation": 1, "attempts": 1, "deaths": 1, "died_at": time, "created_at": time,
        "updated_at": time,
    });
    let restore = json!({"generation": 2, "fence": 2, "jobs": [job]});
    server.call("POST", "/v1/kinds/mail/restore", restore).json();
    let groups = server.get("/v1/kinds/mail/errors").json();
    assert_eq!(groups["groups"][0]["error_group"], json!(null), "{groups}");
    assert_eq!(server.get("/v1/kinds/mail/count?expired=true").json()["matched"], 1);
}

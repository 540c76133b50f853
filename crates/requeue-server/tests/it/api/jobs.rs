//! Putting, reading and cancelling jobs.

use crate::api::support::Server;
use serde_json::json;
use std::time::Duration;

const JOB: &str = "/v1/kinds/mail/jobs/a";

#[test]
fn a_job_is_put_read_and_cancelled() {
    let server = Server::start();
    let mut client = server.client();
    let put = client.call("PUT", JOB, json!({"body": {"to": "x"}, "delay": "5m"}));
    assert_eq!(put.json(), json!({"outcome": "created", "generation": 1}));
    assert_eq!(
        client.get(JOB).json(),
        json!({
            "kind": "mail", "id": "a", "state": "waiting", "body": {"to": "x"},
            "content_type": "application/json", "due": "2026-12-01T08:05:00.000Z",
            "generation": 1, "attempts": 0, "failures": [], "deaths": 0,
            "created_at": "2026-12-01T08:00:00.000Z", "updated_at": "2026-12-01T08:00:00.000Z",
        })
    );
    server.clock.advance(Duration::from_secs(300));
    assert_eq!(client.get(JOB).json()["state"], "ready");
    assert_eq!(client.call("DELETE", JOB, json!(null)).json(), json!({"result": "removed"}));
    let problem = client.get(JOB).is("absent");
    assert!(problem["detail"].as_str().unwrap().contains(r#""a" of kind mail"#), "{problem}");
    client.call("DELETE", JOB, json!(null)).is("absent");
}

#[test]
fn ids_are_any_text() {
    let server = Server::start();
    let mut client = server.client();
    for (path, id) in [
        ("a%2Fb%3Fc%23d%25", "a/b?c#d%"),
        ("%C3%BC%F0%9F%98%80", "ü😀"),
        ("..", ".."),
        ("%2e%2e", ".."),
        ("%00", "\0"),
        ("a+b%20c", "a+b c"),
        ("jobs", "jobs"),
        (&"x".repeat(512), &"x".repeat(512)),
    ] {
        let path = format!("/v1/kinds/mail/jobs/{path}");
        client.call("PUT", &path, json!({"body": 1})).json();
        assert_eq!(client.get(&path).json()["id"], id);
        let claimed = client.call("POST", "/v1/claim", json!({"kinds": ["mail"]})).json();
        assert_eq!(claimed["jobs"][0]["id"], id);
        let leases = json!({"leases": [{"receipt": claimed["jobs"][0]["receipt"]}]});
        let acked = client.call("POST", "/v1/ack", leases).results();
        assert_eq!(acked, [json!({"result": "done"})]);
    }
}

#[test]
fn times_and_durations_are_parsed() {
    let server = Server::start();
    let mut client = server.client();
    for (fields, due) in [
        (json!({}), "2026-12-01T08:00:00.000Z"),
        (json!({"delay": null, "due": null}), "2026-12-01T08:00:00.000Z"),
        (json!({"delay": "0"}), "2026-12-01T08:00:00.000Z"),
        (json!({"delay": "1h 30m"}), "2026-12-01T09:30:00.000Z"),
        (json!({"delay": "1.5ms"}), "2026-12-01T08:00:00.002Z"),
        (json!({"delay": "PT5M"}), "2026-12-01T08:05:00.000Z"),
        (json!({"delay": "3660 days"}), "2036-12-08T08:00:00.000Z"),
        (json!({"due": "2026-12-01T10:00:00+01:00"}), "2026-12-01T09:00:00.000Z"),
        (json!({"due": "tomorrow 09:00 Europe/Berlin"}), "2026-12-02T08:00:00.000Z"),
        (json!({"due": "in 5m"}), "2026-12-01T08:05:00.000Z"),
        (json!({"due": "tomorrow 09:00 UTC"}), "2026-12-02T09:00:00.000Z"),
        (json!({"due": "09:00Z"}), "2026-12-01T09:00:00.000Z"),
        (json!({"due": "@1796112000s"}), "2026-12-01T08:00:00.000Z"),
        // In the past: the job is due now.
        (json!({"due": "1971-01-01 UTC"}), "2026-12-01T08:00:00.000Z"),
    ] {
        client.call("PUT", JOB, fields.clone()).json();
        assert_eq!(client.get(JOB).json()["due"], due, "{fields}");
        client.call("DELETE", JOB, json!(null)).json();
    }
}

#[test]
fn modes_decide_what_happens_to_an_existing_job() {
    let server = Server::start();
    let mut client = server.client();
    for (fields, outcome, body, due) in [
        (json!({"body": 1, "delay": "10m"}), "created", 1, "08:10"),
        (json!({"body": 2, "delay": "20m"}), "updated", 2, "08:20"),
        (json!({"body": 3, "delay": "30m", "mode": "earliest"}), "updated", 3, "08:20"),
        (json!({"body": 4, "delay": "10m", "mode": "earliest"}), "updated", 4, "08:10"),
        (json!({"body": 5, "delay": "5m", "mode": "keep"}), "kept", 4, "08:10"),
        (
            json!({"body": 6, "delay": "2h", "mode": "debounce", "max_wait": "1h"}),
            "updated",
            6,
            "09:00",
        ),
        (json!({"body": 7, "delay": "5m", "mode": "replace"}), "updated", 7, "08:05"),
    ] {
        assert_eq!(client.call("PUT", JOB, fields.clone()).json()["outcome"], outcome, "{fields}");
        let job = client.get(JOB).json();
        assert_eq!(job["body"], body, "{fields}");
        assert_eq!(job["due"], format!("2026-12-01T{due}:00.000Z"), "{fields}");
    }
}

#[test]
fn a_put_whose_condition_does_not_hold_changes_nothing() {
    let server = Server::start();
    let mut client = server.client();
    let none = client.call("PUT", JOB, json!({"body": 0, "if_generation": 1}));
    assert_eq!(none.is("other-generation").get("generation"), None);
    client.get(JOB).is("absent");
    client.call("PUT", JOB, json!({"body": 1, "if_absent": true})).json();
    let exists = client.call("PUT", JOB, json!({"body": 2, "if_absent": true}));
    assert_eq!(exists.is("exists")["generation"], 1);
    assert_eq!(client.get(JOB).json()["body"], 1);
    client.call("PUT", JOB, json!({"body": 3, "if_generation": 1, "if_absent": false})).json();
    let other = client.call("PUT", JOB, json!({"body": 4, "if_generation": 1}));
    assert_eq!(other.is("other-generation")["generation"], 2);
    let other = client.call("PUT", JOB, json!({"body": 4, "if_generation": u64::MAX}));
    assert_eq!(other.is("other-generation")["generation"], 2);
    assert_eq!(client.get(JOB).json()["body"], 3);
}

#[test]
fn a_put_on_a_leased_job_is_its_successor() {
    let server = Server::start();
    let mut client = server.client();
    client.call("PUT", JOB, json!({"body": 1})).json();
    let claim = json!({"kinds": ["mail"], "worker": "me", "lease": "1m"});
    let claimed = client.call("POST", "/v1/claim", claim).json();
    let put = client.call("PUT", JOB, json!({"body_text": "2", "delay": "1h"}));
    assert_eq!(put.json(), json!({"outcome": "coalesced", "generation": 2}));
    let job = client.get(JOB).json();
    assert_eq!(
        job["lease"],
        json!({
            "worker": "me", "claimed_at": "2026-12-01T08:00:00.000Z",
            "ends_at": "2026-12-01T08:01:00.000Z", "cancelled": false,
            "fence": claimed["jobs"][0]["fence"],
        })
    );
    assert_eq!(
        job["next"],
        json!({
            "body_text": "2", "content_type": "text/plain; charset=utf-8",
            "due": "2026-12-01T09:00:00.000Z", "generation": 2,
        })
    );
    assert_eq!(client.call("DELETE", JOB, json!(null)).json(), json!({"result": "ending"}));
    assert_eq!(client.get(JOB).json()["lease"]["cancelled"], true);
    let leases = json!({"leases": [{"receipt": claimed["jobs"][0]["receipt"]}]});
    let acked = client.call("POST", "/v1/ack", leases).results();
    assert_eq!(acked, [json!({"result": "cancelled"})]);
    client.get(JOB).is("absent");
}

#[test]
fn each_entry_of_a_batch_has_its_own_result() {
    let server = Server::start();
    let mut client = server.client();
    let jobs = json!([
        {"id": "a", "body": 1},
        {"id": "", "body": 2},
        {"id": "b", "delay": "soon"},
        {"id": "a", "if_absent": true},
        {"id": "c", "kind": "other"},
        {"body": 3},
        {"id": "d", "delay": "11 weeks", "due": "now"},
        {"id": "e", "delay": "4000 days"},
        {"id": "a", "body": 4},
    ]);
    let results = client.call("POST", "/v1/kinds/mail/jobs", json!({"jobs": jobs})).results();
    assert_eq!(results[0], json!({"outcome": "created", "generation": 1}));
    for (n, status, field, word) in [
        (1, 422, "jobs[1].id", "empty"),
        (2, 422, "jobs[2].delay", "\"soon\""),
        (3, 409, "", "exists"),
        (4, 422, "jobs[4].kind", "path"),
        (5, 422, "jobs[5].id", "missing"),
        (6, 422, "jobs[6].due", "delay"),
        (7, 422, "jobs[7].delay", "the delay is"),
    ] {
        let error = &results[n]["error"];
        assert_eq!(error["status"], status, "{error}");
        assert!(error["detail"].as_str().unwrap().contains(word), "{error}");
        assert_eq!(error.get("field").map_or("", |field| field.as_str().unwrap()), field);
    }
    assert_eq!(results[8], json!({"outcome": "updated", "generation": 2}));
    assert_eq!(results.len(), 9);
    assert_eq!(client.get(JOB).json()["body"], 4);

    let jobs = json!([{"kind": "x", "id": "1"}, {"kind": "y/", "id": "1"}, {"id": "1"}]);
    let results = client.call("POST", "/v1/put", json!({"jobs": jobs})).results();
    assert_eq!(results[0]["outcome"], "created");
    assert_eq!(results[1]["error"]["field"], "jobs[1].kind");
    assert_eq!(results[2]["error"]["field"], "jobs[2].kind");
    assert_eq!(client.get("/v1/kinds/x/jobs/1").json()["kind"], "x");

    // All entries are invalid, or there are none.
    let results = client.call("POST", "/v1/put", json!({"jobs": [{"id": "1"}]})).results();
    assert_eq!(results.len(), 1);
    assert_eq!(client.call("POST", "/v1/put", json!({"jobs": []})).results().len(), 0);
}

#[test]
fn jobs_of_any_kinds_are_changed_in_one_call() {
    let server = Server::start();
    let mut client = server.client();
    let jobs = json!([
        {"kind": "x", "id": "1", "delay": "1h"}, {"kind": "y", "id": "1", "delay": "1h"},
        {"kind": "z", "id": "1"},
    ]);
    client.call("POST", "/v1/put", json!({"jobs": jobs})).json();
    client.call("POST", "/v1/claim", json!({"kinds": ["z"]})).json();
    let changes = json!({"jobs": [
        {"kind": "x", "id": "1", "what": "cancel"},
        {"kind": "y", "id": "1", "what": "run-now"},
        {"kind": "y", "id": "1", "what": "revive"},
        {"kind": "z", "id": "1", "what": "run-now"},
        {"kind": "z", "id": "1", "what": "cancel"},
        {"kind": "z", "id": "2", "what": "cancel"},
        {"kind": "z z", "id": "2", "what": "cancel"},
    ]});
    let results = client.call("POST", "/v1/change", changes).results();
    let outcomes = results.iter().map(|result| match result["error"]["type"].as_str() {
        Some(name) => name.strip_prefix("/v1/problems/").expect("it has a type"),
        None => result["result"].as_str().expect("it has a result"),
    });
    let expected = ["removed", "ready", "not-dead", "leased", "ending", "absent", "invalid"];
    assert_eq!(outcomes.collect::<Vec<_>>(), expected);
    assert_eq!(results[6]["error"]["field"], "jobs[6].kind");
    assert_eq!(client.get("/v1/kinds/y/jobs/1").json()["state"], "ready");
}

//! Settling leases.

use crate::api::support::{Server, sort};
use serde_json::{Value, json};
use std::time::Duration;

/// Puts a job, claims it and returns the receipt.
fn leased(server: &Server, id: &str) -> Value {
    server.call("PUT", &format!("/v1/kinds/mail/jobs/{id}"), json!({"body": 1})).json();
    let claimed = server.call("POST", "/v1/claim", json!({"kinds": ["mail"]})).json();
    assert_eq!(claimed["jobs"][0]["id"], id);
    claimed["jobs"][0]["receipt"].clone()
}

#[test]
fn each_action_settles_the_lease() {
    let server = Server::start();
    server.call("PATCH", "/v1/kinds/mail", json!({"backoff": {"jitter_percent": 0}})).json();
    for (verb, fields, expected, state) in [
        ("ack", json!({}), json!({"result": "done"}), ""),
        (
            "retry",
            json!({}),
            json!({"result": "retry", "at": "2026-12-01T08:00:01.000Z"}),
            "waiting",
        ),
        (
            "retry",
            json!({"error": "no", "delay": "5m"}),
            json!({"result": "retry", "at": "2026-12-01T08:05:00.000Z"}),
            "waiting",
        ),
        ("bury", json!({"error": "no"}), json!({"result": "dead"}), "dead"),
        ("release", json!({}), json!({"result": "released"}), "ready"),
        (
            "extend",
            json!({}),
            json!({"result": "extended", "at": "2026-12-01T08:00:30.000Z"}),
            "leased",
        ),
        (
            "extend",
            json!({"lease": "1h"}),
            json!({"result": "extended", "at": "2026-12-01T09:00:00.000Z"}),
            "leased",
        ),
        ("requeue", json!({"delay": "1h"}), json!({"result": "done"}), "waiting"),
    ] {
        // By its own path, and by /v1/settle.
        for path in [format!("/v1/{verb}"), "/v1/settle".to_owned()] {
            let mut lease = fields.clone();
            lease["receipt"] = leased(&server, "a");
            if path == "/v1/settle" {
                lease["how"] = verb.into();
            }
            let settled = server.call("POST", &path, json!({"leases": [lease]})).results();
            assert_eq!(settled, std::slice::from_ref(&expected), "{verb} {fields}");
            let job = server.get("/v1/kinds/mail/jobs/a");
            match state {
                "" => drop(job.is("absent")),
                state => assert_eq!(job.json()["state"], state, "{verb} {fields}"),
            }
            server.call("DELETE", "/v1/kinds/mail/jobs/a", json!(null));
            // The lease has ended.
            server.call(
                "POST",
                "/v1/settle",
                json!({"leases": [{"receipt": lease["receipt"], "how": "ack"}]}),
            );
        }
    }
}

#[test]
fn a_done_job_is_shown_with_its_result_until_it_is_put_again() {
    let server = Server::start();
    let job = "/v1/kinds/mail/jobs/a";
    server.call("PATCH", "/v1/kinds/mail", json!({"keep_done": {"for": "1d"}})).json();
    let lease = json!({"receipt": leased(&server, "a"), "result": {"body": {"sent": 3}}});
    server.clock.advance(Duration::from_secs(2));
    let settled = server.call("POST", "/v1/ack", json!({"leases": [lease]})).results();
    assert_eq!(settled, [json!({"result": "done"})]);
    let done = server.get(job).json();
    assert_eq!(done["state"], "done");
    assert_eq!(
        done["done"],
        json!({
            "worker": "nameless", "started_at": "2026-12-01T08:00:00.000Z",
            "done_at": "2026-12-01T08:00:02.000Z",
            "result": {"body": {"sent": 3}, "content_type": "application/json"},
        })
    );
    let listed = server.get("/v1/kinds/mail/jobs?state=done").json();
    assert_eq!(listed["jobs"], json!([done]));
    assert_eq!(server.get("/v1/kinds/mail").json()["done"], 1);
    assert_eq!(server.get("/v1/stats").json()["done"], 1);
    let metrics = server.get("/metrics");
    assert!(metrics.text().contains(r#"requeue_jobs{kind="mail",state="done"} 1"#));

    let again = server.call("PUT", job, json!({"if_new": true})).is("exists");
    assert_eq!(again["generation"], 1);
    let run = server.call("POST", "/v1/kinds/mail/run-now", json!({"ids": ["a"]})).results();
    assert_eq!(sort(&run[0]["error"]).name(), "done");
    let revive = server.call("POST", "/v1/kinds/mail/revive", json!({"ids": ["a"]})).results();
    assert_eq!(sort(&revive[0]["error"]).name(), "not-dead");
    let put = server.call("PUT", job, json!({"if_absent": true})).json();
    assert_eq!(put, json!({"outcome": "created", "generation": 2}));
}

#[test]
fn a_result_that_is_too_long_or_not_of_an_ack_is_rejected() {
    let server = Server::start();
    let receipt = leased(&server, "a");
    for (lease, field, text) in [
        (
            json!({"how": "ack", "result": {"body_text": "x".repeat(65_537)}}),
            "leases[0].result",
            "the result has 65537 bytes; the limit is 65536",
        ),
        (
            json!({"how": "release", "result": {"body": 1}}),
            "leases[0].result",
            "not allowed with release",
        ),
        (
            json!({"how": "ack", "result": {"body": 1, "body_text": "1"}}),
            "leases[0].result.body",
            "only one of",
        ),
    ] {
        let mut lease = lease;
        lease["receipt"] = receipt.clone();
        let results = server.call("POST", "/v1/settle", json!({"leases": [lease]})).results();
        let problem = &results[0]["error"];
        assert_eq!(problem["field"], field, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(text), "{problem}");
    }
    assert_eq!(server.get("/v1/kinds/mail/jobs/a").json()["state"], "leased");
}

#[test]
fn failures_are_recorded() {
    let server = Server::start();
    let lease = json!({"receipt": leased(&server, "a"), "error": "no such address"});
    server.clock.advance(Duration::from_secs(2));
    server.call("POST", "/v1/bury", json!({"leases": [lease]})).json();
    let job = server.get("/v1/kinds/mail/jobs/a").json();
    assert_eq!(
        job["failures"],
        json!([{
            "worker": "nameless", "started_at": "2026-12-01T08:00:00.000Z",
            "ended_at": "2026-12-01T08:00:02.000Z", "error": "no such address",
        }])
    );
    assert_eq!((&job["attempts"], &job["deaths"]), (&json!(1), &json!(1)));
    assert_eq!(job["died_at"], "2026-12-01T08:00:02.000Z");
    // A long error is truncated and stays valid UTF-8.
    let lease = json!({"receipt": leased(&server, "b"), "error": "é".repeat(3000)});
    server.call("POST", "/v1/retry", json!({"leases": [lease]})).json();
    let job = server.get("/v1/kinds/mail/jobs/b").json();
    let error = job["failures"][0]["error"].as_str().unwrap();
    assert!((2000..=2048).contains(&error.len()), "{}", error.len());
}

#[test]
fn each_lease_of_a_batch_has_its_own_result() {
    let server = Server::start();
    let receipts: Vec<Value> = ["a", "b", "c"].map(|id| leased(&server, id)).to_vec();
    let leases = json!({"leases": [
        {"receipt": receipts[0], "how": "ack"},
        {"receipt": receipts[0], "how": "ack"},
        {"receipt": "nonsense", "how": "ack"},
        {"receipt": receipts[1]},
        {"receipt": receipts[1], "how": "ack", "error": "x"},
        {"receipt": receipts[1], "how": "requeue"},
        {"receipt": receipts[1], "how": "extend", "lease": "2d"},
        {"receipt": receipts[1], "how": "release"},
        {"receipt": receipts[2], "how": "retry", "delay": "4000 days"},
        {"receipt": receipts[2], "how": "retry", "error": "no"},
    ]});
    let results = server.call("POST", "/v1/settle", leases).results();
    let outcomes = results.iter().map(|result| match result.get("error") {
        Some(problem) => (sort(problem).name(), problem["field"].as_str().unwrap_or_default()),
        None => (result["result"].as_str().unwrap(), ""),
    });
    let expected = [
        ("done", ""),
        ("lease-lost", ""),
        ("invalid", "leases[2].receipt"),
        ("invalid", "leases[3].how"),
        ("invalid", "leases[4].error"),
        ("invalid", "leases[5].delay"),
        ("invalid", "leases[6].lease"),
        ("released", ""),
        ("invalid", "leases[8].delay"),
        ("retry", ""),
    ];
    assert_eq!(outcomes.collect::<Vec<_>>(), expected);
    assert_eq!(server.call("POST", "/v1/ack", json!({"leases": []})).results().len(), 0);
}

#[test]
fn a_job_that_was_claimed_again_has_lost_its_first_lease() {
    let server = Server::start();
    let receipt = leased(&server, "a");
    server.clock.advance(Duration::from_secs(31));
    let claimed = server.call("POST", "/v1/claim", json!({"kinds": ["mail"]})).json();
    assert_eq!(claimed["jobs"][0]["attempt"], 2);
    let leases = json!({"leases": [{"receipt": receipt}]});
    let results = server.call("POST", "/v1/ack", leases).results();
    assert_eq!(sort(&results[0]["error"]).name(), "lease-lost");
}

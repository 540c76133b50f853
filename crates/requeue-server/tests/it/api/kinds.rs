//! Kinds: settings, counts, deletion.

use crate::api::support::Server;
use serde_json::{Value, json};
use std::time::Duration;

const KIND: &str = "/v1/kinds/mail";

fn defaults() -> Value {
    json!({
        "lease": "30s", "backoff": {"base": "1s", "max": "1h", "jitter_percent": 20},
        "max_attempts": 20, "concurrency": null, "rate": null, "ageing": "10m", "paused": false,
        "retention": {"age": "7d", "count": 100_000}, "keep_done": null, "push": null,
    })
}

#[test]
fn a_kind_that_was_never_used_has_the_default_settings() {
    let server = Server::start();
    let kind = server.get(KIND).json();
    assert_eq!(kind["settings"], defaults());
    assert_eq!(kind["pending"], 0);
    assert_eq!(server.get("/v1/kinds").json(), json!({"kinds": []}));
}

#[test]
fn put_sets_all_settings_and_patch_sets_some() {
    let server = Server::start();
    let mut client = server.client();
    let all = json!({
        "lease": "5m", "backoff": {"base": "250ms", "max": "2d", "jitter_percent": 0},
        "max_attempts": 3, "concurrency": 7, "rate": {"jobs": 100, "per": "1m", "burst": 2},
        "ageing": null, "paused": true, "retention": {"age": "1d12h", "count": 0},
        "keep_done": {"for": "1d", "count": 9}, "push": null,
    });
    assert_eq!(client.call("PUT", KIND, all.clone()).json(), all);
    assert_eq!(client.get(KIND).json()["settings"], all);
    let mut expected = all;
    for (patch, path, value) in [
        (json!({}), "/lease", json!("5m")),
        (json!({"lease": "60 seconds"}), "/lease", json!("1m")),
        (json!({"backoff": {"max": "3d"}}), "/backoff/max", json!("3d")),
        (json!({"backoff": {}, "retention": {}}), "/backoff/base", json!("250ms")),
        (json!({"retention": {"count": 5}}), "/retention/count", json!(5)),
        (json!({"max_attempts": 9, "paused": null}), "/max_attempts", json!(9)),
        (json!({"concurrency": null}), "/concurrency", json!(null)),
        (json!({"rate": {"jobs": 5, "per": "1s"}}), "/rate", json!({"jobs": 5, "per": "1s"})),
        (json!({"rate": "1/h"}), "/rate", json!({"jobs": 1, "per": "1h"})),
        (json!({"rate": " 2 / 12h "}), "/rate", json!({"jobs": 2, "per": "12h"})),
        (json!({"rate": null}), "/rate", json!(null)),
        (json!({"ageing": "90s"}), "/ageing", json!("1m30s")),
        (json!({"keep_done": {"count": 5}}), "/keep_done", json!({"for": "1d", "count": 5})),
        (json!({"keep_done": null}), "/keep_done", json!(null)),
        (json!({"keep_done": {}}), "/keep_done", json!({"for": "7d", "count": 100_000})),
        (json!({"paused": false}), "/paused", json!(false)),
    ] {
        *expected.pointer_mut(path).unwrap() = value;
        assert_eq!(client.call("PATCH", KIND, patch.clone()).json(), expected, "{patch}");
        assert_eq!(client.get(KIND).json()["settings"], expected);
    }
    assert_eq!(client.call("PUT", KIND, json!({})).json(), defaults());
}

#[test]
fn counts_are_reported() {
    let server = Server::start();
    let mut client = server.client();
    let mut put = |id: &str, fields: Value| {
        client.call("PUT", &format!("{KIND}/jobs/{id}"), fields).json();
    };
    put("dead", json!({}));
    let claimed = server.call("POST", "/v1/claim", json!({"kinds": ["mail"]})).json();
    let leases = json!({"leases": [{"receipt": claimed["jobs"][0]["receipt"]}]});
    server.call("POST", "/v1/bury", leases).json();
    put("leased", json!({}));
    server.call("POST", "/v1/claim", json!({"kinds": ["mail"]})).json();
    put("ready", json!({}));
    put("waiting", json!({"delay": "1h"}));
    let mut kind = server.get(KIND).json();
    let settings = kind.as_object_mut().unwrap().remove("settings");
    assert_eq!(settings, Some(defaults()));
    let fence = kind["fence"].clone();
    let expected = json!({
        "kind": "mail", "pending": 2, "ready": 1, "ready_capped": false, "leased": 1, "dead": 1,
        "done": 0, "oldest_ready": "2026-12-01T08:00:00.000Z", "paused": false, "push": false,
        "throttled_until": null, "generation": 4, "fence": fence,
    });
    assert_eq!(kind, expected);
    assert_eq!(server.get("/v1/kinds").json(), json!({"kinds": [expected]}));
    let stats = server.get("/v1/stats").json();
    for (name, count) in [
        ("kinds", 1),
        ("pending", 2),
        ("ready", 1),
        ("leased", 1),
        ("dead", 1),
        ("done", 0),
        ("waiting_claims", 0),
    ] {
        assert_eq!(stats[name], count, "{name}: {stats}");
    }
}

#[test]
fn a_kind_shows_until_when_it_is_throttled() {
    let server = Server::start();
    server.call("PATCH", KIND, json!({"rate": {"jobs": 2, "per": "1m"}})).json();
    for id in ["a", "b"] {
        server.call("PUT", &format!("{KIND}/jobs/{id}"), json!({})).json();
    }
    let claim = json!({"kinds": ["mail"], "max": 10});
    let claimed = server.call("POST", "/v1/claim", claim.clone()).json();
    assert_eq!(claimed["jobs"].as_array().map(Vec::len), Some(1));
    assert_eq!(server.get(KIND).json()["throttled_until"], "2026-12-01T08:00:30.000Z");
    assert!(server.get("/metrics").text().contains("requeue_kind_throttled{kind=\"mail\"} 1"));
    server.clock.advance(Duration::from_secs(30));
    assert_eq!(server.get(KIND).json()["throttled_until"], json!(null));
    assert!(server.get("/metrics").text().contains("requeue_kind_throttled{kind=\"mail\"} 0"));
    let claimed = server.call("POST", "/v1/claim", claim).json();
    assert_eq!(claimed["jobs"].as_array().map(Vec::len), Some(1));
}

#[test]
fn pause_and_resume_change_no_other_setting() {
    let server = Server::start();
    server.call("PATCH", KIND, json!({"max_attempts": 3})).json();
    for (verb, paused) in [("pause", true), ("pause", true), ("resume", false), ("resume", false)] {
        server.call("POST", &format!("{KIND}/{verb}"), json!(null)).nothing();
        let kind = server.get(KIND).json();
        assert_eq!(
            (&kind["paused"], &kind["settings"]["paused"]),
            (&json!(paused), &json!(paused))
        );
        assert_eq!(kind["settings"]["max_attempts"], 3);
    }
}

#[test]
fn upcoming_load_is_counted_by_span() {
    let server = Server::start();
    for (id, delay) in [("a", "0"), ("b", "30s"), ("c", "90s"), ("d", "2h")] {
        server.call("PUT", &format!("{KIND}/jobs/{id}"), json!({"delay": delay})).json();
    }
    let upcoming = server.get(&format!("{KIND}/upcoming")).json();
    assert_eq!(upcoming["from"], "2026-12-01T08:00:00.000Z");
    assert_eq!(upcoming["span"], "1m");
    let counts = upcoming["counts"].as_array().unwrap();
    assert_eq!((counts.len(), &counts[..3]), (60, &[json!(2), json!(1), json!(0)][..]));
    let question = "from=2026-12-01T09:00:00Z&span=1h&count=2";
    let upcoming = server.get(&format!("{KIND}/upcoming?{question}")).json();
    let from = "2026-12-01T09:00:00.000Z";
    assert_eq!(upcoming, json!({"from": from, "span": "1h", "counts": [0, 1]}));
    let none = server.get("/v1/kinds/other/upcoming?count=0").json();
    assert_eq!(none["counts"], json!([]));
}

#[test]
fn a_kind_is_deleted_with_jobs_schedules_and_settings() {
    let server = Server::start();
    server.call("PATCH", KIND, json!({"max_attempts": 3})).json();
    server.call("PUT", &format!("{KIND}/schedules/s"), json!({"every": "1d"})).json();
    server.call("PUT", &format!("{KIND}/jobs/leased"), json!({})).json();
    let claimed = server.call("POST", "/v1/claim", json!({"kinds": ["mail"]})).json();
    for n in 0..250 {
        server.call("PUT", &format!("{KIND}/jobs/{n}"), json!({})).json();
    }
    let deleted = server.call("DELETE", KIND, json!(null)).json();
    assert_eq!(deleted, json!({"removed": 250, "ending": 1, "cursor": null}));
    assert_eq!(server.get(&format!("{KIND}/schedules")).json(), json!({"schedules": []}));
    assert_eq!(server.get(KIND).json()["settings"], defaults());
    let leases = json!({"leases": [{"receipt": claimed["jobs"][0]["receipt"]}]});
    assert_eq!(server.call("POST", "/v1/ack", leases).results()[0]["result"], "cancelled");
    // The timer of the schedule ends when it is due.
    let kinds = server.get("/v1/kinds").json();
    assert_eq!(kinds["kinds"][0]["kind"], "requeue.schedules");
    assert_eq!(kinds["kinds"].as_array().map(Vec::len), Some(1));
    let again = server.call("DELETE", &format!("{KIND}?after=5"), json!(null)).json();
    assert_eq!(again, json!({"removed": 0, "ending": 0, "cursor": null}));
}

#[test]
fn reap_ends_expired_leases() {
    let server = Server::start();
    for id in ["a", "b"] {
        server.call("PUT", &format!("{KIND}/jobs/{id}"), json!({})).json();
    }
    server.call("POST", "/v1/claim", json!({"kinds": ["mail"], "max": 2})).json();
    assert_eq!(server.call("POST", "/v1/reap", json!({"max": 10})).json(), json!({"reaped": 0}));
    server.clock.advance(Duration::from_secs(30));
    assert_eq!(server.call("POST", "/v1/reap", json!({"max": 1})).json(), json!({"reaped": 1}));
    assert_eq!(server.call("POST", "/v1/reap", json!({"max": 1000})).json(), json!({"reaped": 1}));
    assert_eq!(server.get(&format!("{KIND}/jobs/a")).json()["attempts"], 1);
}

#[test]
fn a_deleted_kind_keeps_its_latest_generation() {
    let server = Server::start();
    for id in ["a", "b"] {
        server.call("PUT", &format!("/v1/kinds/mail/jobs/{id}"), json!({"body": 1})).json();
    }
    server.call("DELETE", "/v1/kinds/mail", json!(null)).json();
    let kind = server.get("/v1/kinds/mail").json();
    assert_eq!((&kind["pending"], &kind["generation"]), (&json!(0), &json!(2)));
    assert_eq!(server.get("/v1/kinds").json(), json!({"kinds": []}));
    let put = server.call("PUT", "/v1/kinds/mail/jobs/a", json!({"body": 1})).json();
    assert_eq!(put["generation"], 3);
}

//! A valid request with all fields for every endpoint that reads JSON.

use crate::api::support::Server;
use serde_json::{Value, json};

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) body: Value,
    /// Required fields.
    pub(crate) required: &'static [&'static str],
}

/// Valid requests, without contradictory fields.
pub(crate) fn all() -> Vec<Sample> {
    let envelope = json!({"type": "x/y", "base64": "AP8="});
    let put = json!({
        "body": {"a": [1]}, "content_type": "application/json", "envelope": envelope,
        "delay": "1h", "priority": 7, "mode": "debounce", "max_wait": "2h", "if_absent": false, "if_new": false, "if_generation": null,
    });
    let reschedule = json!({
        "body": {"a": [1]}, "content_type": "application/json", "delay": "1h", "priority": 7,
        "if_generation": null,
    });
    let mut of_kind = put.clone();
    of_kind["id"] = json!("sample");
    let mut of_any = of_kind.clone();
    of_any["kind"] = json!("samples");
    let receipt = "1.1.samples/none";
    let all = json!({
        "state": "dead", "prefix": "x", "priority": 7, "error": "y", "error_group": "z",
        "expired": true, "died_before": "now",
    });
    let ids = json!({"ids": ["none"]});
    let matching = json!({"all": all, "after": "a", "limit": 10});
    let settings = json!({
        "lease": "30s", "backoff": {"base": "1s", "max": "1h", "jitter_percent": 20},
        "max_attempts": 20, "concurrency": 7, "rate": {"jobs": 100, "per": "1m", "burst": 10},
        "ageing": "1m", "keep_done": {"for": "7d", "count": 100}, "paused": false,
        "retention": {"age": "7d", "count": 100},
    });
    let schedule = json!({
        "cron": "0 9 * * *", "time_zone": "UTC", "body": 1, "content_type": "application/json",
        "priority": 7, "jitter": "30s", "missed": "all", "catch_up": "2d", "overlap": "allow",
        "paused": false, "starts_at": "tomorrow UTC", "ends_at": "in 30d",
    });
    let period = json!({"every": "90s", "time_zone": null, "body_text": "x"});
    let time = "2026-12-01T08:00:00.000Z";
    let job = json!({
        "kind": "samples", "id": "told", "state": "leased", "body": 1, "envelope": envelope,
        "content_type": "application/json", "due": time, "priority": 7, "generation": 1, "attempts": 1,
        "lease": {"worker": "w", "claimed_at": time, "ends_at": time, "cancelled": false},
        "next": {
            "body": 1, "content_type": "application/json", "due": time, "priority": 1, "generation": 2,
        },
        "failures": [{"worker": "w", "started_at": time, "ended_at": time, "error": "e"}],
        "deaths": 0, "created_at": time, "updated_at": time,
    });
    let done = json!({
        "kind": "samples", "id": "over", "state": "done", "content_type": "text/plain", "due": time,
        "generation": 1, "attempts": 0,
        "done": {
            "worker": "w", "started_at": time, "done_at": time,
            "result": {"body": 1, "content_type": "application/json"},
        },
        "created_at": time, "updated_at": time,
    });
    let restore = json!({"generation": 2, "fence": 2, "jobs": [job, done]});
    let restored = &[
        "generation",
        "fence",
        "jobs",
        "jobs[0].kind",
        "jobs[0].id",
        "jobs[0].state",
        "jobs[0].content_type",
        "jobs[0].due",
        "jobs[0].generation",
        "jobs[0].attempts",
        "jobs[0].created_at",
        "jobs[0].updated_at",
        "jobs[0].lease.worker",
        "jobs[0].lease.claimed_at",
        "jobs[0].lease.ends_at",
        "jobs[0].next.content_type",
        "jobs[0].next.due",
        "jobs[0].next.generation",
        "jobs[0].failures[0].worker",
        "jobs[0].failures[0].started_at",
        "jobs[0].failures[0].ended_at",
        "jobs[1].done.worker",
        "jobs[1].done.started_at",
        "jobs[1].done.done_at",
    ];
    let claim = json!({
        "kinds": ["samples", "none"], "worker": "w", "max": 1, "lease": "1m", "wait": "1ms",
        "nonce": "ff", "envelope": true,
    });
    let wait = json!({"kinds": ["samples"], "wait": "0s"});
    let change = json!({"jobs": [{"kind": "samples", "id": "none", "what": "run-now"}]});
    let leases = |fields: Value| {
        let mut lease = fields;
        lease["receipt"] = json!(receipt);
        json!({"leases": [lease]})
    };
    let result = json!({"body": {"sent": 1}, "content_type": "application/json"});
    let of_leases = &["leases", "leases[0].receipt"];
    let sample = |method, path, body, required| Sample { method, path, body, required };
    vec![
        sample("PUT", "/v1/kinds/samples/jobs/a", put, &[]),
        sample("PATCH", "/v1/kinds/samples/jobs/a", reschedule, &[]),
        sample("POST", "/v1/kinds/samples/jobs", json!({"jobs": [of_kind]}), &["jobs"]),
        sample("POST", "/v1/put", json!({"jobs": [of_any]}), &["jobs"]),
        sample(
            "POST",
            "/v1/change",
            change,
            &["jobs", "jobs[0].kind", "jobs[0].id", "jobs[0].what"],
        ),
        sample("POST", "/v1/kinds/samples/cancel", ids.clone(), &[]),
        sample("POST", "/v1/kinds/samples/run-now", ids, &[]),
        sample("POST", "/v1/kinds/samples/revive", matching.clone(), &[]),
        sample("POST", "/v1/kinds/samples/cancel", matching, &[]),
        sample("POST", "/v1/claim", claim, &["kinds"]),
        sample("POST", "/v1/wait", wait, &["kinds", "wait"]),
        sample("POST", "/v1/settle", leases(json!({"how": "ack", "result": result})), of_leases),
        sample("POST", "/v1/ack", leases(json!({"result": result})), of_leases),
        sample("POST", "/v1/retry", leases(json!({"error": "e", "delay": "1s"})), of_leases),
        sample("POST", "/v1/bury", leases(json!({"error": "e"})), of_leases),
        sample("POST", "/v1/requeue", leases(json!({"delay": "1s"})), of_leases),
        sample("POST", "/v1/release", leases(json!({})), of_leases),
        sample("POST", "/v1/extend", leases(json!({"lease": "1s"})), of_leases),
        sample("PUT", "/v1/kinds/samples", settings.clone(), &[]),
        sample("PATCH", "/v1/kinds/samples", settings, &[]),
        sample("PUT", "/v1/kinds/samples/schedules/s", schedule.clone(), &[]),
        sample("PATCH", "/v1/kinds/samples/schedules/s", schedule, &[]),
        sample("PATCH", "/v1/kinds/samples/schedules/s", period, &[]),
        sample("POST", "/v1/kinds/samples/restore", restore, restored),
        sample("POST", "/v1/reap", json!({"max": 1}), &["max"]),
    ]
}

/// Returns each field in a value: its name in problems, and its JSON pointer.
pub(crate) fn places(value: &Value) -> Vec<(String, String)> {
    let mut places = Vec::new();
    walk(value, "", "", &mut places);
    places
}

fn walk(value: &Value, name: &str, pointer: &str, places: &mut Vec<(String, String)>) {
    let inner: Vec<(String, String, &Value)> = match value {
        Value::Object(fields) => {
            let dot = if name.is_empty() { "" } else { "." };
            let each = fields.iter();
            each.map(|(key, value)| {
                (format!("{name}{dot}{key}"), format!("{pointer}/{}", escaped(key)), value)
            })
            .collect()
        }
        Value::Array(values) => {
            let each = values.iter().enumerate();
            each.map(|(n, value)| (format!("{name}[{n}]"), format!("{pointer}/{n}"), value))
                .collect()
        }
        _ => Vec::new(),
    };
    for (name, pointer, value) in inner {
        places.push((name.clone(), pointer.clone()));
        // A body is any JSON: its fields are not checked.
        if !pointer.ends_with("/body") {
            walk(value, &name, &pointer, places);
        }
    }
}

/// Escapes a key for a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[test]
fn the_samples_are_valid_and_cover_every_endpoint() {
    let server = Server::start();
    let document = server.get("/v1/openapi.json").json();
    let mut missing = Vec::new();
    for (path, item) in document["paths"].as_object().expect("there are paths") {
        for (method, operation) in item.as_object().expect("there are methods") {
            let content = &operation["requestBody"]["content"]["application/json"];
            let there = path.replace("{kind}", "samples");
            let (a, s) = (there.replace("{id}", "a"), there.replace("{id}", "s"));
            let is_it = |sample: &Sample| {
                sample.method.eq_ignore_ascii_case(method) && (sample.path == a || sample.path == s)
            };
            if !content.is_null() && !all().iter().any(is_it) {
                missing.push(format!("{method} {path}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
    for Sample { method, path, body, .. } in all() {
        let response = server.call(method, path, body);
        assert!(matches!(response.status, 200 | 204), "{method} {path}: {}", response.text());
    }
}

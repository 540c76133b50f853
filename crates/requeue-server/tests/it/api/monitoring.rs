//! What a node reports about itself: time series, the forecast, access, and lists over all kinds.

use crate::api::support::{Server, detail, until};
use serde_json::{Value, json};
use std::time::Duration;

fn put(server: &Server, kind: &str, id: &str, delay: &str) {
    let path = format!("/v1/kinds/{kind}/jobs/{id}");
    server.call("PUT", &path, json!({"delay": delay})).json();
}

/// Returns the last value of a list.
fn last(list: &Value) -> &Value {
    list.as_array().and_then(|list| list.last()).expect("a list with values")
}

#[test]
fn the_series_show_what_happened_in_the_last_minute() {
    let server = Server::start();
    put(&server, "mail", "a", "0s");
    put(&server, "mail", "b", "1h");
    put(&server, "report", "c", "1h");
    let claimed = server.call("POST", "/v1/claim", json!({"kinds": ["mail"]})).json();
    let receipt = &claimed["jobs"][0]["receipt"];
    server.call("POST", "/v1/ack", json!({"leases": [{"receipt": receipt}]})).json();
    // The counters are read every five seconds.
    until("the next sample", || {
        server.clock.advance(Duration::from_secs(5));
        let series = server.get("/v1/series").json();
        series["total"]["recent"]["put"] == 3
    });
    let series = server.get("/v1/series?last=1h&kinds=mail").json();
    assert_eq!(series["step"], "1m");
    let kinds = series["kinds"].as_array().expect("a list");
    assert_eq!(kinds.len(), 1);
    let mail = &kinds[0];
    let sum = |list: &Value| -> u64 {
        list.as_array().expect("a list").iter().map(|count| count.as_u64().unwrap()).sum()
    };
    let counts = ["put", "claimed", "acked", "failed", "dead"].map(|name| sum(&mail[name]));
    assert_eq!((mail["kind"].as_str(), counts), (Some("mail"), [2, 1, 1, 0, 0]));
    assert!(mail["recent"]["lateness_p50_ms"].is_number());
    let all = server.get("/v1/series?last=1d&kinds=*").json();
    assert_eq!(all["kinds"].as_array().map(Vec::len), Some(2));
    assert_eq!(*last(&all["total"]["put"]), 3);
    assert_eq!(all["total"]["put"].as_array().map(Vec::len), Some(96));

    let problem = server.get("/v1/series?last=2h").is("invalid");
    assert_eq!(detail(&problem), "last: \"2h\" is not a span of time; write 1h or 1d");
    server.get("/v1/series?kinds=a%20b").is("invalid");
    server.get("/v1/series?since=1h").is("malformed");
}

#[test]
fn the_forecast_counts_jobs_of_all_kinds_or_of_one() {
    let server = Server::start();
    put(&server, "mail", "a", "30s");
    put(&server, "report", "b", "2h");
    let forecast = server.get("/v1/upcoming").json();
    let sums: Vec<u64> = forecast["horizons"]
        .as_array()
        .expect("horizons")
        .iter()
        .map(|horizon| {
            horizon["counts"]
                .as_array()
                .expect("counts")
                .iter()
                .map(|count| count.as_u64().unwrap())
                .sum()
        })
        .collect();
    assert_eq!(sums, [1, 1, 2, 2]);
    assert_eq!(forecast["horizons"][3]["counted_at"], "2026-12-01T08:00:00.000Z");
    let mail = server.get("/v1/upcoming?kind=mail").json();
    assert_eq!(mail["horizons"][0]["counts"][29], 1);
    server.get("/v1/upcoming?kind=a%20b").is("invalid");
}

#[test]
fn a_server_without_tokens_permits_everything() {
    let access = Server::start().get("/v1/access").json();
    assert_eq!(access, json!({"access": "full", "restricted": false}));
}

#[test]
fn schedules_of_all_kinds_are_listed_by_kind_and_id() {
    let server = Server::start();
    for (kind, id) in [("report", "b"), ("cleanup", "z"), ("report", "a")] {
        let path = format!("/v1/kinds/{kind}/schedules/{id}");
        server.call("PUT", &path, json!({"every": "1h"})).json();
    }
    let list = server.get("/v1/schedules").json();
    let ids: Vec<String> = list["schedules"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| format!("{}/{}", one["kind"].as_str().unwrap(), one["id"].as_str().unwrap()))
        .collect();
    assert_eq!(ids, ["cleanup/z", "report/a", "report/b"]);
    assert_eq!(list["cursor"], Value::Null);
    let rest = server.get("/v1/schedules?after=cleanup").json();
    assert_eq!(rest["schedules"].as_array().map(Vec::len), Some(2));
}

#[test]
fn many_kinds_are_looked_at_in_pages() {
    let server = Server::start();
    for n in 0..450 {
        let path = format!("/v1/kinds/k{n:03}");
        server.call("PATCH", &path, json!({"max_attempts": 3})).json();
    }
    server.call("PUT", "/v1/kinds/k444/schedules/s", json!({"every": "1h"})).json();
    let (mut after, mut found, mut pages) = (String::new(), 0, 0);
    loop {
        let page = server.get(&format!("/v1/schedules?after={after}")).json();
        found += page["schedules"].as_array().map_or(0, Vec::len);
        pages += 1;
        match page["cursor"].as_str() {
            Some(cursor) => after = cursor.to_owned(),
            None => break,
        }
    }
    assert_eq!((found, pages), (1, 3));
}

#[test]
fn kinds_that_are_pushed_are_listed_without_their_secrets() {
    let server = Server::start();
    let push = json!({"push": {"url": "https://example.com/hook", "headers": {"authorization": "Bearer hidden"}}});
    server.call("PATCH", "/v1/kinds/mail", push).json();
    put(&server, "mail", "a", "1h");
    put(&server, "other", "a", "1h");
    let list = server.get("/v1/push").json();
    assert_eq!(list["kinds"].as_array().map(Vec::len), Some(1));
    let mail = &list["kinds"][0];
    assert_eq!((&mail["kind"], &mail["pending"]), (&json!("mail"), &json!(1)));
    assert_eq!(mail["push"]["url"], "https://example.com/hook");
    assert!(!list.to_string().contains("hidden"), "{list}");
}

#[test]
fn trouble_is_reported_as_long_as_it_lasts() {
    let server = Server::start();
    put(&server, "mail", "a", "0s");
    put(&server, "sms", "a", "0s");
    assert!(server.call("POST", "/v1/kinds/sms/pause", json!({})).status < 300);
    assert_eq!(server.get("/v1/stats").json().get("trouble"), None);
    server.clock.advance(Duration::from_secs(300));
    let due = server.get("/v1/kinds/mail").json()["oldest_ready"].clone();
    let late = json!([{
        "name": "late", "kind": "mail", "oldest_ready": due,
        "detail": "jobs have been ready for long, and nobody claims them",
    }]);
    assert_eq!(server.get("/v1/stats").json()["trouble"], late);

    // A worker takes three jobs, and settles none.
    put(&server, "mail", "b", "0s");
    put(&server, "mail", "c", "0s");
    let claim = json!({"kinds": ["mail"], "worker": "w", "max": 3, "lease": "10s"});
    let jobs = server.call("POST", "/v1/claim", claim.clone()).json();
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(3));
    assert_eq!(server.get("/v1/stats").json().get("trouble"), None);
    server.clock.advance(Duration::from_secs(10));
    server.call("POST", "/v1/reap", json!({"max": 10})).json();
    let expire = json!([{
        "name": "leases_expire", "worker": "w",
        "detail": "3 leases have expired since the worker last settled one",
    }]);
    assert_eq!(server.get("/v1/stats").json()["trouble"], expire);
    until("the backoff to end", || {
        server.clock.advance(Duration::from_secs(60));
        let jobs = server.call("POST", "/v1/claim", claim.clone()).json();
        let receipt = &jobs["jobs"][0]["receipt"];
        receipt.is_string() && {
            server.call("POST", "/v1/ack", json!({"leases": [{"receipt": receipt}]})).json();
            true
        }
    });
    assert_eq!(server.get("/v1/stats").json().get("trouble"), None);
}

//! Lists with pages and filters, and changes by filter.

use crate::api::support::{Client, Server};
use serde_json::{Value, json};
use std::time::Duration;

/// Ten waiting jobs (w) of priority 3, ten ready (r), one leased (l) and ten dead (d), which died one
/// minute after the other.
pub(crate) fn filled() -> Server {
    let server = Server::start();
    let mut client = server.client();
    let mut put = |id: String, delay: &str| {
        let path = format!("/v1/kinds/mail/jobs/{id}");
        let priority = if id.starts_with('w') { 3 } else { 0 };
        client.call("PUT", &path, json!({"delay": delay, "priority": priority})).json();
    };
    for n in 0..10 {
        put(format!("d{n}"), "0");
    }
    for n in 0..10 {
        let claimed = server.call("POST", "/v1/claim", json!({"kinds": ["mail"]})).json();
        let error = if n % 2 == 0 { "Connection REFUSED" } else { "no such address" };
        let lease = json!({"receipt": claimed["jobs"][0]["receipt"], "error": error});
        server.call("POST", "/v1/bury", json!({"leases": [lease]})).json();
        server.clock.advance(Duration::from_secs(60));
    }
    put("l".to_owned(), "0");
    server.call("POST", "/v1/claim", json!({"kinds": ["mail"], "lease": "1d"})).json();
    for n in 0..10 {
        put(format!("r{n}"), "0");
        put(format!("w{n}"), "1h");
    }
    server
}

/// Returns all ids of a list, read page by page.
fn ids(client: &mut Client, query: &str, limit: usize) -> Vec<String> {
    let mut ids = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("/v1/kinds/mail/jobs?limit={limit}{query}{after}");
        let page = client.get(&path).json();
        let jobs = page["jobs"].as_array().expect("there are jobs");
        assert!(jobs.len() <= limit);
        ids.extend(jobs.iter().map(|job| job["id"].as_str().expect("it has an id").to_owned()));
        match &page["cursor"] {
            Value::Null => return ids,
            cursor => after = format!("&after={}", cursor.as_str().expect("it is text")),
        }
    }
}

#[test]
fn a_list_has_all_matching_jobs_in_pages_of_any_size() {
    let server = filled();
    let mut client = server.client();
    for (query, expected) in [
        ("", 31),
        ("&state=waiting", 10),
        ("&state=ready", 10),
        ("&state=leased", 1),
        ("&state=dead", 10),
        ("&prefix=d", 10),
        ("&prefix=", 31),
        ("&prefix=w7", 1),
        ("&prefix=x", 0),
        ("&state=dead&prefix=r", 0),
        ("&error=refused", 5),
        ("&error=No+Such%20Address", 5),
        ("&error=", 10),
        ("&error=other", 0),
        ("&died_before=2026-12-01T08:05:00Z", 5),
        ("&died_before=1+minute+ago&error=refused", 5),
        ("&died_before=2026-12-01T08:05:00Z&error=refused&state=dead&prefix=d", 3),
        ("&state=ready&error=refused", 0),
        ("&priority=3", 10),
        ("&priority=0", 21),
        ("&priority=9", 0),
        ("&priority=3&state=ready", 0),
        ("&error_group=Connection+REFUSED", 5),
        ("&error_group=connection+refused", 0),
        ("&error_group=no+such", 0),
        ("&error_group=no+such%20%20address", 5),
        ("&expired=true", 0),
        ("&expired=false", 31),
    ] {
        for limit in [1, 3, 10, 1000] {
            let ids = ids(&mut client, query, limit);
            assert_eq!(ids.len(), expected, "{query} {limit}: {ids:?}");
            assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        }
    }
    let page = client.get("/v1/kinds/mail/jobs").json();
    assert_eq!(page["jobs"].as_array().map(Vec::len), Some(31));
    assert_eq!(page["cursor"], Value::Null);
    // An unused kind.
    let none = client.get("/v1/kinds/other/jobs?state=dead").json();
    assert_eq!(none, json!({"jobs": [], "cursor": null}));
}

#[test]
fn a_list_by_time_has_all_matching_jobs_in_pages_of_any_size() {
    let server = filled();
    let mut client = server.client();
    let of = |name: &str| (0..10).map(|n| format!("{name}{n}")).collect::<Vec<_>>();
    for (query, expected) in [
        ("&state=dead", of("d")),
        ("&state=waiting", of("w")),
        ("&state=ready", of("r")),
        ("&state=leased", vec!["l".to_owned()]),
        ("&state=done", vec![]),
        ("&state=dead&error=refused", ["d0", "d2", "d4", "d6", "d8"].map(str::to_owned).to_vec()),
        ("&state=dead&prefix=d3", vec!["d3".to_owned()]),
        ("&state=dead&died_before=2026-12-01T08:02:00Z", vec!["d0".to_owned(), "d1".to_owned()]),
    ] {
        for limit in [1, 3, 10, 1000] {
            let mut found = ids(&mut client, &format!("{query}&order=time"), limit);
            let mut newest = ids(&mut client, &format!("{query}&order=newest"), limit);
            newest.reverse();
            if query.starts_with("&state=dead") {
                assert_eq!((&found, &newest), (&expected, &expected), "{query} {limit}");
            }
            // The others have the same time.
            found.sort();
            newest.sort();
            assert_eq!((&found, &newest), (&expected, &expected), "{query} {limit}");
        }
    }
    let none = client.get("/v1/kinds/other/jobs?state=dead&order=newest").json();
    assert_eq!(none, json!({"jobs": [], "cursor": null}));
    let by_id = client.get("/v1/kinds/mail/jobs?order=id").json();
    assert_eq!(by_id, client.get("/v1/kinds/mail/jobs").json());
}

#[test]
fn a_list_by_time_names_the_parameter_that_is_wrong() {
    let server = filled();
    let mut client = server.client();
    let long = "9".repeat(545);
    for (query, field, words) in [
        ("order=time", "order", "a list by time needs a state"),
        ("order=newest&prefix=d", "order", "state=waiting, ready, leased, dead or done"),
        ("order=time&state=dead&after=nowhere", "after", "\"nowhere\" is not a cursor"),
        ("order=time&state=dead&after=", "after", "the cursor must not be empty"),
        (&format!("order=time&state=dead&after={long}"), "after", "545 bytes; the limit is 544"),
    ] {
        let response = client.get(&format!("/v1/kinds/mail/jobs?{query}"));
        assert_eq!(response.status, 422, "{query}");
        let problem = response.problem();
        assert_eq!(problem["field"], field, "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|text| text.contains(words)), "{problem}");
    }
    let unknown = client.get("/v1/kinds/mail/jobs?order=due&state=dead");
    assert!((400..500).contains(&unknown.status), "{}", unknown.status);
}

#[test]
fn a_cursor_can_be_any_id() {
    let server = Server::start();
    let mut client = server.client();
    for path in ["%C3%BC%2F%26", "%C3%BC%2F%26b", "a%20b"] {
        client.call("PUT", &format!("/v1/kinds/mail/jobs/{path}"), json!({})).json();
    }
    let first = client.get("/v1/kinds/mail/jobs?limit=2").json();
    assert_eq!(first["cursor"], "ü/&");
    let second = client.get("/v1/kinds/mail/jobs?limit=2&after=%C3%BC%2F%26").json();
    assert_eq!(second["jobs"][0]["id"], "ü/&b");
}

#[test]
fn jobs_are_changed_by_id() {
    let server = filled();
    let mut client = server.client();
    let mut change = |verb: &str, ids: Value| {
        let path = format!("/v1/kinds/mail/{verb}");
        let results = client.call("POST", &path, json!({"ids": ids})).results();
        let outcomes = results.iter().map(|result| match result["error"]["type"].as_str() {
            Some(name) => name.to_owned(),
            None => result["result"].as_str().unwrap().to_owned(),
        });
        outcomes.collect::<Vec<String>>().join(" ").replace("/v1/problems/", "")
    };
    assert_eq!(
        change("cancel", json!(["w0", "l", "d0", "none", ""])),
        "removed ending removed absent invalid"
    );
    assert_eq!(change("run-now", json!(["w1", "r1", "d1", "w0"])), "ready ready revived absent");
    assert_eq!(change("revive", json!(["d2", "r2", "w2"])), "revived not-dead not-dead");
    assert_eq!(change("revive", json!([])), "");
    assert_eq!(client.get("/v1/kinds/mail/jobs/d2").json()["attempts"], 0);
}

#[test]
fn matching_jobs_are_changed_in_bounded_steps() {
    let server = filled();
    let mut client = server.client();
    let mut change = |verb: &str, all: Value, limit: usize| {
        let (mut sums, mut calls) = ([0, 0, 0], 0);
        let mut request = json!({"all": all, "limit": limit});
        loop {
            let response = client.call("POST", &format!("/v1/kinds/mail/{verb}"), request.clone());
            let response = response.json();
            let counts =
                ["matched", "changed", "failed"].map(|name| response[name].as_u64().unwrap());
            assert!(counts[0] <= limit as u64);
            (0..3).for_each(|n| sums[n] += counts[n]);
            calls += 1;
            match &response["cursor"] {
                Value::Null => return (sums, calls),
                cursor => request["after"] = cursor.clone(),
            }
        }
    };
    let (sums, calls) = change("revive", json!({"state": "dead", "error": "refused"}), 2);
    assert_eq!(sums, [5, 5, 0]);
    assert!(calls >= 3, "{calls}");
    assert_eq!(change("revive", json!({"state": "dead", "error": "refused"}), 2).0, [0, 0, 0]);
    let before = json!({"died_before": "2026-12-01T08:04:00Z"});
    assert_eq!(change("run-now", before, 10_000), ([2, 2, 0], 1));
    assert_eq!(change("run-now", json!({"state": "waiting", "prefix": "w"}), 3).0, [10, 10, 0]);
    // Only dead jobs can be revived.
    assert_eq!(change("revive", json!({}), 7).0, [31, 3, 28]);
    assert_eq!(change("cancel", json!({}), 100).0, [31, 31, 0]);
    let left = client.get("/v1/kinds/mail/jobs").json();
    assert_eq!(left["jobs"][0]["id"], "l");
    assert_eq!(left["jobs"].as_array().map(Vec::len), Some(1));
}

/// A leased job with a successor, and a done job with a result.
fn with_bodies() -> Server {
    let server = Server::start();
    let mut client = server.client();
    let mut call = |method: &str, path: &str, body: Value| client.call(method, path, body).json();
    call("PATCH", "/v1/kinds/mail", json!({"keep_done": {"for": "1d"}}));
    call("PUT", "/v1/kinds/mail/jobs/done", json!({"body": [1, 2, 3]}));
    let claimed = call("POST", "/v1/claim", json!({"kinds": ["mail"]}));
    let receipt = &claimed["jobs"][0]["receipt"];
    let result = json!({"body": {"sent": 12345}});
    call("POST", "/v1/ack", json!({"leases": [{"receipt": receipt, "result": result}]}));
    call("PUT", "/v1/kinds/mail/jobs/leased", json!({"body_text": "a text"}));
    call("POST", "/v1/claim", json!({"kinds": ["mail"], "lease": "1d"}));
    call("PUT", "/v1/kinds/mail/jobs/leased", json!({"body_base64": "/w=="}));
    call("PUT", "/v1/kinds/mail/jobs/none", json!({}));
    server
}

#[test]
fn long_bodies_are_left_out_of_a_list_with_their_lengths() {
    let server = with_bodies();
    let mut client = server.client();
    let all = client.get("/v1/kinds/mail/jobs").json();
    for limit in ["1048576", "14"] {
        let same = client.get(&format!("/v1/kinds/mail/jobs?body_limit={limit}")).json();
        assert_eq!(same, all);
    }
    let mut expected = all.clone();
    for (limit, pointer, field, len) in [
        (13, "/jobs/0/done/result", "body", 14),
        (5, "/jobs/1", "body_text", 6),
        (0, "/jobs/1/next", "body_base64", 1),
    ] {
        let body = expected.pointer_mut(pointer).and_then(Value::as_object_mut).expect("a job");
        body.remove(field).expect("there is a body");
        body.insert("body_bytes".to_owned(), json!(len));
        let page = client.get(&format!("/v1/kinds/mail/jobs?body_limit={limit}")).json();
        assert_eq!(page, expected, "{limit}");
    }
    // Such a job is not restored without its body.
    let jobs = &expected["jobs"];
    let restore = json!({"generation": 9, "fence": 9, "jobs": jobs});
    let results = client.call("POST", "/v1/kinds/mail/restore", restore).results();
    let error = |n: usize| results[n]["error"]["field"].as_str();
    assert_eq!(error(0), Some("jobs[0].done.result.body_bytes"));
    assert_eq!(error(1), Some("jobs[1].body_bytes"));
    assert_eq!(error(2), None);
}

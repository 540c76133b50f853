//! Invalid input: each request is rejected with a problem that names the error, and nothing is
//! lost.

use crate::api::samples::{self, Sample, places};
use crate::api::support::{Client, JSON, Server, TestResponse, detail, request, sort};
use serde_json::{Value, json};

/// A server with a job that must still exist at the end.
struct Trial {
    server: Server,
    client: Client,
}

impl Trial {
    fn new() -> Self {
        let server = Server::start();
        server.call("PUT", "/v1/kinds/kept/jobs/kept", json!({"body": "kept"})).json();
        let client = server.client();
        Trial { server, client }
    }

    /// Sends these bytes, and asserts that the response is a 4xx with a problem.
    #[track_caller]
    fn refused(&mut self, bytes: &[u8]) -> Value {
        self.client.send(bytes);
        let response = self.client.response();
        let problem =
            self.is_refused(&response, &String::from_utf8_lossy(&bytes[..bytes.len().min(300)]));
        self.goes_on(&response);
        problem
    }

    #[track_caller]
    fn is_refused(&self, response: &TestResponse, sent: &str) -> Value {
        assert!(
            (400..500).contains(&response.status),
            "{sent}\n{} {}",
            response.status,
            response.text()
        );
        response.problem()
    }

    #[track_caller]
    fn json(&mut self, method: &str, path: &str, body: &Value) -> Value {
        self.refused(&request(method, path, JSON, body.to_string().as_bytes()))
    }

    /// Asserts that the server still works and that the job still exists.
    #[track_caller]
    fn goes_on(&mut self, response: &TestResponse) {
        if response.header("connection") == Some("close") {
            self.client = self.server.client();
        }
        let kept = self.client.get("/v1/kinds/kept/jobs/kept").json();
        assert_eq!(kept["body"], "kept");
    }
}

#[track_caller]
fn assert_problem(problem: &Value, name: &str, words: &[&str]) {
    assert_eq!(sort(problem).name(), name, "{problem}");
    for word in words {
        assert!(detail(problem).contains(word), "{word:?} is not in {problem}");
    }
}

#[test]
fn every_endpoint_rejects_json_of_the_wrong_shape() {
    let mut trial = Trial::new();
    let deep = "[".repeat(100_000);
    let deep_field = format!(r#"{{"nonsense":{deep}"#);
    let twice = |sample: &Sample| {
        let text = sample.body.to_string();
        let (name, value) = sample.body.as_object().unwrap().iter().next().unwrap();
        format!("{},\"{name}\":{value}}}", &text[..text.len() - 1])
    };
    for sample in samples::all() {
        let Sample { method, path, .. } = sample;
        let text = sample.body.to_string();
        for (bytes, words) in [
            (&b""[..], &["EOF", "line 1"][..]),
            (b" \n", &["EOF", "line 2"]),
            (b"nonsense", &["line 1 column 2"]),
            (b"null", &["null"]),
            (b"1", &["integer `1`"]),
            (b"\"text\"", &["string \"text\""]),
            (b"true", &["boolean `true`"]),
            (&text.as_bytes()[..text.len() - 1], &["EOF"]),
            (&text.as_bytes()[..text.len() / 2], &["EOF"]),
            (format!("{text}x").as_bytes(), &["trailing characters"]),
            (format!("{text}{text}").as_bytes(), &["trailing characters"]),
            (format!("\u{feff}{text}").as_bytes(), &["line 1 column 1"]),
            (deep.as_bytes(), &[]),
            (deep_field.as_bytes(), &["nonsense"]),
            (br#"{"nonsense":1}"#, &["unknown field `nonsense`"]),
            (b"{\"\xff\":1}", &["unicode", "line 1"]),
            (b"{\"a\\ud800\":1}", &["line 1"]),
            (b"{'a':1}", &["line 1"]),
            (b"{a:1}", &["line 1"]),
            (b"{\"a\":1,}", &[]),
            (b"{\"a\":NaN}", &[]),
            (b"{\"a\0\":1}", &["control character"]),
            (twice(&sample).as_bytes(), &["duplicate field"]),
        ] {
            let problem = trial.refused(&request(method, path, JSON, bytes));
            assert_problem(&problem, "malformed", words);
        }
        let array = trial.refused(&request(method, path, JSON, b"[]"));
        assert_problem(&array, "malformed", &[]);
        for (content_type, word) in [
            ("", "no Content-Type"),
            ("text/plain", r#""text/plain""#),
            ("application/x-www-form-urlencoded", "form-urlencoded"),
            ("application/jsonl", "jsonl"),
            ("application/json-patch+json", "json-patch"),
            ("multipart/form-data; boundary=x", "multipart"),
        ] {
            let problem = trial.refused(&request(method, path, content_type, text.as_bytes()));
            assert_problem(&problem, "not-json", &[word, "application/json"]);
        }
        for content_type in
            ["application/json; charset=utf-8", "APPLICATION/JSON", "application/json ;x"]
        {
            trial.client.send(&request(method, path, content_type, text.as_bytes()));
            let response = trial.client.response();
            assert!(matches!(response.status, 200 | 204), "{content_type}: {}", response.text());
        }
    }
}

/// Returns whether a field of a sample is a time or a duration that the request specifies.
fn is_time(sample: &Sample, pointer: &str) -> bool {
    let name = pointer.rsplit('/').next().expect("a pointer has a last part");
    let is_text = sample.body.pointer(pointer).is_some_and(Value::is_string);
    let names = [
        "delay",
        "max_wait",
        "lease",
        "wait",
        "base",
        "max",
        "age",
        "for",
        "per",
        "ageing",
        "every",
        "jitter",
        "catch_up",
        "died_before",
        "starts_at",
        "ends_at",
        "due",
        "claimed_at",
        "started_at",
        "ended_at",
        "done_at",
        "died_at",
        "created_at",
        "updated_at",
    ];
    is_text && names.contains(&name)
}

#[test]
fn a_number_without_a_unit_is_rejected_with_the_units() {
    let mut trial = Trial::new();
    // Some samples change it.
    trial.server.call("PUT", "/v1/kinds/samples/schedules/s", json!({"every": "1h"})).json();
    let mut seen = Vec::new();
    for sample in samples::all() {
        let times = places(&sample.body).into_iter().filter(|(_, at)| is_time(&sample, at));
        for (name, pointer) in times {
            let key = name.rsplit('.').next().unwrap();
            let is_duration = !(key.ends_with("_at") || matches!(key, "due" | "died_before"));
            for (number, hint) in match is_duration {
                true => [(json!(300), "write 300s or 5m"), (json!(1.5), "write 1.5s or 1.5m")],
                false => [(json!(1796112000), "@1796112000s"), (json!(0), "@0s")],
            } {
                let mut body = sample.body.clone();
                *body.pointer_mut(&pointer).unwrap() = number;
                let response = trial.client.call(sample.method, sample.path, body);
                // An entry of a batch is rejected alone.
                let problem = match response.status {
                    200 => {
                        let results = response.json()["results"].clone();
                        let mut results = results.as_array().expect("a list").iter();
                        let error = results.find_map(|result| result.get("error"));
                        error.cloned().expect("an entry is rejected")
                    }
                    _ => response.problem(),
                };
                assert_problem(&problem, "invalid", &[hint]);
                assert_eq!((&problem["status"], &problem["field"]), (&json!(422), &json!(name)));
                trial.goes_on(&response);
            }
            seen.push(key.to_owned());
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 23, "{seen:?}");
    let (job, kind) = ("/v1/kinds/mail/jobs/a", "/v1/kinds/mail");
    let push = json!({"push": {"url": "http://localhost:1/", "timeout": 10}});
    for (path, body, field, hint) in [
        (job, json!({"due": 1796112000}), "due", "write @1796112000s or @1796112000ms"),
        (job, json!({"due": 1796112000.25}), "due", "write it like"),
        (job, json!({"delay": -5}), "delay", "a duration cannot be negative"),
        (kind, push, "push.timeout", "write 10s or 10m"),
    ] {
        let problem = trial.json("PUT", path, &body);
        assert_problem(&problem, "invalid", &[hint]);
        assert_eq!(problem["field"], field);
    }
}

#[test]
fn a_field_of_the_wrong_type_is_named() {
    let mut trial = Trial::new();
    for sample in samples::all() {
        let Sample { method, path, ref body, required } = sample;
        // A body is any JSON.
        let places = places(body).into_iter().filter(|(_, pointer)| !pointer.ends_with("/body"));
        for (name, pointer) in places {
            let mut wrong = vec![json!({"nonsense": 1}), json!(1.5), json!(-1), json!(1e300)];
            wrong.push(if body.pointer(&pointer).unwrap().is_array() {
                json!("x")
            } else {
                json!([1])
            });
            match body.pointer(&pointer).unwrap() {
                Value::String(_) => wrong.extend([json!(true), json!(7)]),
                Value::Number(_) => wrong.extend([json!("7"), json!("nonsense"), json!(false)]),
                Value::Bool(_) => wrong.extend([json!("true"), json!(0)]),
                // Omitted here.
                Value::Null => continue,
                _ => wrong.extend([json!("x"), json!(7)]),
            }
            if is_time(&sample, &pointer) {
                // Numbers are rejected for their missing unit.
                wrong.retain(|value| !value.is_number());
            }
            if pointer == "/rate" {
                wrong.retain(|value| !value.is_string()); // Such as "10/s".
            }
            for value in wrong {
                let mut body = body.clone();
                *body.pointer_mut(&pointer).unwrap() = value.clone();
                let problem = trial.json(method, path, &body);
                assert_problem(&problem, "malformed", &[&name]);
                // Or a field inside of it.
                let field = problem["field"].as_str().unwrap_or_default();
                assert!(field.starts_with(&name), "{method} {path} {name} = {value}: {problem}");
            }
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let mut lacking = body.clone();
            if let Some(fields) = lacking.pointer_mut(parent).and_then(Value::as_object_mut) {
                fields.remove(key);
                if required.contains(&&*name) {
                    let problem = trial.json(method, path, &lacking);
                    assert_problem(&problem, "malformed", &[&format!("missing field `{key}`")]);
                }
                let mut null = body.clone();
                *null.pointer_mut(&pointer).unwrap() = Value::Null;
                if required.contains(&&*name) && !name.ends_with("error") {
                    let problem = trial.json(method, path, &null);
                    assert_problem(&problem, "malformed", &[&name]);
                }
            }
            if body.pointer(&pointer).unwrap().is_object() {
                let mut more = body.clone();
                more.pointer_mut(&pointer).unwrap()["nonsense"] = json!(1);
                let problem = trial.json(method, path, &more);
                assert_problem(&problem, "malformed", &["unknown field `nonsense`", &name]);
            }
        }
    }
}

#[test]
fn an_invalid_value_is_named_with_its_limit() {
    let mut trial = Trial::new();
    let (id, kind, worker) = ("i".repeat(513), "k".repeat(129), "w".repeat(129));
    let job = "/v1/kinds/mail/jobs/a";
    let of_kind = "/v1/kinds/mail";
    let schedule = "/v1/kinds/mail/schedules/s";
    let long = "1".repeat(2000) + "s";
    let many = |entry: Value| vec![entry; 1001];
    for (method, path, body, field, words) in [
        // Times and durations.
        ("PUT", job, json!({"delay": ""}), "delay", &["duration"][..]),
        ("PUT", job, json!({"delay": "soon"}), "delay", &["\"soon\"", "5m"]),
        ("PUT", job, json!({"delay": "5"}), "delay", &["without a unit", "5s"]),
        ("PUT", job, json!({"delay": "-5s"}), "delay", &["\"-5s\""]),
        ("PUT", job, json!({"delay": "1e999s"}), "delay", &["\"1e999s\""]),
        ("PUT", job, json!({"delay": "99999999999999999999w"}), "delay", &["too long"]),
        ("PUT", job, json!({"delay": long}), "delay", &["2001 bytes", "limit"]),
        ("PUT", job, json!({"delay": "1 month"}), "delay", &["month"]),
        ("PUT", job, json!({"delay": "4015 days"}), "delay", &["the delay is", "the range is"]),
        ("PUT", job, json!({"due": "2038-01-01Z"}), "due", &["the delay is", "the range is"]),
        ("PUT", job, json!({"due": "99999-01-01"}), "due", &["99999"]),
        ("PUT", job, json!({"due": "1969-12-31Z"}), "due", &["1970"]),
        ("PUT", job, json!({"due": "2026-12-01T09:00:00"}), "due", &["2026-12-01T09:00:00Z"]),
        ("PUT", job, json!({"due": "2026-12-01 09:00"}), "due", &["no time zone", "+01:00"]),
        ("PUT", job, json!({"due": "2026-12-01"}), "due", &["no time zone", "2026-12-01 UTC"]),
        ("PUT", job, json!({"due": "tomorrow 09:00"}), "due", &["tomorrow 09:00 Europe/Berlin"]),
        ("PUT", job, json!({"due": "09:00"}), "due", &["no time zone", "09:00 UTC"]),
        ("PUT", job, json!({"due": "monday 08:30"}), "due", &["no time zone", "monday 08:30 UTC"]),
        ("PUT", job, json!({"due": "2026-02-30"}), "due", &["2026-02-30"]),
        ("PUT", job, json!({"due": "5m"}), "due", &["delay"]),
        ("PUT", job, json!({"due": "now Mars/Olympus"}), "due", &["Mars/Olympus"]),
        ("PUT", job, json!({"due": "@99999999999999999999s"}), "due", &["too far"]),
        ("PUT", job, json!({"due": "\u{0}"}), "due", &["\\0"]),
        ("PUT", job, json!({"due": "now", "delay": "1s"}), "due", &["only one of due and delay"]),
        // Other fields of a put.
        ("PUT", job, json!({"mode": "debounce"}), "max_wait", &["requires max_wait"]),
        ("PUT", job, json!({"mode": "keep", "max_wait": "1s"}), "max_wait", &["debounce"]),
        ("PUT", job, json!({"if_absent": true, "if_generation": 1}), "if_absent", &["only one"]),
        ("PUT", job, json!({"if_absent": true, "if_new": true}), "if_new", &["only one"]),
        ("PUT", job, json!({"if_new": true, "if_generation": 1}), "if_new", &["only one"]),
        ("PUT", job, json!({"priority": 10}), "priority", &["10", "the limit is 9"]),
        ("PUT", job, json!({"body": 1, "body_text": "x"}), "body", &["only one of body"]),
        ("PUT", job, json!({"body_text": "x", "body_base64": ""}), "body", &["only one of body"]),
        ("PUT", job, json!({"body_base64": "?"}), "body_base64", &["not valid base64"]),
        ("PUT", job, json!({"body_base64": "/w"}), "body_base64", &["not valid base64"]),
        (
            "PUT",
            job,
            json!({"body": 1, "content_type": kind}),
            "content_type",
            &["129 bytes", "128"],
        ),
        ("PUT", job, json!({"id": "a"}), "id", &["path"]),
        ("PUT", job, json!({"kind": "mail"}), "kind", &["path"]),
        // Claims.
        ("POST", "/v1/claim", json!({"kinds": ["a b"]}), "kinds[0]", &["\"a b\"", "' '", "A-Z"]),
        ("POST", "/v1/claim", json!({"kinds": ["a", ""]}), "kinds[1]", &["empty"]),
        ("POST", "/v1/claim", json!({"kinds": [kind]}), "kinds[0]", &["129", "128"]),
        ("POST", "/v1/claim", json!({"kinds": many(json!("a"))}), "kinds", &["1001", "1000"]),
        ("POST", "/v1/claim", json!({"kinds": [], "worker": ""}), "worker", &["empty"]),
        ("POST", "/v1/claim", json!({"kinds": [], "worker": worker}), "worker", &["129", "128"]),
        ("POST", "/v1/claim", json!({"kinds": ["a"], "max": 1001}), "max", &["1001", "1000"]),
        ("POST", "/v1/claim", json!({"kinds": ["a"], "max": u64::MAX}), "max", &["1000"]),
        ("POST", "/v1/claim", json!({"kinds": ["a"], "lease": "9ms"}), "lease", &["9ms", "10ms"]),
        ("POST", "/v1/claim", json!({"kinds": ["a"], "lease": "25h"}), "lease", &["86400s"]),
        ("POST", "/v1/claim", json!({"kinds": ["a"], "wait": "61s"}), "wait", &["61s", "60s"]),
        ("POST", "/v1/claim", json!({"kinds": ["a"], "wait": "3650 days"}), "wait", &["60s"]),
        ("POST", "/v1/claim", json!({"kinds": ["a"], "nonce": "x"}), "nonce", &["\"x\"", "hex"]),
        ("POST", "/v1/claim", json!({"kinds": [], "nonce": ""}), "nonce", &["hex"]),
        ("POST", "/v1/claim", json!({"kinds": [], "nonce": "+f"}), "nonce", &["\"+f\"", "hex"]),
        (
            "POST",
            "/v1/claim",
            json!({"kinds": [], "nonce": "f".repeat(17)}),
            "nonce",
            &["16 hexadecimal"],
        ),
        ("POST", "/v1/wait", json!({"kinds": ["a"], "wait": "10w"}), "wait", &["60s"]),
        ("POST", "/v1/wait", json!({"kinds": ["/"], "wait": "1s"}), "kinds[0]", &["'/'"]),
        ("POST", "/v1/wait", json!({"kinds": many(json!("a")), "wait": "0"}), "kinds", &["1001"]),
        // Batches.
        ("POST", "/v1/put", json!({"jobs": many(json!({}))}), "jobs", &["1001", "1000"]),
        (
            "POST",
            "/v1/kinds/mail/jobs",
            json!({"jobs": many(json!({}))}),
            "jobs",
            &["1001", "1000"],
        ),
        ("POST", "/v1/ack", json!({"leases": many(json!({"receipt": ""}))}), "leases", &["1000"]),
        ("POST", "/v1/kinds/mail/cancel", json!({"ids": many(json!("a"))}), "ids", &["1001"]),
        // Settings.
        ("PATCH", "/v1/kinds/mail", json!({"rate": "10"}), "rate", &["\"10\"", "10/s"]),
        ("PATCH", "/v1/kinds/mail", json!({"rate": "10/lunch"}), "rate", &["10/lunch", "10/s"]),
        ("PUT", "/v1/kinds/mail", json!({"rate": "0/s"}), "rate.jobs", &["0", "1"]),
        (
            "PATCH",
            "/v1/kinds/mail",
            json!({"rate": {"jobs": 0, "per": "1s"}}),
            "rate.jobs",
            &["0", "1"],
        ),
        (
            "PATCH",
            "/v1/kinds/mail",
            json!({"rate": {"jobs": 1_000_001, "per": "1s"}}),
            "rate.jobs",
            &["1000001", "1000000"],
        ),
        (
            "PATCH",
            "/v1/kinds/mail",
            json!({"rate": {"jobs": 1, "per": "1s", "burst": 0}}),
            "rate.burst",
            &["0", "1"],
        ),
        (
            "PATCH",
            "/v1/kinds/mail",
            json!({"rate": {"jobs": 1, "per": "32d"}}),
            "rate.per",
            &["2764800s", "2678400s"],
        ),
        ("PATCH", "/v1/kinds/mail", json!({"ageing": "0s"}), "ageing", &["0ns", "1ms"]),
        ("PATCH", "/v1/kinds/mail", json!({"keep_done": {"for": "7"}}), "keep_done.for", &["7s"]),
        // Changes by filter.
        ("POST", "/v1/kinds/mail/cancel", json!({}), "ids", &["ids or all"]),
        (
            "POST",
            "/v1/kinds/mail/cancel",
            json!({"ids": null, "all": null}),
            "ids",
            &["ids or all"],
        ),
        ("POST", "/v1/kinds/mail/cancel", json!({"ids": [], "all": {}}), "ids", &["only one"]),
        ("POST", "/v1/kinds/mail/cancel", json!({"ids": [], "after": "a"}), "after", &["all"]),
        ("POST", "/v1/kinds/mail/cancel", json!({"ids": [], "limit": 1}), "limit", &["all"]),
        ("POST", "/v1/kinds/mail/cancel", json!({"all": {}, "limit": 0}), "limit", &["1", "10000"]),
        (
            "POST",
            "/v1/kinds/mail/cancel",
            json!({"all": {}, "limit": 10_001}),
            "limit",
            &["10001", "10000"],
        ),
        ("POST", "/v1/kinds/mail/cancel", json!({"all": {}, "after": ""}), "after", &["empty"]),
        (
            "POST",
            "/v1/kinds/mail/cancel",
            json!({"all": {}, "after": id}),
            "after",
            &["513", "512"],
        ),
        (
            "POST",
            "/v1/kinds/mail/revive",
            json!({"all": {"died_before": "2026-12-01 09:00"}}),
            "all.died_before",
            &["no time zone"],
        ),
        (
            "POST",
            "/v1/kinds/mail/cancel",
            json!({"all": {"died_before": "x"}}),
            "all.died_before",
            &["\"x\""],
        ),
        (
            "POST",
            "/v1/kinds/mail/revive",
            json!({"all": {"prefix": id}}),
            "all.prefix",
            &["513", "512"],
        ),
        (
            "POST",
            "/v1/kinds/mail/revive",
            json!({"all": {"error": "e".repeat(2049)}}),
            "all.error",
            &["2049", "2048"],
        ),
        (
            "POST",
            "/v1/kinds/mail/revive",
            json!({"all": {"error_group": "e".repeat(2049)}}),
            "all.error_group",
            &["2049", "2048"],
        ),
        (
            "POST",
            "/v1/kinds/mail/cancel",
            json!({"all": {"priority": 10}}),
            "all.priority",
            &["10", "the limit is 9"],
        ),
        // Settings.
        ("PUT", of_kind, json!({"lease": "1ms"}), "lease", &["1ms", "10ms"]),
        ("PATCH", of_kind, json!({"lease": "2d"}), "lease", &["86400s"]),
        (
            "PUT",
            of_kind,
            json!({"backoff": {"base": "11000 days"}}),
            "backoff.base",
            &["first delay"],
        ),
        (
            "PUT",
            of_kind,
            json!({"backoff": {"max": "11000 days"}}),
            "backoff.max",
            &["longest delay"],
        ),
        ("PUT", of_kind, json!({"backoff": {"base": "x"}}), "backoff.base", &["\"x\""]),
        (
            "PUT",
            of_kind,
            json!({"backoff": {"base": "2m", "max": "1m"}}),
            "backoff.base",
            &["120s", "60s"],
        ),
        (
            "PATCH",
            of_kind,
            json!({"backoff": {"jitter_percent": 101}}),
            "backoff.jitter_percent",
            &["101", "100"],
        ),
        ("PATCH", of_kind, json!({"concurrency": 0}), "concurrency", &["is 0", "1"]),
        ("PATCH", of_kind, json!({"retention": {"age": "-1s"}}), "retention.age", &["\"-1s\""]),
        // Schedules.
        ("PUT", schedule, json!({}), "cron", &["cron or every"]),
        ("PUT", schedule, json!({"cron": "x", "every": "1h"}), "every", &["only one"]),
        ("PUT", schedule, json!({"cron": ""}), "cron", &["0 fields"]),
        ("PUT", schedule, json!({"cron": "every full moon"}), "cron", &["3 fields", "5"]),
        ("PUT", schedule, json!({"cron": "0 25 * * *"}), "cron", &["the hour \"25\""]),
        ("PUT", schedule, json!({"cron": "0 9 * * *; paused"}), "cron", &["\"*;\""]),
        ("PUT", schedule, json!({"cron": "@fortnightly"}), "cron", &["@weekly"]),
        ("PUT", schedule, json!({"cron": "0 0 31 2 *"}), "cron", &["never fires"]),
        ("PUT", schedule, json!({"cron": "0,".repeat(600)}), "cron", &["1200", "1024"]),
        (
            "PUT",
            schedule,
            json!({"cron": "@daily", "time_zone": "Europe/Atlantis"}),
            "time_zone",
            &["Europe/Atlantis", "Europe/Berlin"],
        ),
        (
            "PUT",
            schedule,
            json!({"cron": "@daily", "time_zone": "x".repeat(1025)}),
            "time_zone",
            &["1025", "1024"],
        ),
        ("PUT", schedule, json!({"every": "1h", "time_zone": "UTC"}), "time_zone", &["cron"]),
        ("PUT", schedule, json!({"every": "often"}), "every", &["\"often\""]),
        ("PUT", schedule, json!({"every": "500ms"}), "every", &["500ms", "1s"]),
        ("PUT", schedule, json!({"every": "530w"}), "every", &["range"]),
        ("PUT", schedule, json!({"every": "1m", "jitter": "61s"}), "jitter", &["61s", "60s"]),
        ("PUT", schedule, json!({"cron": "@daily", "jitter": "25h"}), "jitter", &["range"]),
        ("PUT", schedule, json!({"every": "1m", "catch_up": "530w"}), "catch_up", &["range"]),
        (
            "PUT",
            schedule,
            json!({"every": "1m", "missed": "skip", "catch_up": "1h"}),
            "catch_up",
            &["skipped"],
        ),
        ("PUT", schedule, json!({"every": "1m", "priority": 10}), "priority", &["10", "9"]),
        ("PUT", schedule, json!({"every": "1m", "starts_at": "x"}), "starts_at", &["\"x\""]),
        ("PUT", schedule, json!({"every": "1m", "starts_at": "2026-12-01"}), "starts_at", &["UTC"]),
        ("PUT", schedule, json!({"every": "1m", "ends_at": "5m"}), "ends_at", &["in 5m"]),
        ("PUT", schedule, json!({"every": "1m", "ends_at": "2020-01-01Z"}), "ends_at", &["no run"]),
        ("PUT", schedule, json!({"every": "1m", "body_base64": "?"}), "body_base64", &["base64"]),
        // Other requests.
        (
            "POST",
            "/v1/kinds/mail/restore",
            json!({"generation": u64::MAX, "fence": 0, "jobs": []}),
            "generation",
            &["4503599627370496"],
        ),
        (
            "POST",
            "/v1/kinds/mail/restore",
            json!({"generation": 0, "fence": 1u64 << 53, "jobs": []}),
            "fence",
            &["4503599627370496"],
        ),
    ] {
        let problem = trial.json(method, path, &body);
        let shown: String = body.to_string().chars().take(100).collect();
        assert_eq!(problem["field"], field, "{method} {path} {shown}: {problem}");
        assert_problem(&problem, "invalid", words);
    }
    // None of the requests changed anything.
    let kinds = trial.server.get("/v1/kinds").json();
    assert_eq!(kinds["kinds"].as_array().map(Vec::len), Some(1), "{kinds}");
}

#[test]
fn an_invalid_entry_is_named_with_its_index() {
    let server = Server::start();
    let mut client = server.client();
    let id = "i".repeat(513);
    for (path, list, entry, field, words) in [
        ("/v1/put", "jobs", json!({"kind": "a/b", "id": "x"}), "kind", &["'/'"][..]),
        ("/v1/put", "jobs", json!({"kind": "", "id": "x"}), "kind", &["empty"]),
        ("/v1/put", "jobs", json!({"id": "x"}), "kind", &["missing"]),
        ("/v1/put", "jobs", json!({"kind": "k", "id": id}), "id", &["513", "512"]),
        ("/v1/put", "jobs", json!({"kind": "k", "id": ""}), "id", &["empty"]),
        ("/v1/put", "jobs", json!({"kind": "k"}), "id", &["missing"]),
        ("/v1/put", "jobs", json!({"kind": "k", "id": "x", "due": "x"}), "due", &["\"x\""]),
        (
            "/v1/put",
            "jobs",
            json!({"kind": "k", "id": "x", "delay": "11000 d"}),
            "delay",
            &["the range is"],
        ),
        (
            "/v1/put",
            "jobs",
            json!({"kind": "k", "id": "x", "due": "2100-01-01Z"}),
            "due",
            &["the range is"],
        ),
        (
            "/v1/put",
            "jobs",
            json!({"kind": "k", "id": "x", "body_base64": "?"}),
            "body_base64",
            &["base64"],
        ),
        ("/v1/kinds/k/jobs", "jobs", json!({"id": ""}), "id", &["empty"]),
        ("/v1/change", "jobs", json!({"kind": "/", "id": "x", "what": "cancel"}), "kind", &["'/'"]),
        ("/v1/change", "jobs", json!({"kind": "k", "id": "", "what": "cancel"}), "id", &["empty"]),
        ("/v1/ack", "leases", json!({"receipt": ""}), "receipt", &["is not a receipt"]),
        ("/v1/ack", "leases", json!({"receipt": "nonsense"}), "receipt", &["\"nonsense\""]),
        ("/v1/ack", "leases", json!({"receipt": "1.1.k"}), "receipt", &["\"1.1.k\""]),
        ("/v1/ack", "leases", json!({"receipt": "1.1.k/"}), "receipt", &["empty"]),
        ("/v1/ack", "leases", json!({"receipt": "1.1./x"}), "receipt", &["empty"]),
        ("/v1/ack", "leases", json!({"receipt": "x.1.k/x"}), "receipt", &["is not a receipt"]),
        (
            "/v1/ack",
            "leases",
            json!({"receipt": "11111111111111111.1.k/x"}),
            "receipt",
            &["is not a receipt"],
        ),
        ("/v1/ack", "leases", json!({"receipt": "-1.1.k/x"}), "receipt", &["is not a receipt"]),
        ("/v1/ack", "leases", json!({"receipt": "1.1.k/x", "how": "ack"}), "how", &["path"]),
        (
            "/v1/ack",
            "leases",
            json!({"receipt": "1.1.k/x", "delay": "1s"}),
            "delay",
            &["not allowed with ack"],
        ),
        ("/v1/settle", "leases", json!({"receipt": "1.1.k/x"}), "how", &["missing"]),
        ("/v1/requeue", "leases", json!({"receipt": "1.1.k/x"}), "delay", &["required"]),
        ("/v1/retry", "leases", json!({"receipt": "1.1.k/x", "delay": "x"}), "delay", &["\"x\""]),
        ("/v1/extend", "leases", json!({"receipt": "1.1.k/x", "lease": "x"}), "lease", &["\"x\""]),
        ("/v1/kinds/k/cancel", "ids", json!(""), "", &["empty"]),
        ("/v1/kinds/k/revive", "ids", json!(id), "", &["513"]),
    ] {
        let results = client.call("POST", path, json!({list: [entry]})).results();
        let problem = &results[0]["error"];
        assert_problem(problem, "invalid", words);
        let dot = if field.is_empty() { "" } else { "." };
        assert_eq!(problem["field"], format!("{list}[0]{dot}{field}"), "{entry}: {problem}");
    }
    // A list leaves out long results, and says so with a field that no request has.
    let left_out = json!({"leases": [{"receipt": "1.1.k/x", "result": {"body_bytes": 7}}]});
    let problem = client.call("POST", "/v1/ack", left_out).problem();
    assert_problem(&problem, "malformed", &["leases[0].result", "unknown field `body_bytes`"]);
    assert_eq!(server.get("/v1/kinds").json(), json!({"kinds": []}));
}

#[test]
fn invalid_paths_and_query_parameters_are_rejected() {
    let mut trial = Trial::new();
    let (id, kind) = ("i".repeat(513), "k".repeat(129));
    let jobs = |rest: &str| format!("/v1/kinds/kept/jobs{rest}");
    let count = |rest: &str| format!("/v1/kinds/kept/count{rest}");
    let errors = |rest: &str| format!("/v1/kinds/kept/errors{rest}");
    for (method, path, name, words) in [
        ("GET", jobs(&format!("/{id}")), "invalid", &["id", "513", "512"][..]),
        ("DELETE", jobs(&format!("/{id}")), "invalid", &["513"]),
        ("GET", jobs("/%ff"), "malformed", &["UTF-8", "id"]),
        ("GET", jobs("/%c3%28"), "malformed", &["UTF-8"]),
        ("GET", jobs("/"), "no-such-path", &["/v1/kinds/kept/jobs/"]),
        ("GET", jobs("/a/b"), "no-such-path", &["/a/b"]),
        ("GET", format!("/v1/kinds/{kind}"), "invalid", &["kind", "129", "128"]),
        ("GET", "/v1/kinds/a%20b".to_owned(), "invalid", &["' '", "a b"]),
        ("GET", "/v1/kinds/a%2Fb/jobs".to_owned(), "invalid", &["'/'"]),
        ("GET", "/v1/kinds/%00".to_owned(), "invalid", &["\\0"]),
        ("GET", "/v1/kinds/%ff".to_owned(), "malformed", &["UTF-8", "kind"]),
        ("GET", "/v1/kinds/%C3%BC/jobs/a".to_owned(), "invalid", &["'ü'"]),
        ("GET", "/v1/kinds/{kind}".to_owned(), "invalid", &["'{'"]),
        ("POST", "/v1/kinds/a%0D%0Ab/pause".to_owned(), "invalid", &["'\\r'"]),
        ("GET", "/v1/../v1/kinds".to_owned(), "no-such-path", &[".."]),
        ("GET", "/v1/%2e%2e/kinds".to_owned(), "no-such-path", &["%2e"]),
        ("GET", "/%00".to_owned(), "no-such-path", &["%00"]),
        ("GET", jobs("?limit=0"), "invalid", &["limit", "1 to 1000"]),
        ("GET", jobs("?limit=1001"), "invalid", &["limit", "1001", "1000"]),
        ("GET", jobs("?limit=-1"), "malformed", &["limit"]),
        ("GET", jobs("?limit=abc"), "malformed", &["limit"]),
        ("GET", jobs("?limit="), "malformed", &["limit"]),
        ("GET", jobs("?limit=1.5"), "malformed", &["limit"]),
        ("GET", jobs("?limit=99999999999999999999"), "malformed", &["limit"]),
        ("GET", jobs("?limit=1&limit=2"), "malformed", &["duplicate", "limit"]),
        ("GET", jobs("?nonsense=1"), "malformed", &["nonsense"]),
        ("GET", jobs("?state=nonsense"), "malformed", &["state", "nonsense", "waiting"]),
        ("GET", jobs("?state="), "malformed", &["state"]),
        ("GET", jobs("?after="), "invalid", &["after", "empty"]),
        ("GET", jobs(&format!("?after={id}")), "invalid", &["after", "513"]),
        ("GET", jobs("?died_before=never"), "invalid", &["died_before", "\"never\""]),
        ("GET", jobs("?died_before=2026-12-01"), "invalid", &["died_before", "no time zone"]),
        ("GET", jobs("?prefix=%ff"), "malformed", &["UTF-8"]),
        ("GET", jobs("?priority=10"), "invalid", &["priority", "10", "the limit is 9"]),
        ("GET", jobs("?priority=high"), "malformed", &["priority"]),
        ("GET", jobs("?priority=-1"), "malformed", &["priority"]),
        ("GET", jobs("?expired=yes"), "malformed", &["expired"]),
        ("GET", jobs("?body_limit=1048577"), "invalid", &["body_limit", "1048577", "1048576"]),
        ("GET", jobs("?body_limit=-1"), "malformed", &["body_limit"]),
        ("GET", jobs("?body_limit=1KiB"), "malformed", &["body_limit"]),
        ("GET", count("?priority=10"), "invalid", &["priority", "10", "the limit is 9"]),
        ("GET", count("?died_before=never"), "invalid", &["died_before", "\"never\""]),
        ("GET", count(&format!("?prefix={id}")), "invalid", &["prefix", "513", "512"]),
        ("GET", count("?state=nonsense"), "malformed", &["state", "nonsense", "waiting"]),
        ("GET", count("?after="), "invalid", &["after", "empty"]),
        ("GET", count("?limit=1"), "malformed", &["limit"]),
        ("POST", count(""), "wrong-method", &[]),
        ("GET", errors("?after="), "invalid", &["after", "empty"]),
        ("GET", errors("?state=dead"), "malformed", &["state"]),
        ("GET", errors("?after=%ff"), "malformed", &["UTF-8"]),
        ("DELETE", errors(""), "wrong-method", &[]),
        ("GET", jobs("?after=%C3%28"), "malformed", &["UTF-8"]),
        ("GET", jobs("?%ff=1"), "malformed", &["UTF-8"]),
        (
            "GET",
            "/v1/kinds/kept/upcoming?count=1001".to_owned(),
            "invalid",
            &["count", "1001", "1000"],
        ),
        ("GET", "/v1/kinds/kept/upcoming?count=-1".to_owned(), "malformed", &["count"]),
        ("GET", "/v1/kinds/kept/upcoming?span=0s".to_owned(), "invalid", &["span", "empty"]),
        ("GET", "/v1/kinds/kept/upcoming?span=x".to_owned(), "invalid", &["span", "\"x\""]),
        ("GET", "/v1/kinds/kept/upcoming?from=x".to_owned(), "invalid", &["from", "\"x\""]),
        (
            "GET",
            "/v1/kinds/kept/upcoming?from=2026-12-01T09:00:00".to_owned(),
            "invalid",
            &["from", "2026-12-01T09:00:00Z"],
        ),
        ("DELETE", "/v1/kinds/mail?after=".to_owned(), "invalid", &["after", "empty"]),
        ("DELETE", "/v1/kinds/mail?all=true".to_owned(), "malformed", &["all"]),
        ("GET", "/v1/events?kinds=a/b".to_owned(), "invalid", &["kinds", "'/'"]),
        ("GET", "/v1/events?kinds=".to_owned(), "invalid", &["kinds", "empty"]),
        ("GET", "/v1/events?x=1".to_owned(), "malformed", &["x"]),
        ("DELETE", "/v1/kinds/mail/schedules/s".to_owned(), "absent", &["\"s\""]),
        ("GET", "/v1/kinds/mail/schedules/s".to_owned(), "absent", &["schedule \"s\""]),
        ("POST", "/v1/kinds/mail/schedules/s/run".to_owned(), "absent", &["schedule \"s\""]),
        ("POST", "/v1/kinds/mail/schedules/s/tick".to_owned(), "no-such-path", &["tick"]),
        ("DELETE", "/v1/kinds/mail/schedules/%ff".to_owned(), "malformed", &["UTF-8"]),
        ("POST", "/v1/kinds/mail/nonsense".to_owned(), "no-such-path", &["nonsense"]),
        ("BREW", "/v1/kinds".to_owned(), "wrong-method", &[]),
        ("TRACE", "/v1/kinds".to_owned(), "wrong-method", &[]),
        ("OPTIONS", "/v1/kinds".to_owned(), "wrong-method", &[]),
    ] {
        let problem = trial.refused(&request(method, &path, "", b""));
        let shown: String = path.chars().take(60).collect();
        assert_eq!(sort(&problem).name(), name, "{method} {shown}: {problem}");
        assert_problem(&problem, name, words);
    }
    // Unusual but valid.
    for path in ["/v1/kinds/..", "/v1/kinds/%2e%2e/jobs", "/v1/kinds?x=y", "/healthz?%ff"] {
        assert_eq!(trial.client.get(path).status, 200, "{path}");
    }
}

#[test]
fn a_problem_repeats_only_a_short_part_of_the_request() {
    let mut trial = Trial::new();
    let long = "\u{1}".repeat(1 << 20);
    for (path, body) in [
        ("/v1/claim", json!({long.clone(): 1})),
        ("/v1/claim", json!({"kinds": [long]})),
        ("/v1/claim", json!({"kinds": [format!("{}/", "x".repeat(100_000))]})),
        ("/v1/claim", json!({"kinds": [], "nonce": long})),
        ("/v1/claim", json!({"kinds": long})),
        ("/v1/settle", json!({"leases": [{"receipt": "", "how": long}]})),
    ] {
        trial.client.start("POST", path, body);
        let response = trial.client.response();
        trial.is_refused(&response, path);
        assert!(response.body.len() < 20_000, "{} bytes", response.body.len());
        trial.goes_on(&response);
    }
    let leases = json!({"leases": [{"receipt": long}, {"receipt": "é".repeat(1 << 20)}]});
    let response = trial.client.call("POST", "/v1/ack", leases);
    assert_eq!(response.results().len(), 2);
    assert!(response.body.len() < 40_000, "{} bytes", response.body.len());
}

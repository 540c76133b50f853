//! Schedules: the API, and the runs that servers start.

use crate::api::support::{BEGAN_AT, Server, detail, request, until};
use crate::support;
use requeue::ManualClock;
use requeue_http::HttpStore;
use requeue_jobs::{
    Body, JobId, Jobs, Kind, Missed, Schedule, ScheduleCondition, Store, WallClock,
};
use requeue_redis::RedisStore;
use requeue_server::{App, Limits};
use requeue_testkit::block_on;
use requeue_testkit::servers::RedisServer;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const SCHEDULES: &str = "/v1/kinds/mail/schedules";
const DAILY: &str = "/v1/kinds/mail/schedules/daily";

/// The problem of a request: its type, field and detail.
fn refused(server: &Server, method: &str, path: &str, body: Value) -> (String, Value, String) {
    let problem = server.call(method, path, body).problem();
    let name = problem["type"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    (name.to_owned(), problem["field"].clone(), detail(&problem).to_owned())
}

#[test]
fn a_schedule_is_set_read_listed_and_removed() {
    let server = Server::start();
    let mut client = server.client();
    let all = json!({
        "cron": "0 9 * * MON-FRI", "time_zone": "Europe/Berlin", "body": {"a": 1}, "priority": 3,
        "jitter": "30s", "missed": "all", "catch_up": "2d", "overlap": "allow", "paused": false,
        "starts_at": "2026-12-02 00:00 Europe/Berlin", "ends_at": "2027-01-01 UTC",
    });
    let set = client.call("PUT", &format!("{SCHEDULES}/b%2F"), all).json();
    let every = client.call("PUT", DAILY, json!({"every": "90s"})).json();
    assert_eq!(
        every,
        json!({
            "kind": "mail", "id": "daily", "every": "1m30s",
            "content_type": "application/octet-stream", "priority": 0, "jitter": "0s",
            "missed": "one", "catch_up": null, "overlap": "none", "paused": false,
            "starts_at": null, "ends_at": null, "next": "2026-12-01T08:01:30.000Z",
            "next_times": [
                "2026-12-01T08:01:30.000Z", "2026-12-01T08:03:00.000Z",
                "2026-12-01T08:04:30.000Z", "2026-12-01T08:06:00.000Z",
                "2026-12-01T08:07:30.000Z",
            ],
        })
    );
    for (field, value) in [
        ("id", json!("b/")),
        ("cron", json!("0 9 * * MON-FRI")),
        ("time_zone", json!("Europe/Berlin")),
        ("body", json!({"a": 1})),
        ("content_type", json!("application/json")),
        ("priority", json!(3)),
        ("jitter", json!("30s")),
        ("missed", json!("all")),
        ("catch_up", json!("2d")),
        ("overlap", json!("allow")),
        ("starts_at", json!("2026-12-01T23:00:00.000Z")),
        ("ends_at", json!("2027-01-01T00:00:00.000Z")),
        ("next", set["next_times"][0].clone()),
    ] {
        assert_eq!(set[field], value, "{field}");
    }
    assert_eq!((set.get("every"), set.get("problem")), (None, None));
    assert!(set["next"].as_str().unwrap().starts_with("2026-12-02T08:00:"), "{set}");

    assert_eq!(client.get(DAILY).json(), every);
    assert_eq!(client.get(SCHEDULES).json(), json!({"schedules": [set, every]}));
    client.call("DELETE", DAILY, json!(null)).nothing();
    let problem = client.call("DELETE", DAILY, json!(null)).is("absent");
    assert_eq!(detail(&problem), r#"there is no schedule "daily" of kind mail"#);
    client.get(DAILY).is("absent");
    assert_eq!(client.get(SCHEDULES).json(), json!({"schedules": [set]}));
}

#[test]
fn a_patch_changes_the_given_fields_and_null_restores_a_default() {
    let server = Server::start();
    let patch = |body: Value| server.call("PATCH", DAILY, body);
    patch(json!({"paused": true})).is("absent");
    let body = json!({"cron": "0 9 * * *", "time_zone": "Europe/Berlin", "body": {"a": 1},
                      "priority": 3, "missed": "all", "catch_up": "2d"});
    let mut expected = server.call("PUT", DAILY, body).json();

    let changed = patch(json!({"priority": 5, "jitter": "1s"})).json();
    (expected["priority"], expected["jitter"]) = (json!(5), json!("1s"));
    (expected["next"], expected["next_times"]) =
        (changed["next"].clone(), changed["next_times"].clone());
    assert_eq!(changed, expected);
    assert_eq!(patch(json!({})).json(), expected, "nothing changes");

    let changed = patch(json!({
        "priority": null, "jitter": null, "missed": null, "catch_up": null, "time_zone": null,
        "content_type": "application/vnd.a+json",
    }))
    .json();
    let fields = ["priority", "jitter", "missed", "catch_up", "time_zone", "body_text"];
    let values = fields.map(|field| changed[field].clone());
    let defaults =
        [json!(0), json!("0s"), json!("one"), json!(null), json!("UTC"), json!("{\"a\":1}")];
    assert_eq!(values, defaults, "{changed}");
    assert_eq!(changed["next"], "2026-12-01T09:00:00.000Z");

    // A cron expression becomes a period, and the other way around.
    let changed = patch(json!({"every": "1h"})).json();
    assert_eq!((&changed["every"], changed.get("cron")), (&json!("1h"), None));
    let (name, field, _) = refused(&server, "PATCH", DAILY, json!({"time_zone": "UTC"}));
    assert_eq!((&*name, field), ("invalid", json!("time_zone")));
    assert_eq!(server.get(DAILY).json(), changed, "a refused change changes nothing");
    let changed = patch(json!({"cron": "@daily"})).json();
    assert_eq!((&changed["time_zone"], changed.get("every")), (&json!("UTC"), None));
}

#[test]
fn a_schedule_that_is_set_again_keeps_its_next_run() {
    let server = Server::start();
    let hourly = json!({"every": "1h", "starts_at": "2026-12-01T08:30:00Z"});
    let first = server.call("PUT", DAILY, hourly.clone()).json();
    assert_eq!(first["next"], "2026-12-01T08:30:00.000Z");
    // The run is due, and nothing has started it yet.
    server.clock.advance(Duration::from_secs(2 * 3600));
    let again = server.call("PUT", DAILY, hourly).json();
    assert_eq!(again["next"], first["next"]);
    assert_eq!(again["next_times"][0], "2026-12-01T10:30:00.000Z");
    let other = server.call("PUT", DAILY, json!({"every": "2h"})).json();
    assert_eq!(other["next"], "2026-12-01T12:00:00.000Z");
}

#[test]
fn a_paused_schedule_has_no_next_run_until_it_is_resumed() {
    let server = Server::start();
    server.call("PUT", DAILY, json!({"every": "1h"})).json();
    let paused = server.call("PATCH", DAILY, json!({"paused": true})).json();
    assert_eq!((paused.get("next"), &paused["paused"]), (None, &json!(true)));
    assert_eq!(paused["next_times"][0], "2026-12-01T09:00:00.000Z");
    assert_eq!(server.get(DAILY).json(), paused);
    server.clock.advance(Duration::from_secs(10 * 3600));
    let resumed = server.call("PATCH", DAILY, json!({"paused": false})).json();
    assert_eq!(resumed["next"], "2026-12-01T19:00:00.000Z");
}

#[test]
fn the_next_times_follow_a_change_of_the_clocks() {
    let server = Server::start();
    let zone = "Europe/Berlin";
    let set = |cron: &str, starts_at: &str| {
        let body = json!({"cron": cron, "time_zone": zone, "starts_at": starts_at});
        server.call("PUT", DAILY, body).json()["next_times"].clone()
    };
    // On 2027-03-28 there is no 02:30, and on 2027-10-31 there are two.
    assert_eq!(
        set("30 2 * * *", "2027-03-26 UTC"),
        json!([
            "2027-03-26T01:30:00.000Z",
            "2027-03-27T01:30:00.000Z",
            "2027-03-28T01:00:00.000Z",
            "2027-03-29T00:30:00.000Z",
            "2027-03-30T00:30:00.000Z",
        ])
    );
    assert_eq!(
        set("30 2 * * *", "2027-10-30 UTC"),
        json!([
            "2027-10-30T00:30:00.000Z",
            "2027-10-31T00:30:00.000Z",
            "2027-11-01T01:30:00.000Z",
            "2027-11-02T01:30:00.000Z",
            "2027-11-03T01:30:00.000Z",
        ])
    );
}

#[test]
fn an_invalid_schedule_is_refused_with_its_field_and_the_reason() {
    let server = Server::start();
    let invalid =
        |field: &str, detail: &str| ("invalid".to_owned(), json!(field), detail.to_owned());
    for (body, expected) in [
        (json!({"cron": "0 0 31 2 *"}), {
            invalid("cron", r#"cron: the cron expression "0 0 31 2 *" never fires"#)
        }),
        (json!({"cron": "@daily", "time_zone": "Mars/Olympus"}), {
            invalid(
                "time_zone",
                r#"time_zone: unknown time zone "Mars/Olympus": expected a name such as Europe/Berlin, or UTC"#,
            )
        }),
        (json!({"every": "1m", "jitter": "2m"}), {
            invalid("jitter", "jitter: the jitter of the schedule is 120s; the range is 0ns to 60s")
        }),
        (json!({"every": "1m", "missed": "skip", "catch_up": "1h"}), {
            invalid(
                "catch_up",
                "catch_up: the catch-up window has no effect if missed runs are skipped",
            )
        }),
        (json!({"every": "1d", "ends_at": "tomorrow 00:00 Europe/Berlin"}), {
            invalid("ends_at", "ends_at: the schedule has no run before its end")
        }),
        (json!({"every": "1d", "cron": "@daily"}), {
            invalid("every", "every: only one of cron and every is allowed")
        }),
    ] {
        assert_eq!(refused(&server, "PUT", DAILY, body.clone()), expected, "{body}");
    }
    let long = format!("{SCHEDULES}/{}", "x".repeat(500));
    let (_, field, text) =
        refused(&server, "PUT", &long, json!({"every": "1m", "overlap": "allow"}));
    assert_eq!(field, "overlap");
    assert!(text.contains("500 bytes; the limit is 487"), "{text}");
    assert_eq!(server.get(SCHEDULES).json(), json!({"schedules": []}));
}

#[test]
fn a_schedule_that_cannot_run_shows_the_problem() {
    let server = Server::start();
    let kind = Kind::new("mail").unwrap();
    for (id, when) in [("a", "every full moon"), ("b", "0 0 31 2 *")] {
        let schedule = Schedule {
            id: JobId::new(id).unwrap(),
            when: when.to_owned(),
            time_zone: "UTC".to_owned(),
            content: Body::default().into(),
            missed: Missed::One,
            next: BEGAN_AT,
        };
        let set = async |store: &dyn Store| {
            store.set_schedule(kind.clone(), schedule, ScheduleCondition::Always).await
        };
        assert!(server.ask(set).unwrap());
    }
    let list = server.get(SCHEDULES).json();
    let problem = |n: usize| list["schedules"][n]["problem"].as_str().unwrap_or_default();
    assert!(problem(0).contains("every full moon"), "{list}");
    assert!(problem(1).contains("never fires"), "{list}");
    assert_eq!(list["schedules"][0].get("next"), None);
    let (name, _, text) =
        refused(&server, "PATCH", &format!("{SCHEDULES}/a"), json!({"paused": true}));
    assert_eq!(name, "invalid");
    assert!(text.ends_with("; set the schedule again"), "{text}");
    server.call("PUT", &format!("{SCHEDULES}/a"), json!({"every": "1h"})).json();
}

#[test]
fn a_run_can_be_started_now() {
    let server = Server::start();
    let at = "at {{scheduled_at}}";
    server.call("PUT", DAILY, json!({"every": "1h", "body_text": at, "priority": 2})).json();
    let run = || server.call("POST", &format!("{DAILY}/run"), json!(null)).json();
    assert_eq!(run(), json!({"outcome": "created", "generation": 1}));
    assert_eq!(run(), json!({"outcome": "updated", "generation": 2}));
    let job = server.get("/v1/kinds/mail/jobs/daily").json();
    assert_eq!(job["body_text"], "at 2026-12-01T08:00:00Z");
    assert_eq!((&job["priority"], &job["state"]), (&json!(2), &json!("ready")));
    assert_eq!(server.get(DAILY).json()["next"], "2026-12-01T09:00:00.000Z");
    server.call("PATCH", DAILY, json!({"overlap": "allow", "paused": true})).json();
    run();
    server.get("/v1/kinds/mail/jobs/daily@2026-12-01T08:00:00Z").json();
}

#[test]
fn reserved_kinds_can_be_read_and_not_changed_by_any_request() {
    let server = Server::start();
    server.call("PUT", DAILY, json!({"every": "1h"})).json();
    let timers = "/v1/kinds/requeue.schedules";
    let read = || {
        for path in ["", "/count", "/errors", "/settings", "/upcoming", "/schedules"] {
            server.get(&format!("{timers}{path}")).json();
        }
        let list = server.get(&format!("{timers}/jobs")).json();
        assert_eq!(list["jobs"][0]["due"], "2026-12-01T09:00:00.000Z");
        let job = server.get(&format!("{timers}/jobs/mail%2Fdaily")).json();
        assert_eq!(job, list["jobs"][0]);
        (list, server.get(timers).json()["settings"].clone())
    };
    let before = read();

    // Every operation on one kind that changes anything.
    let document = server.get("/v1/openapi.json").json();
    let mut count = 0;
    for (path, operations) in document["paths"].as_object().expect("an object") {
        for method in operations.as_object().expect("an object").keys() {
            if !path.contains("{kind}") || method == "get" {
                continue;
            }
            let path = path.replace("{kind}", "requeue.schedules").replace("{id}", "mail%2Fdaily");
            let problem = server.call(&method.to_uppercase(), &path, json!({})).is("reserved");
            let found = (&problem["field"], &problem["status"]);
            assert_eq!(found, (&json!("kind"), &json!(409)), "{method} {path}");
            count += 1;
        }
    }
    assert!(count >= 14, "{count} operations");

    for kind in ["requeue.schedules", "requeue.x", "requeue."] {
        for path in ["/v1/claim", "/v1/wait"] {
            let problem = server
                .call("POST", path, json!({"kinds": ["mail", kind], "wait": "1ms"}))
                .is("reserved");
            assert_eq!(problem["field"], "kinds[1]", "{path}");
        }
        let job = |what: &str| json!({"kind": kind, "id": "mail/daily", "what": what});
        let put =
            json!({"jobs": [{"kind": "mail", "id": "a"}, {"kind": kind, "id": "mail/daily"}]});
        let change = json!({"jobs": [job("cancel"), job("run-now"), job("revive")]});
        let moved =
            json!({"kind": kind, "id": "mail/daily", "what": "reschedule", "set": {"delay": "9d"}});
        let receipt = format!("660584e864d88.510a03a22be957e0.{kind}/mail/daily");
        let settle = |how: &str| json!({"receipt": receipt, "how": how});
        for (path, batch, field) in [
            ("/v1/put", put, "kind"),
            ("/v1/change", change, "kind"),
            ("/v1/change", json!({"jobs": [moved]}), "kind"),
            ("/v1/settle", json!({"leases": [settle("ack"), settle("release")]}), "receipt"),
            ("/v1/ack", json!({"leases": [{"receipt": receipt}]}), "receipt"),
            ("/v1/extend", json!({"leases": [{"receipt": receipt}]}), "receipt"),
        ] {
            let results = server.call("POST", path, batch.clone()).results();
            let refused = results.iter().filter(|result| result.get("error").is_some());
            let mut refused = refused.map(|result| &result["error"]).peekable();
            assert!(refused.peek().is_some(), "{path} {batch}");
            for error in refused {
                assert_eq!(error["type"], "/v1/problems/reserved", "{path} {error}");
                assert!(error["field"].as_str().expect("a field").ends_with(field), "{error}");
            }
        }
        assert_eq!(server.get("/v1/kinds/mail/jobs/a").json()["state"], "ready");
    }

    // An import with a timer that is due in 2999, and numbers that would stop all schedules.
    let highest = (1_u64 << 53) - 1;
    let export = server.get("/v1/export").text().to_owned();
    assert!(!export.contains("requeue.schedules"), "{export}");
    let line = |value: Value| format!("{value}\n");
    let kind_line = export.lines().find(|line| line.contains("\"type\":\"kind\"")).expect("a kind");
    let kind_line = kind_line.replace("\"mail\"", "\"requeue.schedules\"");
    let mut kind: Value = serde_json::from_str(&kind_line).expect("JSON");
    (kind["generation"], kind["fence"]) = (json!(highest), json!(highest));
    kind["settings"]["paused"] = json!(true);
    let header = export.lines().next().expect("a header");
    let end = json!({"type": "end", "kinds": 1, "schedules": 0, "jobs": 0});
    let hostile = format!("{header}\n{}{}", line(kind), line(end));
    let mut client = server.client();
    client.send(&request("POST", "/v1/import", "application/jsonl", hostile.as_bytes()));
    let imported = client.response().json();
    assert_eq!(imported["kept"], 1, "{imported}");
    assert_eq!(read(), before);
}

/// Claims a job of the kind, as soon as there is one.
fn claim(server: &Server) -> Value {
    let mut claimed = json!([]);
    until("a run is started", || {
        let request = json!({"kinds": ["mail"], "worker": "w", "lease": "1h"});
        claimed = server.call("POST", "/v1/claim", request).json()["jobs"].clone();
        claimed != json!([])
    });
    claimed[0].clone()
}

#[test]
fn a_server_starts_the_runs_of_schedules() {
    let server = Server::with_schedules();
    let cron = json!({"cron": "0 9 * * *", "body": {"day": "{{scheduled_at}}"}});
    server.call("PUT", DAILY, cron).json();
    server.clock.advance(Duration::from_secs(3600));
    let job = claim(&server);
    assert_eq!((&job["id"], &job["due"]), (&json!("daily"), &json!("2026-12-01T09:00:00.000Z")));
    assert_eq!(job["body"], json!({"day": "2026-12-01T09:00:00Z"}));
    until("the schedule has advanced", || {
        server.get(DAILY).json()["next"] == "2026-12-02T09:00:00.000Z"
    });
    // The next run falls due while this one goes on: it follows, once.
    server.clock.advance(Duration::from_secs(2));
    let path = "/v1/kinds/mail/jobs/daily";
    server.call("PATCH", DAILY, json!({"cron": "* * * * *"})).json();
    server.clock.advance(Duration::from_secs(20));
    assert_eq!(server.get(path).json()["state"], "leased");
    server.clock.advance(Duration::from_secs(38));
    until("the successor is there", || server.get(path).json().get("next").is_some());
    assert_eq!(server.get("/v1/workers").json()["workers"].as_array().unwrap().len(), 1);
}

#[test]
fn imported_schedules_run() {
    let from = Server::start();
    from.call("PUT", DAILY, json!({"every": "1h"})).json();
    let export = from.get("/v1/export");
    let to = Server::with_schedules();
    let mut client = to.client();
    let head = format!(
        "POST /v1/import HTTP/1.1\r\nhost: x\r\ncontent-type: application/jsonl\r\n\
         content-length: {}\r\n\r\n",
        export.body.len()
    );
    client.send(head.as_bytes());
    client.send(&export.body);
    assert_eq!(client.response().json()["schedules"], 1);
    to.clock.advance(Duration::from_secs(3600));
    assert_eq!(claim(&to)["id"], "daily");
}

/// Returns how many runs a node has started.
fn runs(node: &HttpStore) -> u64 {
    let (_, text) = block_on(node.request("GET", "/metrics", None)).expect("it responds");
    let text = String::from_utf8(text).expect("it is text");
    let line =
        text.lines().find(|line| line.starts_with(r#"requeue_schedule_runs_total{kind="mail"}"#));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn of_two_servers_on_one_redis_one_starts_each_run() {
    let redis = RedisServer::start();
    let clock = ManualClock::new();
    let wall_clock = WallClock::manual(&clock, BEGAN_AT);
    let node = || {
        let (url, options) = (redis.url(), requeue_redis::Options::default());
        let store = RedisStore::connect_at(&url, options, Some(wall_clock.clone()));
        let store = Arc::new(block_on(store).expect("it answers"));
        let app = App::new(store, wall_clock.clone(), Limits::default());
        support::Server::in_full(&app)
    };
    let nodes = [node(), node()];
    let clients = nodes.each_ref().map(|node| node.client());
    let jobs = Jobs::new(Arc::new(clients[0].clone()));
    let mut spec = requeue_jobs::ScheduleSpec::every(Duration::from_secs(60));
    spec.allow_overlap = true;
    block_on(jobs.set_schedule("mail", "poll", spec)).expect("it is valid");
    for n in 1..=10 {
        clock.advance(Duration::from_secs(60));
        until("the run is started", || clients.iter().map(runs).sum::<u64>() >= n);
    }
    let counts = block_on(clients[1].kind(Kind::new("mail").unwrap())).unwrap().counts;
    assert_eq!(counts.pending, 10, "a job for each run");
    assert_eq!(clients.iter().map(runs).sum::<u64>(), 10);
}

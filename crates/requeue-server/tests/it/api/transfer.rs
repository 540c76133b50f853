//! Export, import, restore, backups.

use crate::api::support::{Client, Server, request, until};
use requeue_server::listen::Options;
use requeue_server::{BackedUp, Limits};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// A server with jobs in all states, schedules and settings.
fn filled() -> Server {
    let server = Server::start();
    let mut client = server.client();
    client.call("PATCH", "/v1/kinds/mail", json!({"max_attempts": 3, "paused": false})).json();
    client.call("PUT", "/v1/kinds/mail/schedules/s", json!({"cron": "@daily"}));
    let jobs = json!([
        {"kind": "mail", "id": "dead", "body": 1.50}, {"kind": "mail", "id": "failed"},
    ]);
    client.call("POST", "/v1/put", json!({"jobs": jobs})).json();
    for (verb, error) in [("bury", "no"), ("retry", "not yet")] {
        let claimed = client.call("POST", "/v1/claim", json!({"kinds": ["mail"]})).json();
        let lease = json!({"receipt": claimed["jobs"][0]["receipt"], "error": error});
        client.call("POST", &format!("/v1/{verb}"), json!({"leases": [lease]})).json();
    }
    for n in 0..300 {
        let path = format!("/v1/kinds/other/jobs/{n}");
        client.call("PUT", &path, json!({"body_base64": "/w==", "delay": "1h"})).json();
    }
    server
}

fn import(client: &mut Client, lines: &[u8]) -> crate::api::support::TestResponse {
    client.send(&request("POST", "/v1/import", "application/jsonl", lines));
    client.response()
}

/// Returns all jobs of a server.
fn jobs(server: &Server) -> Value {
    let list = |kind| server.get(&format!("/v1/kinds/{kind}/jobs?limit=1000")).json();
    json!([list("mail"), list("other")])
}

#[test]
fn an_import_restores_an_export() {
    let (from, to) = (filled(), Server::start());
    let export = from.get("/v1/export");
    assert_eq!(export.header("content-type"), Some("application/jsonl"));
    let mut client = to.client();
    // The timer of the schedule is not exported.
    let counts = json!({"kinds": 2, "schedules": 1, "jobs": 302, "kept": 0, "ended": 0});
    assert_eq!(import(&mut client, &export.body).json(), counts);
    assert_eq!(jobs(&to), jobs(&from));
    for path in ["/v1/kinds/mail/schedules", "/v1/kinds/mail"] {
        let (mut there, mut here) = (from.get(path).json(), to.get(path).json());
        for kind in [&mut there, &mut here] {
            // These counters only grow.
            kind["generation"] = json!(null);
            kind["fence"] = json!(null);
        }
        assert_eq!(here, there);
    }
    // Importing twice changes nothing.
    let again = import(&mut client, &export.body).json();
    assert_eq!(again["kept"], 304, "{again}");
    assert_eq!(jobs(&to), jobs(&from));
}

#[test]
fn an_incomplete_or_invalid_import_is_rejected_with_its_line() {
    let (from, to) = (filled(), Server::start());
    let export = from.get("/v1/export").body;
    let lines: Vec<&[u8]> = export.split_inclusive(|&byte| byte == b'\n').collect();
    let without_end = lines[..lines.len() - 1].concat();
    let broken = [lines[0], b"{\"type\":\"job\"\n"].concat();
    let mut client = to.client();
    for (bytes, word) in [
        (&b""[..], "end"),
        (b"\n", "line 1"),
        (b"nonsense\n", "line 1"),
        (b"[]\n", "line 1"),
        (b"\xff\xff\n", "line 1"),
        (&without_end, "end"),
        (&export[..export.len() / 2], "line"),
        (&broken, "line 2"),
        (&[b'x'; 3 << 20], "line 1"),
    ] {
        let response = import(&mut client, bytes);
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
        assert!(matches!(response.status, 400 | 422), "{shown:?}: {}", response.text());
        let problem = response.problem();
        assert!(problem["detail"].as_str().unwrap().contains(word), "{shown:?}: {problem}");
    }
    // The import can be repeated.
    import(&mut client, &export).json();
    assert_eq!(jobs(&to), jobs(&from));
}

#[test]
fn an_import_may_be_larger_than_any_request() {
    let (from, to) = (
        filled(),
        Server::with(Limits::default(), Options { max_request: 100, ..Options::default() }),
    );
    let export = from.get("/v1/export").body;
    assert!(export.len() > 10_000);
    assert_eq!(import(&mut to.client(), &export).json()["jobs"], 302);
}

#[test]
fn the_number_of_exports_and_imports_is_limited() {
    let mut limits = Limits::default();
    limits.transfers = 1;
    let server = Server::with(limits, Options::default());
    let export = Server::start().get("/v1/export").body;
    let mut slow = TcpStream::connect(server.address).unwrap();
    let length = export.len();
    let head = format!(
        "POST /v1/import HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\
         expect: 100-continue\r\n\r\n"
    );
    slow.write_all(head.as_bytes()).unwrap();
    let mut interim = [0; 25];
    slow.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n", "the server reads the body");
    assert_eq!(server.get("/v1/export").is("busy")["limit"], 1);
    import(&mut server.client(), &export).is("busy");
    slow.write_all(&export).unwrap();
    let mut response = String::new();
    slow.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    until("there is room again", || server.get("/v1/export").status == 200);
}

#[test]
fn jobs_of_one_kind_are_restored_from_a_list() {
    let (from, to) = (filled(), Server::start());
    let jobs = from.get("/v1/kinds/mail/jobs").json()["jobs"].clone();
    let kind = from.get("/v1/kinds/mail").json();
    let (generation, fence) = (&kind["generation"], &kind["fence"]);
    let mut request = json!({"generation": generation, "fence": fence, "jobs": jobs});
    request["jobs"].as_array_mut().unwrap().push(jobs[0].clone());
    request["jobs"][2]["kind"] = json!("other");
    let results = to.call("POST", "/v1/kinds/mail/restore", request.clone()).results();
    assert_eq!(results[..2], [json!({"result": "created"}), json!({"result": "created"})]);
    assert_eq!(results[2]["error"]["field"], "jobs[2].kind");
    assert_eq!(to.get("/v1/kinds/mail/jobs").json()["jobs"], jobs);
    let results = to.call("POST", "/v1/kinds/mail/restore", request).results();
    assert_eq!(results[0], json!({"result": "kept"}));
    // A put after the restore has a higher generation.
    let put = to.call("PUT", "/v1/kinds/mail/jobs/new", json!({})).json();
    assert!(put["generation"].as_u64() > generation.as_u64(), "{put}");
    to.clock.advance(Duration::from_secs(1));
}

#[test]
fn backups_are_made_if_they_are_enabled() {
    let problem = Server::start().call("POST", "/v1/backups", json!(null)).is("not-allowed");
    assert!(problem["detail"].as_str().unwrap().contains("--backups"), "{problem}");
    let server = Server::of(Limits::default(), Options::default(), |app| {
        app.with_backup(Arc::new(|tell| {
            tell(1, 2);
            tell(2, 2);
            Ok(BackedUp { directory: "there".to_owned(), bytes: 2, files: 1 })
        }))
    });
    let made = server.call("POST", "/v1/backups", json!(null));
    assert_eq!((made.status, made.header("content-type")), (200, Some("application/jsonl")));
    let lines = made.text().lines().map(|line| serde_json::from_str(line).expect("it is JSON"));
    assert_eq!(
        lines.collect::<Vec<Value>>(),
        [
            json!({"copied": {"bytes": 1, "of": 2}}),
            json!({"copied": {"bytes": 2, "of": 2}}),
            json!({"done": {"directory": "there", "bytes": 2, "files": 1}}),
        ]
    );
    let failing = Server::of(Limits::default(), Options::default(), |app| {
        app.with_backup(Arc::new(|_| Err("the disk is full".to_owned())))
    });
    let made = failing.call("POST", "/v1/backups", json!(null));
    let line: Value = serde_json::from_str(made.text()).expect("it is JSON");
    assert_eq!(line["error"]["detail"], "the disk is full");
}

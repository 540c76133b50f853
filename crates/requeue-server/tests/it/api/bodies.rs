//! Job bodies are stored byte for byte.

use crate::api::support::Server;
use requeue_jobs::{JobId, Kind};
use serde_json::{Value, json};

/// Returns the body and content type of a job in the store.
fn stored(server: &Server, id: &str) -> (Vec<u8>, String) {
    let kind = Kind::new("mail").expect("a valid kind");
    let id = JobId::new(id).expect("a valid id");
    let job = server.ask(async |store| store.get(kind, id).await).expect("the store is well");
    let job = job.expect("it was put");
    (job.body().bytes().to_vec(), job.body().content_type().to_owned())
}

#[test]
fn json_is_stored_unchanged() {
    let server = Server::start();
    let mut client = server.client();
    let deep = "[".repeat(60) + &"]".repeat(60);
    for json in [
        "null",
        "true",
        "0",
        "-0",
        "1E300",
        "123456789012345678901234567890.000",
        r#""""#,
        r#""\u00e9 é \ud83d\ude00 😀 \/""#,
        r#"{"a": 1,  "a":2, "b":{}}"#,
        "[1,\n\t2 ]",
        r#"{"$serde_json::private::RawValue":"x"}"#,
        r#"{"$serde_json::private::Number":"1"}"#,
        &deep,
    ] {
        let text = format!(r#"{{"body": {json} }}"#);
        let put = client.send_json("PUT", "/v1/kinds/mail/jobs/a", text.as_bytes());
        assert_eq!(put.status, 200, "{}", put.text());
        assert_eq!(stored(&server, "a"), (json.as_bytes().to_vec(), "application/json".to_owned()));
        // Responses contain it unchanged.
        let got = client.get("/v1/kinds/mail/jobs/a");
        assert!(got.text().contains(&format!(r#""body":{json},"#)), "{}", got.text());
        let listed = client.get("/v1/kinds/mail/jobs");
        assert!(listed.text().contains(&format!(r#""body":{json},"#)), "{}", listed.text());
    }
    let claimed = client.call("POST", "/v1/claim", json!({"kinds": ["mail"]}));
    assert!(claimed.text().contains(&format!(r#""body":{deep},"#)));
}

#[test]
fn json_that_some_clients_cannot_read_is_rejected_and_returned_as_text() {
    let server = Server::start();
    let mut client = server.client();
    let (deep, long) = ("[".repeat(100_000) + &"]".repeat(100_000), "9".repeat(5000));
    for (json, words) in [
        (&*deep, "61 levels of nesting in JSON are too many; the limit is 60"),
        (&long, "a number in JSON has 5000 bytes; the limit is 100"),
        ("1E400", "1E400 is larger than"),
        (r#""\ud800""#, "half of a surrogate pair"),
    ] {
        let text = format!(r#"{{"body":{json},"every":"1h"}}"#);
        let set = client.send_json("PUT", "/v1/kinds/mail/schedules/a", text.as_bytes());
        assert_eq!(set.is("invalid")["field"], "body");
        let text = format!(r#"{{"body":{json}}}"#);
        let put = client.send_json("PUT", "/v1/kinds/mail/jobs/a", text.as_bytes());
        let problem = put.is("invalid");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert_eq!(problem["field"], "body");
        assert!(detail.contains(words) && detail.contains("body_text"), "{problem}");
        // The same bytes as text, as an older version may have stored them.
        let text = json!({"body_text": json, "content_type": "application/json"});
        client.call("PUT", "/v1/kinds/mail/jobs/a", text).json();
        assert_eq!(stored(&server, "a"), (json.as_bytes().to_vec(), "application/json".to_owned()));
        // Every response can be parsed, and contains them.
        assert_eq!(client.get("/v1/kinds/mail/jobs/a").json()["body_text"], *json);
        assert_eq!(client.get("/v1/kinds/mail/jobs").json()["jobs"][0]["body_text"], *json);
        let claimed = client.call("POST", "/v1/claim", json!({"kinds": ["mail"]})).json();
        assert_eq!(claimed["jobs"][0]["body_text"], *json);
        let lease = json!({"receipt": claimed["jobs"][0]["receipt"]});
        client.call("POST", "/v1/release", json!({"leases": [lease]})).json();
        // Also what another store returned as JSON can be restored.
        let time = "2026-12-01T08:00:00.000Z";
        let restore = format!(
            r#"{{"generation":1,"fence":1,"jobs":[{{"kind":"old","id":"{}","state":"ready","body":{json},
            "content_type":"application/json","due":"{time}","generation":1,"attempts":0,
            "created_at":"{time}","updated_at":"{time}"}}]}}"#,
            words.len()
        );
        let restored = client.send_json("POST", "/v1/kinds/old/restore", restore.as_bytes());
        assert_eq!(restored.results()[0]["result"], "created");
    }
    let export = client.get("/v1/export");
    for line in export.text().lines() {
        serde_json::from_str::<Value>(line).expect("each line can be parsed");
    }
}

#[test]
fn text_and_bytes_are_stored_unchanged() {
    let server = Server::start();
    let mut client = server.client();
    let text = "text/plain; charset=utf-8";
    let octets = "application/octet-stream";
    for (fields, bytes, content_type, field) in [
        (json!({"body_text": ""}), &b""[..], text, "body_text"),
        (json!({"body_text": "Grüße 😀\0\r\n"}), "Grüße 😀\0\r\n".as_bytes(), text, "body_text"),
        (json!({"body_text": "a,b", "content_type": "text/csv"}), b"a,b", "text/csv", "body_text"),
        (json!({"body_text": "<a/>", "content_type": "x/xml"}), b"<a/>", "x/xml", "body_text"),
        (json!({"body_base64": ""}), b"", octets, ""),
        (json!({"body_base64": "/wAB"}), b"\xff\0\x01", octets, "body_base64"),
        (json!({"body_base64": "/w==", "content_type": ""}), b"\xff", "", "body_base64"),
        // The content type is JSON or text, but the bytes are not.
        (
            json!({"body_text": "{", "content_type": "application/json"}),
            b"{",
            "application/json",
            "body_text",
        ),
        (
            json!({"body_text": " 1", "content_type": "application/json"}),
            b" 1",
            "application/json",
            "body_text",
        ),
        (
            json!({"body_base64": "/w==", "content_type": "text/plain"}),
            b"\xff",
            "text/plain",
            "body_base64",
        ),
        // The bytes match the content type.
        (
            json!({"body_base64": "MQ==", "content_type": "application/json"}),
            b"1",
            "application/json",
            "body",
        ),
        (json!({}), b"", octets, ""),
        (
            json!({"body": {"a": 1}, "content_type": "text/plain"}),
            br#"{"a":1}"#,
            "text/plain",
            "body_text",
        ),
    ] {
        client.call("PUT", "/v1/kinds/mail/jobs/a", fields.clone()).json();
        let expected = (bytes.to_vec(), content_type.to_owned());
        assert_eq!(stored(&server, "a"), expected, "{fields}");
        let got = client.get("/v1/kinds/mail/jobs/a").json();
        let fields = ["body", "body_text", "body_base64"];
        let ways: Vec<&str> = fields.into_iter().filter(|way| got.get(way).is_some()).collect();
        let expected: Vec<&str> = Some(field).into_iter().filter(|way| !way.is_empty()).collect();
        assert_eq!(ways, expected, "{got}");
        // The fields of a response can be put again.
        let mut again = json!({"content_type": got["content_type"]});
        for way in ways {
            again[way] = got[way].clone();
        }
        client.call("PUT", "/v1/kinds/mail/jobs/b", again).json();
        assert_eq!(stored(&server, "b"), stored(&server, "a"));
    }
}

#[test]
fn the_size_of_a_body_is_limited() {
    let server = Server::start();
    let mut client = server.client();
    let text = "x".repeat(1 << 20);
    client.call("PUT", "/v1/kinds/mail/jobs/a", json!({"body_text": text})).json();
    let got = client.get("/v1/kinds/mail/jobs/a").json();
    assert_eq!(got["body_text"].as_str().map(str::len), Some(1 << 20));
    let larger = client.call("PUT", "/v1/kinds/mail/jobs/a", json!({"body_text": text + "x"}));
    let problem = larger.is("invalid");
    assert_eq!(problem["field"], "body_text");
    assert_eq!((&problem["value"], &problem["limit"]), (&json!(1_048_577), &json!(1_048_576)));
    // The batch is too large, although none of its jobs is.
    let job = |n: usize| json!({"id": n.to_string(), "body_text": "x".repeat(1 << 20)});
    let batch: Vec<Value> = (0..17).map(job).collect();
    let problem = client.call("POST", "/v1/kinds/mail/jobs", json!({"jobs": batch})).is("invalid");
    assert!(problem["detail"].as_str().unwrap().contains("16777216"), "{problem}");
    client.call("POST", "/v1/kinds/mail/jobs", json!({"jobs": batch[..16]})).json();
}

#[test]
fn an_envelope_is_returned_only_if_the_request_asks_for_it() {
    let server = Server::start();
    let mut client = server.client();
    let envelope = json!({"type": "application/vnd.requeue.message", "base64": "AP8="});
    let path = "/v1/kinds/mail/jobs/a";
    let put = json!({"body_text": "hello", "envelope": envelope});
    assert_eq!(client.call("PUT", path, put.clone()).status, 200);
    let asked = |path: &str| (path.to_owned(), format!("{path}?envelope=true"));
    let (list, list_with) = asked("/v1/kinds/mail/jobs");
    let (get, get_with) = asked(path);
    assert_eq!(client.get(&list).json()["jobs"][0]["envelope"], Value::Null);
    assert_eq!(client.get(&list_with).json()["jobs"][0]["envelope"], envelope);
    assert_eq!(client.get(&get).json()["envelope"], Value::Null);
    assert_eq!(client.get(&get_with).json()["envelope"], envelope);
    for wanted in [false, true] {
        let claim = json!({"kinds": ["mail"], "envelope": wanted});
        let job = client.call("POST", "/v1/claim", claim).json()["jobs"][0].clone();
        assert_eq!(job["body_text"], "hello");
        assert_eq!(job.get("envelope"), Some(&envelope).filter(|_| wanted));
        // The successor has one as well.
        assert_eq!(client.call("PUT", path, put.clone()).status, 200);
        assert_eq!(client.get(&get).json()["next"]["envelope"], Value::Null);
        assert_eq!(client.get(&get_with).json()["next"]["envelope"], envelope);
        let lease = json!({"leases": [{"receipt": job["receipt"], "how": "ack"}]});
        assert_eq!(client.call("POST", "/v1/settle", lease).status, 200);
    }
    // A put without an envelope removes it.
    assert_eq!(client.call("PUT", path, json!({"body": 1})).status, 200);
    assert_eq!(client.get(&get_with).json()["envelope"], Value::Null);
}

#[test]
fn an_invalid_envelope_is_rejected_with_its_field() {
    let server = Server::start();
    let mut client = server.client();
    let limit = (1 << 20) + (16 << 10);
    for (envelope, field, words) in [
        (json!({"type": "", "base64": ""}), "envelope.type", "must not be empty"),
        (json!({"type": "x".repeat(129), "base64": ""}), "envelope.type", "the limit is 128"),
        (json!({"type": "x/y", "base64": "?"}), "envelope.base64", "not valid base64"),
        (
            json!({"type": "x/y", "base64": "AAAA".repeat(limit / 3 + 1)}),
            "envelope.base64",
            "the limit is 1064960",
        ),
        (
            json!({"type": "x/y", "base64": "AAAA".repeat(limit / 3)}),
            "envelope",
            "the body with its envelope",
        ),
    ] {
        let put = json!({"body_text": "hello", "envelope": envelope});
        let problem = client.call("PUT", "/v1/kinds/mail/jobs/a", put).problem();
        assert_eq!(problem["field"], field, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(words), "{problem}");
    }
}

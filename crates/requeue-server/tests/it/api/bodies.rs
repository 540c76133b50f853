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
    (job.body.bytes().to_vec(), job.body.content_type().to_owned())
}

#[test]
fn json_is_stored_unchanged() {
    let server = Server::start();
    let mut client = server.client();
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    for json in [
        "null",
        "true",
        "0",
        "-0",
        "1E400",
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

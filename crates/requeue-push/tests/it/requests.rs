//! What a receiver gets.

use super::receiver::{Receiver, ok};
use super::{DONE, client, config, deliver, delivery, delivery_of};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use requeue_jobs::{Body, ManualClock};
use ring::hmac;
use serde_json::json;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

#[tokio::test]
async fn a_request_is_a_signed_post_with_the_body_of_the_job() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let client = client(&ManualClock::new());
    let more = json!({"secrets": [SECRET, OTHER], "headers": {"Authorization": "Bearer x y"}});
    let mut delivery = delivery();
    delivery.previous_failure = Some("status 500: no\nroom".into());
    let outcome = deliver(config(&receiver.url(), more), &client, &delivery).await;
    assert_eq!(outcome, DONE);
    let [request] = &receiver.requests()[..] else { panic!("{:?}", receiver.requests()) };
    assert_eq!(request.line, "POST /hooks?tenant=7 HTTP/1.1");
    assert_eq!(request.body, b"{\"a\":1}");
    let signature = |secret: &str| {
        let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let signed = hmac::sign(&key, b"order%2Eclose/order-7/3.1796112000.{\"a\":1}");
        format!("v1,{}", STANDARD.encode(signed))
    };
    let (host, version) = (receiver.address.to_string(), env!("CARGO_PKG_VERSION"));
    let expected = json!({
        "authorization": "Bearer x y",
        "content-length": "7",
        "content-type": "application/json",
        "host": host,
        "requeue-attempt": "1",
        "requeue-due": "2026-12-01T08:00:00.000Z",
        "requeue-fence": "7",
        "requeue-id": "order-7",
        "requeue-kind": "order.close",
        "requeue-previous-failure": "status 500: no room",
        "user-agent": format!("requeue/{version}"),
        "webhook-id": "order%2Eclose/order-7/3",
        "webhook-signature": format!("{} {}", signature(SECRET), signature(OTHER)),
        "webhook-timestamp": "1796112000",
    });
    assert_eq!(serde_json::to_value(&request.headers).unwrap(), expected);
}

#[tokio::test]
async fn a_cloud_event_has_its_headers_and_the_same_body() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let config = config(&receiver.url(), json!({"format": "cloudevents"}));
    let delivery = delivery_of("a b/ü", Body::new(*b"{}", "application/json").unwrap());
    assert_eq!(deliver(config, &client(&ManualClock::new()), &delivery).await, DONE);
    let request = &receiver.requests()[0];
    for (name, value) in [
        ("ce-specversion", "1.0"),
        ("ce-id", "order%2Eclose/a%20b%2F%C3%BC/3"),
        ("ce-source", "/v1/kinds/order.close"),
        ("ce-type", "order.close"),
        ("ce-subject", "a%20b/%C3%BC"),
        ("ce-time", "2026-12-01T07:43:20.000Z"),
        ("content-type", "application/json"),
        ("webhook-id", "order%2Eclose/a%20b%2F%C3%BC/3"),
        // Without a secret, there is no signature.
        ("webhook-signature", ""),
    ] {
        assert_eq!(request.header(name), value, "{name}");
    }
    assert_eq!(request.body, b"{}");
}

#[tokio::test]
async fn every_id_and_every_body_arrives() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let client = client(&ManualClock::new());
    let binary: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(31) >> 3) as u8).collect();
    let ids = ["a", "a/b", " ", "ü\u{1f980}\r\n", "%2E", "\"\0\u{7f}", &"ü".repeat(256)];
    for (i, id) in ids.iter().enumerate() {
        let body = binary[..binary.len() >> (3 * i)].to_vec();
        let delivery = delivery_of(id, Body::octets(body.clone()).unwrap());
        let outcome = deliver(config(&receiver.url(), json!({})), &client, &delivery).await;
        assert_eq!(outcome, DONE, "{id:?}");
        let request = receiver.requests().pop().unwrap();
        assert_eq!(decoded(request.header("requeue-id")), *id);
        let parts: Vec<_> = request.header("webhook-id").split('/').map(decoded).collect();
        assert_eq!(parts, ["order.close", id, "3"]);
        assert!(!request.header("webhook-id").contains('.'));
        assert!(request.body == body, "the body of {id:?} differs");
    }
    assert_eq!(receiver.connections(), 1, "the connection is reused");
}

fn decoded(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            bytes.push(u8::from_str_radix(str::from_utf8(&after[..2]).unwrap(), 16).unwrap());
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).unwrap()
}

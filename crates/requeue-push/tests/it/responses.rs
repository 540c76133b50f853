//! What becomes of a job after each kind of response, or without one.

use super::receiver::{Action, Receiver, ok};
use super::{
    DONE, client, config, deliver, deliver_and_advance, delivery, error, unreachable, until,
};
use requeue_jobs::limits::MAX_ACK_RESULT_LEN;
use requeue_jobs::{Body, ManualClock};
use requeue_push::{DeliveryOutcome, Target, Webhook};
use serde_json::json;
use std::time::Duration;

/// Delivers a job to a receiver that responds with this action.
async fn outcome_of(action: impl Fn() -> Action + Send + Sync + 'static) -> DeliveryOutcome {
    let receiver = Receiver::start(move |_, _| action()).await;
    let outcome =
        deliver(config(&receiver.url(), json!({})), &client(&ManualClock::new()), &delivery())
            .await;
    assert_eq!(receiver.count(), 1);
    outcome
}

#[tokio::test]
async fn the_body_of_a_success_is_the_result_up_to_its_limit() {
    let head = "201 Created\r\ncontent-type: text/plain";
    let outcome = outcome_of(move || Action::Respond(head, vec![b'x'; MAX_ACK_RESULT_LEN])).await;
    let body = Body::new(vec![b'x'; MAX_ACK_RESULT_LEN], "text/plain").unwrap();
    assert_eq!(outcome, DeliveryOutcome::Done { result: Some(body) });
    let long = outcome_of(move || Action::Respond(head, vec![b'x'; MAX_ACK_RESULT_LEN + 1])).await;
    assert_eq!(long, DONE);
    // Without a length, as much is read as can be kept.
    let chunks = "ffff\r\n".to_owned() + &"x".repeat(0xffff) + "\r\n";
    let endless = move || {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        Action::Stall([head, &*chunks, &*chunks].concat().into_bytes())
    };
    assert_eq!(outcome_of(endless).await, DONE);
}

#[tokio::test]
async fn rejections_are_retried_slowed_down_or_buried() {
    let outcome = outcome_of(|| Action::Respond("500 Oops", b"no room\n".to_vec())).await;
    let expected = "status 500 Internal Server Error: no room".to_owned();
    assert_eq!(outcome, DeliveryOutcome::Retry { error: expected, after: None });
    let seconds = |secs| Some(Duration::from_secs(secs));
    for (head, expected) in [
        ("429 Too Many Requests\r\nretry-after: 7", seconds(7)),
        ("503 Service Unavailable", None),
        ("503 Service Unavailable\r\nretry-after: Tue, 01 Dec 2026 08:01:00 GMT", seconds(60)),
    ] {
        let outcome = outcome_of(move || Action::Respond(head, Vec::new())).await;
        let DeliveryOutcome::SlowDown { after, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(after, expected, "{head}");
    }
    let outcome = outcome_of(|| Action::Respond("410 Gone", Vec::new())).await;
    assert_eq!(outcome, DeliveryOutcome::Bury { error: "status 410 Gone".to_owned() });
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let inside = Receiver::start(|_, _| ok()).await;
    let head: &'static str =
        format!("307 Temporary Redirect\r\nlocation: http://{}/", inside.address).leak();
    let outcome = outcome_of(move || Action::Respond(head, Vec::new())).await;
    let expected = format!(
        "status 307 Temporary Redirect: a redirect to http://{}/ is not followed",
        inside.address
    );
    assert_eq!(outcome, DeliveryOutcome::Retry { error: expected, after: None });
    assert_eq!(inside.connections(), 0);
}

#[tokio::test]
async fn a_connection_that_is_closed_early_is_a_failure() {
    let before = unreachable(outcome_of(|| Action::Write(Vec::new())).await);
    assert!(before.starts_with("the connection to 127.0.0.1 failed: "), "{before}");
    let head = b"HTTP/1.1 200 OK\r\ncontent-";
    let in_head = unreachable(outcome_of(|| Action::Write(head.to_vec())).await);
    assert!(in_head.starts_with("the connection to 127.0.0.1 failed: "), "{in_head}");
    let body = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc";
    let in_body = unreachable(outcome_of(|| Action::Write(body.to_vec())).await);
    assert!(in_body.starts_with("the response was interrupted: "), "{in_body}");
    let not_http = unreachable(outcome_of(|| Action::Write(b"SSH-2.0-x\r\n".to_vec())).await);
    assert!(not_http.contains("invalid HTTP"), "{not_http}");
}

#[tokio::test]
async fn endless_headers_are_not_read() {
    let head = || Action::Stall([b"HTTP/1.1 200 OK\r\nx: ", &[b'x'; 100_000][..]].concat());
    let failed = unreachable(outcome_of(head).await);
    assert!(failed.starts_with("the connection to 127.0.0.1 failed: "), "{failed}");
}

#[tokio::test]
async fn a_receiver_that_stalls_is_given_up_after_the_timeout() {
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc".to_vec();
    for (bytes, expected) in [
        (Vec::new(), "there was no response within 2s"),
        (half, "the response was not complete within 2s"),
    ] {
        let is_half = !bytes.is_empty();
        let receiver = Receiver::start(move |_, _| Action::Stall(bytes.clone())).await;
        let clock = ManualClock::new();
        let config = config(&receiver.url(), json!({"timeout": "2s"}));
        if is_half {
            // Nothing shows whether the client has read the head, so the error can be either.
            let webhook = Webhook::new(config, &client(&clock)).unwrap();
            let delivered = tokio::spawn(async move { webhook.deliver(&delivery()).await });
            until("the receiver got the request", || receiver.count() == 1).await;
            until("the delivery ended", || {
                clock.advance(Duration::from_millis(100));
                delivered.is_finished()
            })
            .await;
            let failed = unreachable(delivered.await.unwrap());
            assert!(failed.ends_with("within 2s"), "{failed}");
        } else {
            let ready = || receiver.count() == 1;
            let timeout = Duration::from_secs(2);
            let outcome = deliver_and_advance(config, &clock, ready, timeout).await;
            assert_eq!(unreachable(outcome), expected);
        }
    }
}

#[tokio::test]
async fn a_target_that_does_not_listen_is_unreachable() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let (address, url) = (receiver.address, receiver.url());
    drop(receiver);
    let client = client(&ManualClock::new());
    // The port is free as soon as the task of the receiver has ended.
    let mut failed = String::new();
    while !failed.contains("refused") {
        failed = error(deliver(config(&url, json!({})), &client, &delivery()).await);
    }
    assert!(failed.starts_with(&format!("no connection to {address}: ")), "{failed}");
}

#[tokio::test]
async fn an_idle_connection_is_reused_unless_it_is_old_or_closed() {
    let receiver = Receiver::start(|n, _| match n {
        3 => Action::Write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()),
        _ => ok(),
    })
    .await;
    let clock = ManualClock::new();
    let client = client(&clock);
    let config = config(&receiver.url(), json!({}));
    for (i, connections) in [1, 1, 2, 2, 3].into_iter().enumerate() {
        if i == 2 {
            clock.advance(Duration::from_secs(4));
        }
        assert_eq!(deliver(config.clone(), &client, &delivery()).await, DONE, "{i}");
        assert_eq!(receiver.connections(), connections, "{i}");
        if i == 3 {
            // The receiver closes the connection after this response: wait until the client has noticed.
            let mut outcome = deliver(config.clone(), &client, &delivery()).await;
            while outcome != DONE {
                outcome = deliver(config.clone(), &client, &delivery()).await;
            }
            assert_eq!(receiver.connections(), 3);
        }
    }
}

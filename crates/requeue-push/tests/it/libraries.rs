//! Signatures are accepted by the published Standard Webhooks libraries of Python, Node and Go.
//!
//! `scripts/webhook-libraries` installs them, and prints the variables that name them.

use super::receiver::{Receiver, Recorded, ok};
use super::{DONE, config, deliver, delivery_of};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use requeue_jobs::Body;
use requeue_push::{AllowedTargets, PushClient, PushClientOptions};
use serde_json::{Value, json};
use std::env;
use std::io::Write;
use std::process::{Command, Stdio};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// The programs that verify a request with a library. That of Go only if there is a Go.
fn verifiers() -> Vec<(&'static str, Command)> {
    let path = |name: &str| {
        let hint = r#"run eval "$(scripts/webhook-libraries)" first"#;
        env::var(name).unwrap_or_else(|_| panic!("{name} is not set: {hint}"))
    };
    let script = |name: &str| format!("{}/tests/verify/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut python = Command::new(path("REQUEUE_PYTHON"));
    python.arg(script("verify.py"));
    // Checks that it is set: the script reads it.
    path("REQUEUE_NODE_MODULES");
    let mut node = Command::new("node");
    node.arg(script("verify.mjs"));
    let mut all = vec![("Python", python), ("Node", node)];
    let go = path("REQUEUE_VERIFY_GO");
    if !go.is_empty() {
        all.push(("Go", Command::new(go)));
    }
    all
}

/// Returns whether a library accepts a request.
fn accepts(verifier: &mut Command, secret: &str, request: &Recorded) -> Result<bool, String> {
    let body = STANDARD.encode(&request.body);
    let input = json!({"secret": secret, "headers": request.headers, "body": body}).to_string();
    let piped = verifier.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().map_err(|error| error.to_string())?;
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).map_err(|error| error.to_string())?;
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    match (output.status.code(), output.stderr.is_empty()) {
        (Some(0), true) => Ok(true),
        // An uncaught exception of Python ends with 1 as well, and prints its trace.
        (Some(1), true) => Ok(false),
        _ => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

async fn send(id: &str, body: &Value, more: Value) -> Recorded {
    let receiver = Receiver::start(|_, _| ok()).await;
    let mut options = PushClientOptions::default();
    options.allowed = "127.0.0.1".parse::<AllowedTargets>().unwrap();
    let client = PushClient::new(options).unwrap();
    let body = Body::new(body.to_string().into_bytes(), "application/json").unwrap();
    let outcome = deliver(config(&receiver.url(), more), &client, &delivery_of(id, body)).await;
    assert_eq!(outcome, DONE);
    receiver.requests().remove(0)
}

#[tokio::test]
#[ignore = "needs the libraries that scripts/webhook-libraries installs"]
async fn signatures_are_accepted_by_the_published_libraries() {
    let long = "ü/".repeat(170);
    for (id, body, more) in [
        ("order-7", json!({"order": 7}), json!({"secrets": [SECRET]})),
        ("order-7", json!({"order": 7}), json!({"secrets": [OTHER, SECRET]})),
        ("order-7", json!([1]), json!({"secrets": [SECRET], "format": "cloudevents"})),
        ("a.b/c d%\u{1f980}\n", json!("ü\u{1f980} \u{0}\r\n"), json!({"secrets": [SECRET]})),
        (&long, json!("x".repeat(1 << 19)), json!({"secrets": [SECRET, OTHER]})),
    ] {
        let request = send(id, &body, more.clone()).await;
        let mut forged = request.clone();
        forged.body[0] ^= 1;
        let mut moved = request.clone();
        moved.headers.insert("webhook-id".to_owned(), "order%2Eclose/other/3".to_owned());
        for (language, mut verifier) in verifiers() {
            let mut verify = |secret: &str, request: &Recorded| {
                accepts(&mut verifier, secret, request)
                    .unwrap_or_else(|error| panic!("{language}: {error}"))
            };
            assert!(verify(SECRET, &request), "{language}, {id:?}, {more}");
            let signed_by_other = more["secrets"].as_array().unwrap().contains(&json!(OTHER));
            assert_eq!(verify(OTHER, &request), signed_by_other, "{language}, {id:?}, {more}");
            assert!(!verify(SECRET, &forged), "{language}: another body is accepted");
            assert!(!verify(SECRET, &moved), "{language}: another id is accepted");
        }
    }
}

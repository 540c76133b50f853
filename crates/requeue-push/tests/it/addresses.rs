//! Which addresses are connected to.

use super::receiver::{Receiver, ok};
use super::{DONE, config, deliver, delivery, error, options, unreachable};
use requeue_jobs::{ManualClock, WallClock};
use requeue_push::{
    AllowedTargets, PushClient, PushClientOptions, Resolve, ResolveFuture, SystemResolver,
};
use serde_json::json;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A resolver with a list of answers. The last is repeated.
struct Answers {
    answers: Mutex<Vec<Vec<IpAddr>>>,
    asked: AtomicUsize,
}

impl Answers {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse = |answer: &&[&str]| answer.iter().map(|text| text.parse().unwrap()).collect();
        let answers = Mutex::new(answers.iter().map(parse).collect());
        Arc::new(Answers { answers, asked: AtomicUsize::new(0) })
    }
}

impl Resolve for Answers {
    fn resolve<'a>(&'a self, _: &'a str) -> ResolveFuture<'a> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        Box::pin(async move { Ok(answer) })
    }
}

#[tokio::test]
async fn without_an_allow_list_no_internal_address_is_connected_to() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let resolver = Answers::new(&[&["1.1.1.1"]]);
    let mut options = PushClientOptions::default();
    options.resolver = Arc::clone(&resolver) as Arc<dyn Resolve>;
    let client = PushClient::new(options).unwrap();
    let port = receiver.address.port();
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "0x7f.1",
        "127.1",
        "127.0.0.1.",
        "0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "169.254.169.254",
        "[fd00:ec2::254]",
    ] {
        let config = config(&format!("http://{host}:{port}/"), json!({}));
        let failed = unreachable(deliver(config, &client, &delivery()).await);
        assert!(failed.contains(" is not allowed: it is "), "{host}: {failed}");
    }
    assert_eq!((receiver.connections(), resolver.asked.load(Ordering::SeqCst)), (0, 0));
}

#[tokio::test]
async fn the_name_of_this_machine_is_checked_as_well() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let client = PushClient::new(PushClientOptions::default()).unwrap();
    let url = format!("http://localhost:{}/", receiver.address.port());
    let failed = unreachable(deliver(config(&url, json!({})), &client, &delivery()).await);
    assert!(failed.starts_with("localhost is not allowed: "), "{failed}");
    assert!(failed.ends_with(" it is a loopback address"), "{failed}");
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_name_with_one_forbidden_address_is_rejected() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let url = format!("http://hooks.example:{}/", receiver.address.port());
    for (answer, expected) in [
        (&["10.0.0.1"][..], "is not allowed: it is a private address"),
        (&["1.1.1.1", "192.168.0.1"][..], "is not allowed: it is a private address"),
        (&["127.0.0.1", "10.0.0.1"][..], "is not allowed: it is a private address"),
        (&["2606:4700::1111", "::ffff:10.0.0.1"][..], "is not allowed: it is a private address"),
        (&["168.63.129.16"][..], "is not allowed: it is an address of the cloud platform"),
        (&[][..], "has no address"),
    ] {
        let mut options = options(&ManualClock::new());
        options.resolver = Answers::new(&[answer]);
        let client = PushClient::new(options).unwrap();
        let failed = unreachable(deliver(config(&url, json!({})), &client, &delivery()).await);
        // The address itself stays a secret of the network.
        assert_eq!(failed, format!("hooks.example {expected}"));
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn an_error_does_not_contain_the_internal_address_behind_a_permitted_name() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let port = receiver.address.port();
    drop(receiver);
    let mut options = PushClientOptions::default();
    options.allowed = "hooks.example".parse::<AllowedTargets>().unwrap();
    options.resolver = Answers::new(&[&["127.0.0.1", "127.0.0.3"]]);
    let client = PushClient::new(options).unwrap();
    let url = format!("http://hooks.example:{port}/");
    // The port is free as soon as the task of the receiver has ended.
    let mut failed = String::new();
    while !failed.contains("refused") {
        failed = error(deliver(config(&url, json!({})), &client, &delivery()).await);
    }
    assert!(failed.starts_with(&format!("no connection to hooks.example:{port}: ")), "{failed}");
    assert!(!failed.contains("127.0.0."), "{failed}");
}

#[tokio::test]
async fn the_checked_address_is_connected_to_whatever_the_next_lookup_returns() {
    let allowed = Receiver::start(|_, _| ok()).await;
    let port = allowed.address.port();
    let forbidden = Receiver::start_on(&format!("127.0.0.2:{port}"), |_, _| ok()).await;
    let resolver = Answers::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let clock = ManualClock::new();
    let mut options = options(&clock);
    options.resolver = Arc::clone(&resolver) as Arc<dyn Resolve>;
    let client = PushClient::new(options).unwrap();
    let config = config(&format!("http://hooks.example:{port}/"), json!({}));
    for _ in 0..3 {
        assert_eq!(deliver(config.clone(), &client, &delivery()).await, DONE);
    }
    assert_eq!((allowed.count(), resolver.asked.load(Ordering::SeqCst)), (3, 1));
    // The answer is used for a while. After that, not even an open connection is used.
    clock.advance(Duration::from_secs(28));
    assert_eq!(deliver(config.clone(), &client, &delivery()).await, DONE);
    clock.advance(Duration::from_secs(2));
    let failed = unreachable(deliver(config, &client, &delivery()).await);
    assert_eq!(failed, "hooks.example is not allowed: it is a loopback address");
    assert_eq!((allowed.count(), forbidden.connections()), (4, 0));
}

#[tokio::test]
async fn a_second_address_is_tried_if_the_first_does_not_listen() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let mut options = PushClientOptions::default();
    options.allowed = "hooks.example".parse::<AllowedTargets>().unwrap();
    options.resolver = Answers::new(&[&["127.0.0.3", "127.0.0.1"]]);
    let client = PushClient::new(options).unwrap();
    let url = format!("http://hooks.example:{}/", receiver.address.port());
    assert_eq!(deliver(config(&url, json!({})), &client, &delivery()).await, DONE);
}

#[tokio::test]
async fn the_allow_list_permits_a_name_and_port() {
    let receiver = Receiver::start(|_, _| ok()).await;
    let port = receiver.address.port();
    for (entry, allows) in [
        (format!("localhost:{port}"), true),
        ("localhost".to_owned(), true),
        ("127.0.0.0/8, ::1".to_owned(), true),
        (format!("localhost:{}", port ^ 1), false),
        ("otherhost".to_owned(), false),
    ] {
        let mut options = PushClientOptions::default();
        options.allowed = entry.parse::<AllowedTargets>().unwrap();
        options.clock = WallClock::system();
        options.resolver = Arc::new(SystemResolver);
        let client = PushClient::new(options).unwrap();
        let url = format!("http://localhost:{port}/");
        let outcome = deliver(config(&url, json!({})), &client, &delivery()).await;
        assert_eq!(outcome == DONE, allows, "{entry}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_unreachable() {
    struct Nowhere;
    impl Resolve for Nowhere {
        fn resolve<'a>(&'a self, _: &'a str) -> ResolveFuture<'a> {
            Box::pin(async { Err(std::io::Error::other("no such host")) })
        }
    }
    let mut options = options(&ManualClock::new());
    options.resolver = Arc::new(Nowhere);
    let client = PushClient::new(options).unwrap();
    let config = config("https://hooks.example/", json!({}));
    let failed = unreachable(deliver(config, &client, &delivery()).await);
    assert_eq!(failed, "hooks.example was not found: no such host");
}

#[tokio::test]
async fn deliveries_that_wait_for_a_failed_lookup_do_not_repeat_it() {
    let resolver = Answers::new(&[&[], &["127.0.0.1"]]);
    let receiver = Receiver::start(|_, _| ok()).await;
    let clock = ManualClock::new();
    let mut options = options(&clock);
    options.resolver = Arc::clone(&resolver) as Arc<dyn Resolve>;
    let client = PushClient::new(options).unwrap();
    let config = config(&format!("http://hooks.example:{}/", receiver.address.port()), json!({}));
    for _ in 0..3 {
        let failed = unreachable(deliver(config.clone(), &client, &delivery()).await);
        assert_eq!(failed, "hooks.example has no address");
    }
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 1);
    clock.advance(Duration::from_secs(1));
    assert_eq!(deliver(config, &client, &delivery()).await, DONE);
}

//! NATS: the real server, killed, restarted and cut off.

use crate::support::{
    due_now, jobs, pusher, put_in_order, put_jobs, start_bridge, text, trusting_options,
    wait_for_dead, wait_for_failure, wait_for_job, wait_for_target_error, wait_until_done,
    wait_until_gone,
};
use async_nats::jetstream::consumer::pull::Config as ConsumerConfig;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use async_nats::jetstream::context::Context;
use async_nats::jetstream::stream::Config as StreamConfig;
use async_nats::{ConnectOptions, HeaderMap};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::StreamExt;
use nkeys::KeyPair;
use requeue_bridge::{BridgeOptions, BrokerOptions, Message};
use requeue_push::PushConfig;
use requeue_testkit::servers::NatsServer;
use requeue_testkit::{Direction, Proxy};
use std::collections::BTreeSet;
use std::time::Duration;

fn server() -> Option<NatsServer> {
    if NatsServer::available() {
        return Some(NatsServer::start());
    }
    eprintln!("left out: there is no NATS");
    None
}

/// The connection of an application.
async fn connect(server: &NatsServer) -> Context {
    loop {
        if let Ok(client) = async_nats::connect(server.url()).await {
            return async_nats::jetstream::new(client);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn create_stream(context: &Context, name: &str, subject: &str) {
    let (name, subjects) = (name.to_owned(), vec![subject.to_owned()]);
    context.create_stream(StreamConfig { name, subjects, ..Default::default() }).await.unwrap();
}

async fn publish(context: &Context, subject: &str, headers: &[(&str, &str)], payload: &str) {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, *value);
    }
    let sent = context.publish_with_headers(subject.to_owned(), map, payload.to_owned().into());
    sent.await.unwrap().await.unwrap();
}

struct Delivered {
    subject: String,
    headers: HeaderMap,
    payload: Vec<u8>,
}

impl Delivered {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("{name}: {:?}", self.headers)).as_str()
    }
}

/// Waits until the stream has so many messages, and returns all that it has.
async fn messages(context: &Context, stream: &str, count: u64) -> Vec<Delivered> {
    let mut stream = context.get_stream(stream).await.unwrap();
    loop {
        let stored = stream.info().await.unwrap().state.messages;
        if stored >= count {
            let all = ConsumerConfig {
                deliver_policy: DeliverPolicy::All,
                ack_policy: AckPolicy::None,
                ..Default::default()
            };
            let consumer = stream.create_consumer(all).await.unwrap();
            let found = consumer.messages().await.unwrap().take(stored as usize);
            let found = found.map(|message| {
                let message = message.unwrap();
                Delivered {
                    subject: message.subject.to_string(),
                    headers: message.headers.clone().unwrap_or_default(),
                    payload: message.payload.to_vec(),
                }
            });
            return found.collect().await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the bridge has created its last stream.
async fn wait_for_stream(context: &Context, stream: &str) {
    while context.get_stream(stream).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const REJECTED: &str = "requeue-requeue-rejected-requeue-orders-delayed";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_published_once_also_if_the_broker_is_killed() {
    let Some(mut server) = server() else { return };
    let context = connect(&server).await;
    create_stream(&context, "ORDERS", "orders.>").await;
    let jobs = jobs();
    put_jobs(&jobs, 500).await;
    let mut config = PushConfig::new(&format!("{}/orders.{{kind}}.{{id}}", server.url())).unwrap();
    config.headers.insert("team".to_owned(), "a".to_owned());
    config.concurrency = 50;
    let pusher = pusher(&jobs, "order", config, &BrokerOptions::default());
    messages(&context, "ORDERS", 50).await;
    server.kill();
    server.start_again();
    wait_until_done(&jobs, "order").await;
    let context = connect(&server).await;
    let all = messages(&context, "ORDERS", 500).await;
    assert_eq!(all.len(), 500, "NATS removes duplicates by their id");
    let ids: BTreeSet<_> = all.iter().map(|one| one.header("Nats-Msg-Id")).collect();
    assert_eq!(ids.len(), 500);
    for one in &all {
        assert_eq!(one.header("requeue-attempt"), "1", "no attempt is counted");
        assert_eq!((one.header("team"), one.header("requeue-kind")), ("a", "order"));
        assert_eq!(one.subject, format!("orders.order.{}", one.header("requeue-id")));
    }
    drop(pusher);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_published_in_the_order_of_their_due_times() {
    let Some(server) = server() else { return };
    let context = connect(&server).await;
    create_stream(&context, "ORDERS", "orders").await;
    let jobs = jobs();
    let ids = put_in_order(&jobs, 1000).await;
    let config = PushConfig::new(&format!("{}/orders", server.url())).unwrap();
    let pusher = pusher(&jobs, "order", config, &BrokerOptions::default());
    let all = messages(&context, "ORDERS", 1000).await;
    assert_eq!(all.iter().map(|one| one.header("requeue-id")).collect::<Vec<_>>(), ids);
    drop(pusher);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_confirmation_is_lost_is_stored_once() {
    let Some(server) = server() else { return };
    let context = connect(&server).await;
    create_stream(&context, "ORDERS", "orders").await;
    let proxy = Proxy::to(server.address().parse().unwrap()).unwrap();
    let jobs = jobs();
    let config = PushConfig::new(&format!("nats://{}/orders", proxy.address())).unwrap();
    let pusher = pusher(&jobs, "order", config, &BrokerOptions::default());
    put_jobs(&jobs, 1).await;
    messages(&context, "ORDERS", 1).await;
    wait_until_done(&jobs, "order").await;
    let before = proxy.connections();
    // NATS gets the message, and its acknowledgement does not come back.
    proxy.cut_at(Direction::ToClient, 1);
    jobs.put("order", "held", "x").await.unwrap();
    messages(&context, "ORDERS", 2).await;
    wait_until_done(&jobs, "order").await;
    assert!(proxy.connections() > before);
    let all = messages(&context, "ORDERS", 2).await;
    assert_eq!((all.len(), all[1].header("requeue-id")), (2, "held"));
    assert_eq!(all[1].header("requeue-attempt"), "1");
    drop(pusher);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nats_does_not_accept_is_a_failure_with_a_reason() {
    if !NatsServer::available() {
        return eprintln!("left out: there is no NATS");
    }
    let server = NatsServer::with(&["--user", "shop", "--pass", "hunter2"]);
    let url = format!("nats://shop:hunter2@{}", server.address());
    let account = ConnectOptions::with_user_and_password("shop".to_owned(), "hunter2".to_owned());
    let client = account.connect(server.url()).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let config = StreamConfig {
        name: "SMALL".to_owned(),
        subjects: vec!["small".to_owned()],
        max_message_size: 1000,
        ..Default::default()
    };
    context.create_stream(config).await.unwrap();
    let failing = |subject: &str| PushConfig::new(&format!("{url}/{subject}")).unwrap();
    let jobs = jobs();
    let missing = pusher(&jobs, "order", failing("missing"), &BrokerOptions::default());
    jobs.put("order", "1", "x").await.unwrap();
    let error = wait_for_failure(&jobs, "1").await;
    assert_eq!(error, "no stream captures the subject \"missing\"");
    drop(missing);
    let small = pusher(&jobs, "big", failing("small"), &BrokerOptions::default());
    jobs.put("big", "1", vec![0; 2000]).await.unwrap();
    let error = wait_for_dead(&jobs, "big", "1").await;
    assert!(error.contains("subject \"small\"") && error.contains("size"), "{error}");
    drop(small);
    let wrong = format!("nats://shop:swordfish@{}/small", server.address());
    let wrong = pusher(&jobs, "other", PushConfig::new(&wrong).unwrap(), &BrokerOptions::default());
    jobs.put("other", "1", "x").await.unwrap();
    let error = wait_for_target_error(&wrong).await;
    assert!(!error.contains("swordfish") && error.contains(&server.address()), "{error}");
    assert!(error.contains("authorization"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_come_in_and_go_out() {
    let Some(server) = server() else { return };
    let context = connect(&server).await;
    create_stream(&context, "DUE", "due.>").await;
    let jobs = jobs();
    let url = format!("{}/orders.delayed", server.url());
    let (stop, running) = start_bridge(&jobs, &url, BridgeOptions::default());
    wait_for_stream(&context, REJECTED).await;
    let soon = [("requeue-delay", "1ms"), ("tenant", "a"), ("Nats-Msg-Id", "m-1")];
    publish(&context, "orders.delayed", &soon, "{}").await;
    let later = [("Requeue-Delay", "1h"), ("requeue-key", "k"), ("Content-Type", "text/plain")];
    publish(&context, "orders.delayed", &later, "later").await;
    let bad =
        [("requeue-delay", "soon"), ("requeue-error", "forged"), ("requeue-subject", "forged")];
    publish(&context, "orders.delayed", &bad, "bad").await;
    let rejected = messages(&context, REJECTED, 1).await;
    assert_eq!(text(&rejected[0].payload), "bad");
    assert!(rejected[0].header("requeue-error").contains("header requeue-delay is \"soon\""));
    assert_eq!(rejected[0].header("requeue-subject"), "orders.delayed");
    let waiting = wait_for_job(&jobs, "k").await;
    assert!(!due_now(&waiting));
    let stored = Message::from_content(&waiting.version.content).unwrap();
    assert_eq!(
        (&*stored.payload, stored.content_type.as_deref()),
        (&b"later"[..], Some("text/plain"))
    );
    let config = PushConfig::new(&format!("{}/due.{{key}}", server.url())).unwrap();
    let pusher = pusher(&jobs, "orders", config, &BrokerOptions::default());
    let delivered = messages(&context, "DUE", 1).await;
    assert_eq!(
        (text(&delivered[0].payload), &*delivered[0].subject),
        ("{}".to_owned(), "due.orders.delayed")
    );
    assert_eq!((delivered[0].header("tenant"), delivered[0].header("requeue-id")), ("a", "m-1"));
    assert!(delivered[0].header("Nats-Msg-Id").starts_with("orders/m-1/"));
    assert!(delivered[0].headers.get("requeue-delay").is_none());
    let cancel = [("requeue-key", "k"), ("requeue-cancel", "true")];
    publish(&context, "orders.delayed", &cancel, "").await;
    wait_until_gone(&jobs, "k").await;
    drop(stop);
    let counts = running.await.unwrap();
    assert_eq!((counts.put, counts.cancelled, counts.rejected), (2, 1, 1));
    // The stream that the bridge has created keeps nothing that was acked.
    let mut stream = context.get_stream("requeue-orders-delayed").await.unwrap();
    while stream.info().await.unwrap().state.messages > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(pusher);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_is_lost_if_the_broker_is_killed() {
    let Some(mut server) = server() else { return };
    let jobs = jobs();
    let url = format!("{}/orders.delayed?ack_wait=1s", server.url());
    let (stop, running) = start_bridge(&jobs, &url, BridgeOptions::default());
    wait_for_stream(&connect(&server).await, REJECTED).await;
    for round in 0..2 {
        let context = connect(&server).await;
        for n in 0..200 {
            let id = format!("{round}-{n}");
            publish(&context, "orders.delayed", &[("Nats-Msg-Id", &id)], &id).await;
        }
        server.kill();
        server.start_again();
    }
    for round in 0..2 {
        for n in 0..200 {
            wait_for_job(&jobs, &format!("{round}-{n}")).await;
        }
    }
    drop(stop);
    running.await.unwrap();
    assert_eq!(jobs.kind("orders").await.unwrap().counts.ready, 400, "once each");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_message_does_not_replace_a_newer_one_after_a_crash() {
    let Some(server) = server() else { return };
    let context = connect(&server).await;
    let jobs = jobs();
    let url = format!("{}/orders.delayed?ack_wait=1s", server.url());
    let (stop, running) = start_bridge(&jobs, &url, BridgeOptions::default());
    wait_for_stream(&context, REJECTED).await;
    publish(&context, "orders.delayed", &[("requeue-key", "first"), ("requeue-delay", "1h")], "")
        .await;
    wait_for_job(&jobs, "first").await;
    drop(stop);
    running.await.unwrap();
    // A bridge that is killed: it has received a message, and not acked it.
    let key = [("requeue-key", "k"), ("requeue-delay", "1h")];
    publish(&context, "orders.delayed", &key, "old").await;
    let stream = context.get_stream("requeue-orders-delayed").await.unwrap();
    let consumer = stream.get_consumer::<ConsumerConfig>("requeue-orders-delayed").await.unwrap();
    let received = consumer.fetch().max_messages(1).messages().await.unwrap().next().await;
    assert_eq!(received.unwrap().unwrap().payload, "old");
    publish(&context, "orders.delayed", &key, "new").await;
    let (stop, running) = start_bridge(&jobs, &url, BridgeOptions::default());
    publish(&context, "orders.delayed", &[("requeue-key", "last")], "").await;
    wait_for_job(&jobs, "last").await;
    let stored = Message::from_content(&wait_for_job(&jobs, "k").await.version.content).unwrap();
    assert_eq!(text(&stored.payload), "new");
    drop(stop);
    assert_eq!(running.await.unwrap().put, 3, "both messages and the last one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_verifies_both_sides() {
    if !NatsServer::available() {
        return eprintln!("left out: there is no NATS");
    }
    let server = NatsServer::with_client_certificates(&["--auth", "hunter2"]);
    let jobs = jobs();
    let options = trusting_options(server.dir());
    let url = |subject: &str| format!("nats+tls://hunter2@{}/{subject}", server.address());
    let mut bridge = BridgeOptions::default();
    bridge.broker = options.clone();
    // In and out through the subject `loop`: the bridge creates its stream.
    let (stop, running) = start_bridge(&jobs, &url("loop"), bridge);
    let config = PushConfig::new(&url("loop")).unwrap();
    let trusting = pusher(&jobs, "order", config.clone(), &options);
    jobs.put("order", "7", "x").await.unwrap();
    let view = loop {
        let page = jobs.list("orders").await.unwrap().jobs;
        if let Some(view) = page.into_iter().next() {
            break view;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(view.id.as_str().starts_with("order/7/"), "{view:?}");
    drop((stop, trusting));
    running.await.unwrap();
    let distrusting = pusher(&jobs, "order", config, &BrokerOptions::default());
    jobs.put("order", "other", "x").await.unwrap();
    let error = wait_for_target_error(&distrusting).await;
    assert!(
        error.to_lowercase().contains("certificate") || error.contains("UnknownIssuer"),
        "{error}"
    );
    assert!(!error.contains("hunter2"), "{error}");
}

/// Returns a JWT as NATS defines it, signed by `issuer`.
fn jwt(issuer: &KeyPair, subject: &KeyPair, claims: serde_json::Value) -> String {
    let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = serde_json::json!({
        "jti": "test", "iat": 1_700_000_000, "name": "test",
        "iss": issuer.public_key(), "sub": subject.public_key(), "nats": claims,
    });
    let header = serde_json::json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let signed = format!("{}.{}", part(header), part(claims));
    let signature = issuer.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creds_file_is_the_account_of_the_bridge() {
    if !NatsServer::available() {
        return eprintln!("left out: there is no NATS");
    }
    let (operator, system) = (KeyPair::new_operator(), KeyPair::new_account());
    let (account, user) = (KeyPair::new_account(), KeyPair::new_user());
    let limits = serde_json::json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true,
        "conn": -1, "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
    });
    let claims = |kind: &str| serde_json::json!({ "type": kind, "version": 2 });
    let account_claims = serde_json::json!({ "type": "account", "version": 2, "limits": limits });
    let user_claims = serde_json::json!({
        "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1,
    });
    let operator_jwt = jwt(&operator, &operator, claims("operator"));
    let server = NatsServer::with_configuration(&format!(
        "operator: {operator_jwt}\nsystem_account: {0}\nresolver: MEMORY\n\
         resolver_preload: {{ {0}: {1}, {2}: {3} }}\n",
        system.public_key(),
        jwt(&operator, &system, serde_json::json!({ "type": "account", "version": 2 })),
        account.public_key(),
        jwt(&operator, &account, account_claims),
    ));
    let creds = server.dir().join("bridge.creds");
    let seed = user.seed().unwrap();
    let user_jwt = jwt(&account, &user, user_claims);
    let text = format!(
        "-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    );
    std::fs::write(&creds, text).unwrap();
    let (jobs, url) = (jobs(), format!("{}/loop", server.url()));
    let mut options = BridgeOptions::default();
    options.broker.nats_creds_file = Some(creds);
    let (stop, running) = start_bridge(&jobs, &url, options.clone());
    let config = PushConfig::new(&url).unwrap();
    let pusher = pusher(&jobs, "order", config.clone(), &options.broker);
    put_jobs(&jobs, 1).await;
    while jobs.list("orders").await.unwrap().jobs.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop((stop, pusher));
    assert_eq!(running.await.unwrap().put, 1);
    let without = crate::support::pusher(&jobs, "order", config, &BrokerOptions::default());
    jobs.put("order", "other", "x").await.unwrap();
    let error = wait_for_target_error(&without).await;
    assert!(error.contains("authorization"), "{error}");
}

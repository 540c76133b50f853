//! Redis Streams: the real server, killed, restarted and cut off.

use crate::support::{
    due_now, jobs, pusher, put_in_order, put_jobs, start_bridge, text, trusting_options,
    wait_for_failure, wait_for_job, wait_for_target_error, wait_until_done, wait_until_gone,
};
use redis::Value;
use redis::aio::MultiplexedConnection;
use requeue_bridge::{BridgeOptions, BrokerOptions, Message};
use requeue_push::PushConfig;
use requeue_testkit::servers::RedisServer;
use requeue_testkit::{Direction, Proxy};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Every command is on disk before its response, so that a killed server loses nothing.
const SYNCED: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// The connection of an application.
async fn connect(server: &RedisServer) -> MultiplexedConnection {
    loop {
        let client = redis::Client::open(server.url()).unwrap();
        if let Ok(mut connection) = client.get_multiplexed_async_connection().await
            && redis::cmd("PING").query_async::<Value>(&mut connection).await.is_ok()
        {
            return connection;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn add(
    connection: &mut MultiplexedConnection,
    stream: &str,
    fields: &[(&str, &str)],
) -> String {
    let mut add = redis::cmd("XADD");
    add.arg(stream).arg("*");
    for (name, value) in fields {
        add.arg(name).arg(value);
    }
    add.query_async(connection).await.unwrap()
}

/// Waits until the stream has so many entries, and returns all that it has.
async fn entries(
    connection: &mut MultiplexedConnection,
    stream: &str,
    count: usize,
) -> Vec<BTreeMap<String, String>> {
    loop {
        let found: Vec<(String, Vec<(String, String)>)> = redis::cmd("XRANGE")
            .arg(stream)
            .arg("-")
            .arg("+")
            .query_async(connection)
            .await
            .unwrap();
        if found.len() >= count {
            return found.into_iter().map(|(_, fields)| fields.into_iter().collect()).collect();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the bridge has created its group.
async fn wait_for_group(connection: &mut MultiplexedConnection, stream: &str) {
    let mut groups = redis::cmd("XINFO");
    groups.arg("GROUPS").arg(stream);
    while !groups.query_async::<Vec<Value>>(connection).await.is_ok_and(|found| !found.is_empty()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_published_once_also_if_the_broker_is_killed() {
    let mut server = RedisServer::with(&SYNCED);
    let jobs = jobs();
    put_jobs(&jobs, 500).await;
    let mut config = PushConfig::new(&format!("redis://{}/orders", server.address())).unwrap();
    config.headers.insert("team".to_owned(), "a".to_owned());
    config.concurrency = 50;
    let pusher = pusher(&jobs, "order", config, &BrokerOptions::default());
    entries(&mut connect(&server).await, "orders", 50).await;
    server.kill();
    server.start_again();
    wait_until_done(&jobs, "order").await;
    let all = entries(&mut connect(&server).await, "orders", 500).await;
    let ids: BTreeSet<_> = all.iter().map(|one| &one["requeue-message-id"]).collect();
    assert_eq!(ids.len(), 500);
    for one in &all {
        assert_eq!(one["requeue-attempt"], "1", "no attempt is counted");
        assert_eq!((&*one["team"], &*one["requeue-kind"]), ("a", "order"));
        assert_eq!(format!("order-{}", one["payload"]), one["requeue-id"]);
    }
    drop(pusher);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_published_in_the_order_of_their_due_times() {
    let server = RedisServer::start();
    let jobs = jobs();
    let ids = put_in_order(&jobs, 1000).await;
    let config = PushConfig::new(&format!("redis://{}/orders", server.address())).unwrap();
    let pusher = pusher(&jobs, "order", config, &BrokerOptions::default());
    let all = entries(&mut connect(&server).await, "orders", 1000).await;
    assert_eq!(all.iter().map(|one| &one["requeue-id"]).collect::<Vec<_>>(), Vec::from_iter(&ids));
    drop(pusher);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_confirmation_is_lost_is_published_again_with_its_id() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.address().parse().unwrap()).unwrap();
    let mut connection = connect(&server).await;
    let jobs = jobs();
    let config = PushConfig::new(&format!("redis://{}/orders", proxy.address())).unwrap();
    let pusher = pusher(&jobs, "order", config, &BrokerOptions::default());
    put_jobs(&jobs, 1).await;
    wait_until_done(&jobs, "order").await;
    let before = proxy.connections();
    // Redis adds the entry, and its response does not come back.
    proxy.cut_at(Direction::ToClient, 1);
    jobs.put("order", "held", "x").await.unwrap();
    wait_until_done(&jobs, "order").await;
    let all = entries(&mut connection, "orders", 3).await;
    assert_eq!(all.len(), 3);
    assert_eq!(all[1]["requeue-message-id"], all[2]["requeue-message-id"]);
    assert_eq!((&*all[2]["requeue-id"], &*all[2]["requeue-attempt"]), ("held", "1"));
    assert!(proxy.connections() > before);
    drop(pusher);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_redis_does_not_accept_is_a_failure_with_a_reason() {
    let server = RedisServer::start();
    let mut connection = connect(&server).await;
    redis::cmd("SET").arg("text").arg("x").query_async::<Value>(&mut connection).await.unwrap();
    let url =
        |place: &str| PushConfig::new(&format!("redis://{}/{place}", server.address())).unwrap();
    let jobs = jobs();
    let wrong_type = pusher(&jobs, "order", url("text"), &BrokerOptions::default());
    jobs.put("order", "1", "x").await.unwrap();
    let error = wait_for_failure(&jobs, "1").await;
    assert!(error.contains("stream \"text\"") && error.contains("WRONGTYPE"), "{error}");
    drop(wrong_type);
    // Redis is full: no attempt is counted, and the job is published as soon as there is room.
    let limit = |bytes: &'static str| {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("maxmemory").arg(bytes);
        set
    };
    limit("1").query_async::<Value>(&mut connection).await.unwrap();
    let full = pusher(&jobs, "full", url("orders?maxlen=10"), &BrokerOptions::default());
    jobs.put("full", "1", "x").await.unwrap();
    let error = wait_for_target_error(&full).await;
    assert!(error.contains("OOM"), "{error}");
    limit("0").query_async::<Value>(&mut connection).await.unwrap();
    assert_eq!(entries(&mut connection, "orders", 1).await[0]["requeue-attempt"], "1");
    drop(full);
    let wrong = format!("redis://shop:hunter2@{}/orders", server.address());
    let wrong = pusher(&jobs, "other", PushConfig::new(&wrong).unwrap(), &BrokerOptions::default());
    jobs.put("other", "1", "x").await.unwrap();
    let error = wait_for_target_error(&wrong).await;
    assert!(!error.contains("hunter2") && error.contains(&server.address()), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_come_in_and_go_out() {
    let server = RedisServer::start();
    let mut connection = connect(&server).await;
    let jobs = jobs();
    let url = format!("redis://{}/orders.delayed?payload=data&delete=true", server.address());
    let (stop, running) = start_bridge(&jobs, &url, BridgeOptions::default());
    wait_for_group(&mut connection, "orders.delayed").await;
    let soon = [("data", "{}"), ("tenant", "a"), ("requeue-delay", "1ms"), ("requeue-key", "7")];
    add(&mut connection, "orders.delayed", &soon).await;
    let later = [("requeue-delay", "1h"), ("data", "later"), ("content-type", "text/plain")];
    let id = add(&mut connection, "orders.delayed", &later).await;
    let id = format!("orders.delayed/{id}");
    let bad = [("requeue-delay", "soon"), ("Requeue-Error", "forged"), ("data", "bad")];
    add(&mut connection, "orders.delayed", &bad).await;
    let rejected = entries(&mut connection, "orders.delayed.rejected", 1).await;
    assert_eq!(rejected[0]["data"], "bad");
    assert!(rejected[0]["requeue-error"].contains("header requeue-delay is \"soon\""));
    assert!(!rejected[0].contains_key("Requeue-Error"), "{:?}", rejected[0]);
    let waiting = wait_for_job(&jobs, &id).await;
    assert!(!due_now(&waiting));
    let stored = Message::from_content(&waiting.version.content).unwrap();
    assert_eq!(
        (&*stored.payload, stored.content_type.as_deref()),
        (&b"later"[..], Some("text/plain"))
    );
    let config = PushConfig::new(&format!("redis://{}/orders", server.address())).unwrap();
    let pusher = pusher(&jobs, "orders", config, &BrokerOptions::default());
    let delivered = entries(&mut connection, "orders", 1).await;
    assert_eq!((&*delivered[0]["data"], &*delivered[0]["tenant"]), ("{}", "a"));
    assert!(!delivered[0].contains_key("requeue-delay"));
    assert!(delivered[0]["requeue-message-id"].starts_with("orders/7/"));
    let cancel = [("requeue-key", &*id), ("requeue-cancel", "true")];
    add(&mut connection, "orders.delayed", &cancel).await;
    wait_until_gone(&jobs, &id).await;
    drop(stop);
    let counts = running.await.unwrap();
    assert_eq!((counts.put, counts.cancelled, counts.rejected), (2, 1, 1));
    // `delete=true`: entries are removed when they are acked.
    let left: u64 =
        redis::cmd("XLEN").arg("orders.delayed").query_async(&mut connection).await.unwrap();
    assert_eq!(left, 0);
    drop(pusher);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_is_lost_if_the_broker_is_killed() {
    let mut server = RedisServer::with(&SYNCED);
    let jobs = jobs();
    let url = format!("redis://{}/orders.delayed", server.address());
    let (stop, running) = start_bridge(&jobs, &url, BridgeOptions::default());
    wait_for_group(&mut connect(&server).await, "orders.delayed").await;
    for round in 0..2 {
        let mut connection = connect(&server).await;
        for n in 0..200 {
            add(&mut connection, "orders.delayed", &[("requeue-key", &format!("{round}-{n}"))])
                .await;
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
    // Not the count of puts: it lacks a batch whose ack was executed, but not confirmed.
    assert!(running.await.unwrap().connections >= 2);
    assert_eq!(jobs.kind("orders").await.unwrap().counts.ready, 400, "once each");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_bridge_has_received_comes_again_before_newer_messages() {
    let server = RedisServer::start();
    let mut connection = connect(&server).await;
    let jobs = jobs();
    let key = |payload: &'static str| {
        [("requeue-key", "k"), ("requeue-delay", "1h"), ("payload", payload)]
    };
    add(&mut connection, "orders.delayed", &key("old")).await;
    let mut create = redis::cmd("XGROUP");
    create.arg("CREATE").arg("orders.delayed").arg("requeue").arg("0");
    create.query_async::<Value>(&mut connection).await.unwrap();
    // A bridge that is killed: it has received a message, and not acked it. And one of an earlier version,
    // with another name, whose message is claimed after `ack_wait`.
    let read = |consumer: &'static str| {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg("requeue").arg(consumer).arg("COUNT").arg(1);
        read.arg("STREAMS").arg("orders.delayed").arg(">");
        read
    };
    read("bridge").query_async::<Value>(&mut connection).await.unwrap();
    add(&mut connection, "orders.delayed", &[("requeue-key", "other")]).await;
    read("other").query_async::<Value>(&mut connection).await.unwrap();
    add(&mut connection, "orders.delayed", &key("new")).await;
    let url = format!("redis://{}/orders.delayed?ack_wait=1s", server.address());
    let (stop, running) = start_bridge(&jobs, &url, BridgeOptions::default());
    wait_for_job(&jobs, "other").await;
    let stored = Message::from_content(&wait_for_job(&jobs, "k").await.version.content).unwrap();
    assert_eq!(text(&stored.payload), "new");
    drop(stop);
    assert_eq!(running.await.unwrap().put, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_verifies_both_sides() {
    let server = RedisServer::with_tls(&["--requirepass", "hunter2"]);
    let jobs = jobs();
    let options = trusting_options(server.dir());
    let address = server.tls_url().trim_start_matches("rediss://").to_owned();
    let url = format!("rediss://default:hunter2@{address}/loop?db=3");
    let mut bridge = BridgeOptions::default();
    bridge.broker = options.clone();
    let (stop, running) = start_bridge(&jobs, &url, bridge);
    let config = PushConfig::new(&url).unwrap();
    let trusting = pusher(&jobs, "order", config.clone(), &options);
    put_jobs(&jobs, 3).await;
    while jobs.list("orders").await.unwrap().jobs.len() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop((stop, trusting));
    assert_eq!(running.await.unwrap().put, 3);
    let distrusting = pusher(&jobs, "order", config, &BrokerOptions::default());
    jobs.put("order", "other", "x").await.unwrap();
    let error = wait_for_target_error(&distrusting).await;
    assert!(error.contains("certificate") || error.contains("UnknownIssuer"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

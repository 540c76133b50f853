//! Kafka: the real server, killed, restarted and cut off.

use crate::support::{
    due_now, jobs, pusher, put_jobs, start_bridge, text, wait_for_failure, wait_for_job,
    wait_for_target_error, wait_until_gone,
};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Message as _};
use requeue_bridge::{BridgeCounts, BridgeOptions, BrokerOptions, HeaderValue, Message};
use requeue_jobs::{Jobs, MemoryStore};
use requeue_push::PushConfig;
use requeue_testkit::servers::{KafkaServer, free_port};
use requeue_testkit::{Direction, Fault, Faulty, Proxy};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

fn is_available() -> bool {
    let is_available = KafkaServer::available();
    if !is_available {
        eprintln!("left out: there is no Kafka");
    }
    is_available
}

/// An application with a producer.
struct Client {
    config: ClientConfig,
    producer: FutureProducer,
}

/// What an application has consumed.
#[derive(Debug, Clone)]
struct Delivered {
    key: Option<String>,
    headers: BTreeMap<String, Option<String>>,
    payload: Option<String>,
}

impl Delivered {
    fn header(&self, name: &str) -> String {
        match self.headers.get(name) {
            Some(Some(text)) => text.clone(),
            other => panic!("{name}: {other:?} of {:?}", self.headers),
        }
    }

    fn message_id(&self) -> String {
        self.header("requeue-message-id")
    }
}

impl Client {
    fn new(server: &KafkaServer, settings: &[(&str, &str)]) -> Self {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", server.address());
        for (name, value) in settings {
            config.set(*name, *value);
        }
        Client { producer: config.create().unwrap(), config }
    }

    async fn produce(
        &self,
        topic: &str,
        key: Option<&str>,
        headers: &[(&str, &str)],
        payload: Option<&str>,
    ) {
        let mut owned = OwnedHeaders::new();
        for (key, value) in headers {
            owned = owned.insert(Header { key, value: Some(*value) });
        }
        let mut record = FutureRecord::to(topic).headers(owned);
        (record.key, record.payload) = (key, payload);
        self.producer.send(record, Duration::from_secs(30)).await.unwrap();
    }

    /// Produces records without keys, over all partitions, with these payloads.
    async fn produce_all(&self, topic: &str, payloads: impl Iterator<Item = String>) {
        let payloads: Vec<_> = payloads.collect();
        let records = payloads.iter().map(|text| FutureRecord::<str, str>::to(topic).payload(text));
        let sent: Vec<_> = records.map(|one| self.producer.send_result(one).unwrap()).collect();
        for one in sent {
            one.await.unwrap().unwrap();
        }
    }

    /// Consumes a topic from its beginning until messages with so many ids have arrived.
    async fn consume(
        &self,
        topic: &str,
        count: usize,
        id: impl Fn(&Delivered) -> String + Send + 'static,
    ) -> Vec<Delivered> {
        let mut config = self.config.clone();
        config.set("group.id", format!("test-{topic}-{count}"));
        config.set("auto.offset.reset", "earliest");
        config.set("enable.auto.commit", "false");
        config.set("topic.metadata.refresh.interval.ms", "200");
        let topic = topic.to_owned();
        let consume = move || {
            let consumer: BaseConsumer = config.create().unwrap();
            consumer.subscribe(&[&topic]).unwrap();
            let (mut all, mut ids) = (Vec::new(), BTreeSet::new());
            while ids.len() < count {
                // Until the topic exists and the broker is up, there are errors.
                let Some(Ok(record)) = consumer.poll(Duration::from_millis(10)) else { continue };
                let text = |bytes: &[u8]| text(bytes);
                let headers = record.headers().into_iter().flat_map(|headers| headers.iter());
                let headers = headers.map(|one| (one.key.to_owned(), one.value.map(text)));
                let delivered = Delivered {
                    key: record.key().map(text),
                    headers: headers.collect(),
                    payload: record.payload().map(text),
                };
                ids.insert(id(&delivered));
                all.push(delivered);
            }
            all
        };
        tokio::task::spawn_blocking(consume).await.unwrap()
    }

    /// Returns the sum of the offsets that the group `requeue` has committed in a topic with partitions.
    async fn committed(&self, topic: &str, partitions: i32) -> i64 {
        let mut config = self.config.clone();
        config.set("group.id", "requeue");
        let topic = topic.to_owned();
        let fetch = move || {
            let consumer: BaseConsumer = config.create().unwrap();
            let mut list = rdkafka::TopicPartitionList::new();
            list.add_partition_range(&topic, 0, partitions - 1);
            let list = consumer.committed_offsets(list, Duration::from_secs(10)).unwrap();
            list.elements().iter().filter_map(|one| one.offset().to_raw()).map(|n| n.max(0)).sum()
        };
        tokio::task::spawn_blocking(fetch).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_published_also_if_the_broker_is_killed() {
    if !is_available() {
        return;
    }
    let mut server = KafkaServer::with(&["num.partitions=3"]);
    let client = Client::new(&server, &[]);
    let jobs = jobs();
    put_jobs(&jobs, 1000).await;
    let mut config = PushConfig::new(&format!("{}/orders", server.url())).unwrap();
    config.headers.insert("team".to_owned(), "a".to_owned());
    config.concurrency = 50;
    let pusher = pusher(&jobs, "order", config, &BrokerOptions::default());
    let some = client.consume("orders", 50, Delivered::message_id).await;
    assert_eq!(
        (some[0].header("team"), some[0].header("requeue-kind")),
        ("a".into(), "order".into())
    );
    assert_eq!(some[0].key, Some(some[0].header("requeue-id")));
    // Putting these takes a fraction of the time that it takes to publish them.
    for n in 1000..2000 {
        jobs.put("order", &format!("order-{n}"), "x").await.unwrap();
    }
    server.kill();
    let mut is_interrupted = false;
    for n in 0..2000 {
        is_interrupted |= jobs.get("order", &format!("order-{n}")).await.unwrap().is_some();
    }
    assert!(is_interrupted, "all jobs were published before the broker was killed");
    server.start_again();
    let all = client.consume("orders", 2000, Delivered::message_id).await;
    for one in &all {
        assert_eq!(one.header("requeue-attempt"), "1", "no attempt is counted");
    }
    eprintln!("{} messages for 2000 jobs", all.len());
    drop(pusher);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_confirmation_is_lost_is_stored_once() {
    if !is_available() {
        return;
    }
    let port = free_port();
    let proxy = Proxy::to(([127, 0, 0, 1], port).into()).unwrap();
    let server = KafkaServer::with_advertised(port, proxy.address().port(), &[]);
    server.create_topic("orders", 1);
    let jobs = jobs();
    let config = PushConfig::new(&format!("kafka://{}/orders", proxy.address())).unwrap();
    let pusher = pusher(&jobs, "order", config, &BrokerOptions::default());
    put_jobs(&jobs, 1).await;
    wait_until_acked(&jobs, "order-0").await;
    let before = proxy.connections();
    // The broker gets the message, and its confirmation does not come back.
    proxy.cut_at(Direction::ToClient, 1);
    jobs.put("order", "held", "x").await.unwrap();
    wait_until_acked(&jobs, "held").await;
    assert!(proxy.connections() > before);
    assert!(!proxy.cancel_cut());
    for n in 0..10 {
        proxy.cut_at(Direction::ToClient, 1 + n % 3);
        jobs.put("order", &format!("cut-{n}"), "x").await.unwrap();
        wait_until_acked(&jobs, &format!("cut-{n}")).await;
    }
    proxy.cancel_cut();
    let client = Client::new(&server, &[]);
    let all = client.consume("orders", 12, Delivered::message_id).await;
    // The library repeats a request, and the broker ignores what it has stored. Only a message that was given up
    // is published again.
    if pusher.status().targets.iter().all(|target| target.last_error.is_none()) {
        assert_eq!(server.tool("GetOffsetShell", &["--topic", "orders"], ""), "orders:0:12");
    }
    assert!(all.iter().all(|one| one.header("requeue-attempt") == "1"));
    drop(pusher);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_broker_rejects_is_a_failed_attempt_with_a_reason() {
    if !is_available() {
        return;
    }
    let server = KafkaServer::with(&["auto.create.topics.enable=false"]);
    server.tool(
        "TopicCommand",
        &["--create", "--topic", "small", "--config", "max.message.bytes=1000"],
        "",
    );
    let own = jobs();
    let config = PushConfig::new(&format!("{}/missing", server.url())).unwrap();
    let missing = pusher(&own, "order", config, &BrokerOptions::default());
    own.put("order", "1", "x").await.unwrap();
    let error = wait_for_failure(&own, "1").await;
    assert!(error.contains("topic \"missing\"") && error.contains("UnknownTopic"), "{error}");
    drop(missing);
    // The broker rejects batches as a whole. Only the message that is too large is dead.
    let own = jobs();
    for n in 0..100 {
        own.put("order", &format!("{n}"), "x".repeat(200)).await.unwrap();
    }
    own.put("order", "large", "x".repeat(2000)).await.unwrap();
    let mut config = PushConfig::new(&format!("{}/small?key=k", server.url())).unwrap();
    config.concurrency = 50;
    let small = pusher(&own, "order", config, &BrokerOptions::default());
    let error = wait_for_failure(&own, "large").await;
    assert!(error.contains("2000 bytes is too large"), "{error}");
    let client = Client::new(&server, &[]);
    let delivered = client.consume("small", 100, Delivered::message_id).await;
    assert!(delivered.iter().all(|one| one.header("requeue-attempt") == "1"));
    assert_eq!(delivered[0].key.as_deref(), Some("k"));
    drop(small);
    // A bridge reports what is missing, and continues when it exists.
    let own = jobs();
    let (stop, running) =
        start_bridge(&own, &format!("{}/later", server.url()), BridgeOptions::default());
    server.create_topic("later", 1);
    client.produce("later", None, &[], Some("x")).await;
    wait_for_job(&own, "later/0/0").await;
    drop(stop);
    assert_eq!(running.await.unwrap().put, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_and_passwords_are_verified() {
    if !is_available() {
        return;
    }
    let server = KafkaServer::with_tls(&[
        "listener.security.protocol.map=CLIENTS:SASL_SSL,TOOLS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.clients.ssl.client.auth=required",
        "listener.name.clients.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
        "listener.name.clients.scram-sha-512.sasl.jaas.config=\
         org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "listener.name.clients.plain.sasl.jaas.config=\
         org.apache.kafka.common.security.plain.PlainLoginModule required user_shop=\"hunter2\";",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found=true",
        "super.users=User:ANONYMOUS",
    ]);
    let file = |name: &str| server.dir().join(name).display().to_string();
    let mut trusting = BrokerOptions::default();
    trusting.ca_file = Some(file("ca.crt").into());
    let anonymous = trusting.clone();
    trusting.client_cert = Some(file("client.crt").into());
    trusting.client_key = Some(file("client.key").into());
    let url = |password: &str| format!("kafka+tls://shop:{password}@{}/orders", server.address());
    let own = jobs();
    let right = PushConfig::new(&url("hunter2")).unwrap();
    let pushing = pusher(&own, "order", right, &trusting);
    put_jobs(&own, 3).await;
    let client = Client::new(
        &server,
        &[
            ("security.protocol", "sasl_ssl"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.username", "shop"),
            ("sasl.password", "hunter2"),
            ("ssl.ca.location", &file("ca.crt")),
            ("ssl.certificate.location", &file("client.crt")),
            ("ssl.key.location", &file("client.key")),
        ],
    );
    assert_eq!(client.consume("orders", 3, Delivered::message_id).await.len(), 3);
    drop(pushing);
    let mut untrusting = trusting.clone();
    untrusting.ca_file = None;
    let pushers = [("hunter3", &trusting), ("hunter2", &untrusting), ("hunter2", &anonymous)].map(
        |(password, options)| {
            let (own, config) = (jobs(), PushConfig::new(&url(password)).unwrap());
            (pusher(&own, "order", config, options), own)
        },
    );
    for (_, own) in &pushers {
        put_jobs(own, 1).await;
    }
    for ((pushing, own), expected) in pushers.iter().zip(["uthentication", "certificate", "SSL"]) {
        let error = wait_for_target_error(pushing).await;
        assert!(error.contains(expected) && error.contains("orders"), "{error}");
        assert!(!error.contains("hunter"), "{error}");
        let view = own.get("order", "order-0").await.unwrap().unwrap();
        assert!(view.failures.is_empty(), "no attempt is counted");
    }
    drop(pushers);
    // What the user may not do is a failed attempt. The bridge waits until it may.
    let denied = ["--topic", "orders.rejected", "--deny-principal", "User:shop"];
    server.tool("AclCommand", &[&["--add", "--operation", "All"], &denied[..]].concat(), "");
    let own = jobs();
    let config = PushConfig::new(&url("hunter2").replace("orders", "orders.rejected")).unwrap();
    let pushing = pusher(&own, "order", config, &trusting);
    put_jobs(&own, 1).await;
    let error = wait_for_failure(&own, "order-0").await;
    assert!(error.contains("orders.rejected") && error.contains("Authorization"), "{error}");
    drop(pushing);
    client.produce("orders", None, &[("requeue-delay", "soon")], Some("bad")).await;
    let mut options = BridgeOptions::default();
    options.broker = trusting;
    let password = ["--alter", "--add-config", "SCRAM-SHA-512=[password=hunter4]"];
    let user = ["--entity-type", "users", "--entity-name", "shop"];
    server.tool("kafka.admin.ConfigCommand", &[&password[..], &user].concat(), "");
    let scram = format!("{}?sasl=scram-sha-512", url("hunter4"));
    let (stop, running) = start_bridge(&own, &scram, options);
    wait_for_job(&own, "orders/0/2").await;
    let topics = server.tool("TopicCommand", &["--list"], "");
    assert!(!topics.contains("orders.rejected"), "{topics}");
    server.tool("AclCommand", &[&["--remove", "--force"], &denied[..]].concat(), "");
    let rejected =
        client.consume("orders.rejected", 1, |one| one.payload.clone().unwrap_or_default()).await;
    assert_eq!(rejected[0].payload.as_deref(), Some("bad"));
    drop(stop);
    let counts = running.await.unwrap();
    assert!(counts.rejected >= 1, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_come_in_and_go_out_as_they_were() {
    if !is_available() {
        return;
    }
    let server = KafkaServer::start();
    server.create_topic("orders.delayed", 1);
    let client = Client::new(&server, &[]);
    let jobs = jobs();
    let (stop, running) = start_orders(&jobs, &server);
    let headers = [("requeue-delay", "10ms"), ("tenant", "a"), ("content-type", "text/plain")];
    client.produce("orders.delayed", Some("eu"), &headers, Some("{}")).await;
    let hour = [("requeue-delay", "1h"), ("requeue-key", "k")];
    client.produce("orders.delayed", Some("eu"), &hour, Some("later")).await;
    let bad = [("requeue-delay", "soon"), ("Requeue-Error", "forged")];
    client.produce("orders.delayed", Some("eu"), &bad, Some("bad")).await;
    client.produce("orders.delayed", Some("deleted"), &[], None).await;
    client.produce("orders.delayed", None, &[], Some("")).await;
    let rejected =
        client.consume("orders.delayed.rejected", 1, |one| one.payload.clone().unwrap()).await;
    assert_eq!(
        (rejected[0].key.as_deref(), rejected[0].payload.as_deref()),
        (Some("eu"), Some("bad"))
    );
    assert!(!rejected[0].headers.contains_key("Requeue-Error"));
    let error = rejected[0].header("requeue-error");
    assert!(error.contains("header requeue-delay is \"soon\""), "{error}");
    let waiting = wait_for_job(&jobs, "k").await;
    assert!(!due_now(&waiting));
    let stored = Message::from_content(&waiting.version.content).unwrap();
    assert_eq!((&*stored.payload, stored.key.as_deref()), (&b"later"[..], Some(&b"eu"[..])));
    assert_eq!(stored.header("requeue-delay"), Some(&HeaderValue::from("1h")));
    let first = wait_for_job(&jobs, "orders.delayed/0/0").await;
    let stored = Message::from_content(&first.version.content).unwrap();
    assert_eq!(stored.content_type.as_deref(), Some("text/plain"));
    let config = PushConfig::new(&format!("{}/orders", server.url())).unwrap();
    let pusher = pusher(&jobs, "orders", config, &BrokerOptions::default());
    let delivered = client.consume("orders", 3, Delivered::message_id).await;
    let by_id: BTreeMap<_, _> =
        delivered.iter().map(|one| (one.header("requeue-id"), one)).collect();
    let first = by_id["orders.delayed/0/0"];
    assert_eq!((first.key.as_deref(), first.payload.as_deref()), (Some("eu"), Some("{}")));
    assert_eq!(
        (first.header("tenant"), first.header("content-type")),
        ("a".into(), "text/plain".into())
    );
    assert!(!first.headers.contains_key("requeue-delay"));
    let tombstone = by_id["orders.delayed/0/3"];
    assert_eq!((tombstone.key.as_deref(), &tombstone.payload), (Some("deleted"), &None));
    let empty = by_id["orders.delayed/0/4"];
    assert_eq!(empty.payload.as_deref(), Some(""));
    assert_eq!(empty.key.as_deref(), Some("orders.delayed/0/4"));
    // The same key cancels the other job.
    let cancel = [("requeue-key", "k"), ("requeue-cancel", "true")];
    client.produce("orders.delayed", Some("eu"), &cancel, None).await;
    wait_until_gone(&jobs, "k").await;
    drop(stop);
    let counts = running.await.unwrap();
    assert_eq!((counts.put, counts.cancelled, counts.rejected), (4, 1, 1));
    assert_eq!(client.committed("orders.delayed", 1).await, 6);
    // The group was left: another bridge gets messages long before the session of the first would expire.
    let (stop, running) = start_orders(&jobs, &server);
    client.produce("orders.delayed", None, &[("requeue-delay", "1h")], Some("x")).await;
    let soon = Duration::from_secs(8);
    tokio::time::timeout(soon, wait_for_job(&jobs, "orders.delayed/0/6")).await.unwrap();
    drop(stop);
    assert_eq!(running.await.unwrap().put, 1);
    drop(pusher);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_is_lost_if_the_broker_is_killed() {
    if !is_available() {
        return;
    }
    let mut server = KafkaServer::start();
    server.create_topic("orders.delayed", 2);
    // The job of the first message is put, and the store does not respond: the bridge is dropped before the
    // commit.
    let store = Arc::new(Faulty::new(Arc::new(MemoryStore::new())));
    let own = Jobs::new(store.clone());
    store.at(1, Fault::SlowReply);
    let client = Client::new(&server, &[]);
    client.produce_all("orders.delayed", (0..10).map(|n| n.to_string())).await;
    let (stop, running) = start_orders(&own, &server);
    while store.calls() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    drop(stop);
    store.let_go();
    assert_eq!(client.committed("orders.delayed", 2).await, 0);
    let before = payloads(&own).await;
    assert!(!before.is_empty());
    let (stop, running) = start_orders(&own, &server);
    while client.committed("orders.delayed", 2).await < 10 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let after = payloads(&own).await;
    assert!(before.iter().all(|(id, payload)| after.get(id) == Some(payload)) && after.len() == 10);
    // The broker is killed while messages come in.
    let producing = tokio::spawn(async move {
        client.produce_all("orders.delayed", (10..20_000).map(|n| n.to_string())).await;
        client
    });
    while payloads(&own).await.len() < 100 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.kill();
    assert!(payloads(&own).await.len() < 20_000, "all came in before the broker was killed");
    server.start_again();
    let client = producing.await.unwrap();
    while payloads(&own).await.into_values().collect::<BTreeSet<_>>().len() < 20_000 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(stop);
    let counts = running.await.unwrap();
    assert!(counts.put >= 20_000, "{counts:?}");
    // The next bridge gets nothing again.
    let last = client.committed("orders.delayed", 2).await;
    assert_eq!(last, i64::try_from(payloads(&own).await.len()).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_bridges_share_a_topic_and_take_over_from_each_other() {
    if !is_available() {
        return;
    }
    let mut server = KafkaServer::start();
    server.create_topic("orders.delayed", 4);
    let client = Client::new(&server, &[]);
    let (first_jobs, second_jobs) = (jobs(), jobs());
    let (first_stop, first) = start_orders(&first_jobs, &server);
    let (second_stop, second) = start_orders(&second_jobs, &server);
    // Until both have partitions.
    let mut sent = 0;
    while payloads(&first_jobs).await.is_empty() || payloads(&second_jobs).await.is_empty() {
        client.produce_all("orders.delayed", (sent..sent + 40).map(|n| n.to_string())).await;
        sent += 40;
    }
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    drop(first_stop);
    client.produce_all("orders.delayed", (sent..sent + 400).map(|n| n.to_string())).await;
    sent += 400;
    let mut all = BTreeSet::new();
    while all.len() < sent {
        tokio::time::sleep(Duration::from_millis(10)).await;
        all = payloads(&first_jobs).await.into_values().collect();
        all.extend(payloads(&second_jobs).await.into_values());
    }
    while client.committed("orders.delayed", 4).await < i64::try_from(sent).unwrap() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // A bridge ends also if the broker is gone.
    server.kill();
    drop(second_stop);
    let counts = tokio::time::timeout(Duration::from_secs(10), second).await.unwrap().unwrap();
    assert_eq!(counts.connections, 1);
}

/// Starts a bridge that consumes the topic `orders.delayed`.
fn start_orders(
    jobs: &Jobs,
    server: &KafkaServer,
) -> (oneshot::Sender<()>, JoinHandle<BridgeCounts>) {
    let url = format!("{}/orders.delayed", server.url());
    start_bridge(jobs, &url, BridgeOptions::default())
}

/// Waits until the job of the kind `order` was delivered.
async fn wait_until_acked(jobs: &Jobs, id: &str) {
    while jobs.get("order", id).await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns the jobs of the kind `orders`: their payloads by id.
async fn payloads(jobs: &Jobs) -> BTreeMap<String, String> {
    let (mut found, mut cursor) = (BTreeMap::new(), None);
    loop {
        let mut list = jobs.list("orders").limit(1000);
        if let Some(cursor) = cursor {
            list = list.after(cursor);
        }
        let page = list.await.unwrap();
        for view in page.jobs {
            let payload = text(&Message::from_content(&view.version.content).unwrap().payload);
            found.insert(view.id.to_string(), payload);
        }
        match page.cursor {
            Some(next) => cursor = Some(next),
            None => return found,
        }
    }
}

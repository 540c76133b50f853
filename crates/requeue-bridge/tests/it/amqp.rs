//! RabbitMQ: the real server, killed, restarted and cut off.

use crate::support::{
    due_now, jobs, message_headers, pusher, put_in_order, put_jobs, start_bridge, text,
    trusting_options, wait_for_failure, wait_for_job, wait_for_target_error, wait_until_gone,
};
use futures_util::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions,
    BasicRecoverOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use requeue_bridge::{BridgeCounts, BridgeOptions, BrokerOptions, HeaderValue, Message};
use requeue_jobs::Jobs;
use requeue_push::PushConfig;
use requeue_testkit::servers::RabbitServer;
use requeue_testkit::{Direction, Proxy};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

fn server() -> Option<RabbitServer> {
    if RabbitServer::available() {
        return Some(RabbitServer::start());
    }
    eprintln!("left out: there is no RabbitMQ");
    None
}

/// A connection of an application.
struct Client {
    channel: Channel,
    _connection: Connection,
}

impl Client {
    async fn connect(server: &RabbitServer) -> Self {
        let url = server.url();
        loop {
            let connected = Connection::connect(&url, ConnectionProperties::default()).await;
            if let Ok(connection) = connected {
                let channel = connection.create_channel().await.unwrap();
                channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
                return Client { channel, _connection: connection };
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Declares a direct exchange, and a queue that gets what has one of these routing keys.
    async fn declare(&self, exchange: &str, queue: &str, keys: &[&str]) {
        let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let declared = self.channel.exchange_declare(
            exchange.into(),
            ExchangeKind::Direct,
            durable,
            FieldTable::default(),
        );
        declared.await.unwrap();
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        self.channel.queue_declare(queue.into(), durable, FieldTable::default()).await.unwrap();
        for key in keys {
            let bind = self.channel.queue_bind(
                queue.into(),
                exchange.into(),
                (*key).into(),
                QueueBindOptions::default(),
                FieldTable::default(),
            );
            bind.await.unwrap();
        }
    }

    async fn publish(
        &self,
        exchange: &str,
        key: &str,
        headers: &[(&str, AMQPValue)],
        id: Option<&str>,
        payload: &str,
    ) {
        let mut table = FieldTable::default();
        for (name, value) in headers {
            table.insert((*name).into(), value.clone());
        }
        let mut properties = BasicProperties::default().with_headers(table).with_delivery_mode(2);
        if let Some(id) = id {
            properties = properties.with_message_id(id.into());
        }
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let sent = self.channel.basic_publish(
            exchange.into(),
            key.into(),
            options,
            payload.as_bytes(),
            properties,
        );
        let confirmed = sent.await.unwrap().await.unwrap();
        assert!(confirmed.is_ack() && confirmed.take_message().is_none());
    }

    /// Consumes a queue until messages with so many ids have arrived.
    async fn consume(
        &self,
        queue: &str,
        count: usize,
        id: impl Fn(&Delivered) -> String,
    ) -> Vec<Delivered> {
        self.consume_until(queue, id, |ids| ids.len() == count).await
    }

    async fn consume_until(
        &self,
        queue: &str,
        id: impl Fn(&Delivered) -> String,
        is_enough: impl Fn(&BTreeSet<String>) -> bool,
    ) -> Vec<Delivered> {
        let consumed = self.channel.basic_consume(
            queue.into(),
            "".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let (mut consumer, mut all, mut ids) =
            (consumed.await.unwrap(), Vec::new(), BTreeSet::new());
        while !is_enough(&ids) {
            let delivery = consumer.next().await.unwrap().unwrap();
            delivery.ack(BasicAckOptions::default()).await.unwrap();
            let headers = delivery.properties.headers().clone().unwrap_or_default();
            let delivered = Delivered {
                key: delivery.routing_key.to_string(),
                headers: headers
                    .inner()
                    .iter()
                    .map(|(name, value)| (name.to_string(), value.clone()))
                    .collect(),
                properties: delivery.properties,
                payload: delivery.data,
            };
            ids.insert(id(&delivered));
            all.push(delivered);
        }
        // Messages that were sent ahead return to the queue.
        self.channel.basic_cancel(consumer.tag(), BasicCancelOptions::default()).await.unwrap();
        self.channel.basic_recover(BasicRecoverOptions { requeue: true }).await.unwrap();
        all
    }
}

struct Delivered {
    key: String,
    headers: BTreeMap<String, AMQPValue>,
    properties: BasicProperties,
    payload: Vec<u8>,
}

impl Delivered {
    fn header(&self, name: &str) -> String {
        match self.headers.get(name) {
            Some(AMQPValue::LongString(text)) => text.to_string(),
            Some(AMQPValue::LongInt(number)) => number.to_string(),
            other => panic!("{name}: {other:?}"),
        }
    }

    fn message_id(&self) -> String {
        self.properties.message_id().as_ref().unwrap().to_string()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_published_once_also_if_the_broker_is_killed() {
    let Some(mut server) = server() else { return };
    let client = Client::connect(&server).await;
    client.declare("orders", "billing", &["order"]).await;
    let jobs = jobs();
    put_jobs(&jobs, 500).await;
    let mut config =
        PushConfig::new(&format!("{}/orders?routing_key={{kind}}", server.url())).unwrap();
    config.headers.insert("team".to_owned(), "a".to_owned());
    config.concurrency = 50;
    let pusher = pusher(&jobs, "order", config, &BrokerOptions::default());
    let some = client.consume("billing", 50, Delivered::message_id).await;
    assert_eq!(some[0].header("team"), "a");
    assert_eq!(some[0].header("requeue-kind"), "order");
    assert_eq!(some[0].header("x-deduplication-header"), some[0].message_id());
    assert_eq!(some[0].key, "order");
    server.kill();
    server.start_again();
    let client = Client::connect(&server).await;
    let seen: BTreeSet<_> = some.iter().map(Delivered::message_id).collect();
    // What was consumed before may come again, under the same id: only new ids are counted.
    let id_if_new = |one: &Delivered| match seen.contains(&one.message_id()) {
        true => String::new(),
        false => one.message_id(),
    };
    let rest = client.consume_until("billing", id_if_new, |ids| {
        ids.iter().filter(|id| !id.is_empty()).count() == 500 - seen.len()
    });
    for one in some.iter().chain(&rest.await) {
        assert_eq!(one.header("requeue-attempt"), "1", "no attempt is counted");
    }
    drop(pusher);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_published_in_the_order_of_their_due_times() {
    let Some(server) = server() else { return };
    let client = Client::connect(&server).await;
    client.declare("orders", "billing", &["order"]).await;
    let jobs = jobs();
    let ids = put_in_order(&jobs, 1000).await;
    let config = PushConfig::new(&format!("{}/orders", server.url())).unwrap();
    let pusher = pusher(&jobs, "order", config, &BrokerOptions::default());
    let all = client.consume("billing", 1000, Delivered::message_id).await;
    assert_eq!(all.iter().map(|one| one.header("requeue-id")).collect::<Vec<_>>(), ids);
    drop(pusher);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_confirmation_is_lost_is_published_again_with_its_id() {
    let Some(server) = server() else { return };
    let client = Client::connect(&server).await;
    client.declare("orders", "billing", &["order"]).await;
    let proxy = Proxy::to(server.address().parse().unwrap()).unwrap();
    let jobs = jobs();
    let config =
        PushConfig::new(&format!("amqp://{}/orders?routing_key={{kind}}", proxy.address()))
            .unwrap();
    let pusher = pusher(&jobs, "order", config, &BrokerOptions::default());
    put_jobs(&jobs, 1).await;
    let first = client.consume("billing", 1, Delivered::message_id).await;
    let before = proxy.connections();
    // The broker gets the message, and its confirmation does not come back.
    proxy.cut_at(Direction::ToClient, 1);
    jobs.put("order", "held", "x").await.unwrap();
    let held = client.consume("billing", 1, Delivered::message_id).await;
    let again = client.consume("billing", 1, Delivered::message_id).await;
    assert_eq!(held[0].message_id(), again[0].message_id());
    assert_ne!(first[0].message_id(), again[0].message_id());
    assert_eq!(again[0].header("requeue-attempt"), "1");
    assert!(proxy.connections() > before);
    drop(pusher);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_broker_rejects_is_a_failed_attempt_with_a_reason() {
    let Some(server) = server() else { return };
    let client = Client::connect(&server).await;
    client.declare("orders", "billing", &["order"]).await;
    let address = server.address();
    for (url, expected) in [
        (
            format!("amqp://{address}/orders?routing_key=nobody"),
            "has no queue for routing key \"nobody\"",
        ),
        (format!("amqp://{address}/missing"), "no exchange 'missing'"),
    ] {
        let jobs = jobs();
        let pusher =
            pusher(&jobs, "order", PushConfig::new(&url).unwrap(), &BrokerOptions::default());
        jobs.put("order", "1", "x").await.unwrap();
        let error = wait_for_failure(&jobs, "1").await;
        assert!(error.contains(expected), "{error}");
        drop(pusher);
    }
    let wrong = format!("amqp://guest:hunter2@{address}/orders");
    let jobs = jobs();
    let pusher =
        pusher(&jobs, "order", PushConfig::new(&wrong).unwrap(), &BrokerOptions::default());
    jobs.put("order", "1", "x").await.unwrap();
    let error = wait_for_target_error(&pusher).await;
    assert!(!error.contains("hunter2") && error.contains(&address), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_come_in_and_go_out_as_the_plugin_would_deliver_them() {
    let Some(server) = server() else { return };
    let client = Client::connect(&server).await;
    client.declare("orders", "billing", &["eu"]).await;
    let jobs = jobs();
    let (stop, running) = start_orders(&jobs, &server);
    // Until the bridge has declared the exchange, nothing can be published.
    wait_for_queue(&server, "requeue.orders.delayed.rejected").await;
    let headers =
        [("x-delay", AMQPValue::LongInt(1)), ("tenant", AMQPValue::LongString("a".into()))];
    client.publish("orders.delayed", "eu", &headers, Some("m-1"), "{}").await;
    let hour = [
        ("x-delay", AMQPValue::LongInt(3_600_000)),
        ("requeue-key", AMQPValue::LongString("k".into())),
    ];
    client.publish("orders.delayed", "eu", &hour, None, "later").await;
    client
        .publish(
            "orders.delayed",
            "eu",
            &[("x-delay", AMQPValue::LongString("soon".into()))],
            None,
            "bad",
        )
        .await;
    let rejected =
        client.consume("requeue.orders.delayed.rejected", 1, |one| text(&one.payload)).await;
    assert_eq!(text(&rejected[0].payload), "bad");
    assert!(
        rejected[0].header("requeue-error").contains("milliseconds"),
        "{:?}",
        rejected[0].headers
    );
    let waiting = jobs.get("orders", "k").await.unwrap().unwrap();
    assert!(!due_now(&waiting));
    let stored = Message::from_content(&waiting.version.content).unwrap();
    assert_eq!((&*stored.payload, stored.key.as_deref()), (&b"later"[..], Some(&b"eu"[..])));
    assert_eq!(message_headers(&stored).get("x-delay"), Some(&HeaderValue::Int(3_600_000)));
    let config = PushConfig::new(&format!("{}/orders", server.url())).unwrap();
    let pusher = pusher(&jobs, "orders", config, &BrokerOptions::default());
    let delivered = client.consume("billing", 1, Delivered::message_id).await;
    assert_eq!((text(&delivered[0].payload), &*delivered[0].key), ("{}".to_owned(), "eu"));
    assert_eq!(
        (delivered[0].header("x-delay"), delivered[0].header("tenant")),
        ("-1".to_owned(), "a".to_owned())
    );
    assert_eq!(delivered[0].message_id(), "m-1");
    // The same key cancels the other job.
    let cancel = [
        ("requeue-key", AMQPValue::LongString("k".into())),
        ("requeue-cancel", AMQPValue::LongString("true".into())),
    ];
    client.publish("orders.delayed", "eu", &cancel, None, "").await;
    wait_until_gone(&jobs, "k").await;
    drop(stop);
    let counts = running.await.unwrap();
    assert_eq!((counts.put, counts.cancelled, counts.rejected), (2, 1, 1));
    drop(pusher);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_is_lost_if_the_broker_is_killed() {
    let Some(mut server) = server() else { return };
    let jobs = jobs();
    let (stop, running) = start_orders(&jobs, &server);
    wait_for_queue(&server, "requeue.orders.delayed.rejected").await;
    for round in 0..2 {
        let client = Client::connect(&server).await;
        for n in 0..200 {
            let id = format!("{round}-{n}");
            client.publish("orders.delayed", "", &[], Some(&id), &id).await;
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
    let counts = running.await.unwrap();
    assert!(counts.put >= 400 && counts.connections >= 2, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_verifies_both_sides() {
    if !RabbitServer::available() {
        return eprintln!("left out: there is no RabbitMQ");
    }
    let server = RabbitServer::with_client_certificates(&[]);
    let jobs = jobs();
    let options = trusting_options(server.dir());
    let client = Client::connect(&server).await;
    client.declare("orders", "billing", &["order"]).await;
    let config =
        PushConfig::new(&format!("{}/orders?routing_key=order", server.tls_url())).unwrap();
    let trusting = pusher(&jobs, "order", config.clone(), &options);
    put_jobs(&jobs, 3).await;
    assert_eq!(client.consume("billing", 3, Delivered::message_id).await.len(), 3);
    drop(trusting);
    let distrusting = pusher(&jobs, "order", config, &BrokerOptions::default());
    jobs.put("order", "other", "x").await.unwrap();
    let error = wait_for_target_error(&distrusting).await;
    assert!(error.contains("certificate") || error.contains("UnknownIssuer"), "{error}");
}

/// Starts a bridge that consumes the exchange `orders.delayed`.
fn start_orders(
    jobs: &Jobs,
    server: &RabbitServer,
) -> (oneshot::Sender<()>, JoinHandle<BridgeCounts>) {
    let url = format!("{}/orders.delayed", server.url());
    start_bridge(jobs, &url, BridgeOptions::default())
}

/// Waits until the bridge has declared its last queue.
async fn wait_for_queue(server: &RabbitServer, queue: &str) {
    let connection =
        Connection::connect(&server.url(), ConnectionProperties::default()).await.unwrap();
    loop {
        let channel = connection.create_channel().await.unwrap();
        let passive = QueueDeclareOptions { passive: true, durable: true, ..Default::default() };
        if channel.queue_declare(queue.into(), passive, FieldTable::default()).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

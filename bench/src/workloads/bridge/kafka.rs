//! Kafka: messages to a topic that requeue's bridge consumes. Kafka has no delays of its own.
//!
//! ```text
//!   requeue-kafka    publish -> topic -> requeue bridge -> requeue serve -> topic -> consume
//! ```

use super::load::{Confirmed, Consumer, Publisher};
use futures_util::FutureExt;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{CommitMode, Consumer as _, StreamConsumer};
use rdkafka::message::{BorrowedMessage, Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Message};
use std::time::Duration;

const PARTITIONS: i32 = 1;
/// The most messages that are acknowledged together.
const BATCH: usize = 256;

/// The client of an application.
pub(super) struct Kafka {
    config: ClientConfig,
    /// Different for each measurement.
    name: String,
}

impl Kafka {
    /// Creates the topics of the measurement.
    pub(super) async fn connect(port: u16, name: &str) -> Self {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", format!("127.0.0.1:{port}"));
        let kafka = Kafka { config, name: name.to_owned() };
        let admin: AdminClient<DefaultClientContext> =
            kafka.config.create().expect("the settings are valid");
        let (delayed, due) = (kafka.delayed_topic(), kafka.due_topic());
        let topics = [&delayed, &due]
            .map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1)));
        let created = admin.create_topics(&topics, &AdminOptions::new()).await;
        for topic in created.expect("Kafka responds") {
            topic.expect("the topic is created");
        }
        kafka
    }

    /// The topic to which the bridge publishes messages that are due.
    pub(super) fn due_topic(&self) -> String {
        format!("{}.due", self.name)
    }

    /// The topic to which messages with `x-delay` are published.
    pub(super) fn delayed_topic(&self) -> String {
        format!("{}.delayed", self.name)
    }

    pub(super) fn consume(&self) -> KafkaConsumer {
        let mut config = self.config.clone();
        config.set("group.id", &self.name);
        config.set("auto.offset.reset", "earliest").set("enable.auto.commit", "false");
        // A broker waits this long for more messages before it responds.
        config.set("fetch.wait.max.ms", "10");
        let consumer: StreamConsumer = config.create().expect("the settings are valid");
        consumer.subscribe(&[&self.due_topic()]).expect("the name is valid");
        KafkaConsumer { consumer }
    }

    pub(super) fn publisher(&self) -> KafkaPublisher {
        let mut config = self.config.clone();
        config.set("enable.idempotence", "true").set("linger.ms", "0");
        let producer = config.create().expect("the settings are valid");
        KafkaPublisher { producer, topic: self.delayed_topic() }
    }
}

pub(super) struct KafkaPublisher {
    producer: FutureProducer,
    topic: String,
}

impl Publisher for KafkaPublisher {
    async fn send(&mut self, payload: String, delay: Duration) -> Confirmed {
        let delay = delay.as_millis().to_string();
        let header = Header { key: "x-delay", value: Some(&delay) };
        let record: FutureRecord<'_, (), String> = FutureRecord::to(&self.topic)
            .payload(&payload)
            .headers(OwnedHeaders::new().insert(header));
        let sent = self.producer.send_result(record);
        let confirmed =
            sent.unwrap_or_else(|(error, _)| panic!("the message is not sent: {error}"));
        Box::pin(async {
            let stored = confirmed.await.expect("the producer runs");
            stored.unwrap_or_else(|(error, _)| panic!("the message is not stored: {error}"));
        })
    }
}

pub(super) struct KafkaConsumer {
    consumer: StreamConsumer,
}

impl Consumer for KafkaConsumer {
    async fn receive(&mut self) -> Vec<String> {
        let text = |message: BorrowedMessage<'_>| {
            String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned()
        };
        let mut next = Some(self.consumer.recv().await);
        let mut received = Vec::new();
        while let Some(message) = next {
            // The client reports lost connections, and makes them again by itself.
            received.extend(message.ok().map(text));
            let is_full = received.len() == BATCH;
            next = if is_full { None } else { self.consumer.recv().now_or_never() };
        }
        received
    }

    async fn ack(&mut self) {
        // If nothing was received, there is nothing to commit.
        let _ = self.consumer.commit_consumer_state(CommitMode::Async);
    }
}

//! NATS with JetStream: messages to a subject that requeue's bridge consumes, or with a schedule.
//!
//! ```text
//!   requeue-nats     publish -> stream -> requeue bridge -> requeue serve -> stream -> consume
//!   nats-schedule    publish, with the header Nats-Schedule -> stream, twice        -> consume
//! ```
//!
//! A subject has one schedule, and a newer one replaces it. So each message has a subject of its own.

use super::load::{Confirmed, Consumer, Publisher};
use async_nats::HeaderMap;
use async_nats::jetstream::consumer::AckPolicy;
use async_nats::jetstream::consumer::pull::{Config, Stream};
use async_nats::jetstream::{self, Context, Message};
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use serde_json::json;
use std::time::{Duration, SystemTime};

/// The most messages that are acknowledged together.
const BATCH: usize = 256;

/// How messages get their delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delay {
    /// The header `x-delay`, which the bridge reads.
    Header,
    /// The header `Nats-Schedule`, which the server reads.
    Schedule,
}

/// The client of an application.
pub(super) struct Nats {
    context: Context,
    /// Different for each measurement.
    name: String,
}

impl Nats {
    pub(super) async fn connect(port: u16, name: &str) -> Self {
        let client = async_nats::connect(format!("nats://127.0.0.1:{port}")).await;
        let context = jetstream::new(client.expect("NATS accepts connections"));
        Nats { context, name: name.to_owned() }
    }

    /// The subject to which the bridge publishes messages that are due.
    pub(super) fn due_subject(&self) -> String {
        format!("{}.due", self.name)
    }

    /// The subject to which messages with `x-delay` are published. The bridge creates its stream.
    pub(super) fn delayed_subject(&self) -> String {
        format!("{}.delayed", self.name)
    }

    /// Creates the stream with the messages that are due, and with their schedules if there are any. Returns
    /// a consumer of the messages.
    pub(super) async fn consume(&self, delay: Delay) -> NatsConsumer {
        let mut subjects = vec![self.due_subject()];
        if delay == Delay::Schedule {
            subjects.push(format!("{}.schedule.*", self.name));
        }
        let stream = json!({
            "name": self.name,
            "subjects": subjects,
            "storage": "file",
            "allow_msg_schedules": delay == Delay::Schedule,
        });
        let created: Result<serde_json::Value, _> =
            self.context.request(format!("STREAM.CREATE.{}", self.name), &stream).await;
        let created = created.expect("NATS responds");
        assert!(created.get("error").is_none(), "{created}");
        let config = Config {
            ack_policy: AckPolicy::All,
            filter_subject: self.due_subject(),
            ..Config::default()
        };
        let consumer = self.context.create_consumer_on_stream(config, &self.name).await;
        let consumer = consumer.expect("a consumer is created");
        let messages = consumer.messages().await.expect("messages are requested");
        NatsConsumer { messages, last: None }
    }

    pub(super) fn publisher(&self, delay: Delay) -> NatsPublisher {
        NatsPublisher {
            context: self.context.clone(),
            delay,
            name: self.name.clone(),
            schedules: 0,
        }
    }

    /// Removes all streams: the server has no others than those of this measurement.
    pub(super) async fn clean_up(self) {
        let names: Vec<String> =
            self.context.stream_names().try_collect().await.expect("streams are listed");
        for name in names {
            self.context.delete_stream(name).await.expect("the stream is removed");
        }
    }
}

pub(super) struct NatsPublisher {
    context: Context,
    delay: Delay,
    name: String,
    /// How many there are so far: each has its own subject.
    schedules: usize,
}

impl Publisher for NatsPublisher {
    async fn send(&mut self, payload: String, delay: Duration) -> Confirmed {
        let mut headers = HeaderMap::new();
        let subject = match self.delay {
            Delay::Header => {
                headers.insert("x-delay", delay.as_millis().to_string());
                format!("{}.delayed", self.name)
            }
            Delay::Schedule => {
                let due = jiff::Timestamp::try_from(SystemTime::now() + delay);
                let due = due.expect("the year has four digits");
                headers.insert("Nats-Schedule", format!("@at {due:.9}"));
                headers.insert("Nats-Schedule-Target", format!("{}.due", self.name));
                self.schedules += 1;
                format!("{}.schedule.{}", self.name, self.schedules)
            }
        };
        let sent = self.context.publish_with_headers(subject, headers, payload.into()).await;
        let confirmed = sent.expect("the message is sent").into_future();
        Box::pin(async {
            confirmed.await.expect("the message is stored");
        })
    }
}

pub(super) struct NatsConsumer {
    messages: Stream,
    /// The last message that was returned.
    last: Option<Message>,
}

impl Consumer for NatsConsumer {
    async fn receive(&mut self) -> Vec<String> {
        let mut next = Some(self.messages.next().await);
        let mut received = Vec::new();
        while let Some(message) = next {
            let message = message.and_then(Result::ok).expect("NATS delivers messages");
            received.push(String::from_utf8_lossy(&message.payload).into_owned());
            self.last = Some(message);
            let is_full = received.len() == BATCH;
            next = if is_full { None } else { self.messages.next().now_or_never() };
        }
        received
    }

    async fn ack(&mut self) {
        if let Some(message) = self.last.take() {
            message.ack().await.expect("the acknowledgement is sent");
        }
    }
}

//! Consumes the messages of a subject.
//!
//! The URL names the subject that publishers use, such as `nats://host/orders.delayed`, with or without
//! wildcards. The bridge consumes the stream that captures it. If there is none, it creates one with the
//! retention `workqueue`, so that messages are removed when they are acked. The durable consumer
//! `<group>-<subject>` remembers what was acked. `?stream=NAME` names an existing stream.

use super::headers::{headers, message};
use super::subject::{is_publishable, is_valid, name};
use super::{Connected, Connector, REQUEST_TIMEOUT};
use crate::error::BridgeError;
use crate::incoming::Received;
use crate::message::{HeaderValue, Message};
use crate::source::{Source, SourceConfig, SourceFuture, ack_wait};
use async_nats::connection::State;
use async_nats::jetstream::consumer::pull::{Config as ConsumerConfig, MessagesErrorKind, Stream};
use async_nats::jetstream::consumer::{AckPolicy, Consumer};
use async_nats::jetstream::context::{Context, GetStreamByNameErrorKind};
use async_nats::jetstream::message::{Acker, PublishMessage};
use async_nats::jetstream::stream::{Config as StreamConfig, RetentionPolicy};
use async_nats::jetstream::{self, AckKind};
use futures_util::{FutureExt, StreamExt};
use requeue_jobs::Timestamp;
use requeue_push::{BrokerUrl, InvalidPush};
use std::fmt::Display;
use std::time::Duration;

/// How many messages the server sends ahead of their acks.
const PREFETCH: usize = 512;

/// How long a request for messages waits at the server, and how often the server confirms meanwhile that it
/// still does.
const PULL_EXPIRES: Duration = Duration::from_secs(30);
const PULL_HEARTBEAT: Duration = Duration::from_secs(5);

/// Fails if the URL names no subject, or has an invalid parameter.
pub(crate) fn check_source(url: &BrokerUrl) -> Result<(), BridgeError> {
    url.check_parameters(&["ack_wait", "stream"])?;
    if !matches!(url.segments(), [subject] if is_valid(subject)) {
        let reason = "its path must name a subject, such as nats://host/orders.delayed".to_owned();
        return Err(BridgeError::Invalid(InvalidPush::Url { reason }));
    }
    ack_wait(url).map(drop)
}

pub(crate) struct NatsSource {
    context: Context,
    connected: Connected,
    messages: Stream,
    /// The subject for rejected messages.
    rejected: String,
    /// Of the messages that the latest call of `receive` returned.
    ackers: Vec<Acker>,
}

impl NatsSource {
    /// Connects, and creates the stream and the consumer that are missing.
    pub(crate) async fn connect(config: &SourceConfig) -> Result<Self, String> {
        let connector = Connector::new(&config.url, &config.options).map_err(|e| e.to_string())?;
        let connected = connector.connect().await?;
        let context = jetstream::new(connected.client.clone());
        let subject = config.url.segments().last().cloned().unwrap_or_default();
        let stream = match config.url.parameter("stream") {
            Some(stream) => stream.to_owned(),
            None => {
                let mut queue = stream_config(&config.group, &subject);
                queue.retention = RetentionPolicy::WorkQueue;
                find_or_create(&context, &subject, queue).await?
            }
        };
        let consumer_name = name(&config.group, &subject);
        let wait = ack_wait(&config.url).map_err(|error| error.to_string())?;
        let rejected =
            config.rejected.clone().unwrap_or_else(|| format!("requeue.rejected.{consumer_name}"));
        if !is_publishable(&rejected) {
            return Err(format!("{rejected:?} is not a subject for rejected messages"));
        }
        find_or_create(&context, &rejected, stream_config(&config.group, &rejected)).await?;
        let wanted = ConsumerConfig {
            durable_name: Some(consumer_name.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: wait,
            max_ack_pending: i64::try_from(PREFETCH).expect("it is small"),
            filter_subject: subject,
            ..ConsumerConfig::default()
        };
        let made = context.create_consumer_on_stream(wanted, &stream).await;
        let consumer: Consumer<ConsumerConfig> = made
            .map_err(|error| format!("consumer {consumer_name:?} of stream {stream:?}: {error}"))?;
        wait_for_backlog(&consumer, wait).await?;
        let messages = consumer
            .stream()
            .max_messages_per_batch(PREFETCH)
            .expires(PULL_EXPIRES)
            .heartbeat(PULL_HEARTBEAT)
            .messages()
            .await
            .map_err(|error| format!("stream {stream:?}: {error}"))?;
        Ok(NatsSource { context, connected, messages, rejected, ackers: Vec::new() })
    }

    /// Returns the next message of the stream. Fails if there will be none.
    async fn next(&mut self) -> Result<jetstream::Message, String> {
        loop {
            let error = match self.messages.next().await {
                Some(Ok(message)) => return Ok(message),
                Some(Err(error)) => error,
                None => return Err("the server has ended the consumer".to_owned()),
            };
            // Without a connection there are no heartbeats. The client connects again by itself, and what
            // was received can still be acked.
            let is_connected = self.connected.client.connection_state() == State::Connected;
            if error.kind() != MessagesErrorKind::MissingHeartbeat || is_connected {
                return Err(error.to_string());
            }
        }
    }

    /// Sends a response for each message in hand, and waits until the server has got them.
    async fn respond(&self, kind: AckKind) -> Result<(), String> {
        let responses = async {
            for acker in &self.ackers {
                acker.ack_with(kind).await.map_err(|error| error.to_string())?;
            }
            self.connected.client.flush().await.map_err(|error| error.to_string())
        };
        in_time(responses).await
    }
}

/// Waits until the server delivers again what was delivered and not acked, for example because the bridge was
/// killed. Otherwise such a message would come after newer ones, and replace the job of a newer message with the
/// same key. Does not wait if another bridge of the group is running: then their order is not guaranteed.
async fn wait_for_backlog(
    consumer: &Consumer<ConsumerConfig>,
    ack_wait: Duration,
) -> Result<(), String> {
    let info = consumer.get_info().await.map_err(|error| error.to_string())?;
    if info.num_ack_pending > 0 && info.num_waiting == 0 {
        tracing::info!(messages = info.num_ack_pending, "waiting for messages that were not acked");
        tokio::time::sleep(ack_wait).await;
    }
    Ok(())
}

/// Returns the name of the stream that captures the subject, and creates it if there is none.
async fn find_or_create(
    context: &Context,
    subject: &str,
    missing: StreamConfig,
) -> Result<String, String> {
    let wrong = |error: &dyn Display| format!("the stream of subject {subject:?}: {error}");
    match context.stream_by_subject(subject).await {
        Ok(stream) => return Ok(stream),
        Err(error) if error.kind() == GetStreamByNameErrorKind::NotFound => {}
        Err(error) => return Err(wrong(&error)),
    }
    let name = missing.name.clone();
    context.create_stream(missing).await.map_err(|error| wrong(&error))?;
    tracing::info!(stream = name, subject, "created a stream");
    Ok(name)
}

fn stream_config(group: &str, subject: &str) -> StreamConfig {
    StreamConfig {
        name: name(group, subject),
        subjects: vec![subject.to_owned()],
        ..StreamConfig::default()
    }
}

/// Returns the message, and what acks it.
fn received(message_of_stream: jetstream::Message) -> (Received, Acker) {
    let (id, at) = match message_of_stream.info() {
        Ok(info) => {
            let millis = info.published.unix_timestamp_nanos() / 1_000_000;
            let at = u64::try_from(millis).ok().map(Timestamp::from_millis);
            (Some(format!("{}/{}", info.stream, info.stream_sequence)), at)
        }
        Err(_) => (None, None),
    };
    let (raw, acker) = message_of_stream.split();
    let message = message(raw.subject.as_str(), raw.headers.as_ref(), raw.payload.to_vec());
    let own_id = message.header("nats-msg-id").map(HeaderValue::to_text);
    (Received { message, id: own_id.or(id), at }, acker)
}

/// Fails if there is no response in time, because the connection is lost.
async fn in_time<T>(call: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let timed = tokio::time::timeout(REQUEST_TIMEOUT, call).await;
    timed.unwrap_or_else(|_| Err("no response from the server within 10s".to_owned()))
}

/// Returns a rejected message with the subject that it had.
fn with_subject(rejected: &Message) -> Message {
    match &rejected.key {
        Some(subject) => rejected.with_only("requeue-subject", HeaderValue::from_bytes(subject)),
        None => rejected.clone(),
    }
}

impl Source for NatsSource {
    fn receive(&mut self, max: usize) -> SourceFuture<'_, Vec<Received>> {
        Box::pin(async move {
            self.ackers.clear();
            // Nothing is awaited after the first message, so that none is lost if this future is dropped.
            let mut next = Some(self.next().await?);
            let mut batch = Vec::new();
            while let Some(found) = next {
                let (received, acker) = received(found);
                batch.push(received);
                self.ackers.push(acker);
                // An error comes again, or is not one any more.
                let is_full = batch.len() >= max;
                let another = if is_full { None } else { self.messages.next().now_or_never() };
                next = another.flatten().and_then(Result::ok);
            }
            Ok(batch)
        })
    }

    fn ack(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(async move {
            self.respond(AckKind::Ack).await?;
            self.ackers.clear();
            Ok(())
        })
    }

    fn keep(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(self.respond(AckKind::Progress))
    }

    fn reject<'a>(&'a mut self, rejected: &'a Message) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            let publish = PublishMessage::build()
                .payload(rejected.payload.clone().into())
                .headers(headers(&with_subject(rejected)));
            let sent =
                async { self.context.send_publish(self.rejected.clone(), publish).await?.await };
            let sent = in_time(async { sent.await.map_err(|error| error.to_string()) }).await;
            sent.map(drop).map_err(|error| format!("subject {:?}: {error}", self.rejected))
        })
    }
}

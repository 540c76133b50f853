//! [`Source`]: a queue of a broker from which messages are consumed.

use crate::error::BridgeError;
use crate::incoming::Received;
use crate::message::Message;
use crate::target::BrokerOptions;
#[cfg(any(feature = "nats", feature = "redis"))]
use requeue_http::times::parse_duration;
#[cfg(any(feature = "nats", feature = "redis"))]
use requeue_push::InvalidPush;
use requeue_push::{Broker, BrokerUrl};
use std::pin::Pin;
#[cfg(any(feature = "nats", feature = "redis"))]
use std::time::Duration;

/// A future of a [`Source`]. Its error is a text for people: the connection is lost, or something is missing.
pub(crate) type SourceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// A connection that consumes messages. After an error it is dropped, and another one is made: the broker then
/// delivers again what was not acked.
pub(crate) trait Source: Send {
    /// Waits for messages, and returns at most `max` in their order. The future may be dropped: what it has
    /// received then is returned by the next call, or delivered again later.
    fn receive(&mut self, max: usize) -> SourceFuture<'_, Vec<Received>>;

    /// Acks all messages that the latest call of [`receive`](Self::receive) returned.
    fn ack(&mut self) -> SourceFuture<'_, ()>;

    /// Extends the time in which the messages of the latest call have to be acked. Called every few seconds
    /// while the store is unavailable.
    fn keep(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Publishes an invalid message to the place for rejected messages, as [`Message::rejected`] returns it. Returns when the broker has confirmed it.
    fn reject<'a>(&'a mut self, rejected: &'a Message) -> SourceFuture<'a, ()>;

    /// Ends the connection. What was not acked is delivered again.
    fn close(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// How long a broker waits for an ack before it delivers a message again, unless the URL specifies it.
#[cfg(any(feature = "nats", feature = "redis"))]
const DEFAULT_ACK_WAIT: Duration = Duration::from_secs(10);

/// The shortest one. With less, messages would be delivered again while they are put.
#[cfg(any(feature = "nats", feature = "redis"))]
const MIN_ACK_WAIT: Duration = Duration::from_secs(1);

/// Returns the parameter `ack_wait` of a URL.
#[cfg(any(feature = "nats", feature = "redis"))]
pub(crate) fn ack_wait(url: &BrokerUrl) -> Result<Duration, BridgeError> {
    let wrong = |reason: String| {
        let reason = format!("ack_wait: {reason}");
        BridgeError::Invalid(InvalidPush::Url { reason })
    };
    let Some(text) = url.parameter("ack_wait") else { return Ok(DEFAULT_ACK_WAIT) };
    match parse_duration(text) {
        Ok(wait) if wait >= MIN_ACK_WAIT => Ok(wait),
        Ok(_) => Err(wrong(format!("{text} is too short; the shortest is 1s"))),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// What a bridge consumes.
#[derive(Debug, Clone)]
pub(crate) struct SourceConfig {
    pub(crate) url: BrokerUrl,
    /// The consumer group, or the prefix of what is created.
    pub(crate) group: String,
    /// Where invalid messages are published to, unless it is the default.
    pub(crate) rejected: Option<String>,
    pub(crate) options: BrokerOptions,
}

impl SourceConfig {
    /// Fails if the URL does not name a source.
    pub(crate) fn check(&self) -> Result<(), BridgeError> {
        match self.url.broker() {
            #[cfg(feature = "amqp")]
            Broker::Amqp => crate::amqp::check_source(&self.url),
            #[cfg(feature = "kafka")]
            Broker::Kafka => crate::kafka::check_source(&self.url),
            #[cfg(feature = "nats")]
            Broker::Nats => crate::nats::check_source(&self.url),
            #[cfg(feature = "redis")]
            Broker::Redis => crate::redis_streams::check_source(&self.url),
            #[allow(unreachable_patterns)] // with all features
            broker => Err(BridgeError::NotSupported { broker: broker.scheme() }),
        }
    }

    /// Connects, and creates what is missing at the broker.
    pub(crate) async fn connect(&self) -> Result<Box<dyn Source>, String> {
        match self.url.broker() {
            #[cfg(feature = "amqp")]
            Broker::Amqp => Ok(Box::new(crate::amqp::AmqpSource::connect(self).await?)),
            #[cfg(feature = "kafka")]
            Broker::Kafka => Ok(Box::new(crate::kafka::KafkaSource::connect(self).await?)),
            #[cfg(feature = "nats")]
            Broker::Nats => Ok(Box::new(crate::nats::NatsSource::connect(self).await?)),
            #[cfg(feature = "redis")]
            Broker::Redis => Ok(Box::new(crate::redis_streams::RedisSource::connect(self).await?)),
            #[allow(unreachable_patterns)] // with all features
            broker => Err(format!("this build does not support {}", broker.scheme())),
        }
    }
}

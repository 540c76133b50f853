//! [`Source`]: a queue of a broker from which messages are consumed.

use crate::error::BridgeError;
use crate::incoming::Received;
use crate::message::Message;
use crate::target::BrokerOptions;
use requeue_push::{Broker, BrokerUrl};
use std::pin::Pin;

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

    /// Publishes an invalid message to the place for rejected messages: as it was, with the reason in the header
    /// `requeue-error`. Returns when the broker has confirmed it.
    fn reject<'a>(&'a mut self, message: &'a Message, reason: &'a str) -> SourceFuture<'a, ()>;

    /// Ends the connection. What was not acked is delivered again.
    fn close(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// What a bridge consumes.
#[derive(Debug, Clone)]
pub(crate) struct SourceConfig {
    pub(crate) url: BrokerUrl,
    /// The prefix of the queue that is created.
    pub(crate) group: String,
    /// Where invalid messages are published to. `None`: the name of the source and `.rejected`.
    pub(crate) rejected: Option<String>,
    pub(crate) options: BrokerOptions,
}

impl SourceConfig {
    /// Fails if the URL does not name a source.
    pub(crate) fn check(&self) -> Result<(), BridgeError> {
        match self.url.broker() {
            #[cfg(feature = "amqp")]
            Broker::Amqp => crate::amqp::check_source(&self.url),
            broker => Err(BridgeError::NotSupported { broker: broker.scheme() }),
        }
    }

    /// Connects, and creates what is missing at the broker.
    pub(crate) async fn connect(&self) -> Result<Box<dyn Source>, String> {
        match self.url.broker() {
            #[cfg(feature = "amqp")]
            Broker::Amqp => Ok(Box::new(crate::amqp::AmqpSource::connect(self).await?)),
            broker => Err(format!("this build does not support {}", broker.scheme())),
        }
    }
}

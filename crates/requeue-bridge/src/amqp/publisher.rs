//! Publishes messages to an exchange, with publisher confirms.

use super::Connector;
use super::properties::{properties, short};
use crate::error::BridgeError;
use crate::in_order::poll_then_unlock;
use crate::outgoing::Outgoing;
use crate::target::{BrokerOptions, Publish, PublishFuture};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::protocol::{AMQPErrorKind, AMQPHardError, AMQPSoftError};
use lapin::{Channel, Confirmation, Connection, Error, ErrorKind};
use requeue_push::{BrokerUrl, DeliveryOutcome};
use tokio::sync::Mutex;

/// Publishes the jobs of a kind to an exchange.
pub(crate) struct AmqpPublisher {
    url: BrokerUrl,
    connector: Connector,
    exchange: String,
    mandatory: bool,
    /// Invariant: the channel has confirms. `None` before the first message and after an error.
    channel: Mutex<Option<OpenChannel>>,
}

/// A channel, and the connection that ends when it is dropped.
struct OpenChannel {
    channel: Channel,
    _connection: Connection,
}

impl AmqpPublisher {
    pub(crate) fn new(url: BrokerUrl, options: &BrokerOptions) -> Result<Self, BridgeError> {
        let connector = Connector::new(&url, options)?;
        let exchange = url.segments().last().cloned().unwrap_or_default();
        let mandatory = url.parameter("mandatory") != Some("false");
        Ok(AmqpPublisher { url, connector, exchange, mandatory, channel: Mutex::new(None) })
    }

    /// Opens a channel if there is none.
    async fn open(&self, open: &mut Option<OpenChannel>) -> Result<Channel, String> {
        if let Some(open) = open
            && open.channel.status().connected()
        {
            return Ok(open.channel.clone());
        }
        *open = None;
        let connection = self.connector.connect().await?;
        let channel = connection.create_channel().await.map_err(|error| error.to_string())?;
        let confirms = channel.confirm_select(ConfirmSelectOptions::default()).await;
        confirms.map_err(|error| error.to_string())?;
        *open = Some(OpenChannel { channel: channel.clone(), _connection: connection });
        Ok(channel)
    }

    /// Returns the routing key: the template of the URL, or that of the message, or the kind.
    fn routing_key(&self, message: &Outgoing) -> String {
        let own = || message.message.key.as_deref().and_then(|key| str::from_utf8(key).ok());
        match message.template(&self.url, "routing_key") {
            Some(key) => key,
            None => own().unwrap_or(&message.kind).to_owned(),
        }
    }

    async fn send(&self, message: &Outgoing) -> DeliveryOutcome {
        let routing_key = self.routing_key(message);
        let (Some(exchange), Some(key)) = (short(&self.exchange), short(&routing_key)) else {
            let len = routing_key.len();
            let error = format!("the routing key has {len} bytes; the limit of AMQP is 255");
            return DeliveryOutcome::Bury { error };
        };
        let options = BasicPublishOptions { mandatory: self.mandatory, ..Default::default() };
        let properties = properties(&message.message, Some(&message.id));
        let payload = &message.message.payload;
        // Until the message is sent, the others wait: they are sent in the order of the calls.
        let mut open = self.channel.lock().await;
        let channel = match self.open(&mut open).await {
            Ok(channel) => channel,
            Err(error) => return DeliveryOutcome::Unavailable { error },
        };
        // They do not wait until it is written: the client library writes several in one call.
        let sent = channel.basic_publish(exchange, key, options, payload, properties);
        let sent = poll_then_unlock(open, sent).await;
        let confirmed = match sent {
            Ok(confirm) => confirm.await,
            Err(error) => Err(error),
        };
        match confirmed {
            Ok(Confirmation::Ack(None)) => DeliveryOutcome::Done { result: None },
            Ok(Confirmation::Ack(Some(returned))) => DeliveryOutcome::Retry {
                error: format!(
                    "exchange {:?} has no queue for routing key {routing_key:?} ({})",
                    self.exchange, returned.reply_text
                ),
                after: None,
            },
            // A queue is full and rejects messages, or its leader is gone.
            Ok(Confirmation::Nack(_)) => DeliveryOutcome::Overloaded {
                error: format!(
                    "a queue of exchange {:?} did not accept the message",
                    self.exchange
                ),
            },
            Ok(Confirmation::NotRequested) => {
                DeliveryOutcome::Unavailable { error: "the channel has no confirms".to_owned() }
            }
            Err(error) => self.failed(&error),
        }
    }

    /// Returns the outcome of a message whose channel failed. All messages that wait for a confirmation of the
    /// channel fail together, also those that the broker has stored.
    fn failed(&self, error: &Error) -> DeliveryOutcome {
        let text = format!("exchange {:?}: {error}", self.exchange);
        let rejected = match error.kind() {
            ErrorKind::ProtocolError(error) => matches!(
                error.kind(),
                AMQPErrorKind::Soft(
                    AMQPSoftError::NOTFOUND
                        | AMQPSoftError::ACCESSREFUSED
                        | AMQPSoftError::PRECONDITIONFAILED
                ) | AMQPErrorKind::Hard(AMQPHardError::NOTALLOWED)
            ),
            _ => false,
        };
        match rejected {
            true => DeliveryOutcome::Retry { error: text, after: None },
            false => DeliveryOutcome::Unavailable { error: text },
        }
    }
}

impl Publish for AmqpPublisher {
    fn publish<'a>(&'a self, message: &'a Outgoing) -> PublishFuture<'a> {
        Box::pin(self.send(message))
    }
}

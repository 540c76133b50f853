//! Consumes a queue.
//!
//! The URL names the exchange that publishers use, such as `amqp://host/orders.delayed`. The bridge declares it
//! as a fanout exchange, with the durable queue `requeue.<exchange>` bound to it. `?queue=NAME` consumes an
//! existing queue instead, and declares nothing.

use super::Connector;
use super::properties::{message, properties};
use crate::error::BridgeError;
use crate::incoming::Received;
use crate::message::Message;
use crate::source::{Source, SourceConfig, SourceFuture};
use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Confirmation, Connection, Consumer, Error, ExchangeKind};
use requeue_push::{BrokerUrl, InvalidPush};

/// How many messages the broker sends ahead of their acks: two batches, so that it sends one while the other
/// is put.
const PREFETCH: u16 = 512;

/// Fails if the URL names neither an exchange nor a queue.
pub(crate) fn check_source(url: &BrokerUrl) -> Result<(), BridgeError> {
    url.check_parameters(&["queue", "queue_type"])?;
    let wrong =
        |reason: &str| Err(BridgeError::Invalid(InvalidPush::Url { reason: reason.to_owned() }));
    if !matches!(url.parameter("queue_type"), None | Some("quorum" | "classic")) {
        return wrong("queue_type must be quorum or classic");
    }
    let exchange = url.segments().last().map_or("", String::as_str);
    match (url.parameter("queue"), url.segments().len()) {
        (_, 3..) => wrong("its path must be a virtual host and an exchange"),
        (None | Some(""), _) if exchange.is_empty() => wrong(
            "its path must name the exchange that publishers use, or ?queue= an existing queue",
        ),
        (Some(_), 1..) if !exchange.is_empty() => {
            wrong("it names an exchange and a queue; write amqp://host/vhost/?queue=name")
        }
        _ => Ok(()),
    }
}

pub(crate) struct AmqpSource {
    channel: Channel,
    consumer: Consumer,
    rejected: String,
    /// The delivery tag of the last message that was returned.
    last: Option<u64>,
    connection: Connection,
}

impl AmqpSource {
    /// Connects, and declares exchange, queue and the queue for rejected messages.
    pub(crate) async fn connect(config: &SourceConfig) -> Result<Self, String> {
        let connector = Connector::new(&config.url, &config.options).map_err(|e| e.to_string())?;
        let connection = connector.connect().await?;
        let text = |error: Error| format!("{}: {error}", config.url.origin());
        let channel = connection.create_channel().await.map_err(text)?;
        let queue = declare(&channel, config).await.map_err(text)?;
        let rejected = config.rejected.clone().unwrap_or_else(|| format!("{queue}.rejected"));
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        let arguments = queue_arguments(&config.url);
        channel.queue_declare(rejected.as_str().into(), durable, arguments).await.map_err(text)?;
        channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(text)?;
        channel.basic_qos(PREFETCH, BasicQosOptions::default()).await.map_err(text)?;
        let consumer = channel
            .basic_consume(
                queue.as_str().into(),
                "".into(),
                BasicConsumeOptions::default(),
                FieldTable::default(),
            )
            .await
            .map_err(text)?;
        Ok(AmqpSource { channel, consumer, rejected, last: None, connection })
    }
}

/// Returns the queue to consume.
async fn declare(channel: &Channel, config: &SourceConfig) -> Result<String, Error> {
    if let Some(queue) = config.url.parameter("queue") {
        return Ok(queue.to_owned());
    }
    let exchange = config.url.segments().last().cloned().unwrap_or_default();
    let queue = format!("{}.{exchange}", config.group);
    let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
    let name = || exchange.as_str().into();
    channel.exchange_declare(name(), ExchangeKind::Fanout, durable, FieldTable::default()).await?;
    let durable = QueueDeclareOptions { durable: true, ..Default::default() };
    channel.queue_declare(queue.as_str().into(), durable, queue_arguments(&config.url)).await?;
    let bind = QueueBindOptions::default();
    channel
        .queue_bind(queue.as_str().into(), name(), "".into(), bind, FieldTable::default())
        .await?;
    Ok(queue)
}

fn queue_arguments(url: &BrokerUrl) -> FieldTable {
    let queue_type = url.parameter("queue_type").unwrap_or("quorum");
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString(queue_type.into()));
    arguments
}

fn received(delivery: Delivery) -> Received {
    let Delivery { routing_key, properties, data, .. } = delivery;
    let id = properties.message_id().as_ref().map(|id| id.as_str().to_owned());
    Received { message: message(routing_key.as_str(), &properties, data), id, at: None }
}

impl Source for AmqpSource {
    fn receive(&mut self, max: usize) -> SourceFuture<'_, Vec<Received>> {
        Box::pin(async move {
            let lost = || "the broker has ended the connection".to_owned();
            // Nothing is awaited after the first message, so that none is lost if this future is dropped.
            let mut next = Some(self.consumer.next().await);
            let mut batch = Vec::new();
            while let Some(found) = next {
                let delivery = found.ok_or_else(lost)?.map_err(|error| error.to_string())?;
                self.last = Some(delivery.delivery_tag);
                batch.push(received(delivery));
                next = if batch.len() < max { self.consumer.next().now_or_never() } else { None };
            }
            Ok(batch)
        })
    }

    fn ack(&mut self) -> SourceFuture<'_, ()> {
        Box::pin(async move {
            let Some(tag) = self.last.take() else { return Ok(()) };
            // Messages are handled in their order: this one, and all before it.
            let options = BasicAckOptions { multiple: true };
            self.channel.basic_ack(tag, options).await.map_err(|error| error.to_string())
        })
    }

    fn reject<'a>(&'a mut self, rejected: &'a Message) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            let options = BasicPublishOptions { mandatory: true, ..Default::default() };
            let properties = properties(rejected, None);
            let queue = self.rejected.as_str().into();
            let sent = self.channel.basic_publish(
                "".into(),
                queue,
                options,
                &rejected.payload,
                properties,
            );
            let confirmed = match sent.await {
                Ok(confirm) => confirm.await,
                Err(error) => Err(error),
            };
            match confirmed {
                Ok(Confirmation::Ack(None)) => Ok(()),
                Ok(_) => {
                    Err(format!("queue {:?} did not accept a rejected message", self.rejected))
                }
                Err(error) => Err(error.to_string()),
            }
        })
    }

    fn close(&mut self) -> SourceFuture<'_, ()> {
        let closed = self.connection.close(200, "".into());
        Box::pin(async move { closed.await.map_err(|error| error.to_string()) })
    }
}

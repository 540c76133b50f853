//! RabbitMQ: messages to an exchange that requeue's bridge consumes, or to queues whose messages expire.
//!
//! ```text
//!   requeue-rabbitmq    publish -> exchange -> requeue bridge -> requeue serve -> queue -> consume
//!   rabbitmq-ttl        publish -> queue with a TTL -> dead-letter exchange    -> queue -> consume
//! ```
//!
//! All queues are quorum queues: only those can move an expired message without the risk of losing it
//! (`at-least-once`).

use super::load::{Confirmed, Consumer, Publisher};
use futures_util::{FutureExt, StreamExt};
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
    QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind};
use std::time::Duration;

/// The messages that the broker sends ahead of their acknowledgements.
const PREFETCH: u16 = 512;
/// The value of `delivery_mode` with which messages are stored.
const PERSISTENT: u8 = 2;

/// How messages get their delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delay {
    /// The header `x-delay`, which the bridge reads.
    Header,
    /// A queue for each delay, in which all messages have the same TTL.
    QueueTtl,
    /// One queue, and a TTL for each message.
    MessageTtl,
}

/// A channel, and the connection that ends when it is dropped.
struct OpenChannel {
    channel: Channel,
    _connection: Connection,
}

impl OpenChannel {
    async fn new(port: u16) -> Self {
        let url = format!("amqp://127.0.0.1:{port}");
        let connection = Connection::connect(&url, ConnectionProperties::default()).await;
        let connection = connection.expect("RabbitMQ accepts connections");
        let channel = connection.create_channel().await.expect("a channel is opened");
        OpenChannel { channel, _connection: connection }
    }
}

/// The exchanges and queues of a measurement.
pub(super) struct Rabbit {
    port: u16,
    open: OpenChannel,
    /// Different for each measurement.
    name: String,
    /// The queues to delete.
    queues: Vec<String>,
}

impl Rabbit {
    pub(super) async fn connect(port: u16, name: &str) -> Self {
        let open = OpenChannel::new(port).await;
        Rabbit { port, open, name: name.to_owned(), queues: Vec::new() }
    }

    /// The exchange to which the bridge publishes messages that are due.
    pub(super) fn exchange(&self) -> String {
        format!("{}.due", self.name)
    }

    /// The exchange to which messages with `x-delay` are published. The bridge declares it.
    pub(super) fn delayed_exchange(&self) -> String {
        format!("{}.delayed", self.name)
    }

    /// The queue that is consumed.
    fn due_queue(&self) -> String {
        format!("{}.due", self.name)
    }

    async fn declare_queue(&mut self, queue: &str, arguments: &[(&str, AMQPValue)]) {
        let mut table = FieldTable::default();
        table.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        for (name, value) in arguments {
            table.insert((*name).into(), value.clone());
        }
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        let declared = self.open.channel.queue_declare(queue.into(), durable, table).await;
        declared.expect("the queue is declared");
        self.queues.push(queue.to_owned());
    }

    /// Declares the queue that is consumed, and an exchange in front of it. Returns a consumer of it.
    pub(super) async fn consume(&mut self) -> RabbitConsumer {
        let (exchange, queue) = (self.exchange(), self.due_queue());
        let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let (kind, none) = (ExchangeKind::Fanout, FieldTable::default);
        let channel = &self.open.channel;
        let declared = channel.exchange_declare(exchange.as_str().into(), kind, durable, none());
        declared.await.expect("the exchange is declared");
        self.declare_queue(&queue, &[]).await;
        let bind = QueueBindOptions::default();
        let (queue, exchange) = (queue.as_str(), exchange.as_str());
        let channel = &self.open.channel;
        let bound = channel.queue_bind(queue.into(), exchange.into(), "".into(), bind, none());
        bound.await.expect("the queue is bound");
        let open = OpenChannel::new(self.port).await;
        let limited = open.channel.basic_qos(PREFETCH, BasicQosOptions::default()).await;
        limited.expect("a limit is set");
        let options = BasicConsumeOptions::default();
        let consumer = open.channel.basic_consume(queue.into(), "".into(), options, none()).await;
        let consumer = consumer.expect("the queue is consumed");
        RabbitConsumer { consumer, last: None, open }
    }

    /// Declares the queues for these delays, and returns a publisher.
    pub(super) async fn publisher(&mut self, delay: Delay, delays: &[Duration]) -> RabbitPublisher {
        let dead_letter = [
            ("x-dead-letter-exchange", AMQPValue::LongString(self.exchange().into())),
            ("x-dead-letter-strategy", AMQPValue::LongString("at-least-once".into())),
            ("x-overflow", AMQPValue::LongString("reject-publish".into())),
        ];
        match delay {
            Delay::Header => {
                let queue = format!("requeue.{}", self.delayed_exchange());
                self.queues.extend([format!("{queue}.rejected"), queue]);
            }
            Delay::MessageTtl => {
                self.declare_queue(&ttl_queue(&self.name, None), &dead_letter).await;
            }
            Delay::QueueTtl => {
                for &delay in delays {
                    let ttl = AMQPValue::LongInt(delay.as_millis() as i32);
                    let arguments = [&dead_letter[..], &[("x-message-ttl", ttl)]].concat();
                    self.declare_queue(&ttl_queue(&self.name, Some(delay)), &arguments).await;
                }
            }
        }
        let open = OpenChannel::new(self.port).await;
        open.channel.confirm_select(ConfirmSelectOptions::default()).await.expect("it confirms");
        RabbitPublisher { open, delay, name: self.name.clone() }
    }

    /// Removes all queues and exchanges of the measurement. All publishers and consumers have ended.
    pub(super) async fn clean_up(self) {
        let channel = &self.open.channel;
        let options = QueueDeleteOptions::default;
        for queue in &self.queues {
            let deleted = channel.queue_delete(queue.as_str().into(), options()).await;
            deleted.expect("the queue is deleted");
        }
        for exchange in [self.exchange(), self.delayed_exchange()] {
            let options = ExchangeDeleteOptions::default();
            let deleted = channel.exchange_delete(exchange.as_str().into(), options).await;
            deleted.expect("the exchange is deleted");
        }
    }
}

/// The queue for a delay, or that for all delays.
fn ttl_queue(name: &str, delay: Option<Duration>) -> String {
    match delay {
        Some(delay) => format!("{name}.{}", delay.as_millis()),
        None => format!("{name}.mixed"),
    }
}

pub(super) struct RabbitPublisher {
    open: OpenChannel,
    delay: Delay,
    name: String,
}

impl Publisher for RabbitPublisher {
    async fn send(&mut self, payload: String, delay: Duration) -> Confirmed {
        let milliseconds = delay.as_millis();
        let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
        let (exchange, key, properties) = match self.delay {
            Delay::Header => {
                let mut headers = FieldTable::default();
                headers.insert("x-delay".into(), AMQPValue::LongInt(milliseconds as i32));
                let exchange = format!("{}.delayed", self.name);
                (exchange, String::new(), properties.with_headers(headers))
            }
            Delay::QueueTtl => (String::new(), ttl_queue(&self.name, Some(delay)), properties),
            Delay::MessageTtl => {
                let properties = properties.with_expiration(milliseconds.to_string().into());
                (String::new(), ttl_queue(&self.name, None), properties)
            }
        };
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let (exchange, key) = (exchange.as_str().into(), key.as_str().into());
        let sent =
            self.open.channel.basic_publish(exchange, key, options, payload.as_bytes(), properties);
        let confirmed = sent.await.expect("the message is sent");
        Box::pin(async {
            let confirmed = confirmed.await.expect("RabbitMQ responds");
            assert!(confirmed.is_ack() && confirmed.take_message().is_none(), "it is stored");
        })
    }
}

pub(super) struct RabbitConsumer {
    consumer: lapin::Consumer,
    /// The delivery tag of the last message that was returned.
    last: Option<u64>,
    open: OpenChannel,
}

impl Consumer for RabbitConsumer {
    async fn receive(&mut self) -> Vec<String> {
        let mut next = Some(self.consumer.next().await);
        let mut received = Vec::new();
        while let Some(delivery) = next {
            let delivery = delivery.and_then(Result::ok).expect("RabbitMQ delivers messages");
            self.last = Some(delivery.delivery_tag);
            received.push(String::from_utf8_lossy(&delivery.data).into_owned());
            let is_full = received.len() == usize::from(PREFETCH) / 2;
            next = if is_full { None } else { self.consumer.next().now_or_never() };
        }
        received
    }

    async fn ack(&mut self) {
        if let Some(tag) = self.last.take() {
            let options = BasicAckOptions { multiple: true };
            self.open.channel.basic_ack(tag, options).await.expect("the acknowledgement is sent");
        }
    }
}

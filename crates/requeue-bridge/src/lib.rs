//! Delays for message brokers: moves messages between requeue and RabbitMQ, NATS, Kafka and Redis Streams.
//!
//! | direction | what | how |
//! |---|---|---|
//! | out | [`broker_target`] | a [`Pusher`](requeue_push::Pusher) publishes each due job to a broker, and acks it when the broker has confirmed the message |
//! | in | [`Bridge`] | consumes a queue, puts each message as a job, and acks the message when the job is durable |
//!
//! Together they delay messages: a publisher sends a message with a delay, and consumers get it when it is
//! due. The project's `docs/bridge.md` describes URLs, headers and guarantees.
//!
//! Each broker is a cargo feature, and none is enabled by default:
//!
//! | feature | broker | URL |
//! |---|---|---|
//! | `amqp` | RabbitMQ | `amqp://host/vhost/exchange` |
//! | `nats` | NATS with JetStream | `nats://host/subject` |
//! | `kafka` | Apache Kafka | `kafka://host:9092/topic` |
//! | `redis` | Redis Streams | `redis://host/stream` |

// Without a broker, the shared code is not used.
#![cfg_attr(
    not(any(feature = "amqp", feature = "kafka", feature = "nats", feature = "redis")),
    allow(dead_code, unused_imports, unused_variables)
)]

#[cfg(feature = "amqp")]
mod amqp;
mod bridge;
mod error;
#[cfg(any(feature = "amqp", feature = "kafka", feature = "redis"))]
mod in_order;
mod incoming;
#[cfg(feature = "kafka")]
mod kafka;
mod message;
#[cfg(feature = "nats")]
mod nats;
mod outgoing;
#[cfg(feature = "redis")]
mod redis_streams;
mod source;
mod target;
mod tls;

pub use bridge::{Bridge, BridgeCounts, BridgeOptions, DEFAULT_GROUP};
pub use error::BridgeError;
pub use message::{HeaderValue, MESSAGE_TYPE, Message};
pub use target::{BrokerOptions, broker_target};

//! Delays for message brokers: moves messages between requeue and RabbitMQ.
//!
//! | direction | what | how |
//! |---|---|---|
//! | out | [`broker_target`] | a [`Pusher`](requeue_push::Pusher) publishes each due job to a broker, and acks it when the broker has confirmed the message |
//! | in | [`Bridge`] | consumes a queue, puts each message as a job, and acks the message when the job is durable |
//!
//! Together they delay messages: a publisher sends a message with a delay, and consumers get it when it is
//! due. The project's `docs/bridge.md` describes URLs, headers and guarantees.
//!
//! Each broker is a cargo feature. There is one so far, `amqp`, and it is not enabled by default.

// Without a broker, the shared code is not used.
#![cfg_attr(not(feature = "amqp"), allow(dead_code, unused_imports))]

#[cfg(feature = "amqp")]
mod amqp;
mod bridge;
mod error;
mod incoming;
mod message;
mod outgoing;
mod source;
mod target;

pub use bridge::{Bridge, BridgeCounts, BridgeOptions, DEFAULT_GROUP};
pub use error::BridgeError;
pub use incoming::BodyFormat;
pub use message::{HeaderValue, MESSAGE_TYPE, Message};
pub use target::{BrokerOptions, broker_target};

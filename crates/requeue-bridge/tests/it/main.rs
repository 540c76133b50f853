//! Tests against real message brokers. `eval "$(scripts/brokers)"` installs them.

#![allow(clippy::unwrap_used)]
#![cfg(any(feature = "amqp", feature = "kafka", feature = "nats", feature = "redis"))]

#[cfg(feature = "amqp")]
mod amqp;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "redis")]
mod redis_streams;
// With one feature, not all of it is used.
#[allow(dead_code)]
mod support;

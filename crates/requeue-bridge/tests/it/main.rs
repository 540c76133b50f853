//! Tests against real message brokers. `eval "$(scripts/brokers)"` installs them.

#![allow(clippy::unwrap_used)]

#[cfg(feature = "amqp")]
mod amqp;
#[cfg(feature = "amqp")]
mod support;

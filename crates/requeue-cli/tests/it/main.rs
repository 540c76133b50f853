//! Tests of the `requeue` program as a user runs it. They are one binary, because linking takes
//! longer than most of the tests.

#[cfg(feature = "amqp")]
mod bridge;
mod bulk;
mod colors;
mod commands;
mod demo;
mod docs;
mod help;
mod hostile;
#[cfg(feature = "otel")]
mod otel;
mod postgres;
mod reschedule;
mod schedules;
mod serve;
mod service;
mod support;
mod terminal;
mod top;
mod watch;
mod work;

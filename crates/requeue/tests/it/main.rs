//! The integration tests, in one binary: a filter such as `--test it drain` runs one module.
//!
//! `loom` and `timer_thread` are targets of their own; each says why.

#![cfg(not(requeue_loom))]

mod client_go;
mod conformance;
mod differences;
mod drain;
mod getters;
mod limiters;
mod metrics;
mod panics;
mod priority;
#[cfg(feature = "prometheus")]
mod prometheus;
mod rate_limiting;
mod reentrant;
mod stress;
mod worker;

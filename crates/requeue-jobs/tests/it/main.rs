//! The integration tests of the crate, in one binary: linking is most of their build time.

mod client;
#[cfg(feature = "serde")]
mod router;
#[cfg(feature = "cron")]
mod schedules;
mod support;
#[cfg(feature = "serde")]
mod transfer;
mod worker;
mod worker_metrics;
mod worker_reaps;
mod worker_stops;
#[cfg(feature = "tracing")]
mod worker_traced;

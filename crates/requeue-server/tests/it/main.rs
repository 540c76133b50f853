//! Integration tests of the server: the HTTP API over real sockets, the store contract through the
//! HTTP client on every store, events, metrics and workers.

mod api;
mod client;
mod conformance_disk;
mod conformance_instrumented;
mod conformance_memory;
mod conformance_postgres;
mod conformance_redis;
mod events;
mod histories;
mod locked_jobs;
mod lost_claims;
mod metrics;
mod support;
mod workers;

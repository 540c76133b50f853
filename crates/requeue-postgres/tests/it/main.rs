//! All integration tests of the crate, as one program: linking takes longer than most of them.
//!
//! Tests start the Postgres servers that they need, each on a port of its own.

mod bouncer;
mod conformance;
mod connections;
mod contents;
mod cuts;
mod deadlocks;
mod documentation;
mod failover;
mod histories;
mod idle;
mod in_transaction;
mod kills;
mod kinds;
mod locks;
mod moved;
mod open_transactions;
mod opening;
mod plans;
mod reschedules;
mod search_path;
mod sessions;
mod settlements;
mod sql_api;
mod support;
#[cfg(feature = "tls")]
mod tls;
mod transactions;
mod two_nodes;
mod versions;

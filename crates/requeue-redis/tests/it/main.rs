//! All integration tests of the crate, as one program: linking takes longer than most of them.
//!
//! Tests start the Redis servers, Sentinels and Clusters that they need, each on ports of its own.

mod acl;
mod clock;
mod cluster;
mod cluster_faults;
mod compare_with_memory_store;
mod conformance;
mod connections;
mod damaged_keys;
mod documented_keys;
mod full;
mod histories;
mod kills;
mod lost_claims;
mod manual_edits;
mod processes;
mod rates;
mod result_sizes;
mod sentinel;
mod status;
mod support;
mod two_machines;
mod waiting;

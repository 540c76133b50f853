//! `fair-*`: 100k keys go round, of one, a hundred or as many tenants.

use super::cycle::go_round;
use requeue::{Fair, Options, Queue};
use requeue_bench::keys::make_keys;
use std::sync::Arc;
use std::time::Duration;

const KEYS: usize = 100_000;

/// Finding the tenant of a key is not what is measured: it is part of the key.
type Key = (u32, Arc<str>);

fn keys(tenants: u32) -> Vec<Key> {
    (0..tenants).cycle().zip(make_keys(KEYS)).collect()
}

pub(super) fn fair(tenants: u32, budget: Duration) -> f64 {
    let queue = Queue::with_order(Fair::by(|&(tenant, _): &Key| tenant), Options::new());
    go_round(&queue, keys(tenants), budget)
}

/// First in, first out, with the same keys.
pub(super) fn fifo(tenants: u32, budget: Duration) -> f64 {
    go_round(&Queue::new(), keys(tenants), budget)
}

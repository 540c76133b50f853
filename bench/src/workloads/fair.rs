//! `fair-*`: 100k keys of one, a hundred or 100k tenants cycle.

use super::cycle::go_round;
use requeue::{Fair, Options, Queue};
use requeue_bench::keys::make_keys;
use std::sync::Arc;
use std::time::Duration;

const KEYS: usize = 100_000;

/// The tenant is part of the key, because finding it is not measured.
type Key = (u32, Arc<str>);

fn keys(tenants: u32) -> Vec<Key> {
    (0..tenants).cycle().zip(make_keys(KEYS)).collect()
}

pub(super) fn fair(tenants: u32, budget: Duration) -> f64 {
    let queue = Queue::with_order(Fair::by(|&(tenant, _): &Key| tenant), Options::new());
    go_round(&queue, keys(tenants), budget)
}

/// The plain queue (first in, first out) with the same keys.
pub(super) fn fifo(tenants: u32, budget: Duration) -> f64 {
    go_round(&Queue::new(), keys(tenants), budget)
}

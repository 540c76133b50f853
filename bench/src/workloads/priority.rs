//! `priority-cycle`: like `cycle-1k`, with three priorities.

use super::cycle::OPEN;
use requeue::limiter::default_item_based;
use requeue::{AddOptions, PriorityQueue};
use requeue_bench::keys::{PRIORITIES, make_keys};
use requeue_bench::meter::{BATCH, Meter};
use std::sync::Arc;
use std::time::Duration;

/// Each add uses another priority: if a key kept its own, only those with the
/// highest would cycle.
pub(super) fn cycle(n: usize, budget: Duration) -> f64 {
    let queue = PriorityQueue::new(default_item_based());
    let mut next = 0;
    let mut add = |key: Arc<str>| {
        queue.add_with(key, AddOptions::new().priority(next));
        next = (next + 1) % PRIORITIES;
    };
    make_keys(n).into_iter().for_each(&mut add);
    let mut meter = Meter::new(budget);
    while meter.more(BATCH) {
        for _ in 0..BATCH {
            add(queue.get().wait().expect(OPEN).done_into_key());
        }
    }
    meter.ns_per_op()
}

//! `cycle-*`: keys cycle, add → get → done.

use requeue::{Key, Metrics, Options, Queue};
use requeue_bench::keys::make_keys;
use requeue_bench::meter::{BATCH, Meter};
use std::time::Duration;

pub(super) const OPEN: &str = "the queue is not shut down";

pub(super) fn cycle<K: Key + From<String>>(n: usize, budget: Duration) -> f64 {
    go_round(&Queue::<K>::new(), make_keys(n), budget)
}

/// On a queue that has a name and reports metrics.
pub(super) fn metered<K: Key + From<String>>(n: usize, budget: Duration) -> f64 {
    let metrics = Metrics::new();
    let options = Options::new().metrics(&metrics, "bench").expect("the name is not in use");
    let queue = Queue::<K>::with(options);
    let ns = go_round(&queue, make_keys(n), budget);
    let adds = metrics.gather()[0].adds;
    assert!(adds > n as u64, "{adds} adds were counted");
    ns
}

pub(super) fn go_round<K: Key>(queue: &Queue<K>, keys: Vec<K>, budget: Duration) -> f64 {
    for key in keys {
        queue.add(key);
    }
    let mut meter = Meter::new(budget);
    while meter.more(BATCH) {
        for _ in 0..BATCH {
            let key = queue.get().wait().expect(OPEN).done_into_key();
            queue.add(key);
        }
    }
    meter.ns_per_op()
}

/// With done and get in one call.
pub(super) fn fused<K: Key + From<String>>(n: usize, budget: Duration) -> f64 {
    let queue = Queue::<K>::new();
    for key in make_keys(n) {
        queue.add(key);
    }
    let mut held = queue.get().wait().expect(OPEN);
    let mut meter = Meter::new(budget);
    while meter.more(BATCH) {
        for _ in 0..BATCH {
            let key = held.key().clone();
            held = held.next().wait().expect(OPEN);
            queue.add(key);
        }
    }
    meter.ns_per_op()
}

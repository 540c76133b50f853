//! `cycle-*`: keys go round, add → get → done.

use requeue::{Key, Metrics, Options, Queue};
use requeue_bench::keys::make_keys;
use requeue_bench::meter::{BATCH, Meter};
use std::time::Duration;

const OPEN: &str = "the queue is not shut down";

fn fill<K: Key + From<String>>(queue: &Queue<K>, n: usize) {
    for key in make_keys(n) {
        queue.add(key);
    }
}

pub(super) fn cycle<K: Key + From<String>>(n: usize, budget: Duration) -> f64 {
    go_round(&Queue::<K>::new(), n, budget)
}

/// On a queue that has a name, and so reports.
pub(super) fn metered<K: Key + From<String>>(n: usize, budget: Duration) -> f64 {
    let metrics = Metrics::new();
    let options = Options::new().metrics(&metrics, "bench").expect("it is the only name");
    let queue = Queue::<K>::with(options);
    let ns = go_round(&queue, n, budget);
    let adds = metrics.gather()[0].adds;
    assert!(adds > n as u64, "{adds} adds were counted");
    ns
}

fn go_round<K: Key + From<String>>(queue: &Queue<K>, n: usize, budget: Duration) -> f64 {
    fill(queue, n);
    let mut meter = Meter::new(budget);
    while meter.more(BATCH) {
        for _ in 0..BATCH {
            let key = queue.get().wait().expect(OPEN).done_into_key();
            queue.add(key);
        }
    }
    meter.ns_per_op()
}

/// Done and get in one call.
pub(super) fn fused<K: Key + From<String>>(n: usize, budget: Duration) -> f64 {
    let queue = Queue::<K>::new();
    fill(&queue, n);
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

//! `dedupe-*`: adds of keys that are already ready.

use requeue::{Key, Queue};
use requeue_bench::keys::make_keys;
use requeue_bench::meter::{BATCH, Meter};
use std::time::Duration;

pub(super) fn dedupe<K: Key + From<String>>(n: usize, budget: Duration) -> f64 {
    let keys: Vec<K> = make_keys(n);
    let queue = Queue::new();
    for key in &keys {
        queue.add(key.clone());
    }
    let mut next = 0;
    let mut meter = Meter::new(budget);
    while meter.more(BATCH) {
        for _ in 0..BATCH {
            queue.add(keys[next].clone());
            next += 1;
            if next == n {
                next = 0;
            }
        }
    }
    assert_eq!(queue.len(), n);
    meter.ns_per_op()
}

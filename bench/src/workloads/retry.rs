//! `retry-loop`: a worker that fails each key once, and succeeds when it comes back.

use requeue::RateLimitingQueue;
use requeue::limiter::ExponentialFailure;
use requeue_bench::keys::make_keys;
use requeue_bench::meter::{BATCH, Meter};
use std::sync::Arc;
use std::time::Duration;

/// Enough keys for some to be ready while others wait for their backoff.
const KEYS: usize = 100_000;

pub(super) fn retry_loop(budget: Duration) -> f64 {
    let backoff = ExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(1000));
    let queue = RateLimitingQueue::<Arc<str>>::new(backoff);
    for key in make_keys(KEYS) {
        queue.add(key);
    }
    let mut meter = Meter::new(budget);
    while meter.more(BATCH) {
        for _ in 0..BATCH {
            let held = queue.get().wait().expect("the queue is not shut down");
            if held.num_requeues() == 0 {
                held.retry();
            } else {
                held.forget();
                held.requeue();
            }
        }
    }
    meter.ns_per_op()
}

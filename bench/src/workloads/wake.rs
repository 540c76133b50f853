//! `wake`: one key goes back and forth between two tasks through two queues.

use requeue::Queue;
use requeue_bench::keys::make_keys;
use requeue_bench::meter::{BATCH, Meter};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn wake(budget: Duration) -> f64 {
    let (there, back) = (Queue::new(), Queue::new());
    let runtime = super::tokio();
    runtime.spawn({
        let (there, back) = (there.clone(), back.clone());
        async move {
            while let Some(held) = there.get().await {
                back.add(held.done_into_key());
            }
        }
    });
    // Also spawned, because the thread that blocks on a runtime is not one of its workers.
    let pinger = runtime.spawn(async move {
        let mut key: Arc<str> = make_keys(1).remove(0);
        let mut meter = Meter::new(budget);
        while meter.more(BATCH) {
            for _ in 0..BATCH {
                there.add(key);
                key = back.get().await.expect("the queue is not shut down").done_into_key();
            }
        }
        there.shut_down();
        meter.ns_per_op()
    });
    runtime.block_on(pinger).expect("the task does not panic")
}

//! Suite `wheel`: the cost of moving a timer while 1k or 10M others are pending.
//!
//! Delays are spread over an hour, on a manual clock that stands still.

use requeue::{DelayingQueue, ManualClock, Merge, Options};
use requeue_bench::keys::Numbers;
use requeue_bench::meter::Meter;
use std::time::Duration;

const FROM: u64 = 60_000_000_000;
const SPREAD: u64 = 3_600_000_000_000;

/// Returns `None` if it is not a workload of this suite.
pub(super) fn measure(workload: &str, budget: Duration) -> Option<f64> {
    Some(match workload {
        "reschedule-1k" => reschedule(1_000, budget),
        "reschedule-10m" => reschedule(10_000_000, budget),
        _ => return None,
    })
}

fn reschedule(n: u64, budget: Duration) -> f64 {
    let numbers = &mut Numbers::new(7);
    let mut delay = || Duration::from_nanos(FROM + numbers.below(SPREAD));
    let queue = DelayingQueue::with(Options::new().clock(ManualClock::new()));
    for key in 0..n {
        queue.add_after(key, delay());
    }
    let stride = stride(n);
    let mut key = 0;
    let mut meter = Meter::new(budget);
    // Whole rounds: otherwise rare sweeps of the queue's heap would be in some runs only.
    while meter.more(n) {
        for _ in 0..n {
            queue.add_after_with(key, delay(), Merge::Replace);
            key = (key + stride) % n;
        }
    }
    meter.ns_per_op()
}

/// Steps of this many visit all of `n` = 10^k keys, far from the order in which
/// they were added.
fn stride(n: u64) -> u64 {
    let near_golden = (n as f64 * 0.618) as u64 | 1;
    if near_golden.is_multiple_of(5) { near_golden + 2 } else { near_golden }
}

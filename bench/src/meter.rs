//! Timing, after a warm-up.

use std::time::{Duration, Instant};

/// The number of operations between two reads of the clock.
pub const BATCH: u64 = 1024;
/// The shortest warm-up: long enough to touch all memory of the ready workloads.
const MIN_WARM_UP: Duration = Duration::from_millis(30);

/// Times batches of operations, after a warm-up.
///
/// ```
/// use requeue_bench::meter::Meter;
/// use std::time::Duration;
///
/// let mut meter = Meter::new(Duration::from_millis(1));
/// while meter.more(10) {
///     (0..10).for_each(|n| drop(std::hint::black_box(n)));
/// }
/// assert!(meter.ns_per_op() > 0.0);
/// ```
#[derive(Debug)]
pub struct Meter {
    budget: Duration,
    started: Option<Instant>,
    measuring: bool,
    ops: u64,
    elapsed: Duration,
}

impl Meter {
    /// Measures for `budget`.
    pub fn new(budget: Duration) -> Self {
        Meter { budget, started: None, measuring: false, ops: 0, elapsed: Duration::ZERO }
    }

    /// Returns whether to run one more batch of `ops` operations.
    pub fn more(&mut self, ops: u64) -> bool {
        let now = Instant::now();
        let Some(started) = self.started else {
            self.started = Some(now);
            return true;
        };
        self.ops += ops;
        self.elapsed = now - started;
        if self.measuring {
            return self.elapsed < self.budget;
        }
        if self.elapsed >= MIN_WARM_UP.max(self.budget / 4) {
            let fresh = Meter::new(self.budget);
            *self = Meter { started: Some(now), measuring: true, ..fresh };
        }
        true
    }

    /// Returns the result, when `more` has returned `false`.
    pub fn ns_per_op(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.ops as f64
    }
}

/// Repeats a pass of `ops` operations, which times itself, until the budget is
/// spent; returns nanoseconds per operation.
pub fn passes(ops: usize, budget: Duration, mut pass: impl FnMut() -> Duration) -> f64 {
    let (mut elapsed, mut done) = (Duration::ZERO, 0);
    while done == 0 || elapsed < budget {
        elapsed += pass();
        done += ops;
    }
    elapsed.as_nanos() as f64 / done as f64
}

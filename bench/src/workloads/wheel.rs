//! Suite `wheel`: the cost of a timer while 1k to 10M others are pending.
//!
//! Delays are spread over an hour, on a manual clock. `add` adds a
//! tenth more, and removes them outside the measurement; `reschedule` moves timers to other
//! random times; `fire` advances the clock past all of them, in steps in which 64 become
//! due on average, and gets and finishes each key.

use crate::suite::POPULATIONS;
use requeue::{DelayingQueue, ManualClock, Merge, Options};
use requeue_bench::keys::Numbers;
use requeue_bench::meter::{Meter, passes};
use std::time::{Duration, Instant};

const FROM: u64 = 60_000_000_000;
const SPREAD: u64 = 3_600_000_000_000;
/// Timers that become due in a step of `fire`.
const STEP: usize = 64;

/// Timers by key, on a clock that stands still. Times in nanoseconds.
pub(super) trait Timers: Default {
    fn add(&mut self, key: u64, delay: u64);
    /// Moves the timer of a key that waits.
    fn reschedule(&mut self, key: u64, delay: u64);
    fn cancel(&mut self, key: u64);
    /// Advances the clock, processes the timers that become due, and returns their number.
    fn advance(&mut self, by: u64) -> usize;
}

pub(super) struct Ours {
    queue: DelayingQueue<u64>,
    clock: ManualClock,
}

impl Default for Ours {
    fn default() -> Self {
        let clock = ManualClock::new();
        Ours { queue: DelayingQueue::with(Options::new().clock(&clock)), clock }
    }
}

impl Timers for Ours {
    fn add(&mut self, key: u64, delay: u64) {
        self.queue.add_after(key, Duration::from_nanos(delay));
    }

    fn reschedule(&mut self, key: u64, delay: u64) {
        self.queue.add_after_with(key, Duration::from_nanos(delay), Merge::Replace);
    }

    fn cancel(&mut self, key: u64) {
        self.queue.cancel(&key);
    }

    fn advance(&mut self, by: u64) -> usize {
        self.clock.advance(Duration::from_nanos(by));
        std::iter::from_fn(|| self.queue.try_get().ok()).map(|held| held.done()).count()
    }
}

/// Returns `None` if it is not a workload of this suite.
pub(super) fn measure<T: Timers>(workload: &str, budget: Duration) -> Option<f64> {
    let (verb, label) = workload.split_once('-')?;
    let (_, n) = POPULATIONS.into_iter().find(|(known, _)| *known == label)?;
    Some(match verb {
        "add" => add::<T>(n, budget),
        "reschedule" => reschedule::<T>(n, budget),
        "fire" => fire::<T>(n, budget),
        _ => return None,
    })
}

/// With keys 0 to n - 1.
fn filled<T: Timers>(n: usize, numbers: &mut Numbers) -> T {
    let mut timers = T::default();
    for key in 0..n as u64 {
        timers.add(key, delay(numbers));
    }
    timers
}

fn delay(numbers: &mut Numbers) -> u64 {
    FROM + numbers.below(SPREAD)
}

fn add<T: Timers>(n: usize, budget: Duration) -> f64 {
    let numbers = &mut Numbers::new(7);
    let mut timers = filled::<T>(n, numbers);
    let more = n / 10;
    let extra = n as u64..(n + more) as u64;
    let mut pass = || {
        let started = Instant::now();
        for key in extra.clone() {
            timers.add(key, delay(numbers));
        }
        let elapsed = started.elapsed();
        for key in extra.clone() {
            timers.cancel(key);
        }
        elapsed
    };
    pass(); // what must grow has grown
    passes(more, budget, pass)
}

fn reschedule<T: Timers>(n: usize, budget: Duration) -> f64 {
    let numbers = &mut Numbers::new(7);
    let mut timers = filled::<T>(n, numbers);
    let (n, stride) = (n as u64, stride(n as u64));
    let mut key = 0;
    let mut meter = Meter::new(budget);
    // Whole rounds: otherwise the rare sweeps of the heap would be in some runs only.
    while meter.more(n) {
        for _ in 0..n {
            timers.reschedule(key, delay(numbers));
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

fn fire<T: Timers>(n: usize, budget: Duration) -> f64 {
    let numbers = &mut Numbers::new(7);
    let step = SPREAD / (n / STEP) as u64;
    let pass = || {
        let mut timers = filled::<T>(n, numbers);
        let started = Instant::now();
        let mut fired = timers.advance(FROM);
        while fired < n {
            fired += timers.advance(step);
        }
        started.elapsed()
    };
    passes(n, budget, pass)
}

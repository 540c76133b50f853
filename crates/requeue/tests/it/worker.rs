//! The guarantees of a worker: on tasks that a test polls by hand, on threads, and on tokio. The tests
//! use a manual clock, so nothing sleeps.

mod cancelled;
mod concurrency;
mod executor;
mod metrics;
mod outcomes;
mod panicking_keys;
mod panics;
mod shutdown;
mod threads;
mod timeout;
#[cfg(feature = "tokio")]
mod tokio;
#[cfg(feature = "tracing")]
mod traced;

use requeue::limiter::ExponentialFailure;
use requeue::worker::{Failed, Next};
use requeue::{ManualClock, Options, RateLimitingQueue};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

type Queue = RateLimitingQueue<&'static str>;

/// A queue on a manual clock, with a backoff of 1 s, 2 s, 4 s …
fn queue() -> (Queue, ManualClock) {
    let clock = ManualClock::new();
    let backoff = ExponentialFailure::new(SECOND, 1000 * SECOND);
    (RateLimitingQueue::with(backoff, Options::new().clock(&clock)), clock)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while it is locked")
}

/// The calls of callbacks: key, attempt, cause, and what happens to the key.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Entry>>>);

type Entry = (&'static str, u32, String, Next);

impl Log {
    fn callback(&self) -> impl Fn(&Failed<'_, &'static str>) + Send + Sync + 'static {
        let log = self.clone();
        move |failed| {
            let entry = (*failed.key, failed.attempt, failed.cause.to_string(), failed.next);
            lock(&log.0).push(entry);
        }
    }

    fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut *lock(&self.0))
    }
}

fn entry(key: &'static str, attempt: u32, cause: &str, next: Next) -> Entry {
    (key, attempt, cause.to_owned(), next)
}

/// Counts how many handlers process each key concurrently. It counts instead of asserting, because a
/// failed assertion in a handler would only be a failed attempt.
struct OverlapCounter {
    keys: Vec<AtomicU32>,
    overlaps: AtomicU32,
}

impl OverlapCounter {
    fn new(keys: usize) -> Self {
        let keys = (0..keys).map(|_| AtomicU32::new(0)).collect();
        OverlapCounter { keys, overlaps: AtomicU32::new(0) }
    }

    fn enter(&self, key: usize) {
        self.overlaps.fetch_add(self.keys[key].fetch_add(1, SeqCst), SeqCst);
    }

    fn leave(&self, key: usize) {
        self.keys[key].fetch_sub(1, SeqCst);
    }

    /// Returns how often a handler started while another processed the same key.
    fn overlaps(&self) -> u32 {
        self.overlaps.load(SeqCst)
    }
}

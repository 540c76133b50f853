//! What a worker promises: on tasks that are polled by hand, on threads, on tokio.
//! Time is moved by hand, so nothing sleeps.

mod cancelled;
mod concurrency;
mod executor;
mod metrics;
mod outcomes;
mod panics;
mod shutdown;
mod threads;
mod timeout;
#[cfg(feature = "tokio")]
mod tokio;
mod touchy;
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
    mutex.lock().expect("nobody panics with it")
}

/// What callbacks were told: key, attempt, cause and what is next.
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

/// Who works on which key. An assertion in a handler would be but a failed attempt.
struct Claims {
    keys: Vec<AtomicU32>,
    overlaps: AtomicU32,
}

impl Claims {
    fn new(keys: usize) -> Self {
        let keys = (0..keys).map(|_| AtomicU32::new(0)).collect();
        Claims { keys, overlaps: AtomicU32::new(0) }
    }

    fn claim(&self, key: usize) {
        self.overlaps.fetch_add(self.keys[key].fetch_add(1, SeqCst), SeqCst);
    }

    fn release(&self, key: usize) {
        self.keys[key].fetch_sub(1, SeqCst);
    }

    /// How often a key was worked on twice at once.
    fn overlaps(&self) -> u32 {
        self.overlaps.load(SeqCst)
    }
}

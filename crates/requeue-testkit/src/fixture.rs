//! A store under test, and its time.

use requeue::ManualClock;
use requeue_jobs::{MemoryStore, Store, Timestamp, WallClock};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// A fresh store on a clock that moves when the test moves it.
///
/// Each test has a fixture of its own. Time begins at some millisecond well after 1970.
pub trait Fixture: Send + Sync {
    /// What is tested.
    fn store(&self) -> Arc<dyn Store>;

    /// The store's time.
    fn now(&self) -> Timestamp;

    /// Moves the store's time on.
    fn advance(&self, by: Duration);

    /// Checks what the store promises of itself, as far as it can.
    fn check(&self) {}

    /// Whether jobs that are due at the same millisecond come in the order of their puts, and
    /// leases that end and jobs that die at the same one are ended and dropped in that order. Not
    /// every store promises that.
    fn orders_ties(&self) -> bool {
        true
    }

    /// Whether claims and reaps report the leases that they found expired. HTTP responses do not
    /// contain them.
    fn reports_expired_leases(&self) -> bool {
        true
    }

    /// How long it may take, in real time, until who waits is woken. None at all in memory; a
    /// store elsewhere has a network in between.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }
}

/// A [`MemoryStore`].
pub struct MemoryFixture {
    store: MemoryStore,
    wall_clock: WallClock,
    clock: ManualClock,
}

impl MemoryFixture {
    /// An empty store.
    pub fn new() -> Self {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
        MemoryFixture { store: MemoryStore::with(wall_clock.clone()), wall_clock, clock }
    }

    pub(crate) fn memory(&self) -> MemoryStore {
        self.store.clone()
    }

    pub(crate) fn wall_clock(&self) -> WallClock {
        self.wall_clock.clone()
    }
}

impl Default for MemoryFixture {
    fn default() -> Self {
        MemoryFixture::new()
    }
}

impl Fixture for MemoryFixture {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn now(&self) -> Timestamp {
        self.wall_clock.now()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn check(&self) {
        self.store.check();
    }
}

/// Runs a future to its end on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

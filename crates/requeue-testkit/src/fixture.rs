//! A store under test, and its clock.

use requeue::ManualClock;
use requeue_jobs::{MemoryStore, Store, Timestamp, WallClock};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// A fresh store on a clock that the test controls.
///
/// Each test has its own fixture. The clock starts at a time well after 1970.
pub trait Fixture: Send + Sync {
    /// Returns the store under test.
    fn store(&self) -> Arc<dyn Store>;

    /// Returns the time of the store.
    fn now(&self) -> Timestamp;

    /// Moves the clock of the store forward.
    fn advance(&self, by: Duration);

    /// Checks the internal invariants of the store, if it can. Panics if one is violated.
    fn check(&self) {}

    /// Returns whether the store orders ties: jobs that are due, leases that end and jobs that died in
    /// the same millisecond come in the order of their puts. Not every store promises this.
    fn orders_ties(&self) -> bool {
        true
    }

    /// Returns whether claims and reaps report the leases that they found expired. HTTP responses
    /// do not contain them.
    fn reports_expired_leases(&self) -> bool {
        true
    }

    /// Returns how long it may take, in real time, until a wait is woken. It is zero for a store in
    /// memory, and longer for a store behind a network.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }
}

/// A fixture with a [`MemoryStore`].
pub struct MemoryFixture {
    store: MemoryStore,
    wall_clock: WallClock,
    clock: ManualClock,
}

impl MemoryFixture {
    /// Creates an empty store.
    pub fn new() -> Self {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
        MemoryFixture { store: MemoryStore::with(wall_clock.clone()), wall_clock, clock }
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

/// Runs a future to completion on this thread.
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
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

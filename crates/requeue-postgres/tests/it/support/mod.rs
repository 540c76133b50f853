//! New schemas on real servers: some with a manual clock, others for failures in real time.

use requeue::ManualClock;
use requeue_jobs::{Store, Timestamp, WallClock};
use requeue_postgres::{Options, PostgresStore};
use requeue_testkit::servers::{PostgresServer, PostgresVersion};
use requeue_testkit::{Fixture, block_on};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// A server for many tests at a time.
pub(crate) static SERVER: LazyLock<PostgresServer> = LazyLock::new(|| {
    PostgresServer::with(&PostgresVersion::chosen(), &["-c", "max_connections=500"])
});

/// A schema of its own, on a shared server.
pub(crate) struct PostgresFixture {
    store: PostgresStore,
    wall_clock: WallClock,
    clock: ManualClock,
    has_much: AtomicBool,
}

impl PostgresFixture {
    /// On one server that all tests of the process share.
    pub(crate) fn new() -> Self {
        PostgresFixture::at(&SERVER.url())
    }

    pub(crate) fn at(url: &str) -> Self {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
        let store = PostgresStore::connect_at(url, fresh(), Some(wall_clock.clone()));
        let store = block_on(store).expect("the server is up");
        PostgresFixture { store, wall_clock, clock, has_much: AtomicBool::new(false) }
    }
}

impl Fixture for PostgresFixture {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn now(&self) -> Timestamp {
        self.wall_clock.now()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Skipped when there are so many jobs that a check after every step would take minutes.
    fn check(&self) {
        if self.has_much.load(Ordering::Relaxed) {
            return;
        }
        let began = Instant::now();
        let problems = block_on(self.store.check()).expect("the server is up");
        assert_eq!(problems, Vec::<String>::new());
        self.has_much.store(began.elapsed() > Duration::from_millis(100), Ordering::Relaxed);
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// Options with a schema of its own, and few connections.
pub(crate) fn fresh() -> Options {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut options = Options::default();
    options.schema = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    options.max_connections = 4;
    options.poll_interval = Duration::from_millis(20);
    options.listen = false;
    options
}

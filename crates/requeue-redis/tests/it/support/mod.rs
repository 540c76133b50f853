//! New deployments on real servers: some with a manual clock, others for failures in real time.

pub(crate) mod deployment;
pub(crate) mod key_reader;

use requeue::ManualClock;
use requeue_jobs::{
    Body, Claim, Claimed, Due, JobId, Kind, Placed, Put, PutError, Query, Settle, SettleError,
    Settled, Settlement, Store, Timestamp, WallClock, WorkerName,
};
use requeue_redis::{Options, RedisStore};
use requeue_testkit::servers::RedisServer;
use requeue_testkit::{Fixture, block_on};
use std::hash::{BuildHasher, RandomState};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// A deployment of its own, on a shared server.
pub(crate) struct RedisFixture {
    store: RedisStore,
    wall_clock: WallClock,
    clock: ManualClock,
    has_much: AtomicBool,
}

impl RedisFixture {
    /// On one server that all tests of the process share.
    pub(crate) fn new() -> Self {
        static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);
        RedisFixture::at(&SERVER.url())
    }

    pub(crate) fn at(url: &str) -> Self {
        let options = fresh();
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
        let store = RedisStore::connect_at(url, options, Some(wall_clock.clone()));
        let store = block_on(store).expect("the server is up");
        RedisFixture { store, wall_clock, clock, has_much: AtomicBool::new(false) }
    }

    /// The clock of the store.
    pub(crate) fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

impl Fixture for RedisFixture {
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

    fn orders_ties(&self) -> bool {
        false
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// Options with a unique prefix and short backoffs.
pub(crate) fn fresh() -> Options {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut options = Options::default();
    options.prefix = format!("test-{}-{number}", process::id());
    options.longest_backoff = Duration::from_millis(200);
    options
}

pub(crate) fn connect(url: &str, options: Options) -> RedisStore {
    block_on(RedisStore::connect_with(url, options)).expect("the server is up")
}

/// Stores of one new deployment, each with its own connections.
pub(crate) fn clients(url: &str, count: usize) -> Vec<RedisStore> {
    let options = fresh();
    (0..count).map(|_| connect(url, options.clone())).collect()
}

pub(crate) fn as_stores(clients: &[RedisStore]) -> Vec<Arc<dyn Store>> {
    clients.iter().map(|client| Arc::new(client.clone()) as _).collect()
}

/// Checks that the stored data is consistent. Nothing may change it meanwhile.
pub(crate) fn is_whole(store: &RedisStore) {
    let problems = insist("it can be read", || block_on(store.check()));
    assert_eq!(problems, Vec::<String>::new());
}

/// Calls until a call succeeds. The server may have to come back first.
pub(crate) fn insist<T, E: ToString>(what: &str, mut call: impl FnMut() -> Result<T, E>) -> T {
    let mut done = None;
    let mut last = String::new();
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while done.is_none() {
        assert!(std::time::Instant::now() < end, "timed out until {what}: {last}");
        match call() {
            Ok(result) => done = Some(result),
            Err(error) => last = error.to_string(),
        }
    }
    done.expect("the loop ends with a result")
}

pub(crate) fn kind() -> Kind {
    Kind::new("mail").expect("a valid kind")
}

pub(crate) fn put(id: &str) -> Put {
    Put::new(kind(), JobId::new(id).expect("a valid id"), Body::octets(*b"hello").expect("small"))
}

pub(crate) fn put_after(id: &str, delay: Duration) -> Put {
    let mut put = put(id);
    put.due = Due::After(delay);
    put
}

pub(crate) fn try_put(store: &dyn Store, put: Put) -> Result<Placed, PutError> {
    block_on(store.put(vec![put]))?.pop().expect("one result for each entry")
}

/// Puts jobs on a server that is up.
pub(crate) fn put_all(store: &dyn Store, puts: Vec<Put>) {
    for placed in block_on(store.put(puts)).expect("the server is up") {
        placed.expect("the put has no condition");
    }
}

pub(crate) fn claim(max: usize, lease: Duration) -> Claim {
    let worker = WorkerName::new("worker").expect("a valid name");
    let nonce = RandomState::new().hash_one(());
    Claim { kinds: vec![kind()], max, lease: Some(lease), worker, nonce }
}

/// Claims jobs from a server that is up.
pub(crate) fn claimed(store: &dyn Store, max: usize, lease: Duration) -> Claimed {
    let claimed = block_on(store.claim(claim(max, lease))).expect("the server is up");
    assert_eq!(claimed.errors, []);
    claimed
}

pub(crate) fn settle(
    store: &dyn Store,
    job: &requeue_jobs::ClaimedJob,
    action: Settlement,
) -> Result<Settled, SettleError> {
    let settle = Settle { receipt: job.receipt.clone(), action };
    block_on(store.settle(vec![settle]))?.pop().expect("one result for each entry")
}

/// Returns all ids of the kind.
pub(crate) fn ids(store: &dyn Store) -> Vec<String> {
    let mut found = Vec::new();
    let mut query = Query { limit: 1000, ..Query::new(kind()) };
    loop {
        let page = insist("the list is read", || block_on(store.list(query.clone())));
        found.extend(page.jobs.into_iter().map(|job| job.id.as_str().to_owned()));
        query.after = page.cursor;
        if query.after.is_none() {
            return found;
        }
    }
}

/// Returns the number in an environment variable, or the default.
pub(crate) fn count(name: &str, or: u64) -> u64 {
    std::env::var(name).map_or(or, |count| count.parse().expect("a number"))
}

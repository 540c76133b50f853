//! New schemas on real servers: some with a manual clock, others for failures in real time.

pub(crate) mod application;
pub(crate) mod hostile;

use requeue::ManualClock;
use requeue_jobs::{
    Body, Claim, Claimed, ClaimedJob, Due, JobId, Kind, Placed, Put, PutError, Query, Settle,
    SettleError, Settled, Settlement, Store, Timestamp, WallClock, WorkerName,
};
use requeue_postgres::{Options, PostgresStore};
use requeue_testkit::servers::{PostgresServer, PostgresVersion};
use requeue_testkit::{Fixture, block_on};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// A lease or delay that does not end during a test.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

/// Arguments of a server for many tests at a time.
const SHARED: [&str; 2] = ["-c", "max_connections=500"];

/// A server for many tests at a time.
pub(crate) static SERVER: LazyLock<PostgresServer> =
    LazyLock::new(|| PostgresServer::with(&PostgresVersion::chosen(), &SHARED));

/// A schema of its own, on a shared server.
pub(crate) struct PostgresFixture {
    store: PostgresStore,
    wall_clock: WallClock,
    clock: ManualClock,
    has_much: AtomicBool,
}

impl PostgresFixture {
    /// On one server that all tests of the process share, in a database in which names of strangers are found first.
    pub(crate) fn new() -> Self {
        PostgresFixture::at(&hostile::HOSTILE)
    }

    pub(crate) fn at(url: &str) -> Self {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
        let store = PostgresStore::connect_at(url, fresh(), Some(wall_clock.clone()));
        let store = block_on(store).expect("the server is up");
        PostgresFixture { store, wall_clock, clock, has_much: AtomicBool::new(false) }
    }

    pub(crate) fn postgres(&self) -> PostgresStore {
        self.store.clone()
    }

    /// A store that does not check itself after every step, which takes half of the time.
    pub(crate) fn unchecked(url: &str) -> Self {
        let fixture = PostgresFixture::at(url);
        fixture.has_much.store(true, Ordering::Relaxed);
        fixture
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

pub(crate) fn connect(url: &str, options: Options) -> PostgresStore {
    block_on(PostgresStore::connect_with(url, options)).expect("the server is up")
}

/// Stores of one new schema, each with its own connections.
pub(crate) fn clients(url: &str, count: usize) -> Vec<PostgresStore> {
    let options = fresh();
    (0..count).map(|_| connect(url, options.clone())).collect()
}

pub(crate) fn as_stores(clients: &[PostgresStore]) -> Vec<Arc<dyn Store>> {
    clients.iter().map(|client| Arc::new(client.clone()) as _).collect()
}

/// Checks that the counts are exact, and that each job is consistent.
pub(crate) fn is_whole(store: &PostgresStore) {
    let problems = insist("it can be read", || block_on(store.check()));
    assert_eq!(problems, Vec::<String>::new());
}

/// Calls until a call succeeds. The server may have to come back first.
pub(crate) fn insist<T, E: ToString>(what: &str, mut call: impl FnMut() -> Result<T, E>) -> T {
    let mut last = String::new();
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < end, "timed out until {what}: {last}");
        match call() {
            Ok(result) => return result,
            Err(error) => last = error.to_string(),
        }
    }
}

pub(crate) fn kind_named(name: &str) -> Kind {
    Kind::new(name).expect("a valid kind")
}

pub(crate) fn kind() -> Kind {
    kind_named("mail")
}

pub(crate) fn id(id: &str) -> JobId {
    JobId::new(id).expect("a valid id")
}

pub(crate) fn put_of(kind: &Kind, name: &str) -> Put {
    Put::new(kind.clone(), id(name), Body::octets(*b"hello").expect("small"))
}

pub(crate) fn put(name: &str) -> Put {
    put_of(&kind(), name)
}

pub(crate) fn put_after(name: &str, delay: Duration) -> Put {
    Put { due: Due::After(delay), ..put(name) }
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

pub(crate) fn claim_of(kind: &Kind, max: usize, lease: Duration) -> Claim {
    let worker = WorkerName::new("worker").expect("a valid name");
    let nonce = RandomState::new().hash_one(());
    Claim { kinds: vec![kind.clone()], max, lease: Some(lease), worker, nonce }
}

pub(crate) fn claim(max: usize, lease: Duration) -> Claim {
    claim_of(&kind(), max, lease)
}

/// Claims jobs from a server that is up.
pub(crate) fn claimed(store: &dyn Store, max: usize, lease: Duration) -> Claimed {
    let claimed = block_on(store.claim(claim(max, lease))).expect("the server is up");
    assert_eq!(claimed.errors, []);
    claimed
}

pub(crate) fn settle(
    store: &dyn Store,
    job: &ClaimedJob,
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

//! [`PostgresStore`] and its implementation of [`Store`].

use crate::acks::Acks;
use crate::database::{Database, Failure};
use crate::error::PostgresConnectError;
use crate::locked::Patience;
use crate::marks::Marks;
use crate::options::Options;
use crate::schema::{self, Migrated};
use crate::statements::Statements;
use crate::watch::{self, Watch};
use requeue::Clock;
use requeue_jobs::limits::MAX_KINDS;
use requeue_jobs::rules::Turns;
use requeue_jobs::{
    BatchResults, Change, ChangeError, Changed, Claim, Claimed, Invalid, JobId, JobView, Kind,
    KindView, Page, Placed, Put, PutError, Query, Reaped, Restore, Restored, Schedule,
    ScheduleCondition, Settings, Settle, SettleError, Settled, Spans, Store, StoreError,
    StoreFuture, StoreStatus, Tick, Ticked, TimePage, TimeQuery, WallClock,
};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_postgres::types::Type;

/// A [`Store`] that keeps jobs in Postgres.
///
/// Cloning is cheap, and clones share their connections. The store works with any async executor and
/// from plain threads: it runs its network I/O on a thread of its own. That thread ends when the last
/// clone is dropped.
///
/// ```no_run
/// use requeue_jobs::Jobs;
/// use requeue_postgres::PostgresStore;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
/// let jobs = Jobs::new(Arc::new(PostgresStore::connect("postgres://app@localhost/shop").await?));
/// jobs.put("order.close", "order-42", "unpaid").after(Duration::from_secs(300)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresStore {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) database: Database,
    pub(crate) statements: Statements,
    pub(crate) acks: Acks,
    pub(crate) marks: Marks,
    pub(crate) watch: Arc<Watch>,
    pub(crate) turns: Mutex<Turns>,
    /// The kind that the last reap ended with. The next reap continues after it.
    pub(crate) reaped: Mutex<Option<String>>,
    /// The last kind without jobs that a reap has looked at.
    pub(crate) idle_looked_at: Mutex<i32>,
    /// When a put of each kind has last met a job that existed.
    pub(crate) duplicates: Mutex<HashMap<i32, Instant>>,
    kinds: Mutex<KnownKinds>,
    /// Replaces the server's clock in tests.
    pub(crate) wall_clock: Option<WallClock>,
}

/// The numbers of kinds. They stay valid until a failover.
#[derive(Default)]
struct KnownKinds {
    era: u64,
    numbers: HashMap<Kind, i32>,
}

/// A kind that exists.
#[derive(Debug, Clone)]
pub(crate) struct KindRef {
    pub(crate) name: Kind,
    pub(crate) number: i32,
}

/// Returns those of these kinds that have a number, in this order.
fn with_numbers(names: &[Kind], numbers: &HashMap<Kind, i32>) -> Vec<KindRef> {
    let of = |name: &Kind| Some(KindRef { name: name.clone(), number: *numbers.get(name)? });
    names.iter().filter_map(of).collect()
}

/// Locks a mutex and ignores poisoning: no code that holds one of these locks leaves partial changes
/// behind when it panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PostgresStore {
    /// Connects to the database at `url` with the default [`Options`], and creates the tables if there are none.
    ///
    /// The URL is `postgres://user:password@host:port/database`, with the parameters of libpq: several
    /// hosts, `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, `target_session_attrs`, `application_name`,
    /// `options` and more. TLS is used if the server supports it, unless `sslmode` specifies otherwise.
    ///
    /// Fails with a [`PostgresConnectError`] if the URL is invalid, the server is not available or refuses
    /// access, its version is too old, or another version of requeue has created its tables.
    pub async fn connect(url: &str) -> Result<Self, PostgresConnectError> {
        PostgresStore::connect_with(url, Options::default()).await
    }

    /// Connects as [`connect`](Self::connect) does, with the given options. Also fails if an option
    /// is invalid.
    pub async fn connect_with(url: &str, options: Options) -> Result<Self, PostgresConnectError> {
        PostgresStore::connect_at(url, options, None).await
    }

    /// Creates the tables in the database at `url` if there are none, whether or not [`Options::migrate`] is
    /// set. Several processes may do so at the same time.
    ///
    /// For deployments whose processes use a role that may not create tables, and therefore connect
    /// without [`Options::migrate`]: a privileged role calls this first.
    /// `requeue postgres migrate` is the same on the command line.
    ///
    /// Returns the version of the tables before and after. Fails like [`connect`](Self::connect).
    ///
    /// ```no_run
    /// use requeue_postgres::{Options, PostgresStore};
    ///
    /// # async fn doc() -> Result<(), requeue_postgres::PostgresConnectError> {
    /// let owner = "postgres://owner@db.example/shop";
    /// let done = PostgresStore::migrate(owner, Options::default()).await?;
    /// println!("version {} -> {}", done.from, done.to);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn migrate(
        url: &str,
        mut options: Options,
    ) -> Result<Migrated, PostgresConnectError> {
        options.migrate = true;
        let database = Arc::new(Database::open(url, options)?);
        let (migrating, address) = (database.clone(), database.address.clone());
        let migrated = database.spawn(async move { schema::open(&migrating).await });
        migrated.await.unwrap_or_else(|error| {
            Err(PostgresConnectError::Unavailable { address, reason: error.to_string() })
        })
    }

    /// Connects, and uses the time of `wall_clock` in place of the server's. For tests.
    #[doc(hidden)]
    pub async fn connect_at(
        url: &str,
        options: Options,
        wall_clock: Option<WallClock>,
    ) -> Result<Self, PostgresConnectError> {
        let statements = Statements::new(&options.schema);
        let clock = wall_clock.as_ref().map_or_else(Clock::system, |at| at.clock().clone());
        let poll_interval = options.poll_interval;
        let database = Database::open(url, options)?;
        let shared = Arc::new(Shared {
            database,
            statements,
            acks: Acks::default(),
            marks: Marks::default(),
            watch: Arc::new(Watch::new(clock, poll_interval)),
            turns: Mutex::default(),
            reaped: Mutex::default(),
            idle_looked_at: Mutex::default(),
            duplicates: Mutex::default(),
            kinds: Mutex::default(),
            wall_clock,
        });
        let opening = shared.clone();
        let address = shared.database.address.clone();
        let opened = shared.database.spawn(async move { schema::open(&opening.database).await });
        opened.await.map_err(|error| PostgresConnectError::Unavailable {
            address,
            reason: error.to_string(),
        })??;
        watch::start(&shared);
        Ok(PostgresStore { shared })
    }

    /// Returns all statements, with the types of their parameters. For tests.
    #[doc(hidden)]
    pub fn statements(&self) -> Vec<(String, Vec<Type>)> {
        let all = self.shared.statements.all();
        all.into_iter().map(|sql| (sql.text.clone(), sql.types.clone())).collect()
    }

    /// Runs a call on the thread of the connections. If its future is dropped, the call continues.
    fn run<'a, T, F>(&'a self, call: impl FnOnce(Arc<Shared>) -> F) -> StoreFuture<'a, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let task = self.shared.database.spawn(call(self.shared.clone()));
        Box::pin(async move {
            task.await
                .unwrap_or_else(|error| Err(StoreError::Unknown { reason: error.to_string() }))
        })
    }
}

/// In place of the number of a kind, for calls that create kinds: no kind has it.
const NEW_KINDS: i32 = 0;

/// How often a call is repeated whose kind was removed meanwhile.
const REPEATS: usize = 3;

impl Shared {
    /// Calls again if the kind was removed in between, because it had no jobs: another one may have taken its name.
    pub(crate) async fn unless_removed<T, F>(&self, call: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut repeats = 0;
        loop {
            let missing = self.database.missing_kinds();
            match call().await {
                Err(StoreError::Unavailable { .. })
                    if repeats < REPEATS && missing != self.database.missing_kinds() =>
                {
                    repeats += 1;
                }
                result => return result,
            }
        }
    }

    /// The time for a statement: that of a test, or `None` for the server's.
    pub(crate) fn test_time(&self) -> Option<i64> {
        self.wall_clock.as_ref().map(|clock| crate::rows::stored_time(clock.now()))
    }

    /// Returns a kind, or `None` if there is no such kind.
    pub(crate) async fn kind(&self, name: &Kind) -> Result<Option<KindRef>, StoreError> {
        Ok(self.kinds_of(std::slice::from_ref(name)).await?.pop())
    }

    /// Returns those of these kinds that exist, in this order.
    pub(crate) async fn kinds_of(&self, names: &[Kind]) -> Result<Vec<KindRef>, StoreError> {
        let mut found = self.known_numbers(names);
        let unknown: Vec<&str> =
            names.iter().filter(|name| !found.contains_key(*name)).map(Kind::as_str).collect();
        if !unknown.is_empty() {
            let rows = self.database.query(&self.statements.find_kinds, &[&unknown]).await;
            for row in rows.map_err(Failure::for_read)? {
                if let Ok(name) = Kind::with_reserved(row.get::<_, &str>(0)) {
                    self.learn(name.clone(), row.get(1));
                    found.insert(name, row.get(1));
                }
            }
        }
        Ok(with_numbers(names, &found))
    }

    /// Returns those of these kinds whose numbers are known, in this order.
    pub(crate) fn known_kinds(&self, names: &[Kind]) -> Vec<KindRef> {
        with_numbers(names, &self.known_numbers(names))
    }

    fn known_numbers(&self, names: &[Kind]) -> HashMap<Kind, i32> {
        let era = self.database.era();
        let mut known = lock(&self.kinds);
        if known.era != era {
            *known = KnownKinds { era, numbers: HashMap::new() };
            self.marks.clear();
        }
        names.iter().filter_map(|name| Some((name.clone(), *known.numbers.get(name)?))).collect()
    }

    pub(crate) fn learn(&self, name: Kind, number: i32) {
        let known = &mut lock(&self.kinds).numbers;
        if known.len() >= MAX_KINDS {
            known.clear();
        }
        known.insert(name, number);
    }

    /// Creates those of these kinds that do not exist, as far as the limit allows.
    pub(crate) async fn make(&self, names: &[Kind]) -> Result<(), Failure> {
        let known = self.known_kinds(names);
        let known: HashSet<&Kind> = known.iter().map(|kind| &kind.name).collect();
        let names: Vec<&str> =
            names.iter().filter(|name| !known.contains(name)).map(Kind::as_str).collect();
        if names.is_empty() {
            return Ok(());
        }
        // An open transaction may be creating one of them.
        let sql = &self.statements.make_kinds;
        for row in self.database.query_of(NEW_KINDS, sql, &[&names]).await? {
            if let (Ok(name), Some(number)) =
                (Kind::with_reserved(row.get::<_, &str>(0)), row.get(1))
            {
                self.learn(name, number);
            }
        }
        Ok(())
    }

    /// Returns a kind, and creates it if there is none.
    pub(crate) async fn made(&self, name: &Kind) -> Result<KindRef, StoreError> {
        self.made_within(name, &Patience::new()).await
    }

    /// The same, for a call that has perhaps waited already.
    pub(crate) async fn made_within(
        &self,
        name: &Kind,
        patience: &Patience,
    ) -> Result<KindRef, StoreError> {
        loop {
            if let Some(kind) = self.kind(name).await? {
                return Ok(kind);
            }
            match self.make(std::slice::from_ref(name)).await {
                Ok(()) => break,
                Err(Failure::Locked(_)) if patience.pause().await => {}
                Err(Failure::Locked(_)) => {
                    let reason = format!("an open transaction is creating kind {name}");
                    return Err(StoreError::Unavailable { reason });
                }
                Err(failure) => return Err(failure.for_read()),
            }
        }
        self.kind(name).await?.ok_or_else(|| {
            let (what, limit) = ("kinds", MAX_KINDS);
            Invalid::TooMany { what, count: limit + 1, limit }.into()
        })
    }
}

impl Store for PostgresStore {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        self.run(|shared| async move { shared.put_all(puts).await })
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        self.run(|shared| async move { shared.claim_of_kinds(claim).await })
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        self.run(|shared| async move { shared.settle_all(settlements).await })
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        self.run(|shared| async move { shared.change_all(changes).await })
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        self.run(|shared| async move {
            shared.unless_removed(|| shared.restore_all(restore.clone())).await
        })
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        Box::pin(self.wait_for(kinds, limit))
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        self.run(move |shared| async move { shared.reap_kinds(max).await })
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        self.run(|shared| async move { shared.view_of(kind, id).await })
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        self.run(|shared| async move { shared.page(query).await })
    }

    fn list_by_time(&self, query: TimeQuery) -> StoreFuture<'_, TimePage> {
        self.run(|shared| async move { shared.page_by_time(query).await })
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        self.run(|shared| async move { shared.views_of_kinds().await })
    }

    fn kind(&self, kind: Kind) -> StoreFuture<'_, KindView> {
        self.run(|shared| async move { shared.view_of_kind(kind).await })
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        self.run(move |shared| async move { shared.count_upcoming(kind, spans).await })
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        self.run(|shared| async move { shared.settings_of(kind).await })
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        self.run(|shared| async move {
            shared.unless_removed(|| shared.set_of(kind.clone(), settings.clone())).await
        })
    }

    fn set_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
        condition: ScheduleCondition,
    ) -> StoreFuture<'_, bool> {
        self.run(move |shared| async move {
            let set = || shared.keep_schedule(kind.clone(), schedule.clone(), condition);
            shared.unless_removed(set).await
        })
    }

    fn schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<Schedule>> {
        self.run(|shared| async move { shared.schedule_of(kind, id).await })
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        self.run(|shared| async move { shared.drop_schedule(kind, id).await })
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        self.run(|shared| async move { shared.schedules_of(kind).await })
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        self.run(|shared| async move {
            shared.unless_removed(|| shared.tick_schedule(tick.clone())).await
        })
    }

    fn status(&self) -> StoreStatus {
        self.shared.database.status()
    }
}

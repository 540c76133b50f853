//! The connections to Postgres, and what the failure of a statement means.
//!
//! All of them run on one thread with its own tokio runtime, so the store can be used from any executor
//! and from plain threads. A call runs there as a task. So if its caller stops waiting, no connection is
//! left in the middle of a transaction.
//!
//! A statement that fails has done nothing if the server reports an error, or if it was not sent. In all other cases it is not
//! known whether it was executed: the connection may have broken before or after that.

use crate::connector::Connector;
use crate::error::PostgresConnectError;
use crate::options::Options;
use crate::shares::{Share, Shares};
use crate::statements::Sql;
use crate::url::{Url, addresses};
use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, QueueMode, RecyclingMethod, Runtime,
};
use requeue_jobs::{
    StoreError, StoreMetric, StoreMetricKind, StoreProblem, StoreStatus, Timestamp,
};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use std::{io, thread};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Config, Row};

pub(crate) type Params<'a> = [&'a (dyn ToSql + Sync)];

/// Lets the rest of a transaction look up names only among those of Postgres, whatever `search_path` the connection has. For
/// temporary tables of the transaction, too.
///
/// It is not set once for each connection: a connection pooler would pass it on to applications, and PgBouncer does not accept it
/// as an option of a connection. So single statements have to do without it.
pub(crate) const OWN_PATH: &str = "set local search_path = pg_catalog, pg_temp";

/// How often a statement is repeated that the server has rolled back, because of a deadlock for example.
const REPEATS: usize = 10;

/// Why a statement has no result.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// Nothing was changed.
    NotDone(String),
    /// It is not known whether the statement was executed.
    Unknown(String),
    /// The server has rolled the transaction back, and it may succeed if it is repeated.
    Repeat(String),
    /// Nothing was changed, because another transaction has held a lock for too long.
    Locked(String),
}

impl Failure {
    /// The error for a call that changes something.
    pub(crate) fn for_write(self) -> StoreError {
        match self {
            Failure::NotDone(reason) | Failure::Repeat(reason) | Failure::Locked(reason) => {
                StoreError::Unavailable { reason }
            }
            Failure::Unknown(reason) => StoreError::Unknown { reason },
        }
    }

    /// The error for a call that only reads, or that was not committed.
    pub(crate) fn for_read(self) -> StoreError {
        let (Failure::NotDone(reason)
        | Failure::Repeat(reason)
        | Failure::Locked(reason)
        | Failure::Unknown(reason)) = self;
        StoreError::Unavailable { reason }
    }
}

/// What makes TLS connections.
#[cfg(feature = "tls")]
pub(crate) type Tls = tokio_postgres_rustls::MakeRustlsConnect;
#[cfg(not(feature = "tls"))]
pub(crate) type Tls = tokio_postgres::NoTls;

/// Connections, shared by all clones of a store.
pub(crate) struct Database {
    handle: Handle,
    pool: Pool,
    shares: Arc<Shares>,
    connector: Connector,
    pub(crate) options: Options,
    /// The names of the servers, for error messages.
    pub(crate) address: String,
    /// Whether a server has not known a statement that was prepared. Then none is prepared any more.
    has_forgotten: AtomicBool,
    /// How often a statement was about a kind that does not exist.
    missing_kinds: AtomicU64,
    statements: AtomicU64,
    failures: AtomicU64,
    /// The first failure since the last success.
    problem: Mutex<Option<(String, Timestamp)>>,
    /// Dropping it ends the thread.
    _end: oneshot::Sender<()>,
}

/// A connection for one call.
pub(crate) struct Session<'a> {
    database: &'a Database,
    object: Option<Object>,
    /// Whether a transaction may be open.
    is_open: bool,
    /// That of the kind that the call is about. The last field: it is given back after the connection.
    _share: Option<Share>,
}

/// How far a statement has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// The server does not have the statement, or has only prepared it.
    NotSent,
    /// The server may have executed the statement.
    Sent,
}

impl Database {
    /// Prepares connections to the servers in `url`. Opens none yet.
    pub(crate) fn open(url: &str, options: Options) -> Result<Database, PostgresConnectError> {
        options.check()?;
        let url = Url::parse(url)?;
        let mut config: Config = url.rest.parse().map_err(|error: tokio_postgres::Error| {
            PostgresConnectError::Url { reason: text(&error) }
        })?;
        if config.get_hosts().is_empty() {
            return Err(PostgresConnectError::Url { reason: "it contains no host".to_owned() });
        }
        config.connect_timeout(options.connect_timeout);
        if config.get_application_name().is_none() {
            config.application_name("requeue");
        }
        let address = addresses(&config);
        let (handle, end) = start().map_err(|error| PostgresConnectError::Unavailable {
            address: address.clone(),
            reason: format!("cannot start the connection thread: {error}"),
        })?;
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let tls = url.tls(&mut config)?;
        let connector = Connector::new(&config, tls, options.connect_timeout);
        let manager = Manager::from_connect(config, connector.clone(), recycling);
        let pool = Pool::builder(manager)
            .max_size(options.max_connections)
            // The one that was used last is warm: the server has what it needs in its caches.
            .queue_mode(QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(options.connect_timeout))
            .create_timeout(Some(connector.longest()))
            .recycle_timeout(Some(options.connect_timeout))
            .build()
            .map_err(|error| PostgresConnectError::Options { reason: error.to_string() })?;
        Ok(Database {
            handle,
            pool,
            shares: Shares::of_pool(options.max_connections),
            connector,
            options,
            address,
            has_forgotten: AtomicBool::new(false),
            missing_kinds: AtomicU64::new(0),
            statements: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            problem: Mutex::default(),
            _end: end,
        })
    }

    /// Runs a future on the thread of the connections.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.handle.spawn(future)
    }

    /// Starts a background task on the thread of the connections.
    pub(crate) fn background(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.handle.spawn(task));
    }

    /// Returns what a connection for notifications needs.
    pub(crate) fn listener(&self) -> Listener {
        Listener { connector: self.connector.clone() }
    }

    /// Returns a number that is the same as long as what was read of kinds stays valid: a failover may lose kinds, and those
    /// without jobs may be removed.
    pub(crate) fn era(&self) -> u64 {
        self.connector.opened() + self.missing_kinds.load(Ordering::Relaxed)
    }

    /// Returns how often a statement was about a kind that does not exist.
    pub(crate) fn missing_kinds(&self) -> u64 {
        self.missing_kinds.load(Ordering::Relaxed)
    }

    /// Forgets what was read of kinds: one of them is gone.
    pub(crate) fn kind_is_missing(&self) {
        self.missing_kinds.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether statements are prepared. Behind a connection pooler they cannot be.
    fn prepares(&self) -> bool {
        !self.connector.is_pooled() && !self.has_forgotten.load(Ordering::Relaxed)
    }

    /// Waits for a connection.
    pub(crate) async fn session(&self) -> Result<Session<'_>, Failure> {
        match self.pool.get().await {
            Ok(object) => {
                Ok(Session { database: self, object: Some(object), is_open: false, _share: None })
            }
            Err(error) => {
                let reason = match &error {
                    PoolError::Backend(error) => text(error),
                    PoolError::Timeout(_) => {
                        let waited = self.options.connect_timeout;
                        format!("no connection became free within {waited:?}")
                    }
                    other => other.to_string(),
                };
                let reason = format!("{}: {reason}", self.address);
                self.note(Some(&reason));
                Err(Failure::NotDone(reason))
            }
        }
    }

    /// Waits for a connection for a call about a kind, which may have to wait for locks.
    pub(crate) async fn session_of(&self, kind: i32) -> Result<Session<'_>, Failure> {
        let limit = self.options.connect_timeout;
        let share = self.shares.share(kind, limit).await.ok_or_else(|| {
            let what = "calls about its kind use their share of the connections";
            Failure::NotDone(format!("{}: {what}, and none ended within {limit:?}", self.address))
        })?;
        let mut session = self.session().await?;
        session._share = Some(share);
        Ok(session)
    }

    /// Runs a statement in a transaction of its own. Repeats it if the server has rolled it back.
    pub(crate) async fn query(&self, sql: &Sql, params: &Params<'_>) -> Result<Vec<Row>, Failure> {
        self.repeat(None, sql, params).await
    }

    /// Runs a statement about a kind, which may have to wait for locks.
    pub(crate) async fn query_of(
        &self,
        kind: i32,
        sql: &Sql,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, Failure> {
        self.repeat(Some(kind), sql, params).await
    }

    async fn repeat(
        &self,
        kind: Option<i32>,
        sql: &Sql,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, Failure> {
        let mut repeats = 0;
        loop {
            let mut session = match kind {
                Some(kind) => self.session_of(kind).await?,
                None => self.session().await?,
            };
            match session.query(sql, params).await {
                Err(Failure::Repeat(_)) if repeats < REPEATS => repeats += 1,
                other => return other,
            }
        }
    }

    /// Remembers that a statement has failed, or succeeded.
    fn note(&self, reason: Option<&str>) {
        self.statements.fetch_add(1, Ordering::Relaxed);
        if reason.is_some() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        match (reason, &*problem) {
            (None, Some(_)) => *problem = None,
            (Some(reason), None) => {
                *problem = Some((reason.to_owned(), Timestamp::from(SystemTime::now())));
            }
            _ => {}
        }
    }

    pub(crate) fn status(&self) -> StoreStatus {
        let pool = self.pool.status();
        let gauge = |name, help, value: usize| StoreMetric {
            name,
            help,
            kind: StoreMetricKind::Gauge,
            value: value as f64,
        };
        let counter = |name, help, value: &AtomicU64| StoreMetric {
            name,
            help,
            kind: StoreMetricKind::Counter,
            value: value.load(Ordering::Relaxed) as f64,
        };
        let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone();
        StoreStatus {
            problems: problem
                .map(|(detail, since)| StoreProblem { name: "postgres_unavailable", detail, since })
                .into_iter()
                .collect(),
            metrics: vec![
                gauge(
                    "postgres_connections",
                    "Open connections to Postgres, without that for LISTEN.",
                    pool.size,
                ),
                gauge(
                    "postgres_waiting_calls",
                    "Calls that wait for a connection to Postgres.",
                    pool.waiting + self.shares.waiting(),
                ),
                counter(
                    "postgres_statements_total",
                    "Statements that were sent to Postgres, and failed attempts to connect.",
                    &self.statements,
                ),
                counter(
                    "postgres_failures_total",
                    "Statements that failed in Postgres, and failed attempts to connect.",
                    &self.failures,
                ),
            ],
        }
    }
}

impl Session<'_> {
    /// Runs a statement.
    pub(crate) async fn query(
        &mut self,
        sql: &Sql,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, Failure> {
        let object = self.connected()?;
        let (database, mut progress) = (self.database, Progress::NotSent);
        let run = async {
            if database.prepares() {
                let statement = object.prepare_typed_cached(&sql.text, &sql.types).await?;
                progress = Progress::Sent;
                object.query(&statement, params).await
            } else {
                let params: Vec<_> =
                    params.iter().copied().zip(sql.types.iter().cloned()).collect();
                progress = Progress::Sent;
                object.query_typed(&sql.text, &params).await
            }
        };
        let result = timeout(database.options.response_timeout, run).await;
        self.completed(result, progress)
    }

    /// Runs statements without parameters and results.
    pub(crate) async fn execute(&mut self, sql: &str) -> Result<(), Failure> {
        let object = self.connected()?;
        let result =
            timeout(self.database.options.response_timeout, object.batch_execute(sql)).await;
        self.completed(result, Progress::Sent)
    }

    /// Begins a transaction.
    pub(crate) async fn begin(&mut self) -> Result<(), Failure> {
        self.is_open = true;
        self.execute("begin isolation level read committed").await
    }

    /// Commits the transaction. It has ended even if this fails.
    pub(crate) async fn commit(&mut self) -> Result<(), Failure> {
        let committed = self.execute("commit").await;
        // If it has failed without an error of the server, the connection is closed.
        self.is_open = false;
        committed
    }

    /// Ends a transaction that failed.
    pub(crate) async fn roll_back(&mut self) {
        match self.execute("rollback").await {
            Ok(()) => self.is_open = false,
            Err(_) => self.close(),
        }
    }

    /// Returns the connection. Fails if it was closed before anything was sent: another one may work.
    fn connected(&self) -> Result<&Object, Failure> {
        let lost = || format!("{}: the connection was closed", self.database.address);
        let object = self.object.as_ref().ok_or_else(|| Failure::NotDone(lost()))?;
        if object.is_closed() { Err(Failure::Repeat(lost())) } else { Ok(object) }
    }

    /// Closes the connection instead of using it again.
    fn close(&mut self) {
        if let Some(object) = self.object.take() {
            drop(Object::take(object));
        }
    }

    /// Closes the connection, and asks the server to end what it executes there: it would notice only after that.
    fn cancel(&mut self) {
        if let Some(object) = self.object.take() {
            let (client, connector) = (Object::take(object), self.database.connector.clone());
            drop(self.database.handle.spawn(async move { connector.cancel(&client).await }));
        }
    }

    /// Decides what the result of a statement means.
    fn completed<T>(
        &mut self,
        result: Result<Result<T, tokio_postgres::Error>, Elapsed>,
        progress: Progress,
    ) -> Result<T, Failure> {
        let database = self.database;
        let failure = match result {
            Ok(Ok(result)) => {
                database.note(None);
                return Ok(result);
            }
            Ok(Err(error)) => self.failure(&error, progress),
            Err(_) => {
                self.cancel();
                let waited = database.options.response_timeout;
                let reason = format!("{}: no response within {waited:?}", database.address);
                match progress {
                    Progress::NotSent => Failure::NotDone(reason),
                    Progress::Sent => Failure::Unknown(reason),
                }
            }
        };
        if let Failure::NotDone(reason) | Failure::Unknown(reason) = &failure {
            database.note(Some(reason));
        }
        Err(failure)
    }

    /// Decides what an error means.
    fn failure(&mut self, error: &tokio_postgres::Error, progress: Progress) -> Failure {
        let reason = format!("{}: {}", self.database.address, text(error));
        let Some(reported) = error.as_db_error() else {
            // The connection is broken, or the response cannot be read. Most such errors look alike, whether or not the
            // server has executed the statement.
            self.close();
            return match progress {
                Progress::NotSent => Failure::Repeat(reason),
                Progress::Sent => Failure::Unknown(reason),
            };
        };
        let code = reported.code();
        let is_final = matches!(reported.severity(), "FATAL" | "PANIC")
            || matches!(reported.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
        // 08: a connection pooler has lost its server. 25006: the server is a replica now.
        let is_lost = is_final || code.code().starts_with("08");
        if is_lost || *code == SqlState::READ_ONLY_SQL_TRANSACTION {
            self.close();
        }
        if progress == Progress::Sent
            && (is_lost || *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN)
        {
            return Failure::Unknown(reason);
        }
        if *code == SqlState::INVALID_SQL_STATEMENT_NAME || *code == SqlState::DUPLICATE_PSTATEMENT
        {
            // A connection pooler that was not recognized.
            self.database.has_forgotten.store(true, Ordering::Relaxed);
            self.close();
            return Failure::Repeat(reason);
        }
        if *code == SqlState::FEATURE_NOT_SUPPORTED && reason.contains("cached plan") {
            // The tables were changed.
            self.close();
            return Failure::Repeat(reason);
        }
        if *code == SqlState::NO_DATA_FOUND {
            self.database.kind_is_missing();
        }
        if *code == SqlState::LOCK_NOT_AVAILABLE {
            return Failure::Locked(reason);
        }
        // 40: deadlocks and conflicts between transactions.
        if code.code().starts_with("40") {
            return Failure::Repeat(reason);
        }
        Failure::NotDone(reason)
    }
}

impl Drop for Session<'_> {
    /// A connection in the middle of a transaction is not used again: the statements of other calls would become part of the
    /// transaction, and be reported as done although nobody commits them.
    fn drop(&mut self) {
        if self.is_open {
            self.close();
        }
    }
}

/// An error with its causes: the error itself says little.
pub(crate) fn text(error: &tokio_postgres::Error) -> String {
    if let Some(database) = error.as_db_error() {
        let mut text = database.message().to_owned();
        for more in [database.detail(), database.hint(), database.where_()].into_iter().flatten() {
            text.push_str("; ");
            text.push_str(&more.replace('\n', " "));
        }
        return text;
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// What a connection for notifications needs.
pub(crate) struct Listener {
    connector: Connector,
}

impl Listener {
    /// Connects, and calls `on` for each notification until the connection is lost or `on` returns `false`. Calls `on`
    /// with an empty text each second, too.
    pub(crate) async fn listen(self, channel: String, mut on: impl FnMut(&str) -> bool + Send) {
        // Behind a connection pooler, notifications would go to anyone.
        if self.connector.is_pooled() {
            return;
        }
        let opening = timeout(self.connector.longest(), self.connector.open()).await;
        let Ok(Ok((client, mut connection))) = opening else { return };
        let listen = format!("listen \"{channel}\"");
        let mut listening = pin!(client.batch_execute(&listen));
        let mut is_listening = false;
        loop {
            let message = poll_fn(|cx| {
                // The connection makes progress only if it is polled.
                if !is_listening && listening.as_mut().poll(cx).is_ready() {
                    is_listening = true;
                }
                connection.poll_message(cx)
            });
            let payload = match timeout(Duration::from_secs(1), message).await {
                Ok(Some(Ok(AsyncMessage::Notification(message)))) => message.payload().to_owned(),
                Ok(Some(Ok(_))) | Err(_) => String::new(),
                Ok(None | Some(Err(_))) => return,
            };
            if !on(&payload) {
                return;
            }
        }
    }
}

/// Starts a thread with a runtime. The thread ends when the returned sender is dropped. Nobody waits
/// for its end: waiting inside another runtime could block that runtime forever.
fn start() -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (handle, (end, ended)) = (runtime.handle().clone(), oneshot::channel::<()>());
    let run = move || {
        drop(runtime.block_on(ended));
        // Does not wait for a DNS lookup in progress.
        runtime.shutdown_timeout(Duration::from_millis(1));
    };
    thread::Builder::new().name("requeue-postgres".to_owned()).spawn(run)?;
    Ok((handle, end))
}

//! [`RedisStore`] and its implementation of [`Store`].

use crate::connections::{CommandError, Connections, Signal};
use crate::error::RedisConnectError;
use crate::keys::{self, Keys};
use crate::list::ScanCache;
use crate::options::Options;
use crate::reply::Reply;
use crate::script::{SCRIPTS, Script};
use crate::watch::Watch;
use redis::{Cmd, Value};
use requeue::Clock;
use requeue_jobs::limits::MAX_KINDS;
use requeue_jobs::rules::Turns;
use requeue_jobs::{
    BatchResults, Change, ChangeError, Changed, Claim, Claimed, Invalid, JobId, JobView, Kind,
    KindView, Page, Placed, Put, PutError, Query, Reaped, Restore, Restored, Schedule,
    ScheduleCondition, Settings, Settle, SettleError, Settled, Spans, Store, StoreError,
    StoreFuture, StoreStatus, Tick, Ticked, TimePage, TimeQuery, Timestamp, WallClock,
};
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A [`Store`] that keeps jobs on Redis.
///
/// Cloning is cheap, and clones share their connections. The store works with any async executor
/// and from plain threads: it runs its network I/O on a thread of its own. That thread ends when
/// the last clone is dropped.
///
/// ```no_run
/// use requeue_jobs::Jobs;
/// use requeue_redis::RedisStore;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
/// let jobs = Jobs::new(Arc::new(RedisStore::connect("redis://127.0.0.1/").await?));
/// jobs.put("order.close", "order-42", "unpaid").after(Duration::from_secs(300)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    connections: Connections,
    pub(crate) prefix: String,
    pub(crate) watch: Arc<Watch>,
    pub(crate) scans: ScanCache,
    pub(crate) turns: Mutex<Turns>,
    /// The kind that the last reap ended with. The next reap continues after it.
    pub(crate) reaped: Mutex<Option<String>>,
    /// Kinds that keep done jobs, as far as this process knows: `ack` cannot ack their jobs. What is outdated only
    /// costs time.
    keep_done: Mutex<HashSet<Kind>>,
    /// Replaces the server's clock in tests.
    wall_clock: Option<WallClock>,
}

/// An argument of a command, for an error message.
fn text_of(argument: redis::Arg<&[u8]>) -> String {
    match argument {
        redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

/// Locks a mutex and ignores poisoning: no code that holds one of these locks leaves partial changes
/// behind when it panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RedisStore {
    /// Connects to the Redis at `url` with the default [`Options`]. See
    /// [`Address`](crate::Address) for the supported URLs.
    ///
    /// Waits until the server, or every master of a Cluster, is connected and checked. Fails with
    /// a [`RedisConnectError`] if the URL is invalid, the server is not available or refuses access, or
    /// its version, configuration or key format is not supported.
    pub async fn connect(url: &str) -> Result<Self, RedisConnectError> {
        RedisStore::connect_with(url, Options::default()).await
    }

    /// Connects as [`connect`](Self::connect) does, with the given options. Also fails if an option
    /// is invalid.
    pub async fn connect_with(url: &str, options: Options) -> Result<Self, RedisConnectError> {
        RedisStore::connect_at(url, options, None).await
    }

    /// Connects, and passes the time of `wall_clock` to the scripts in place of the server's. For
    /// tests.
    #[doc(hidden)]
    pub async fn connect_at(
        url: &str,
        options: Options,
        wall_clock: Option<WallClock>,
    ) -> Result<Self, RedisConnectError> {
        let clock = wall_clock.as_ref().map_or_else(Clock::system, |at| at.clock().clone());
        let watch = Arc::new(Watch::new(clock, wall_clock.clone()));
        let prefix = options.prefix.clone();
        let signals = {
            let (watch, prefix) = (Arc::clone(&watch), prefix.clone());
            move |signal: Signal<'_>| match signal {
                Signal::Resumed => watch.forget_all(),
                Signal::Message { channel, payload } => {
                    if let Some(kind) = keys::kind_of_channel(&prefix, channel) {
                        watch.on_message(kind, payload);
                    }
                }
            }
        };
        let connections = Connections::open(url.parse()?, &options, Box::new(signals)).await?;
        let shared = Shared {
            connections,
            prefix,
            watch,
            scans: ScanCache::default(),
            turns: Mutex::default(),
            reaped: Mutex::default(),
            keep_done: Mutex::default(),
            wall_clock,
        };
        Ok(RedisStore { shared: Arc::new(shared) })
    }

    pub(crate) fn keys(&self, kind: &Kind) -> Keys {
        Keys::of(&self.shared.prefix, kind)
    }

    pub(crate) fn keeps_done(&self, kind: &Kind) -> bool {
        lock(&self.shared.keep_done).contains(kind)
    }

    pub(crate) fn learn_keeps_done(&self, kind: &Kind) {
        let mut kinds = lock(&self.shared.keep_done);
        if kinds.len() >= MAX_KINDS {
            kinds.clear();
        }
        kinds.insert(kind.clone());
    }

    /// Calls a script on a kind, and returns the reply. `add` adds the arguments that follow the time.
    pub(crate) async fn run(
        &self,
        script: &'static Script,
        kind: &Kind,
        add: impl FnOnce(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let keys = self.keys(kind);
        let mut cmd = script.begin(&keys.all);
        match &self.shared.wall_clock {
            None => cmd.arg(""),
            Some(wall_clock) => cmd.arg(wall_clock.now().as_millis()),
        };
        add(&mut cmd);
        let error = match self.shared.connections.call(&keys.tag, cmd, Some(script)).await {
            Ok(value) => return Ok(value),
            Err(error) => self.explain(&keys, error).await,
        };
        Err(if script.only_reads { error.for_read() } else { error.for_write() })
    }

    /// Adds to an error that a script raised which keys it was about, and which of them have another
    /// type than ours: someone else has written them.
    async fn explain(&self, keys: &Keys, error: CommandError) -> CommandError {
        let reason = error.reason();
        if !reason.contains("user_script") && !reason.contains("WRONGTYPE") {
            return error;
        }
        let mut what = format!("; the script was for the keys {{{}}}:*", keys.tag);
        if reason.contains("WRONGTYPE") {
            for (key, expected) in keys.typed() {
                // The command TYPE may not be allowed. These are.
                let mut cmd = redis::cmd(if expected == "hash" { "HLEN" } else { "ZCARD" });
                cmd.arg(key);
                let counted = self.shared.connections.call(&keys.tag, cmd, None).await;
                if counted.is_err_and(|error| error.reason().contains("WRONGTYPE")) {
                    what += &format!("; {key} is not a {expected}");
                }
            }
        }
        error.with(&what)
    }

    /// Sends a read-only command to the server that owns the slot of `tag`.
    pub(crate) async fn read(&self, tag: &str, cmd: Cmd) -> Result<Value, StoreError> {
        let key = cmd.args_iter().nth(1).map(text_of).unwrap_or_default();
        let reply = self.shared.connections.call(tag, cmd, None).await;
        let named = |error: CommandError| match error.reason().contains("WRONGTYPE") {
            true => error.with(&format!("; the key is {key}")),
            false => error,
        };
        reply.map_err(named).map_err(CommandError::for_read)
    }

    /// Sends a command that changes something and is not a script.
    pub(crate) async fn write(&self, tag: &str, cmd: Cmd) -> Result<Value, StoreError> {
        self.shared.connections.call(tag, cmd, None).await.map_err(CommandError::for_write)
    }

    /// Adds a kind to the kinds of the deployment. On a Cluster these are in another slot
    /// than the kind, so one script cannot do both. The name is added before the kind is created:
    /// an interruption leaves a name without a kind, which no call returns. Returns what the script that
    /// creates the kind needs.
    pub(crate) async fn register(&self, kind: &Kind) -> Result<String, StoreError> {
        let text = format!("{:016x}", RandomState::new().hash_one(kind.as_str()));
        let begin = |text: &str| {
            let text = text.to_owned();
            self.run(&SCRIPTS.begin, kind, move |cmd| {
                cmd.arg(text);
            })
        };
        begin(&text).await?;
        let prefix = &self.shared.prefix;
        let keys = [keys::kinds(prefix), keys::registered(prefix), keys::removed(prefix)];
        let reply = self.of_deployment(&SCRIPTS.register, &keys, |cmd| {
            cmd.arg(kind.as_str()).arg(MAX_KINDS);
        });
        let mut reply = Reply::of(reply.await?)?;
        let count = usize::try_from(reply.number()?).unwrap_or(usize::MAX);
        if count > 0 {
            begin("").await?;
            return Err(Invalid::TooMany { what: "kinds", count, limit: MAX_KINDS }.into());
        }
        Ok(format!("{text} {} {}", reply.text()?, reply.text()?))
    }

    /// Calls a script on keys of the deployment.
    pub(crate) async fn of_deployment(
        &self,
        script: &'static Script,
        keys: &[String],
        add: impl FnOnce(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let mut cmd = script.begin(keys);
        add(&mut cmd);
        let reply = self.shared.connections.call(&self.shared.prefix, cmd, Some(script)).await;
        reply.map_err(CommandError::for_read)
    }

    /// Returns the server's time.
    pub(crate) async fn now(&self, keys: &Keys) -> Result<Timestamp, StoreError> {
        if let Some(wall_clock) = &self.shared.wall_clock {
            return Ok(wall_clock.now());
        }
        let mut time = Reply::of(self.read(&keys.tag, redis::cmd("TIME")).await?)?;
        let (seconds, micros) = (time.number()?, time.number()?);
        Ok(Timestamp::from_millis(seconds * 1000 + micros / 1000))
    }

    pub(crate) fn subscribe(&self, kind: &Kind) {
        self.shared.connections.subscribe(&keys::channel(&self.shared.prefix, kind));
    }
}

impl Store for RedisStore {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        Box::pin(self.put_all(puts))
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        Box::pin(self.claim_of_kinds(claim))
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        Box::pin(self.settle_all(settlements))
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        Box::pin(self.change_all(changes))
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        Box::pin(self.restore_all(restore))
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        Box::pin(self.wait_for(kinds, limit))
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        Box::pin(self.reap_kinds(max))
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        Box::pin(self.view_of(kind, id))
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        Box::pin(self.list_page(query))
    }

    fn list_by_time(&self, query: TimeQuery) -> StoreFuture<'_, TimePage> {
        Box::pin(self.page_by_time(query))
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        Box::pin(self.views_of_kinds())
    }

    fn kind(&self, kind: Kind) -> StoreFuture<'_, KindView> {
        Box::pin(async move { Ok(self.view_of_kind(&kind).await?.view) })
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        Box::pin(self.count_upcoming(kind, spans))
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        Box::pin(self.settings_of(kind))
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        Box::pin(self.set_of(kind, settings))
    }

    fn set_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
        condition: ScheduleCondition,
    ) -> StoreFuture<'_, bool> {
        Box::pin(self.keep_schedule(kind, schedule, condition))
    }

    fn schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<Schedule>> {
        Box::pin(self.schedule_of(kind, id))
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        Box::pin(self.drop_schedule(kind, id))
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        Box::pin(self.schedules_of(kind))
    }

    fn status(&self) -> StoreStatus {
        self.shared.connections.status()
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        Box::pin(self.tick_schedule(tick))
    }
}

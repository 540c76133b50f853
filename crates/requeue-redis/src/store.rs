//! [`RedisStore`] and its implementation of [`Store`].

use crate::connections::{Connections, Signal};
use crate::deployment::Deployment;
use crate::error::RedisConnectError;
use crate::keys;
use crate::list::ScanCache;
use crate::options::Options;
use crate::watch::Watch;
use requeue::Clock;
use requeue_jobs::{
    BatchResults, Change, ChangeError, Changed, Claim, Claimed, JobId, JobView, Kind, KindView,
    Page, Placed, Put, PutError, Query, Reaped, Restore, Restored, Schedule, ScheduleCondition,
    Settings, Settle, SettleError, Settled, Spans, Store, StoreError, StoreFuture, StoreStatus,
    Tick, Ticked, TimePage, TimeQuery, WallClock,
};
use std::sync::{Arc, Mutex};
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
    pub(crate) deployment: Arc<Deployment>,
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
        let deployment = Deployment {
            connections,
            prefix,
            watch,
            scans: ScanCache::default(),
            turns: Mutex::default(),
            reaped: Mutex::default(),
            keep_done: Mutex::default(),
            wall_clock,
        };
        Ok(RedisStore { deployment: Arc::new(deployment) })
    }

    /// Checks that the keys of every kind are consistent, and returns a description of each
    /// problem: every job must be in exactly one list and have a record, every lease must belong to
    /// a leased job, and removed jobs must leave nothing behind.
    ///
    /// Reads all ids. Changes that other clients make during the check can appear as problems.
    /// Fails if the server is not available.
    pub async fn check(&self) -> Result<Vec<String>, StoreError> {
        self.deployment.check().await
    }
}

impl Store for RedisStore {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        Box::pin(self.deployment.put(puts))
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        Box::pin(self.deployment.claim(claim))
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        Box::pin(self.deployment.settle(settlements))
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        Box::pin(self.deployment.change(changes))
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        Box::pin(self.deployment.restore(restore))
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        Box::pin(self.deployment.wait(kinds, limit))
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        Box::pin(self.deployment.reap(max))
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        Box::pin(self.deployment.get(kind, id))
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        Box::pin(self.deployment.list(query))
    }

    fn list_by_time(&self, query: TimeQuery) -> StoreFuture<'_, TimePage> {
        Box::pin(self.deployment.list_by_time(query))
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        Box::pin(self.deployment.kinds())
    }

    fn kind(&self, kind: Kind) -> StoreFuture<'_, KindView> {
        Box::pin(async move { Ok(self.deployment.facts(&kind).await?.view) })
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        Box::pin(self.deployment.upcoming(kind, spans))
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        Box::pin(self.deployment.settings(kind))
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        Box::pin(self.deployment.set(kind, settings))
    }

    fn set_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
        condition: ScheduleCondition,
    ) -> StoreFuture<'_, bool> {
        Box::pin(self.deployment.set_schedule(kind, schedule, condition))
    }

    fn schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<Schedule>> {
        Box::pin(self.deployment.schedule(kind, id))
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        Box::pin(self.deployment.remove_schedule(kind, id))
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        Box::pin(self.deployment.schedules(kind))
    }

    fn status(&self) -> StoreStatus {
        self.deployment.connections.status()
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        Box::pin(self.deployment.tick(tick))
    }
}

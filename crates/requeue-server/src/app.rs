//! The service: the state shared by all request handlers, and its start and end.

use crate::auth::{Access, Caller, Right};
use crate::claim_queue::ClaimQueues;
use crate::events::MAX_LISTENERS;
use crate::forecast::Forecasts;
use crate::health::{COUNTS_UNAVAILABLE, Health};
use crate::instrumented::InstrumentedStore;
use crate::kind_views::KindViews;
use crate::listen::{Listener, Shutdown};
use crate::metrics::DEFAULT_LIMIT;
use crate::push::{Push, PushOptions, PushTask};
use crate::reaper::Reaper;
use crate::requests::Endpoint;
use crate::response_memory::ResponseMemory;
use crate::routes::BackupFn;
use crate::scans::Scans;
use crate::schedules::{ScheduleRunner, schedule_ticker};
use crate::series::{Sampler, Series};
use crate::shares::{SharedLimit, Slot};
use requeue::Clock;
use requeue_http::wire::{Forecast, ParseContext};
use requeue_http::{Problem, ProblemType};
use requeue_jobs::{Jobs, Kind, KindView, Store, StoreError, StoreStatus, WallClock};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;

/// Minimum time for tasks that still run when all connections are closed, such as releasing jobs.
const MIN_TASK_TIME: Duration = Duration::from_secs(1);

/// How many kinds a waiting request may name before it counts as two: 30 MB of names for all.
const KINDS_PER_SLOT: usize = 16;

/// What the limit of waiting requests counts.
const WAITING: &str =
    "waiting requests, of which one counts as several if it names more than 16 kinds";

/// Limits on concurrent requests. If there are several tokens, each may use a share of them: half if there
/// are two tokens that may use it, and so on, and a quarter if there are four or more.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum number of requests that wait for work concurrently (long polling). A request for
    /// more than 16 kinds counts as several. Default: 10,000; each holds a connection and some
    /// kilobytes of memory.
    pub waiting: usize,
    /// Maximum time that a claim may wait. Default: one minute; after that, proxies and firewalls
    /// may drop the idle connection.
    pub wait: Duration,
    /// Maximum number of concurrent exports and imports. Default: 16; each holds a thread for as
    /// long as its client takes, and a hundred jobs in memory.
    pub transfers: usize,
    /// Memory in bytes for the jobs of all responses that are not written yet; at least 44 MiB.
    /// Requests wait for memory for some seconds, then they are rejected with 503. The process uses
    /// a small multiple of it. Default: 256 MiB.
    pub response_memory: u64,
    /// How many kinds have metrics of their own; all others are summed. Default: 200; each takes
    /// about 7 KB of the text that Prometheus reads.
    pub metrics_kinds: usize,
    /// What deliveries by HTTP request may reach, and how many there are.
    pub push: PushOptions,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            waiting: 10_000,
            wait: Duration::from_secs(60),
            transfers: 16,
            response_memory: 256 << 20,
            metrics_kinds: DEFAULT_LIMIT,
            push: PushOptions::default(),
        }
    }
}

/// The service, without its sockets. Clones share one service.
#[derive(Clone)]
pub struct App {
    shared: Arc<Shared>,
}

struct Shared {
    instrumented: Arc<InstrumentedStore>,
    store: Arc<dyn Store>,
    jobs: Jobs,
    wall_clock: WallClock,
    limits: Limits,
    waiting: SharedLimit,
    transfers: SharedLimit,
    streams: SharedLimit,
    scans: Scans,
    response_memory: ResponseMemory,
    claim_queues: ClaimQueues,
    shutdown: Shutdown,
    tasks: TaskTracker,
    started: Instant,
    backup: OnceLock<Arc<BackupFn>>,
    backup_lock: Arc<Mutex<()>>,
    /// Held while metrics are read and encoded, because that takes memory.
    scrape: Mutex<()>,
    health: Arc<Health>,
    push: Arc<Push>,
    series: Arc<Series>,
    forecasts: Forecasts,
    kind_views: KindViews,
}

impl App {
    /// Creates the service on `store`. `wall_clock` is this node's clock; in tests with a manual
    /// clock, pass the store's.
    pub fn new(store: Arc<dyn Store>, wall_clock: WallClock, limits: Limits) -> Self {
        let instrumented = Arc::new(InstrumentedStore::new(store, wall_clock.clone()));
        instrumented.metrics().set_kind_limit(limits.metrics_kinds);
        let store: Arc<dyn Store> = instrumented.clone();
        let health = Arc::new(Health::new(wall_clock.clone()));
        let shared = Shared {
            instrumented,
            jobs: Jobs::with_wall_clock(Arc::clone(&store), wall_clock.clone()),
            store,
            series: Arc::new(Series::new(wall_clock.clone())),
            forecasts: Forecasts::default(),
            kind_views: KindViews::default(),
            wall_clock,
            waiting: SharedLimit::new(WAITING, limits.waiting, Right::Full),
            transfers: SharedLimit::new("exports and imports", limits.transfers, Right::Read),
            streams: SharedLimit::new("event streams", MAX_LISTENERS, Right::Read),
            scans: Scans::default(),
            response_memory: ResponseMemory::new(limits.response_memory),
            limits,
            claim_queues: ClaimQueues::default(),
            shutdown: Shutdown::new(),
            tasks: TaskTracker::new(),
            started: Instant::now(),
            backup: OnceLock::new(),
            backup_lock: Arc::default(),
            scrape: Mutex::default(),
            health,
            push: Arc::default(),
        };
        App { shared: Arc::new(shared) }
    }

    /// Enables `POST /v1/backups`, which calls `backup`. If it was enabled before, nothing changes.
    pub fn with_backup(self, backup: Arc<BackupFn>) -> Self {
        let _ = self.shared.backup.set(backup);
        self
    }

    /// Returns the routes behind the access checks.
    pub(crate) fn endpoint(&self, access: &Access) -> Endpoint {
        Endpoint::new(self.clone(), access.clone())
    }

    /// Returns the handle that stops the service: after [`Shutdown::request`],
    /// [`serve`](Self::serve) finishes requests in flight and returns.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shared.shutdown
    }

    /// Serves requests until [`shutdown`](Self::shutdown) is requested. Meanwhile it runs a [`Reaper`],
    /// which ends expired leases and drops old dead and done jobs, starts the runs of schedules, and
    /// delivers the jobs of kinds with a push setting.
    ///
    /// When this returns, no request is in flight. Jobs that were claimed for clients that did not
    /// receive them have been released, unless that took longer than `limit` after the shutdown
    /// request (at least one second is allowed after the last connection). Jobs that workers hold
    /// stay leased: the workers can settle them through another node.
    pub async fn serve(&self, listener: Listener, access: &Access, limit: Duration) {
        let reaper = Reaper::new(Arc::clone(self.store()), &self.shared.wall_clock);
        let reaper = reaper.with_health(Arc::clone(self.health()));
        let reaping = tokio::spawn(reaper.run(self.shutdown().clone()));
        let schedules = ScheduleRunner::new(self.jobs(), self.clock(), Arc::clone(self.health()));
        // Like a request in flight, the runs that are being started are awaited at the shutdown.
        self.tasks().spawn(schedules.run(self.shutdown().clone()));
        let push = PushTask::new(self, self.shared.wall_clock.clone());
        // So are deliveries.
        self.tasks().spawn(push.run(self.shutdown().clone(), limit));
        self.serve_without_reaper(listener, access, limit).await;
        let _ = reaping.await;
    }

    /// Does the same as [`serve`](Self::serve), but runs no [`Reaper`], does not start the runs of
    /// schedules, and delivers nothing. For programs that do that themselves, and for tests.
    pub async fn serve_without_reaper(&self, listener: Listener, access: &Access, limit: Duration) {
        let metrics = Arc::clone(self.instrumented().metrics());
        let listener = listener.with_metrics(metrics);
        let requested = async {
            self.shutdown().requested().await;
            Instant::now()
        };
        let health = Arc::clone(self.health());
        tokio::spawn(health.watch(Arc::clone(self.store()), self.shutdown().clone()));
        let store = Arc::clone(&self.shared.instrumented);
        let sampler = Sampler { store, series: Arc::clone(self.series()) };
        tokio::spawn(sampler.run(self.shutdown().clone()));
        let serving = listener.serve(self.endpoint(access), self.shutdown().clone());
        let ((), requested_at) = tokio::join!(serving, requested);
        self.tasks().close();
        // Even if the connections used up the time, their jobs are released.
        let left = limit.saturating_sub(requested_at.elapsed()).max(MIN_TASK_TIME);
        if tokio::time::timeout(left, self.tasks().wait()).await.is_err() {
            tracing::warn!(
                tasks = self.tasks().len(),
                "shutdown time limit reached: some background tasks did not finish"
            );
        }
    }

    /// Returns the store together with its metrics, events and workers.
    pub(crate) fn instrumented(&self) -> &InstrumentedStore {
        &self.shared.instrumented
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// Returns the client for single puts, settlements and changes: it sends concurrent ones to the
    /// store as one batch.
    pub(crate) fn jobs(&self) -> &Jobs {
        &self.shared.jobs
    }

    /// Returns the views of all kinds. Concurrent calls share a read of the store.
    pub(crate) async fn kinds(&self) -> Result<Arc<Vec<KindView>>, StoreError> {
        self.shared.kind_views.get(&**self.store()).await
    }

    /// Sets the timers of schedules that were stored without one, such as those of an import.
    pub(crate) async fn set_missing_timers(&self) -> Result<usize, StoreError> {
        schedule_ticker(self.jobs()).set_missing_timers().await
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    pub(crate) fn claim_queues(&self) -> &ClaimQueues {
        &self.shared.claim_queues
    }

    /// Returns the tasks that must end before the store is closed.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.shared.tasks
    }

    pub(crate) fn backup(&self) -> Option<Arc<BackupFn>> {
        self.shared.backup.get().cloned()
    }

    /// Returns the lock that is held while a backup is made.
    pub(crate) fn backup_lock(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.shared.backup_lock)
    }

    /// Returns all metrics as text. Concurrent calls wait for each other. The text is made on a
    /// thread for blocking work, so that other requests are not delayed.
    pub(crate) async fn metrics(&self) -> Result<String, Problem> {
        let _scrape = self.shared.scrape.lock().await;
        let metrics = Arc::clone(self.instrumented().metrics());
        let memory = self.response_memory();
        metrics.set_response_memory(memory.used(), memory.waiting());
        let views = match metrics.read(&**self.store()).await {
            Ok(views) => {
                self.health().end(COUNTS_UNAVAILABLE);
                Some(views)
            }
            Err(error) => {
                let detail = format!("the metrics lack the numbers of jobs: {error}");
                self.health().begin(COUNTS_UNAVAILABLE, detail);
                None
            }
        };
        let status = self.status();
        let push = self.push().status();
        let encode = move || metrics.encode(views, &status, push.as_ref());
        let text = tokio::task::spawn_blocking(encode).await;
        text.map_err(|_| Problem::new(ProblemType::Bug, "the metrics could not be encoded"))
    }

    /// Returns the problems of the background tasks of this node.
    pub(crate) fn health(&self) -> &Arc<Health> {
        &self.shared.health
    }

    /// Returns what this node knows about kinds with a push setting.
    pub(crate) fn push(&self) -> &Arc<Push> {
        &self.shared.push
    }

    /// Returns what this node did in the last minute, hour and day.
    pub(crate) fn series(&self) -> &Arc<Series> {
        &self.shared.series
    }

    /// Returns how many jobs of a kind, or of all kinds, become due in the next minute, hour, day and
    /// week. If they have to be counted, this is a scan.
    pub(crate) async fn forecast(
        &self,
        caller: &Caller,
        kind: Option<Kind>,
    ) -> Result<Forecast, Problem> {
        let Shared { forecasts, store, wall_clock, .. } = &*self.shared;
        if let Some(kept) = forecasts.kept(&kind, &**store, wall_clock).await? {
            return Ok(kept);
        }
        let (scan, app) = (self.scan_slot(caller).await?, self.clone());
        let count = async move |store: &dyn Store| {
            let Shared { forecasts, wall_clock, .. } = &*app.shared;
            Ok(forecasts.get(&kind, store, wall_clock).await?)
        };
        scan.run(count).await
    }

    /// Returns all problems of this node, and the measurements of the store.
    pub(crate) fn status(&self) -> StoreStatus {
        self.health().check(&**self.store())
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.shared.started.elapsed()
    }

    /// Returns how many requests wait for work, as they are counted for the limit.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.waiting.used()
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.shared.wall_clock.clock()
    }

    pub(crate) fn reading(&self) -> ParseContext {
        ParseContext { now: self.shared.wall_clock.now() }
    }

    /// Returns the memory for the jobs of responses.
    pub(crate) fn response_memory(&self) -> &ResponseMemory {
        &self.shared.response_memory
    }

    /// Acquires permission to wait for work of this many kinds. Fails with `busy` if too many
    /// requests wait. A request for many kinds counts as several, because it keeps their names.
    pub(crate) fn wait_slot(&self, caller: &Caller, kinds: usize) -> Result<Slot, Problem> {
        self.shared.waiting.take(caller, kinds.div_ceil(KINDS_PER_SLOT).max(1))
    }

    /// Acquires permission for an export or import. Fails with `busy` if too many run.
    pub(crate) fn transfer_slot(&self, caller: &Caller) -> Result<Slot, Problem> {
        self.shared.transfers.take(caller, 1)
    }

    /// Acquires permission for a stream of events. Fails with `busy` if too many are open.
    pub(crate) fn stream_slot(&self, caller: &Caller) -> Result<Slot, Problem> {
        self.shared.streams.take(caller, 1)
    }

    pub(crate) fn scans(&self) -> &Scans {
        &self.shared.scans
    }
}

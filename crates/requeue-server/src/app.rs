//! What handlers share.

use crate::auth::Access;
use crate::background::Reaper;
use crate::claim_queue::Lines;
use crate::instrumented::InstrumentedStore;
use crate::listen::{Listener, Shutdown};
use crate::requests;
use crate::routes::{self, Backup};
use axum::Router;
use requeue::Clock;
use requeue_http::wire::Reading;
use requeue_http::{Problem, Sort};
use requeue_jobs::{Jobs, Store, WallClock};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio_util::task::TaskTracker;

/// What is left at least for what is to be done when all connections are gone.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// What is at most done at once.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// Claims and others that wait for work, at once. 10,000: each holds a connection, and some
    /// kilobytes.
    pub waiting: usize,
    /// The longest that a claim waits. A minute: longer than that, what is in between (proxies,
    /// firewalls) may have forgotten the connection.
    pub wait: Duration,
    /// Exports and imports, at once. 16: each holds a thread for as long as its client likes, and
    /// a hundred jobs.
    pub transfers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { waiting: 10_000, wait: Duration::from_secs(60), transfers: 16 }
    }
}

/// The service without its sockets. Clones share one.
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
    waiting: Semaphore,
    transfers: Arc<Semaphore>,
    lines: Lines,
    shutdown: Shutdown,
    tasks: TaskTracker,
    started: Instant,
    backup: OnceLock<Arc<Backup>>,
    backing_up: Arc<Mutex<()>>,
}

impl App {
    /// The service on this store, with the time of `wall_clock`: that of the store, where that is a
    /// manual one.
    pub fn new(store: Arc<dyn Store>, wall_clock: WallClock, mut limits: Limits) -> Self {
        // As many as a semaphore can count is as good as no limit.
        limits.waiting = limits.waiting.min(Semaphore::MAX_PERMITS);
        limits.transfers = limits.transfers.min(Semaphore::MAX_PERMITS);
        let instrumented = Arc::new(InstrumentedStore::new(store, wall_clock.clone()));
        let store: Arc<dyn Store> = instrumented.clone();
        let shared = Shared {
            instrumented,
            jobs: Jobs::with_clock(Arc::clone(&store), wall_clock.clock().clone()),
            store,
            wall_clock,
            waiting: Semaphore::new(limits.waiting),
            transfers: Arc::new(Semaphore::new(limits.transfers)),
            limits,
            lines: Lines::default(),
            shutdown: Shutdown::new(),
            tasks: TaskTracker::new(),
            started: Instant::now(),
            backup: OnceLock::new(),
            backing_up: Arc::default(),
        };
        App { shared: Arc::new(shared) }
    }

    /// Lets clients ask for backups, which this makes. The first that is set stays.
    pub fn with_backup(self, backup: Arc<Backup>) -> Self {
        let _ = self.shared.backup.set(backup);
        self
    }

    /// What is answered at which path, to those who have access.
    pub(crate) fn router(&self, access: &Access) -> Router {
        requests::watch(self, access.protect(routes::router(self.clone())))
    }

    /// Ends it: [`serve`](Self::serve) returns when all is done.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shared.shutdown
    }

    /// Listens, until it is told to shut down, and tidies up meanwhile: leases that expired, dead
    /// jobs that are not kept.
    ///
    /// When this returns no request is under way, and what was claimed for clients that have not
    /// received it was released, as far as that was done `limit` after the order, or a moment later. What
    /// others hold stays leased: they may ack it elsewhere.
    pub async fn serve(&self, listener: Listener, access: &Access, limit: Duration) {
        let reaper = Reaper::new(Arc::clone(self.store()), &self.shared.wall_clock);
        let reaping = tokio::spawn(reaper.run(self.shutdown().clone()));
        self.serve_without_reaper(listener, access, limit).await;
        let _ = reaping.await;
    }

    /// Does the same as [`serve`](Self::serve), but runs no [`Reaper`]: for programs that run their
    /// own, or that must decide when expired leases are ended.
    pub async fn serve_without_reaper(&self, listener: Listener, access: &Access, limit: Duration) {
        let metrics = Arc::clone(self.instrumented().metrics());
        let listener = listener.with_metrics(metrics);
        let ordered = async {
            self.shutdown().ordered().await;
            Instant::now()
        };
        let serving = listener.serve(self.router(access), self.shutdown().clone());
        let ((), ordered_at) = tokio::join!(serving, ordered);
        self.tasks().close();
        // Also where connections took all of the time, what they held is given back.
        let left = limit.saturating_sub(ordered_at.elapsed()).max(LAST_MOMENT);
        if tokio::time::timeout(left, self.tasks().wait()).await.is_err() {
            tracing::warn!(tasks = self.tasks().len(), "some tasks have not ended in time");
        }
    }

    /// The store, and what was seen of it.
    pub(crate) fn instrumented(&self) -> &InstrumentedStore {
        &self.shared.instrumented
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// For single calls: those that come at the same time go to the store together.
    pub(crate) fn jobs(&self) -> &Jobs {
        &self.shared.jobs
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    pub(crate) fn lines(&self) -> &Lines {
        &self.shared.lines
    }

    /// What is to end before the store is closed.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.shared.tasks
    }

    pub(crate) fn backup(&self) -> Option<Arc<Backup>> {
        self.shared.backup.get().cloned()
    }

    /// Held while one is made.
    pub(crate) fn backing_up(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.shared.backing_up)
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.shared.started.elapsed()
    }

    /// How many requests wait for work.
    pub(crate) fn waiting(&self) -> usize {
        self.shared.limits.waiting - self.shared.waiting.available_permits()
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.shared.wall_clock.clock()
    }

    pub(crate) fn reading(&self) -> Reading {
        Reading { now: self.shared.wall_clock.now() }
    }

    /// A place among those who wait.
    pub(crate) fn wait(&self) -> Result<SemaphorePermit<'_>, Problem> {
        self.shared.waiting.try_acquire().map_err(|_| {
            let limit = self.shared.limits.waiting;
            let detail = format!("{limit} requests wait for work already, and no more may");
            Problem { limit: Some(limit.into()), ..Problem::new(Sort::Busy, detail) }
        })
    }

    /// A place among the exports and imports.
    pub(crate) fn transfer(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.shared.transfers).try_acquire_owned().map_err(|_| {
            let limit = self.shared.limits.transfers;
            let detail = format!("{limit} exports and imports are under way, and no more may be");
            Problem { limit: Some(limit.into()), ..Problem::new(Sort::Busy, detail) }
        })
    }
}

//! Runs a handler over the jobs of a store.
//!
//! ```text
//!            claim              Done                  ack
//!   ready ----------> attempt ------------------------------------> gone
//!     ^                  |      RequeueAfter          requeue
//!     |                  +----------------------------------------> waiting, nothing counted
//!     |                  |      Retry, error, panic, timeout: retry
//!     |                  +----------------------------------------> waiting or dead
//!     |                  |      GiveUp                bury
//!     |                  +----------------------------------------> dead
//!     |  release         |      cancelled             ack
//!     +-- not begun -----+----------------------------------------> gone
//!     |                  |
//!     +-- expiry ---------+ the lease was lost, or the process died
//! ```
//!
//! One task claims as many jobs as there is room for, and starts a task for each. That one runs
//! the handler, extends the lease at every third of it, and settles it. What is promised:
//!
//! - **A handler does not outlive its lease**, as far as it can be stopped: its future is dropped
//!   when the store says that the lease is lost or the job cancelled, and when the lease has ended
//!   and no extension could be had.
//! - **A settlement whose outcome is unknown is tried again**, for as long as a lease lasts. That
//!   the lease is then lost means, most likely, that the first try succeeded.
//! - **What is claimed is started or released.** A job that could not be started before its
//!   lease ended is not started.
//! - **A panic is a failed attempt**, in the handler and in dropping its future.

mod attempt;
mod dispatch;
mod lease;
mod run;
mod slots;

pub use run::{JobFailure, JobRun};
pub use slots::{RunningJob, RunningJobs};

use crate::claim::ClaimedJob;
use crate::client::Jobs;
use crate::error::{Invalid, SettleError, StoreError};
use crate::limits::MAX_BATCH;
use crate::names::{Kind, WorkerName};
use crate::settings::check_lease;
use requeue::worker::{BoxError, Outcome, RunnerFuture};
use slots::Slots;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// How a handler is to be run over the jobs of a store.
///
/// A handler is what it is for a [`Worker`](requeue::worker::Worker) over a queue in memory, and
/// answers the same [`Outcome`]. Write it once, and choose where the queue lives:
///
/// ```
/// # #[cfg(feature = "tokio")] {
/// use requeue::RateLimitingQueue;
/// use requeue::limiter::ExponentialFailure;
/// use requeue::worker::{BoxError, Outcome, Worker};
/// use requeue_jobs::{JobWorker, Jobs, MemoryStore};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// async fn close(order: &str, attempt: u32) -> Result<Outcome, BoxError> {
///     println!("closing {order}, attempt {attempt}");
///     Ok(Outcome::Done)
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// // In memory:
/// let queue = RateLimitingQueue::<&str>::new(ExponentialFailure::default());
/// let in_memory = Worker::new(&queue)
///     .concurrency(10)
///     .spawn(|run| async move { close(run.key, run.attempt).await });
///
/// // In a store:
/// let jobs = Jobs::new(Arc::new(MemoryStore::new())); // or on disk, or on Redis
/// let durable = JobWorker::new(&jobs, ["order.close"], "worker-1")?
///     .concurrency(10)
///     .spawn(|run| async move { close(run.job.id().as_str(), run.attempt).await });
///
/// queue.add("order-7");
/// jobs.put("order.close", "order-8", "").await?;
/// # while jobs.get("order.close", "order-8").await?.is_some() { tokio::task::yield_now().await }
/// assert!(in_memory.shut_down(Duration::from_secs(20)).await.is_empty());
/// assert!(durable.shut_down(Duration::from_secs(20)).await.is_empty());
/// # Ok::<(), BoxError>(()) }).unwrap() }
/// ```
///
/// How often a job is tried, and its backoff, are settings of its kind.
#[must_use = "spawn it"]
pub struct JobWorker {
    jobs: Jobs,
    kinds: Vec<Kind>,
    name: WorkerName,
    concurrency: usize,
    lease: Duration,
    timeout: Option<Duration>,
    on_failure: Option<Callback>,
    on_dead: Option<Callback>,
    on_lost: Option<OnLost>,
    on_store_error: Option<OnStoreError>,
}

type Callback = Box<dyn Fn(&JobFailure<'_>) + Send + Sync>;
type OnLost = Box<dyn Fn(&ClaimedJob, &SettleError) + Send + Sync>;
type OnStoreError = Box<dyn Fn(&StoreError) + Send + Sync>;

impl JobWorker {
    /// One job of these kinds at a time, for as long as it takes, under leases of 30 seconds.
    ///
    /// The name tells people who holds a job.
    pub fn new<'a>(
        jobs: &Jobs,
        kinds: impl IntoIterator<Item = &'a str>,
        name: &str,
    ) -> Result<Self, Invalid> {
        let kinds = kinds.into_iter().map(Kind::new).collect::<Result<Vec<_>, _>>()?;
        if kinds.len() > MAX_BATCH {
            let (what, count) = ("kinds of a worker", kinds.len());
            return Err(Invalid::TooMany { what, count, limit: MAX_BATCH });
        }
        Ok(JobWorker {
            jobs: jobs.clone(),
            kinds,
            name: WorkerName::new(name)?,
            concurrency: 1,
            lease: Duration::from_secs(30),
            timeout: None,
            on_failure: None,
            on_dead: None,
            on_lost: None,
            on_store_error: None,
        })
    }

    /// How many jobs are worked on at once. Of 0, none: a worker that is paused, until
    /// [`RunningJobs::set_concurrency`].
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.concurrency = jobs;
        self
    }

    /// How long a lease is. It is extended while a handler runs, so this only says how soon
    /// others take over from a worker that died. Instead of the kind's: the worker has to know
    /// it.
    ///
    /// ```
    /// use requeue_jobs::{JobWorker, Jobs, MemoryStore};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// let worker = JobWorker::new(&jobs, ["order.close"], "worker-1")?;
    /// let error = worker.lease(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error.to_string(), "the lease is 1ms; the range is 10ms to 86400s");
    /// # Ok::<(), requeue_jobs::Invalid>(())
    /// ```
    pub fn lease(mut self, lease: Duration) -> Result<Self, Invalid> {
        check_lease(lease)?;
        self.lease = lease;
        Ok(self)
    }

    /// An attempt that has taken this long has failed, whatever it answers later. Its future is
    /// dropped.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Called for every failed attempt, the last included, once it is settled.
    ///
    /// A job that was cancelled meanwhile is told as [`Next::Dropped`](requeue::worker::Next), and
    /// so is one of which the store never said what became of it.
    pub fn on_failure(
        mut self,
        callback: impl Fn(&JobFailure<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.on_failure = Some(Box::new(callback));
        self
    }

    /// Called for every job that this worker's failure made dead, after
    /// [`on_failure`](Self::on_failure). One whose worker died is dead when its lease expires: ask
    /// the store for those.
    pub fn on_dead(mut self, callback: impl Fn(&JobFailure<'_>) + Send + Sync + 'static) -> Self {
        self.on_dead = Some(Box::new(callback));
        self
    }

    /// Called for every job whose lease was lost, or could not be settled: it may be running
    /// elsewhere, or will be. Its handler was stopped, or had finished. Do not undo what is
    /// finished.
    pub fn on_lost(
        mut self,
        callback: impl Fn(&ClaimedJob, &SettleError) + Send + Sync + 'static,
    ) -> Self {
        self.on_lost = Some(Box::new(callback));
        self
    }

    /// Called when the store did not do what it was asked to, and the worker tries again. What
    /// it does not try again is told to [`on_lost`](Self::on_lost).
    pub fn on_store_error(
        mut self,
        callback: impl Fn(&StoreError) + Send + Sync + 'static,
    ) -> Self {
        self.on_store_error = Some(Box::new(callback));
        self
    }

    /// Runs `handler` on the tokio runtime that this is called in. Needs the feature `tokio`.
    ///
    /// When the runtime is shut down, what is being worked on comes back once its lease
    /// expires, with one attempt more counted. Better to [shut down](RunningJobs::shut_down) before.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[cfg(feature = "tokio")]
    pub fn spawn<F, Fut, T>(self, handler: F) -> RunningJobs
    where
        F: Fn(JobRun) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, BoxError>> + Send + 'static,
        T: Into<Outcome> + 'static,
    {
        let runtime = tokio::runtime::Handle::current();
        self.spawn_with(move |task| drop(runtime.spawn(task)), handler)
    }

    /// Runs `handler` on any executor: `spawn` is called for each task, and is to see to it
    /// that the future is polled to its end.
    ///
    /// ```
    /// use requeue_jobs::{JobWorker, Jobs, MemoryStore, RunnerFuture};
    /// use std::sync::{Arc, mpsc};
    /// use std::task::{Context, Waker};
    ///
    /// // An executor that polls what it has when it is told to.
    /// let (spawn, spawned) = mpsc::channel::<RunnerFuture>();
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// let running = JobWorker::new(&jobs, ["order.close"], "worker-1")?.spawn_with(
    ///     move |task| spawn.send(task).expect("the executor lives"),
    ///     |run| async move {
    ///         assert_eq!(run.job.id().as_str(), "order-7");
    ///         Ok(())
    ///     },
    /// );
    /// requeue_testkit::block_on(jobs.put("order.close", "order-7", "").into_future())?;
    /// let mut context = Context::from_waker(Waker::noop());
    /// let mut claims = spawned.recv()?;
    /// assert!(claims.as_mut().poll(&mut context).is_pending());
    /// let mut attempt = spawned.recv()?;
    /// assert!(attempt.as_mut().poll(&mut context).is_ready());
    /// # drop(running);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_with<S, F, Fut, T>(self, spawn: S, handler: F) -> RunningJobs
    where
        S: Fn(RunnerFuture) + Send + Sync + 'static,
        F: Fn(JobRun) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, BoxError>> + Send + 'static,
        T: Into<Outcome> + 'static,
    {
        let slots = Slots::new(self.jobs.clock().clone(), self.concurrency);
        let (worker, handler, spawn) = (Arc::new(self), Arc::new(handler), Arc::new(spawn));
        let start = {
            let (worker, spawn) = (Arc::clone(&worker), Arc::clone(&spawn));
            move |slot, job, lease| {
                let (worker, handler) = (Arc::clone(&worker), Arc::clone(&handler));
                spawn(Box::pin(attempt::work(worker, slot, job, lease, handler)));
            }
        };
        let claims = slots.claims();
        spawn(Box::pin(dispatch::dispatch(worker, claims, start)));
        RunningJobs::new(slots)
    }
}

impl fmt::Debug for JobWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobWorker")
            .field("kinds", &self.kinds)
            .field("name", &self.name)
            .field("concurrency", &self.concurrency)
            .field("lease", &self.lease)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

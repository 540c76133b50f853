//! [`JobWorker`]: claims jobs and calls a handler for each.
//!
//! ```text
//!            claim              Done                  ack
//!   ready ----------> attempt ------------------------------------> gone, or done if that is kept
//!     ^                  |      RequeueAfter          requeue
//!     |                  +----------------------------------------> waiting, nothing counted
//!     |                  |      Retry, RetryAfter, error, panic, timeout, stopped: retry
//!     |                  +----------------------------------------> waiting or dead
//!     |                  |      GiveUp                bury
//!     |                  +----------------------------------------> dead
//!     |  release         |      cancelled             ack
//!     +-- not started ---+----------------------------------------> gone
//!     |                  |
//!     +-- expiry --------+ the lease was lost, or the process died
//! ```
//!
//! One task claims as many jobs as there are free slots, and starts a task for each. That task calls
//! the handler, extends the lease whenever a third of it has passed, and settles it. Jobs that end
//! together are settled in one call, and their slots are filled by one claim. Guarantees:
//!
//! - **A handler stops when its lease is lost**, as far as a future can be stopped: it is dropped
//!   when the store reports that the lease is lost or the job cancelled, and when the lease has
//!   ended and could not be extended.
//! - **A settlement whose outcome is unknown is repeated**, for the length of a lease. If the store
//!   then reports a lost lease, the first try has most likely succeeded.
//! - **A claimed job is started or released.** A job whose lease ended before it could be started is
//!   not started. If a kind has a concurrency of its own, only as many of its jobs are claimed as can
//!   start.
//! - **Retention and schedules need no other process.** The claiming task also reaps the store and starts
//!   the runs of schedules, unless the store is behind a service, which does.
//! - **A panic is a failed attempt**, in the handler and when its future is dropped.

mod attempt;
mod dispatch;
mod fault;
mod kind_slots;
mod lease;
mod limits;
mod metrics;
mod outcome;
mod run;
mod running;
#[cfg(feature = "tokio")]
mod signals;
mod slots;
mod trace;

pub(crate) use limits::KindLimits;
pub use outcome::JobOutcome;
pub use run::{JobFailure, JobRun};
pub use running::{RunningJob, RunningJobs};

use crate::claim::ClaimedJob;
use crate::client::Jobs;
use crate::error::{Invalid, SettleError, StoreError};
use crate::names::{Kind, WorkerName};
use crate::settings::check_lease;
use kind_slots::KindSlots;
use limits::check_kinds;
#[cfg(doc)]
use requeue::worker::Outcome;
use requeue::worker::{BoxError, RunnerFuture, WorkerRecorder};
use slots::Slots;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use trace::Span;

/// Claims jobs of some kinds and calls a handler for each. Configure it, then
/// [`spawn`](Self::spawn_with) it.
///
/// The handler receives a [`JobRun`] and returns `Result<T, BoxError>`, where `T` is an [`Outcome`],
/// a [`JobOutcome`] or `()`:
///
/// | the handler returns | the worker |
/// |---|---|
/// | `Ok(())` or [`Outcome::Done`] | acks the job |
/// | [`JobOutcome::DoneWith`] | acks the job with a result |
/// | [`Outcome::RequeueAfter`] | requeues the job: it runs again after the delay |
/// | [`Outcome::Retry`], an error, a panic, a timeout | retries the job after its backoff |
/// | [`JobOutcome::RetryAfter`] | retries the job after this delay |
/// | [`Outcome::GiveUp`] | buries the job, with the reason as its error |
///
/// The number of attempts and the backoff are [`Settings`](crate::Settings) of the kind. While the
/// handler runs, the worker extends the lease.
///
/// The worker also reaps its store, every ten seconds: it ends the expired leases of kinds that no
/// worker claims, and drops dead and done jobs of all kinds beyond their
/// [retention](crate::Retention). With the feature `cron`, it starts the runs of
/// [schedules](crate::ScheduleSpec). Workers that share a [`Jobs`] take turns. Behind an HTTP service, the
/// service does this instead.
///
/// A handler has the same form as for a [`Worker`](requeue::worker::Worker) of an in-memory queue,
/// so both can share code:
///
/// ```
/// # #[cfg(feature = "tokio")] {
/// use requeue::RateLimitingQueue;
/// use requeue::limiter::ExponentialFailure;
/// use requeue::worker::Worker;
/// use requeue_jobs::{BoxError, JobWorker, Jobs, MemoryStore};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// async fn close(order: &str, attempt: u32) -> Result<(), BoxError> {
///     println!("closing {order}, attempt {attempt}");
///     Ok(())
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
#[must_use = "a worker does nothing before it is spawned"]
pub struct JobWorker {
    jobs: Jobs,
    kinds: Vec<Kind>,
    name: WorkerName,
    concurrency: usize,
    lease: Duration,
    timeout: Option<Duration>,
    /// The limits of those kinds that have their own.
    limits: BTreeMap<Kind, KindLimits>,
    on_failure: Option<Callback>,
    on_dead: Option<Callback>,
    on_lost: Option<OnLost>,
    on_store_error: Option<OnStoreError>,
    recorder: Option<Arc<WorkerRecorder>>,
    span: fn(&ClaimedJob) -> Span,
}

type Callback = Box<dyn Fn(&JobFailure<'_>) + Send + Sync>;
type OnLost = Box<dyn Fn(&ClaimedJob, &SettleError) + Send + Sync>;
type OnStoreError = Box<dyn Fn(&StoreError) + Send + Sync>;

impl JobWorker {
    /// Returns a worker for these kinds: one job at a time, without a timeout, with leases of 30
    /// seconds. `name` shows people which worker holds a job.
    ///
    /// Fails if a kind or the name is invalid, or if there are more than 1000 kinds.
    pub fn new<'a>(
        jobs: &Jobs,
        kinds: impl IntoIterator<Item = &'a str>,
        name: &str,
    ) -> Result<Self, Invalid> {
        let kinds = kinds.into_iter().map(Kind::new).collect::<Result<Vec<_>, _>>()?;
        check_kinds(&kinds)?;
        Ok(JobWorker {
            jobs: jobs.clone(),
            kinds,
            name: WorkerName::new(name)?,
            concurrency: 1,
            lease: Duration::from_secs(30),
            timeout: None,
            limits: BTreeMap::new(),
            on_failure: None,
            on_dead: None,
            on_lost: None,
            on_store_error: None,
            recorder: None,
            span: |_| Span::none(),
        })
    }

    /// Sets how many jobs the worker processes concurrently (default 1). With 0, the worker is
    /// paused until [`RunningJobs::set_concurrency`] is called.
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.concurrency = jobs;
        self
    }

    /// Sets the length of the leases (default 30 seconds, 10 ms to a day). Leases are extended while
    /// a handler runs, so this only determines how soon another worker takes over if this one dies.
    /// It replaces the kind's lease setting, because the worker has to know the length.
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

    /// Sets how long an attempt may take (default: no limit). An attempt that takes longer fails,
    /// and its future is dropped.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Sets a callback for every failed attempt, including the last one of a job. It is called after
    /// the attempt was settled.
    ///
    /// [`JobFailure::next`] is [`Next::Dropped`](requeue::worker::Next::Dropped) if the job was
    /// cancelled meanwhile, or if the store never reported what it did.
    pub fn on_failure(
        mut self,
        callback: impl Fn(&JobFailure<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.on_failure = Some(Box::new(callback));
        self
    }

    /// Sets a callback for every job that a failure in this worker made dead. It is called after
    /// [`on_failure`](Self::on_failure).
    ///
    /// It is not called for a job that becomes dead because its lease expired: list the dead jobs of
    /// the store to find those.
    pub fn on_dead(mut self, callback: impl Fn(&JobFailure<'_>) + Send + Sync + 'static) -> Self {
        self.on_dead = Some(Box::new(callback));
        self
    }

    /// Sets a callback for every job whose lease was lost or could not be settled. The job may be
    /// running on another worker, now or later. Its handler was stopped or had finished. Do not undo
    /// finished work.
    pub fn on_lost(
        mut self,
        callback: impl Fn(&ClaimedJob, &SettleError) + Send + Sync + 'static,
    ) -> Self {
        self.on_lost = Some(Box::new(callback));
        self
    }

    /// Sets a callback for errors of the store after which the worker tries again. Errors after
    /// which it does not are reported to [`on_lost`](Self::on_lost).
    pub fn on_store_error(
        mut self,
        callback: impl Fn(&StoreError) + Send + Sync + 'static,
    ) -> Self {
        self.on_store_error = Some(Box::new(callback));
        self
    }

    /// Starts the worker on the current tokio runtime. Requires the feature `tokio`.
    ///
    /// [Shut down](RunningJobs::shut_down) the worker before the runtime ends. Otherwise its jobs
    /// are delivered again when their leases expire, with one more attempt counted.
    ///
    /// # Panics
    ///
    /// Panics if it is called outside of a tokio runtime.
    #[cfg(feature = "tokio")]
    pub fn spawn<F, Fut, T>(self, handler: F) -> RunningJobs
    where
        F: Fn(JobRun) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, BoxError>> + Send + 'static,
        T: Into<JobOutcome> + 'static,
    {
        let runtime = tokio::runtime::Handle::current();
        self.spawn_with(move |task| drop(runtime.spawn(task)), handler)
    }

    /// Starts the worker on any executor. `spawn` is called for each task and has to make the
    /// executor poll the future to completion.
    ///
    /// ```
    /// use requeue_jobs::{JobWorker, Jobs, MemoryStore, RunnerFuture};
    /// use std::sync::{Arc, mpsc};
    /// use std::task::{Context, Waker};
    ///
    /// // An executor whose tasks are polled by hand.
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
        T: Into<JobOutcome> + 'static,
    {
        let kinds = KindSlots::new(&self.kinds, &self.limits);
        let slots = Slots::new(self.jobs.clock().clone(), self.concurrency, kinds);
        let running = RunningJobs::new(Arc::clone(&slots), self.recorder.clone());
        running.set_concurrency(self.concurrency);
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
        running
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

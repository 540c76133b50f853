//! The handle to a running worker.

use super::slots::Slots;
use crate::claim::ClaimedJob;
use requeue::worker::WorkerRecorder;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// How long a stopped worker waits for its handlers to end and their jobs to be settled.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// A handle to a running worker. Clones are handles to the same worker.
///
/// The worker runs until it is [shut down](Self::shut_down) or its executor ends. Dropping the
/// handle neither stops the worker nor waits for it.
///
/// ```
/// # #[cfg(feature = "tokio")] {
/// use requeue_jobs::{JobWorker, Jobs, MemoryStore};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
/// jobs.put("order.close", "order-7", "").await?;
/// let paused = JobWorker::new(&jobs, ["order.close"], "worker-1")?.concurrency(0);
/// let running = paused.spawn(|_run| std::future::pending::<Result<(), _>>()); // the bank hangs
/// running.set_concurrency(8);
/// while running.jobs().is_empty() {
///     tokio::task::yield_now().await;
/// }
/// let left = running.shut_down(Duration::ZERO).await; // claims no more jobs
/// assert_eq!(left[0].job.id().as_str(), "order-7"); // still running
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap() }
/// ```
#[derive(Clone)]
pub struct RunningJobs {
    slots: Arc<Slots>,
    recorder: Option<Arc<WorkerRecorder>>,
}

impl RunningJobs {
    pub(super) fn new(slots: Arc<Slots>, recorder: Option<Arc<WorkerRecorder>>) -> Self {
        RunningJobs { slots, recorder }
    }

    /// Returns how many jobs may run concurrently.
    pub fn concurrency(&self) -> usize {
        self.slots.concurrency()
    }

    /// Sets how many jobs may run concurrently. 0 pauses the worker. Running jobs are not stopped.
    pub fn set_concurrency(&self, jobs: usize) {
        self.slots.set_concurrency(jobs);
        self.recorder.iter().for_each(|recorder| recorder.set_concurrency(jobs));
    }

    /// Returns the running jobs.
    pub fn jobs(&self) -> Vec<RunningJob> {
        self.slots.running()
    }

    /// Waits until the worker has ended. Dropping the future only stops waiting.
    pub fn join(&self) -> impl Future<Output = ()> + Send + use<> {
        let slots = Arc::clone(&self.slots);
        async move { slots.ended().await }
    }

    /// Stops the worker: claims no more jobs, releases those that have not started, and waits at
    /// most `limit` for the running ones. Returns the jobs that are still running then. They
    /// continue, and their leases are extended, as long as the executor runs.
    ///
    /// The shutdown begins with the call, not with the first poll. Dropping the future only stops
    /// waiting.
    pub fn shut_down(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Vec<RunningJob>> + Send + use<> {
        let slots = Arc::clone(&self.slots);
        let end = slots.clock.now().saturating_add(limit);
        slots.shut_down();
        async move {
            // Whether the worker has ended or not, the running jobs are returned.
            let _ = slots.clock.timeout_at(end, slots.ended()).await;
            slots.running()
        }
    }

    /// Stops the worker as [`shut_down`](Self::shut_down) does, and after `limit` stops the handlers
    /// that are still running: their futures are dropped, and their jobs are retried immediately, with
    /// the error `the worker was shut down`. The attempt counts. Returns the jobs that were stopped.
    ///
    /// A future can only be dropped when it is not being polled. If a handler blocks its thread for
    /// more than five seconds, or its job cannot be settled in that time, this returns nevertheless. If
    /// the process then ends, the lease of the job expires.
    ///
    /// The shutdown begins with the call, not with the first poll. If the future is dropped before
    /// `limit` is over, the handlers are not stopped.
    ///
    /// ```
    /// # #[cfg(feature = "tokio")] {
    /// use requeue_jobs::{JobWorker, Jobs, MemoryStore};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// jobs.put("order.close", "order-7", "").await?;
    /// let worker = JobWorker::new(&jobs, ["order.close"], "worker-1")?;
    /// let running = worker.spawn(|_run| std::future::pending::<Result<(), _>>()); // the bank hangs
    /// while running.jobs().is_empty() {
    ///     tokio::task::yield_now().await;
    /// }
    /// let stopped = running.stop(Duration::from_millis(10)).await;
    /// assert_eq!(stopped.len(), 1);
    /// let job = jobs.get("order.close", "order-7").await?.expect("it is retried");
    /// assert_eq!(job.failures[0].error.as_deref(), Some("the worker was shut down"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap() }
    /// ```
    pub fn stop(&self, limit: Duration) -> impl Future<Output = Vec<RunningJob>> + Send + use<> {
        let slots = Arc::clone(&self.slots);
        let shut_down = self.shut_down(limit);
        async move {
            shut_down.await;
            slots.stop_handlers();
            let end = slots.clock.now().saturating_add(STOP_LIMIT);
            // What has not ended by then is returned, too.
            let _ = slots.clock.timeout_at(end, slots.ended()).await;
            slots.stopped()
        }
    }
}

impl fmt::Debug for RunningJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningJobs")
            .field("concurrency", &self.concurrency())
            .field("jobs", &self.jobs())
            .finish()
    }
}

/// A job whose handler is running.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunningJob {
    /// The job, as it was claimed.
    pub job: ClaimedJob,
    /// How long the handler has been running.
    pub running_for: Duration,
}

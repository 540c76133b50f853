//! The metrics of a worker.

use super::JobWorker;
use requeue::worker::{RunEnd, WorkerRecorder};
use requeue::{Metrics, NameError};
use std::time::Duration;

impl JobWorker {
    /// Reports metrics of this worker under a name: see [`Metrics::gather_workers`], and the module
    /// `prometheus` (feature `prometheus`). The name is in use until the worker has ended and no
    /// [`RunningJobs`](super::RunningJobs) is left.
    ///
    /// An attempt is *active* until its job is settled; its duration is that of the handler. A
    /// [`JobOutcome::RetryAfter`](super::JobOutcome::RetryAfter) counts as an error. An attempt that
    /// was stopped because the lease was lost or the job was cancelled is not counted.
    ///
    /// Fails if another worker uses the name, or if it is empty.
    ///
    /// ```
    /// # #[cfg(feature = "tokio")] {
    /// use requeue_jobs::{BoxError, JobWorker, Jobs, MemoryStore, Metrics};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let metrics = Metrics::new();
    /// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
    /// jobs.put("order.close", "order-7", "").await?;
    /// let worker = JobWorker::new(&jobs, ["order.close"], "worker-1")?;
    /// let running = worker.metrics(&metrics, "orders")?.spawn(|_run| async { Ok(()) });
    /// # while metrics.gather_workers()[0].success == 0 { tokio::task::yield_now().await }
    /// running.shut_down(Duration::from_secs(20)).await;
    /// assert_eq!(metrics.gather_workers()[0].success, 1);
    /// # Ok::<(), BoxError>(()) }).unwrap() }
    /// ```
    pub fn metrics(
        mut self,
        registry: &Metrics,
        name: impl Into<String>,
    ) -> Result<Self, NameError> {
        self.recorder = Some(registry.worker(name)?);
        Ok(self)
    }
}

/// An attempt that counts as active. If it is dropped before it ends, for example because the executor
/// ends, it counts as cancelled.
pub(super) struct ActiveRun<'a>(Option<&'a WorkerRecorder>);

impl<'a> ActiveRun<'a> {
    pub(super) fn start(recorder: Option<&'a WorkerRecorder>) -> Self {
        recorder.inspect(|recorder| recorder.started());
        ActiveRun(recorder)
    }

    /// Counts the attempt. `None` if its handler was stopped.
    pub(super) fn end(mut self, end: Option<RunEnd>, took: Duration) {
        if let Some(end) = end
            && let Some(recorder) = self.0.take()
        {
            recorder.ended(end, took);
        }
    }
}

impl Drop for ActiveRun<'_> {
    fn drop(&mut self) {
        self.0.inspect(|recorder| recorder.cancelled());
    }
}

//! The metrics of a worker, in controller-runtime's terms.

use super::Histogram;
use crate::sync::Mutex;
use std::fmt;
use std::time::Duration;

/// Upper bounds, in nanoseconds: 5 ms to 60 s, as in controller-runtime.
const RUN_BOUNDS: [u64; 40] = millis([
    5, 10, 25, 50, 100, 150, 200, 250, 300, 350, 400, 450, 500, 600, 700, 800, 900, 1000, 1250,
    1500, 1750, 2000, 2500, 3000, 3500, 4000, 4500, 5000, 6000, 7000, 8000, 9000, 10_000, 15_000,
    20_000, 25_000, 30_000, 40_000, 50_000, 60_000,
]);

const fn millis(mut bounds: [u64; 40]) -> [u64; 40] {
    let mut i = 0;
    while i < bounds.len() {
        bounds[i] *= 1_000_000;
        i += 1;
    }
    bounds
}

/// The metrics of one worker. Counts start at the worker's creation.
///
/// A run ends in one of four ways: [`success`](Self::success), [`error`](Self::error),
/// [`requeue`](Self::requeue) or [`requeue_after`](Self::requeue_after). A run that was
/// cancelled counts as none of them.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerMetrics {
    /// The worker's name.
    pub name: String,
    /// Runs that succeeded.
    pub success: u64,
    /// Runs that failed, including panics and timeouts.
    pub error: u64,
    /// Runs that requested another run, after the limiter's delay.
    pub requeue: u64,
    /// Runs that requested another run after a delay of their own.
    pub requeue_after: u64,
    /// Runs that panicked. They also count in `error`.
    pub panics: u64,
    /// Runs that exceeded their timeout. They also count in `error`.
    pub timeouts: u64,
    /// Keys that failed permanently and are not retried. The run also counts in `error`.
    pub given_up: u64,
    /// Runs in progress.
    pub active: u64,
    /// The maximum number of concurrent runs.
    pub concurrency: u64,
    /// How long runs took, whether they succeeded or failed. Cancelled runs are not included.
    pub run_duration: Histogram,
}

/// How a run ended, in controller-runtime's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunResult {
    /// It succeeded.
    Success,
    /// It failed.
    Error,
    /// It requested another run, after the usual delay.
    Requeue,
    /// It requested another run, after a delay of its own.
    RequeueAfter,
}

/// Everything that a [`WorkerRecorder`] counts about a run that has ended.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunEnd {
    /// How it ended.
    pub result: RunResult,
    /// Whether it panicked.
    pub panicked: bool,
    /// Whether it exceeded its timeout.
    pub timed_out: bool,
    /// Whether the key or job failed permanently and is not retried.
    pub given_up: bool,
}

impl RunEnd {
    /// Returns a run that ended in this way, without a panic or a timeout.
    pub fn of(result: RunResult) -> Self {
        RunEnd { result, panicked: false, timed_out: false, given_up: false }
    }
}

/// Counts the runs of a named worker. Use it to write a worker for another queue: a
/// [`Worker`](crate::worker::Worker) has its own.
///
/// ```
/// use requeue::Metrics;
/// use requeue::worker::{RunEnd, RunResult};
/// use std::time::Duration;
///
/// let metrics = Metrics::new();
/// let recorder = metrics.worker("orders")?;
/// recorder.set_concurrency(4);
/// recorder.started();
/// assert_eq!(metrics.gather_workers()[0].active, 1);
/// recorder.ended(RunEnd::of(RunResult::Success), Duration::from_millis(20));
/// assert_eq!(metrics.gather_workers()[0].success, 1);
/// # Ok::<(), requeue::NameError>(())
/// ```
// There is one lock for all counts. A run takes it twice, at its start and at its end, so a
// reader sees no run half counted.
pub struct WorkerRecorder {
    metrics: Mutex<WorkerMetrics>,
}

impl WorkerRecorder {
    pub(super) fn new(name: String) -> Self {
        let metrics = WorkerMetrics {
            name,
            success: 0,
            error: 0,
            requeue: 0,
            requeue_after: 0,
            panics: 0,
            timeouts: 0,
            given_up: 0,
            active: 0,
            concurrency: 0,
            run_duration: Histogram::new(&RUN_BOUNDS),
        };
        WorkerRecorder { metrics: Mutex::new(metrics) }
    }

    pub(super) fn report(&self) -> WorkerMetrics {
        self.metrics.lock().clone()
    }

    /// Records how many runs may be in progress.
    pub fn set_concurrency(&self, runs: usize) {
        self.metrics.lock().concurrency = runs as u64;
    }

    /// Records the start of a run. It ends with [`ended`](Self::ended) or
    /// [`cancelled`](Self::cancelled).
    pub fn started(&self) {
        self.metrics.lock().active += 1;
    }

    /// Records how a run ended, and how long it took.
    pub fn ended(&self, end: RunEnd, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let mut metrics = self.metrics.lock();
        metrics.active = metrics.active.saturating_sub(1);
        metrics.run_duration.observe(nanos);
        metrics.panics += u64::from(end.panicked);
        metrics.timeouts += u64::from(end.timed_out);
        metrics.given_up += u64::from(end.given_up);
        *match end.result {
            RunResult::Success => &mut metrics.success,
            RunResult::Error => &mut metrics.error,
            RunResult::Requeue => &mut metrics.requeue,
            RunResult::RequeueAfter => &mut metrics.requeue_after,
        } += 1;
    }

    /// Records that a run was dropped before it ended.
    pub fn cancelled(&self) {
        let mut metrics = self.metrics.lock();
        metrics.active = metrics.active.saturating_sub(1);
    }
}

impl fmt::Debug for WorkerRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerRecorder").field("metrics", &*self.metrics.lock()).finish()
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::super::{Metrics, NameError};
    use super::*;
    use std::sync::Arc;

    #[test]
    fn every_run_is_under_way_and_then_counted_once_by_how_it_ended() {
        let metrics = Metrics::new();
        let worker = metrics.worker("orders").unwrap();
        worker.set_concurrency(4);
        let ends = [
            RunResult::Success,
            RunResult::Error,
            RunResult::Error,
            RunResult::Requeue,
            RunResult::Requeue,
            RunResult::Requeue,
            RunResult::RequeueAfter,
        ];
        ends.iter().for_each(|_| worker.started());
        worker.started();
        worker.cancelled();
        assert_eq!(metrics.gather_workers()[0].active, 7);
        for (n, result) in ends.into_iter().enumerate() {
            let (panicked, timed_out, given_up) = (n < 1, n < 2, n < 3);
            let end = RunEnd { result, panicked, timed_out, given_up };
            worker.ended(end, Duration::from_millis(5));
        }

        let report = metrics.gather_workers().remove(0);
        assert_eq!((report.name.as_str(), report.active, report.concurrency), ("orders", 0, 4));
        assert_eq!((report.success, report.error), (1, 2));
        assert_eq!((report.requeue, report.requeue_after), (3, 1));
        assert_eq!((report.panics, report.timeouts, report.given_up), (1, 2, 3));
        assert_eq!((report.run_duration.count(), report.run_duration.sum().as_millis()), (7, 35));
        assert_eq!(report.run_duration.buckets().next(), Some((Duration::from_millis(5), 7)));
    }

    #[test]
    fn a_worker_may_have_the_name_of_a_queue_but_not_of_another_worker() {
        let metrics = Metrics::new();
        let _queue = metrics.reserve("orders".to_owned()).unwrap();
        let worker = metrics.worker("orders").unwrap();
        let taken = metrics.worker("orders").err();
        assert_eq!(taken, Some(NameError::WorkerTaken { name: "orders".to_owned() }));
        assert_eq!(metrics.worker("").err(), Some(NameError::Empty));

        let other_handle = Arc::clone(&worker);
        drop(worker);
        assert!(metrics.worker("orders").is_err());
        drop(other_handle);
        assert!(metrics.gather_workers().is_empty());
        assert!(metrics.worker("orders").is_ok());
    }
}

//! All metrics: name, help text and how to read the value.
//!
//! The names come from controller-runtime 0.25: `pkg/internal/metrics/workqueue.go` and
//! `pkg/internal/controller/metrics/metrics.go`. Those that begin with `requeue_` are our own.

use super::super::{Histogram, QueueMetrics, WorkerMetrics};

pub(super) struct Row<R> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) read: Read<R>,
}

/// How to read a metric from a report. Some metrics have several values, distinguished by a
/// label.
pub(super) enum Read<R> {
    Counter(fn(&R) -> u64),
    Gauge(fn(&R) -> f64),
    Histogram(fn(&R) -> &Histogram),
    Counters(&'static str, fn(&R) -> Vec<(String, u64)>),
    Gauges(&'static str, fn(&R) -> Vec<(String, u64)>),
}

/// The metrics of a queue, and its depth by priority as exported.
pub(super) struct Queue {
    pub(super) report: QueueMetrics,
    pub(super) depths: Vec<(String, u64)>,
}

const fn row<R>(name: &'static str, help: &'static str, read: Read<R>) -> Row<R> {
    Row { name, help, read }
}

pub(super) const QUEUES: [Row<Queue>; 12] = [
    row(
        "workqueue_depth",
        "Keys that need work: ready keys, and held keys that were added again",
        Read::Gauges("priority", |queue| queue.depths.clone()),
    ),
    row(
        "workqueue_adds_total",
        "Adds that made a key ready, or made a held key run again",
        Read::Counter(|queue| queue.report.adds),
    ),
    row(
        "workqueue_queue_duration_seconds",
        "Time from the add of a key until a worker took it",
        Read::Histogram(|queue| &queue.report.queue_duration),
    ),
    row(
        "workqueue_work_duration_seconds",
        "Time for which workers held keys",
        Read::Histogram(|queue| &queue.report.work_duration),
    ),
    row(
        "workqueue_unfinished_work_seconds",
        "Sum of the times for which the keys held now have been held",
        Read::Gauge(|queue| queue.report.unfinished_work.as_secs_f64()),
    ),
    row(
        "workqueue_longest_running_processor_seconds",
        "Time for which the key that has been held longest has been held",
        Read::Gauge(|queue| queue.report.longest_running.as_secs_f64()),
    ),
    row(
        "workqueue_retries_total",
        "Delayed and rate-limited adds",
        Read::Counter(|queue| queue.report.retries),
    ),
    row(
        "requeue_waiting_keys",
        "Keys that wait for their due time",
        Read::Gauge(|queue| queue.report.waiting as f64),
    ),
    row(
        "requeue_oldest_ready_seconds",
        "Time since the add of the key that has been ready longest",
        Read::Gauge(|queue| queue.report.oldest_ready.unwrap_or_default().as_secs_f64()),
    ),
    row(
        "requeue_coalesced_adds_total",
        "Adds that changed nothing because the key was already ready or already to run again",
        Read::Counter(|queue| queue.report.coalesced),
    ),
    row(
        "requeue_dropped_total",
        "Adds refused because of a shutdown or drain, and waiting keys dropped by a shutdown",
        Read::Counter(|queue| queue.report.dropped),
    ),
    row(
        "requeue_lateness_seconds",
        "Time from the due time of a delayed key until it became ready",
        Read::Histogram(|queue| &queue.report.lateness),
    ),
];

pub(super) const WORKERS: [Row<WorkerMetrics>; 8] = [
    row(
        "controller_runtime_reconcile_total",
        "Runs that ended, by result",
        Read::Counters("result", |worker| {
            let results = [
                ("error", worker.error),
                ("requeue", worker.requeue),
                ("requeue_after", worker.requeue_after),
                ("success", worker.success),
            ];
            results.map(|(result, runs)| (result.to_owned(), runs)).to_vec()
        }),
    ),
    row(
        "controller_runtime_reconcile_errors_total",
        "Runs that failed, including panics and timeouts",
        Read::Counter(|worker| worker.error),
    ),
    row(
        "controller_runtime_terminal_reconcile_errors_total",
        "Keys that failed permanently and are not retried",
        Read::Counter(|worker| worker.given_up),
    ),
    row(
        "controller_runtime_reconcile_panics_total",
        "Runs that panicked",
        Read::Counter(|worker| worker.panics),
    ),
    row(
        "controller_runtime_reconcile_timeouts_total",
        "Runs that exceeded their timeout",
        Read::Counter(|worker| worker.timeouts),
    ),
    row(
        "controller_runtime_reconcile_time_seconds",
        "Duration of runs",
        Read::Histogram(|worker| &worker.run_duration),
    ),
    row(
        "controller_runtime_max_concurrent_reconciles",
        "Maximum number of concurrent runs",
        Read::Gauge(|worker| worker.concurrency as f64),
    ),
    row(
        "controller_runtime_active_workers",
        "Runs in progress",
        Read::Gauge(|worker| worker.active as f64),
    ),
];

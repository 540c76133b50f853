//! Every metric: its name, what it means, and where it is read.
//!
//! Names are facts of controller-runtime 0.25: `pkg/internal/metrics/workqueue.go` and
//! `pkg/internal/controller/metrics/metrics.go`. Those that begin with `requeue_` are ours.

use super::super::{Histogram, QueueMetrics, WorkerMetrics};

pub(super) struct Row<R> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) read: Read<R>,
}

/// How a metric is read from a report; some are several, told apart by a label.
pub(super) enum Read<R> {
    Counter(fn(&R) -> u64),
    Gauge(fn(&R) -> f64),
    Histogram(fn(&R) -> &Histogram),
    Counters(&'static str, fn(&R) -> Vec<(String, u64)>),
    Gauges(&'static str, fn(&R) -> Vec<(String, u64)>),
}

/// What a queue reported, and its depth by priority, as it is to be shown.
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
        "Keys that need work: ready, or added while held",
        Read::Gauges("priority", |queue| queue.depths.clone()),
    ),
    row(
        "workqueue_adds_total",
        "Adds that made a key ready, or made a held key run again",
        Read::Counter(|queue| queue.report.adds),
    ),
    row(
        "workqueue_queue_duration_seconds",
        "How long keys waited from their add until a worker took them",
        Read::Histogram(|queue| &queue.report.queue_duration),
    ),
    row(
        "workqueue_work_duration_seconds",
        "How long workers held keys",
        Read::Histogram(|queue| &queue.report.work_duration),
    ),
    row(
        "workqueue_unfinished_work_seconds",
        "How long the keys held now have been held, added up",
        Read::Gauge(|queue| queue.report.unfinished_work.as_secs_f64()),
    ),
    row(
        "workqueue_longest_running_processor_seconds",
        "How long the key held longest has been held",
        Read::Gauge(|queue| queue.report.longest_running.as_secs_f64()),
    ),
    row(
        "workqueue_retries_total",
        "Delayed and rate-limited adds",
        Read::Counter(|queue| queue.report.retries),
    ),
    row(
        "requeue_waiting_keys",
        "Keys that wait for their time",
        Read::Gauge(|queue| queue.report.waiting as f64),
    ),
    row(
        "requeue_oldest_ready_seconds",
        "How long ago the key was added that has been ready for longest",
        Read::Gauge(|queue| queue.report.oldest_ready.unwrap_or_default().as_secs_f64()),
    ),
    row(
        "requeue_coalesced_adds_total",
        "Adds that changed nothing: the key was ready, or to run again, already",
        Read::Counter(|queue| queue.report.coalesced),
    ),
    row(
        "requeue_dropped_total",
        "Adds refused by a queue that stops, and waiting keys that its shutdown dropped",
        Read::Counter(|queue| queue.report.dropped),
    ),
    row(
        "requeue_lateness_seconds",
        "How long after their time delayed keys became ready",
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
        "Runs that failed, also by a panic or a timeout",
        Read::Counter(|worker| worker.error),
    ),
    row(
        "controller_runtime_terminal_reconcile_errors_total",
        "Keys that failed for good, and are not tried again",
        Read::Counter(|worker| worker.given_up),
    ),
    row(
        "controller_runtime_reconcile_panics_total",
        "Runs that panicked",
        Read::Counter(|worker| worker.panics),
    ),
    row(
        "controller_runtime_reconcile_timeouts_total",
        "Runs that took longer than they may",
        Read::Counter(|worker| worker.timeouts),
    ),
    row(
        "controller_runtime_reconcile_time_seconds",
        "How long runs took",
        Read::Histogram(|worker| &worker.run_duration),
    ),
    row(
        "controller_runtime_max_concurrent_reconciles",
        "How many runs there may be at once",
        Read::Gauge(|worker| worker.concurrency as f64),
    ),
    row(
        "controller_runtime_active_workers",
        "Runs under way",
        Read::Gauge(|worker| worker.active as f64),
    ),
];

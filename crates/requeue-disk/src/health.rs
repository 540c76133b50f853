//! What the store reports about itself: problems that last, and measurements.
//!
//! The threads of the store note here what happens. [`status`](Health::status) only copies it: it
//! reads no file, and waits for no thread that does.

use requeue_jobs::{StoreMetric, StoreMetricKind, StoreProblem, StoreStatus, WallClock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Something that an operator has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Problem {
    /// New jobs are refused, because too little space is free.
    DiskFull,
    /// A group of the log could not be written or synced.
    LogWriteFailed,
    /// A segment of the log could not be created in advance.
    LogSegmentFailed,
    /// The changes in memory could not be written to tables.
    FlushFailed,
    /// Tables could not be merged.
    MergeFailed,
    /// The writer has ended, because of a bug.
    WriterStopped,
}

impl Problem {
    fn name(self) -> &'static str {
        match self {
            Problem::DiskFull => "disk_full",
            Problem::LogWriteFailed => "log_write_failed",
            Problem::LogSegmentFailed => "log_segment_failed",
            Problem::FlushFailed => "flush_failed",
            Problem::MergeFailed => "merge_failed",
            Problem::WriterStopped => "writer_stopped",
        }
    }

    fn bit(self) -> u64 {
        1 << self as u64
    }
}

/// Problems and measurements of a store.
pub(crate) struct Health {
    wall_clock: WallClock,
    /// At most one of each type.
    problems: Mutex<Vec<(Problem, StoreProblem)>>,
    /// The [bits](Problem::bit) of `problems`, so that the usual case needs no lock.
    bits: AtomicU64,
    pub(crate) measured: Measured,
}

/// Measurements. Each is stored by the thread that knows it.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) free_bytes: AtomicU64,
    pub(crate) reserved_bytes: AtomicU64,
    pub(crate) log_segments: AtomicU64,
    pub(crate) log_bytes: AtomicU64,
    pub(crate) tables: AtomicU64,
    pub(crate) table_bytes: AtomicU64,
    pub(crate) memory_bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) merges: AtomicU64,
    pub(crate) upkeep_failures: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) sync_micros: AtomicU64,
    pub(crate) logged_bytes: AtomicU64,
}

impl Health {
    pub(crate) fn new(wall_clock: WallClock) -> Self {
        Health {
            wall_clock,
            problems: Mutex::default(),
            bits: AtomicU64::new(0),
            measured: Measured::default(),
        }
    }

    /// Notes a problem. If it is known, only its detail changes.
    pub(crate) fn report(&self, problem: Problem, detail: String) {
        let mut problems = self.problems();
        self.bits.fetch_or(problem.bit(), Ordering::Relaxed);
        match problems.iter_mut().find(|(known, _)| *known == problem) {
            Some((_, known)) => known.detail = detail,
            None => {
                let (name, since) = (problem.name(), self.wall_clock.now());
                problems.push((problem, StoreProblem { name, detail, since }));
                problems.sort_unstable_by_key(|(problem, _)| *problem);
            }
        }
    }

    /// Notes a failure of upkeep, which is tried again.
    pub(crate) fn upkeep_failed(&self, problem: Problem, detail: String) {
        self.measured.upkeep_failures.fetch_add(1, Ordering::Relaxed);
        self.report(problem, detail);
    }

    /// Notes that a problem is over.
    pub(crate) fn clear(&self, problem: Problem) {
        if self.has(problem) {
            let mut problems = self.problems();
            self.bits.fetch_and(!problem.bit(), Ordering::Relaxed);
            problems.retain(|(known, _)| *known != problem);
        }
    }

    pub(crate) fn has(&self, problem: Problem) -> bool {
        self.bits.load(Ordering::Relaxed) & problem.bit() != 0
    }

    pub(crate) fn has_any(&self) -> bool {
        self.bits.load(Ordering::Relaxed) != 0
    }

    /// The detail of a problem, if there is this problem.
    pub(crate) fn detail(&self, problem: Problem) -> Option<String> {
        let problems = self.problems();
        let known = problems.iter().find(|(known, _)| *known == problem);
        known.map(|(_, known)| known.detail.clone())
    }

    /// Notes that a group of the log was written and synced.
    pub(crate) fn synced(&self, bytes: usize, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.measured.syncs.fetch_add(1, Ordering::Relaxed);
        self.measured.sync_micros.fetch_add(micros, Ordering::Relaxed);
        self.measured.logged_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn status(&self) -> StoreStatus {
        let problems = self.problems().iter().map(|(_, problem)| problem.clone()).collect();
        StoreStatus { problems, metrics: self.measured.metrics() }
    }

    fn problems(&self) -> MutexGuard<'_, Vec<(Problem, StoreProblem)>> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Measured {
    fn metrics(&self) -> Vec<StoreMetric> {
        use StoreMetricKind::{Counter, Gauge};
        let metric = |name, kind, value: &AtomicU64, help| {
            let value = value.load(Ordering::Relaxed) as f64;
            StoreMetric { name, help, kind, value }
        };
        let mut metrics = vec![
            metric(
                "disk_free_bytes",
                Gauge,
                &self.free_bytes,
                "Bytes that are free on the disk of the store.",
            ),
            metric(
                "disk_reserved_bytes",
                Gauge,
                &self.reserved_bytes,
                "Free bytes below which new jobs are refused.",
            ),
            metric("disk_log_segments", Gauge, &self.log_segments, "Segments of the log."),
            metric("disk_log_bytes", Gauge, &self.log_bytes, "Bytes of the segments of the log."),
            metric("disk_tables", Gauge, &self.tables, "Tables."),
            metric("disk_table_bytes", Gauge, &self.table_bytes, "Bytes of all tables."),
            metric(
                "disk_memory_bytes",
                Gauge,
                &self.memory_bytes,
                "Approximate bytes of changed jobs in memory that are not in tables yet.",
            ),
            metric(
                "disk_flushes_total",
                Counter,
                &self.flushes,
                "How often changed jobs were written from memory to tables.",
            ),
            metric("disk_merges_total", Counter, &self.merges, "Steps of merging tables."),
            metric(
                "disk_upkeep_failures_total",
                Counter,
                &self.upkeep_failures,
                "Failed attempts to write tables, merge tables or create log segments.",
            ),
            metric(
                "disk_syncs_total",
                Counter,
                &self.syncs,
                "Groups written to the log and synced.",
            ),
            metric(
                "disk_sync_seconds_total",
                Counter,
                &self.sync_micros,
                "Time spent writing and syncing groups of the log.",
            ),
            metric(
                "disk_logged_bytes_total",
                Counter,
                &self.logged_bytes,
                "Bytes written to the log.",
            ),
        ];
        for metric in &mut metrics {
            if metric.name == "disk_sync_seconds_total" {
                metric.value /= 1e6;
            }
        }
        metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue::ManualClock;
    use requeue_jobs::Timestamp;

    #[test]
    fn a_problem_keeps_the_time_at_which_it_was_first_seen() {
        let clock = ManualClock::new();
        let health = Health::new(WallClock::manual(&clock, Timestamp::from_millis(1000)));
        health.report(Problem::MergeFailed, "first".to_owned());
        clock.advance(Duration::from_secs(5));
        health.report(Problem::MergeFailed, "second".to_owned());
        health.report(Problem::DiskFull, "full".to_owned());
        let problems = health.status().problems;
        let seen: Vec<_> =
            problems.iter().map(|p| (p.name, &*p.detail, p.since.as_millis())).collect();
        assert_eq!(seen, [("disk_full", "full", 6000), ("merge_failed", "second", 1000)]);
        health.clear(Problem::MergeFailed);
        health.clear(Problem::LogWriteFailed);
        assert_eq!(health.status().problems.len(), 1);
        assert!(health.has_any() && !health.has(Problem::MergeFailed));
    }
}

//! Metrics of store calls: durations, errors, batch sizes. The label `verb` is the name of the
//! method.

use super::registered;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
};
use requeue::{Clock, Moment};
use requeue_jobs::{StoreError, StoreMethod};

const METHODS: [StoreMethod; StoreMethod::ALL.len()] = StoreMethod::ALL;

/// The methods that take or return batches are the first ones.
const BATCHES: usize = 5;

/// Values of the label `sort`, the reason of a failure. `abandoned`: the caller dropped the call
/// before it returned, so its outcome is unknown.
const SORTS: [&str; 5] = ["invalid", "unavailable", "unknown", "abandoned", "other"];
const ABANDONED: usize = 3;

/// Buckets in seconds: from a lock in memory to a failing disk.
const DURATIONS: [f64; 17] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0, 10.0,
];

/// Buckets of batch sizes, up to [`MAX_BATCH`](requeue_jobs::limits::MAX_BATCH).
const LENGTHS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];

pub(super) struct CallMetrics {
    durations: [Histogram; METHODS.len()],
    errors: [[IntCounter; SORTS.len()]; METHODS.len()],
    lengths: [Histogram; BATCHES],
}

impl CallMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let durations = HistogramVec::new(
            HistogramOpts::new(
                "requeue_store_duration_seconds",
                "Duration of store calls by method, without waits.",
            )
            .buckets(DURATIONS.to_vec()),
            &["verb"],
        );
        let durations = registered(registry, durations);
        let errors = IntCounterVec::new(
            Opts::new(
                "requeue_store_errors_total",
                "Failed store calls and failed batch entries, by method and reason: invalid, unavailable, unknown, or abandoned if the caller went away first.",
            ),
            &["verb", "sort"],
        );
        let errors = registered(registry, errors);
        let lengths = HistogramVec::new(
            HistogramOpts::new(
                "requeue_store_batch_entries",
                "Number of entries in a batch; for claims, the number of jobs returned.",
            )
            .buckets(LENGTHS.to_vec()),
            &["verb"],
        );
        let lengths = registered(registry, lengths);
        CallMetrics {
            durations: METHODS.map(|method| durations.with_label_values(&[method.name()])),
            errors: METHODS
                .map(|method| SORTS.map(|sort| errors.with_label_values(&[method.name(), sort]))),
            lengths: std::array::from_fn(|n| lengths.with_label_values(&[METHODS[n].name()])),
        }
    }

    pub(super) fn begin<'a>(&'a self, method: StoreMethod, clock: &'a Clock) -> TimedCall<'a> {
        TimedCall { calls: self, method, clock, began_at: clock.now(), finished: false }
    }

    pub(super) fn failed(&self, method: StoreMethod, error: &StoreError) {
        let sort = match error {
            StoreError::Invalid(_) => 0,
            StoreError::Unavailable { .. } => 1,
            StoreError::Unknown { .. } => 2,
            _ => 4,
        };
        self.errors[method as usize][sort].inc();
    }

    pub(super) fn batch(&self, method: StoreMethod, len: usize) {
        debug_assert!((method as usize) < BATCHES, "{method:?} has no batches");
        self.lengths[method as usize].observe(len as f64);
    }
}

/// A store call in flight. If it is dropped before [`finished`](Self::finished), it counts as
/// abandoned.
pub(crate) struct TimedCall<'a> {
    calls: &'a CallMetrics,
    method: StoreMethod,
    clock: &'a Clock,
    began_at: Moment,
    finished: bool,
}

impl TimedCall<'_> {
    pub(crate) fn finished(mut self, error: Option<&StoreError>) {
        self.finished = true;
        if let Some(error) = error {
            self.calls.failed(self.method, error);
        }
        let took = self.clock.now().saturating_since(self.began_at);
        self.calls.durations[self.method as usize].observe(took.as_secs_f64());
    }
}

impl Drop for TimedCall<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.calls.errors[self.method as usize][ABANDONED].inc();
        }
    }
}

//! Calls of the store: how long they take, how they fail, how large batches are.

use super::registered;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
};
use requeue::{Clock, Moment};
use requeue_jobs::StoreError;

/// What a store is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Put,
    Claim,
    Settle,
    Change,
    Restore,
    Wait,
    Reap,
    Get,
    List,
    Kinds,
    Upcoming,
    Settings,
    Set,
    SetSchedule,
    RemoveSchedule,
    Schedules,
    Tick,
}

/// In the order of [`Verb`].
const VERBS: [&str; 17] = [
    "put",
    "claim",
    "settle",
    "change",
    "restore",
    "wait",
    "reap",
    "get",
    "list",
    "kinds",
    "upcoming",
    "settings",
    "set",
    "set_schedule",
    "remove_schedule",
    "schedules",
    "tick",
];

/// Those of batches come first.
const BATCHES: usize = 5;

/// Why a call failed. `abandoned`: whoever asked went away, and the outcome is not known here.
const SORTS: [&str; 5] = ["invalid", "unavailable", "unknown", "abandoned", "other"];
const ABANDONED: usize = 3;

/// In seconds: from a lock in memory to a disk that is not well.
const DURATIONS: [f64; 17] = [
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0, 10.0,
];

/// Up to [`MAX_BATCH`](requeue_jobs::limits::MAX_BATCH).
const LENGTHS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];

pub(super) struct Calls {
    durations: [Histogram; VERBS.len()],
    errors: [[IntCounter; SORTS.len()]; VERBS.len()],
    lengths: [Histogram; BATCHES],
}

impl Calls {
    pub(super) fn new(registry: &Registry) -> Self {
        let durations = HistogramVec::new(
            HistogramOpts::new(
                "requeue_store_duration_seconds",
                "How long the store took to answer a call, by what it was asked; waits left out.",
            )
            .buckets(DURATIONS.to_vec()),
            &["verb"],
        );
        let durations = registered(registry, durations);
        let errors = IntCounterVec::new(
            Opts::new(
                "requeue_store_errors_total",
                "Calls of the store, and entries of batches, that failed: invalid, unavailable, unknown; abandoned if whoever asked went away first.",
            ),
            &["verb", "sort"],
        );
        let errors = registered(registry, errors);
        let lengths = HistogramVec::new(
            HistogramOpts::new(
                "requeue_store_batch_entries",
                "Entries of a batch that the store answered; jobs that a claim got.",
            )
            .buckets(LENGTHS.to_vec()),
            &["verb"],
        );
        let lengths = registered(registry, lengths);
        Calls {
            durations: VERBS.map(|verb| durations.with_label_values(&[verb])),
            errors: VERBS.map(|verb| SORTS.map(|sort| errors.with_label_values(&[verb, sort]))),
            lengths: std::array::from_fn(|verb| lengths.with_label_values(&[VERBS[verb]])),
        }
    }

    pub(super) fn begin<'a>(&'a self, verb: Verb, clock: &'a Clock) -> Call<'a> {
        Call { calls: self, verb, clock, began_at: clock.now(), answered: false }
    }

    pub(super) fn failed(&self, verb: Verb, error: &StoreError) {
        let sort = match error {
            StoreError::Invalid(_) => 0,
            StoreError::Unavailable { .. } => 1,
            StoreError::Unknown { .. } => 2,
            _ => 4,
        };
        self.errors[verb as usize][sort].inc();
    }

    pub(super) fn batch(&self, verb: Verb, len: usize) {
        debug_assert!((verb as usize) < BATCHES, "{verb:?} has no batches");
        self.lengths[verb as usize].observe(len as f64);
    }
}

/// A call that is under way. Dropped before it is answered, it was abandoned.
pub(crate) struct Call<'a> {
    calls: &'a Calls,
    verb: Verb,
    clock: &'a Clock,
    began_at: Moment,
    answered: bool,
}

impl Call<'_> {
    pub(crate) fn answered(mut self, error: Option<&StoreError>) {
        self.answered = true;
        if let Some(error) = error {
            self.calls.failed(self.verb, error);
        }
        let took = self.clock.now().saturating_since(self.began_at);
        self.calls.durations[self.verb as usize].observe(took.as_secs_f64());
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.calls.errors[self.verb as usize][ABANDONED].inc();
        }
    }
}

//! What a store reports about itself: the [`StoreStatus`].

use crate::time::Timestamp;

/// The state of a store, for its operator. Returned by [`Store::status`](crate::Store::status).
///
/// The service reports the problems in `/readyz` and in its log, and the metrics in `/metrics`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoreStatus {
    /// What is wrong at the moment. Empty if the store works normally.
    pub problems: Vec<StoreProblem>,
    /// Measurements of the store, such as free disk space.
    pub metrics: Vec<StoreMetric>,
}

/// Something that an operator has to know or to repair, although the store still works in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreProblem {
    /// A fixed name in snake case, such as `disk_full`. It is a metric label.
    pub name: &'static str,
    /// What happened, what does not work meanwhile, and what helps.
    pub detail: String,
    /// When the problem was first seen.
    pub since: Timestamp,
}

/// One measurement of a store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoreMetric {
    /// The name of the metric without the prefix `requeue_`, such as `disk_free_bytes`.
    pub name: &'static str,
    /// What is measured, in one sentence.
    pub help: &'static str,
    /// Whether the value only rises.
    pub kind: StoreMetricKind,
    /// The value, in the unit that the name contains.
    pub value: f64,
}

/// Whether a [`StoreMetric`] only rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreMetricKind {
    /// The value rises and falls.
    Gauge,
    /// The value only rises, until the process restarts.
    Counter,
}

//! Problems and measurements that the store reports.

use super::registered;
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, IntGaugeVec, Opts, Registry};
use requeue_jobs::{StoreMetricKind, StoreStatus};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

pub(super) struct StatusMetrics {
    problems: IntGaugeVec,
    /// All problems that there ever were: those that are over are 0.
    names: Mutex<BTreeSet<&'static str>>,
}

impl StatusMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let problems = IntGaugeVec::new(
            Opts::new(
                "requeue_store_problem",
                "1 while the store or a background task of this node has this problem, 0 when it is over.",
            ),
            &["problem"],
        );
        StatusMetrics { problems: registered(registry, problems), names: Mutex::default() }
    }

    /// Records the current problems.
    pub(super) fn set(&self, status: &StoreStatus) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.extend(status.problems.iter().map(|problem| problem.name));
        for name in &*names {
            let there = status.problems.iter().any(|problem| problem.name == *name);
            self.problems.with_label_values(&[*name]).set(i64::from(there));
        }
    }
}

/// Returns the measurements of the store. One whose name is invalid, or taken, is left out.
pub(super) fn families(status: &StoreStatus) -> Vec<MetricFamily> {
    let registry = Registry::new();
    for metric in &status.metrics {
        let name = format!("requeue_{}", metric.name);
        match metric.kind {
            StoreMetricKind::Gauge => {
                if let Ok(gauge) = Gauge::new(name, metric.help) {
                    gauge.set(metric.value);
                    let _ = registry.register(Box::new(gauge));
                }
            }
            StoreMetricKind::Counter => {
                if let Ok(counter) = Counter::new(name, metric.help) {
                    counter.inc_by(metric.value.max(0.0));
                    let _ = registry.register(Box::new(counter));
                }
            }
        }
    }
    registry.gather()
}

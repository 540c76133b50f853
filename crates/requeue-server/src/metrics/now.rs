//! Metrics that are read from the store at each scrape: the numbers of jobs.

use super::registered;
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntGaugeVec, Opts, Registry};
use requeue_jobs::{KindView, Timestamp};

/// Returns the metrics of these kinds. They are built anew for each scrape, so that removed kinds
/// disappear and concurrent scrapes do not interfere.
pub(super) fn families(views: &[KindView], now: Timestamp) -> Vec<MetricFamily> {
    let registry = Registry::new();
    let gauge = |name, help, labels: &[&str]| {
        registered(&registry, IntGaugeVec::new(Opts::new(name, help), labels))
    };
    let jobs = gauge(
        "requeue_jobs",
        "Jobs in the store by state: pending (waiting or ready), leased (including expired leases), dead.",
        &["kind", "state"],
    );
    let ready =
        gauge("requeue_ready_jobs", "Pending jobs that are due, counted up to 10000.", &["kind"]);
    let paused = gauge("requeue_kind_paused", "1 if the kind is paused, otherwise 0.", &["kind"]);
    let oldest = GaugeVec::new(
        Opts::new(
            "requeue_oldest_ready_age_seconds",
            "Time since the oldest ready job became due, by this node's clock; 0 if no job is ready.",
        ),
        &["kind"],
    );
    let oldest = registered(&registry, oldest);
    for view in views {
        let kind = view.kind.as_str();
        let counts = view.counts;
        for (state, count) in
            [("pending", counts.pending), ("leased", counts.leased), ("dead", counts.dead)]
        {
            jobs.with_label_values(&[kind, state]).set(gauged(count));
        }
        ready.with_label_values(&[kind]).set(gauged(counts.ready));
        paused.with_label_values(&[kind]).set(i64::from(view.paused));
        let age = view.oldest_ready.map(|due| now.saturating_since(due)).unwrap_or_default();
        oldest.with_label_values(&[kind]).set(age.as_secs_f64());
    }
    registry.gather()
}

fn gauged(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

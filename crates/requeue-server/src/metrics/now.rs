//! Metrics that are read from the store at each scrape: the numbers of jobs.

use super::kinds::OTHERS;
use super::registered;
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntGauge, IntGaugeVec, Opts, Registry};
use requeue_jobs::{Counts, Kind, KindView, Timestamp};
use std::collections::HashSet;

/// Returns the metrics of these kinds. They are built anew for each scrape, so that removed kinds
/// disappear and concurrent scrapes do not interfere.
///
/// The kinds that are not in `named` are summed under the label [`OTHERS`].
pub(super) fn families(
    views: &[KindView],
    named: &HashSet<Kind>,
    now: Timestamp,
) -> Vec<MetricFamily> {
    let registry = Registry::new();
    let gauge = |name, help, labels: &[&str]| {
        registered(&registry, IntGaugeVec::new(Opts::new(name, help), labels))
    };
    let jobs = gauge(
        "requeue_jobs",
        "Jobs in the store by state: pending (waiting or ready), leased (including expired leases), dead, done.",
        &["kind", "state"],
    );
    let ready =
        gauge("requeue_ready_jobs", "Pending jobs that are due, counted up to 10000.", &["kind"]);
    let paused = gauge("requeue_kind_paused", "1 if the kind is paused, otherwise 0.", &["kind"]);
    let throttled = gauge(
        "requeue_kind_throttled",
        "1 if the rate limit of the kind allows no job to be claimed now, otherwise 0.",
        &["kind"],
    );
    let oldest = GaugeVec::new(
        Opts::new(
            "requeue_oldest_ready_age_seconds",
            "Time since the oldest ready job became due, by this node's clock; 0 if no job is ready.",
        ),
        &["kind"],
    );
    let oldest = registered(&registry, oldest);
    let unlabelled = registered(
        &registry,
        IntGauge::new(
            "requeue_kinds_without_label",
            "Kinds whose metrics are summed under kind=\"(other)\", because there are too many kinds.",
        ),
    );
    let age = |view: &KindView| {
        view.oldest_ready.map(|due| now.saturating_since(due)).unwrap_or_default().as_secs_f64()
    };
    let (views, others): (Vec<_>, Vec<_>) =
        views.iter().partition(|view| named.contains(&view.kind));
    unlabelled.set(gauged(others.len() as u64));
    for view in views {
        let kind = view.kind.as_str();
        for (state, count) in by_state(&view.counts) {
            jobs.with_label_values(&[kind, state]).set(gauged(count));
        }
        ready.with_label_values(&[kind]).set(gauged(view.counts.ready));
        paused.with_label_values(&[kind]).set(i64::from(view.paused));
        throttled.with_label_values(&[kind]).set(i64::from(view.throttled_until.is_some()));
        oldest.with_label_values(&[kind]).set(age(view));
    }
    // Paused kinds do not count for the age, because no worker takes their jobs on purpose.
    for view in others {
        for (state, count) in by_state(&view.counts) {
            jobs.with_label_values(&[OTHERS, state]).add(gauged(count));
        }
        ready.with_label_values(&[OTHERS]).add(gauged(view.counts.ready));
        let oldest = oldest.with_label_values(&[OTHERS]);
        oldest.set(oldest.get().max(if view.paused { 0.0 } else { age(view) }));
    }
    registry.gather()
}

fn by_state(counts: &Counts) -> [(&'static str, u64); 4] {
    let Counts { pending, leased, dead, done, ready: _ } = *counts;
    [("pending", pending), ("leased", leased), ("dead", dead), ("done", done)]
}

fn gauged(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

//! Metrics of deliveries by HTTP request, read from the pusher at each scrape.

use super::kinds::OTHERS;
use super::registered;
use prometheus::proto::{Bucket, Histogram, Metric, MetricFamily, MetricType};
use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};
use requeue_jobs::Kind;
use requeue_push::{
    CircuitState, DURATION_BOUNDS, DeliveryCounts, DurationHistogram, PushKindStatus, PushStatus,
};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, PoisonError};

/// The results of deliveries, and last how many outcomes could not be stored.
const COUNTS: usize = 6;

/// The values of the label `result`, in the order of [`numbers`].
const RESULTS: [&str; COUNTS - 1] = ["done", "retried", "slowed", "unreachable", "buried"];

/// What was counted until now. A pusher forgets the counts of a kind whose setting is removed, but a sum
/// over kinds must not decrease.
#[derive(Default)]
pub(super) struct PushMetrics(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    /// What the pusher had counted for each kind at the last scrape.
    last: BTreeMap<Kind, (DeliveryCounts, DurationHistogram)>,
    /// The counters by label.
    counts: BTreeMap<String, [u64; COUNTS]>,
    durations: DurationHistogram,
}

impl Counted {
    /// Adds what was counted since the last scrape.
    fn add(&mut self, status: &PushStatus, label: impl Fn(&Kind) -> String) {
        let mut last = BTreeMap::new();
        for PushKindStatus { kind, deliveries, durations, .. } in &status.kinds {
            let (counted, lasted) = self.last.remove(kind).unwrap_or_default();
            let sums = self.counts.entry(label(kind)).or_default();
            for (sum, (now, then)) in
                sums.iter_mut().zip(numbers(deliveries).into_iter().zip(numbers(&counted)))
            {
                *sum += since(now, then);
            }
            let buckets = durations.buckets.into_iter().zip(lasted.buckets);
            for (sum, (now, then)) in self.durations.buckets.iter_mut().zip(buckets) {
                *sum += since(now, then);
            }
            self.durations.sum += match durations.sum.checked_sub(lasted.sum) {
                Some(more) => more,
                None => durations.sum,
            };
            last.insert(kind.clone(), (*deliveries, durations.clone()));
        }
        self.last = last;
    }
}

/// Returns how much was added. A number that has decreased began again at zero.
fn since(now: u64, then: u64) -> u64 {
    now.checked_sub(then).unwrap_or(now)
}

fn numbers(counts: &DeliveryCounts) -> [u64; COUNTS] {
    let DeliveryCounts { done, retried, slowed, unreachable, buried, unsettled, .. } = *counts;
    [done, retried, slowed, unreachable, buried, unsettled]
}

impl PushMetrics {
    /// Returns the metrics. The kinds that are not in `named` are summed under the label [`OTHERS`], and so
    /// are the targets beyond the limit of kinds.
    pub(super) fn families(
        &self,
        status: &PushStatus,
        named: &HashSet<Kind>,
        limit: usize,
    ) -> Vec<MetricFamily> {
        let label = |kind: &Kind| match named.contains(kind) {
            true => kind.as_str().to_owned(),
            false => OTHERS.to_owned(),
        };
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.add(status, label);
        // The labels of kinds that are no longer delivered, or have none any more, disappear.
        let labels: HashSet<String> = status.kinds.iter().map(|one| label(&one.kind)).collect();
        counted.counts.retain(|label, _| label == OTHERS || labels.contains(label));
        let registry = Registry::new();
        let deliveries = IntCounterVec::new(
            Opts::new("requeue_push_deliveries_total", "Deliveries that have ended, by result."),
            &["kind", "result"],
        );
        let deliveries = registered(&registry, deliveries);
        let unsettled = IntCounterVec::new(
            Opts::new(
                "requeue_push_unsettled_total",
                "Deliveries whose result could not be stored, so that the job is delivered again.",
            ),
            &["kind"],
        );
        let unsettled = registered(&registry, unsettled);
        let gauge = |name, help, label| {
            registered(&registry, IntGaugeVec::new(Opts::new(name, help), &[label]))
        };
        let in_flight = gauge("requeue_push_in_flight", "Deliveries in flight.", "kind");
        let open = gauge(
            "requeue_push_circuit_open",
            "1 if the target cannot be reached, so that it gets no jobs, otherwise 0.",
            "target",
        );
        for (label, counts) in &counted.counts {
            for (result, count) in RESULTS.iter().zip(counts) {
                deliveries.with_label_values(&[label.as_str(), result]).inc_by(*count);
            }
            unsettled.with_label_values(&[label]).inc_by(counts[COUNTS - 1]);
        }
        for kind in &status.kinds {
            in_flight.with_label_values(&[label(&kind.kind)]).add(kind.in_flight as i64);
        }
        for (n, target) in status.targets.iter().enumerate() {
            let is_open = matches!(target.circuit, CircuitState::Open | CircuitState::HalfOpen);
            let label = if n < limit { target.target.as_str() } else { OTHERS };
            let open = open.with_label_values(&[label]);
            open.set(open.get().max(i64::from(is_open)));
        }
        let mut families = registry.gather();
        families.push(histogram(&counted.durations));
        families
    }
}

fn histogram(durations: &DurationHistogram) -> MetricFamily {
    let mut count = 0;
    let buckets = DURATION_BOUNDS.iter().zip(durations.buckets).map(|(bound, more)| {
        count += more;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(count);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(durations.count());
    histogram.set_sample_sum(durations.sum.as_secs_f64());
    let mut metric = Metric::default();
    metric.set_histogram(histogram);
    let mut family = MetricFamily::default();
    family.set_name("requeue_push_duration_seconds".to_owned());
    family.set_help("How long deliveries took.".to_owned());
    family.set_field_type(MetricType::HISTOGRAM);
    family.set_metric(vec![metric]);
    family
}

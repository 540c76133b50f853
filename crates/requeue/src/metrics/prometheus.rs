//! Exports the metrics of queues and workers to Prometheus. Needs the feature `prometheus`.
//!
//! Names, labels and buckets are those that Kubernetes dashboards use: `workqueue_*` and
//! `controller_runtime_*` as in controller-runtime, and `requeue_*` for additional metrics.
//! `docs/metrics.md` lists all of them, and `docs/grafana/` contains a dashboard.
//!
//! ```
//! use requeue::prometheus::Exporter;
//! use requeue::{Metrics, Options, Queue};
//!
//! let metrics = Metrics::new();
//! let queue = Queue::with(Options::new().metrics(&metrics, "orders")?);
//! queue.add("order-7");
//!
//! // Return this as the response to a scrape, with the type `Exporter::CONTENT_TYPE`.
//! let text = Exporter::new(&metrics).text();
//! assert!(text.contains(r#"workqueue_adds_total{controller="orders",name="orders"} 1"#));
//! # Ok::<(), requeue::NameError>(())
//! ```

#[cfg(test)]
mod exposition;
mod priorities;
mod table;

use super::{Histogram, Metrics};
use ::prometheus::core::{Collector, Desc};
use ::prometheus::proto::{self, LabelPair, Metric, MetricFamily, MetricType};
use ::prometheus::{TEXT_FORMAT, TextEncoder};
use parking_lot::Mutex;
use priorities::Priorities;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;
use table::{QUEUES, Read, Row, WORKERS};

/// Labels of every queue metric. Both contain the queue's name, as in controller-runtime.
const QUEUE_LABELS: [&str; 2] = ["controller", "name"];

/// Labels of every worker metric.
const WORKER_LABELS: [&str; 1] = ["controller"];

/// How the `prometheus` crate writes small bounds, and how Go's client writes them. Prometheus
/// before version 3 stores the text, and queries use Go's.
const SPELLINGS: [(&str, &str); 5] = [
    ("le=\"0.00000001\"", "le=\"1e-08\""),
    ("le=\"0.0000001\"", "le=\"1e-07\""),
    ("le=\"0.000001\"", "le=\"1e-06\""),
    ("le=\"0.000009999999999999999\"", "le=\"9.999999999999999e-06\""),
    ("le=\"0.00009999999999999999\"", "le=\"9.999999999999999e-05\""),
];

/// Exports a [`Metrics`] registry to Prometheus.
///
/// [`text`](Self::text) returns the complete response to a scrape. If you have a
/// `prometheus::Registry` of your own, register the exporter there: it is a `Collector`. A
/// registry accepts only one exporter, because a second one would have the same metric names.
/// The exporter stores nothing but the priorities it has seen.
///
/// ```
/// use requeue::{Metrics, prometheus::Exporter};
///
/// let registry = prometheus::Registry::new();
/// registry.register(Box::new(Exporter::new(&Metrics::new())))?;
/// let second = registry.register(Box::new(Exporter::new(&Metrics::new())));
/// assert!(matches!(second, Err(prometheus::Error::AlreadyReg)));
/// # Ok::<(), prometheus::Error>(())
/// ```
///
/// The encoder of the `prometheus` crate writes the smallest bounds as `le="0.00000001"`, where
/// [`text`](Self::text) writes Go's `le="1e-08"`. Prometheus 3 treats both alike. For earlier
/// versions, append [`text`](Self::text) to the output of your registry instead of registering
/// the exporter.
pub struct Exporter {
    metrics: Metrics,
    descs: Vec<Desc>,
    priorities: Mutex<Priorities>,
}

impl Exporter {
    /// The HTTP content type of [`text`](Self::text).
    pub const CONTENT_TYPE: &str = TEXT_FORMAT;

    /// Creates an exporter for `metrics`, including queues and workers that are created later.
    pub fn new(metrics: &Metrics) -> Self {
        let queues = QUEUES.iter().map(|row| row.desc(&QUEUE_LABELS));
        let workers = WORKERS.iter().map(|row| row.desc(&WORKER_LABELS));
        Exporter {
            metrics: metrics.clone(),
            descs: queues.chain(workers).collect(),
            priorities: Mutex::default(),
        }
    }

    /// Returns all metrics in Prometheus' text format 0.0.4, sorted by name. Empty if nothing
    /// reports.
    pub fn text(&self) -> String {
        let mut families = self.collect();
        families.sort_by(|a, b| a.name().cmp(b.name()));
        let text = TextEncoder::new().encode_to_string(&families);
        let text =
            text.expect("every family has a name and metrics, and writing to a string cannot fail");
        // Quotes in label values are escaped, so this replaces only bounds.
        SPELLINGS.iter().fold(text, |text, (from, to)| text.replace(from, to))
    }
}

impl Collector for Exporter {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (queues, workers) = (self.metrics.gather(), self.metrics.gather_workers());
        let queues = self.priorities.lock().show(queues);
        let queues =
            QUEUES.iter().map(|row| row.family(&queues, &QUEUE_LABELS, |queue| &queue.report.name));
        let workers =
            WORKERS.iter().map(|row| row.family(&workers, &WORKER_LABELS, |worker| &worker.name));
        // Encoders reject a family without metrics.
        queues.chain(workers).filter(|family| !family.get_metric().is_empty()).collect()
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Exporter").field(&self.metrics).finish()
    }
}

impl<R> Row<R> {
    fn desc(&self, labels: &[&str]) -> Desc {
        let labels = labels.iter().copied().chain(self.read.label()).map(str::to_owned);
        Desc::new(self.name.to_owned(), self.help.to_owned(), labels.collect(), HashMap::new())
            .expect("the names in the table are valid")
    }

    /// Returns all metrics of this name. `name` returns the value of each of `labels`.
    fn family(&self, reports: &[R], labels: &[&str], name: fn(&R) -> &str) -> MetricFamily {
        let metrics = reports.iter().flat_map(|report| {
            let labels = labels.iter().map(|&key| label(key, name(report))).collect();
            self.read.metrics(report, labels)
        });
        let mut family = MetricFamily::default();
        family.set_name(self.name.to_owned());
        family.set_help(self.help.to_owned());
        family.set_field_type(self.read.kind());
        family.set_metric(metrics.collect());
        family
    }
}

impl<R> Read<R> {
    fn kind(&self) -> MetricType {
        match self {
            Read::Counter(_) | Read::Counters(..) => MetricType::COUNTER,
            Read::Gauge(_) | Read::Gauges(..) => MetricType::GAUGE,
            Read::Histogram(_) => MetricType::HISTOGRAM,
        }
    }

    /// The label that distinguishes the metrics of one report.
    fn label(&self) -> Option<&'static str> {
        match self {
            Read::Counters(label, _) | Read::Gauges(label, _) => Some(label),
            Read::Counter(_) | Read::Gauge(_) | Read::Histogram(_) => None,
        }
    }

    fn metrics(&self, report: &R, labels: Vec<LabelPair>) -> Vec<Metric> {
        let labelled = |name: &str, value: &str| {
            labels.iter().cloned().chain([label(name, value)]).collect::<Vec<_>>()
        };
        match self {
            Read::Counter(read) => vec![counter(labels, read(report))],
            Read::Gauge(read) => vec![gauge(labels, read(report))],
            Read::Histogram(read) => vec![histogram(labels, read(report))],
            Read::Counters(name, read) => {
                let counter = |(value, n): &(String, u64)| counter(labelled(name, value), *n);
                read(report).iter().map(counter).collect()
            }
            Read::Gauges(name, read) => {
                let gauge = |(value, n): &(String, u64)| gauge(labelled(name, value), *n as f64);
                read(report).iter().map(gauge).collect()
            }
        }
    }
}

fn label(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

fn counter(labels: Vec<LabelPair>, value: u64) -> Metric {
    let mut counter = proto::Counter::default();
    counter.set_value(value as f64);
    let mut metric = Metric::from_label(labels);
    metric.set_counter(counter);
    metric
}

fn gauge(labels: Vec<LabelPair>, value: f64) -> Metric {
    let mut gauge = proto::Gauge::default();
    gauge.set_value(value);
    let mut metric = Metric::from_label(labels);
    metric.set_gauge(gauge);
    metric
}

fn histogram(labels: Vec<LabelPair>, value: &Histogram) -> Metric {
    let buckets = value.buckets().map(|(bound, count)| {
        let mut bucket = proto::Bucket::default();
        bucket.set_upper_bound(upper_bound(bound));
        bucket.set_cumulative_count(count);
        bucket
    });
    let mut histogram = proto::Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(value.count());
    histogram.set_sample_sum(value.sum().as_secs_f64());
    let mut metric = Metric::from_label(labels);
    metric.set_histogram(histogram);
    metric
}

/// Converts to seconds like Go's client: there each bound is ten times the previous one, which
/// in floating point is not always a power of ten.
fn upper_bound(bound: Duration) -> f64 {
    match bound.as_nanos() {
        10_000 => 9.999999999999999e-6,
        100_000 => 9.999999999999999e-5,
        _ => bound.as_secs_f64(),
    }
}

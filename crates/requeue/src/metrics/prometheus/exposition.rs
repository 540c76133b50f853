//! Compares the exported text with the declarations in Kubernetes' own code and with our
//! documents.

use super::super::Metrics;
use super::super::worker::{RunEnd, RunResult};
use super::Exporter;
use crate::options::Options;
use crate::queue::Queue;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// The declaration of a metric: its type, its labels without `le`, and its bounds.
#[derive(Debug, PartialEq, Eq, Default)]
struct Declared {
    kind: String,
    labels: BTreeSet<String>,
    bounds: Vec<String>,
}

type Row = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);

/// `prometheus.ExponentialBuckets(10e-9, 10, 12)`, in the text that client_golang 1.24
/// writes for it.
const TENS: &[&str] = &[
    "1e-08",
    "1e-07",
    "1e-06",
    "9.999999999999999e-06",
    "9.999999999999999e-05",
    "0.001",
    "0.01",
    "0.1",
    "1",
    "10",
    "100",
    "1000",
    "+Inf",
];

const RECONCILE_TIME: &[&str] = &[
    "0.005", "0.01", "0.025", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3", "0.35", "0.4", "0.45",
    "0.5", "0.6", "0.7", "0.8", "0.9", "1", "1.25", "1.5", "1.75", "2", "2.5", "3", "3.5", "4",
    "4.5", "5", "6", "7", "8", "9", "10", "15", "20", "25", "30", "40", "50", "60", "+Inf",
];

const QUEUE: &[&str] = &["controller", "name"];

/// sigs.k8s.io/controller-runtime v0.25.2, pkg/internal/metrics/workqueue.go. The metrics of
/// k8s.io/component-base v0.37.2 have the same names and types, the label `name`, and the first ten
/// of the bounds.
const QUEUES: &[Row] = &[
    ("workqueue_depth", "gauge", &["controller", "name", "priority"], &[]),
    ("workqueue_adds_total", "counter", QUEUE, &[]),
    ("workqueue_queue_duration_seconds", "histogram", QUEUE, TENS),
    ("workqueue_work_duration_seconds", "histogram", QUEUE, TENS),
    ("workqueue_unfinished_work_seconds", "gauge", QUEUE, &[]),
    ("workqueue_longest_running_processor_seconds", "gauge", QUEUE, &[]),
    ("workqueue_retries_total", "counter", QUEUE, &[]),
];

/// sigs.k8s.io/controller-runtime v0.25.2, pkg/internal/controller/metrics/metrics.go.
const WORKERS: &[Row] = &[
    ("controller_runtime_reconcile_total", "counter", &["controller", "result"], &[]),
    ("controller_runtime_reconcile_errors_total", "counter", &["controller"], &[]),
    ("controller_runtime_terminal_reconcile_errors_total", "counter", &["controller"], &[]),
    ("controller_runtime_reconcile_panics_total", "counter", &["controller"], &[]),
    ("controller_runtime_reconcile_timeouts_total", "counter", &["controller"], &[]),
    ("controller_runtime_reconcile_time_seconds", "histogram", &["controller"], RECONCILE_TIME),
    ("controller_runtime_max_concurrent_reconciles", "gauge", &["controller"], &[]),
    ("controller_runtime_active_workers", "gauge", &["controller"], &[]),
];

const OURS: &[Row] = &[
    ("requeue_waiting_keys", "gauge", QUEUE, &[]),
    ("requeue_oldest_ready_seconds", "gauge", QUEUE, &[]),
    ("requeue_coalesced_adds_total", "counter", QUEUE, &[]),
    ("requeue_dropped_total", "counter", QUEUE, &[]),
    ("requeue_lateness_seconds", "histogram", QUEUE, TENS),
];

#[test]
fn names_types_labels_and_bounds_are_those_of_kubernetes() {
    let declared = QUEUES.iter().chain(WORKERS).chain(OURS);
    let declared = declared.map(|&(name, kind, labels, bounds)| {
        let owned = |strings: &[&str]| strings.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
        let labels = owned(labels).into_iter().collect();
        (name.to_owned(), Declared { kind: kind.to_owned(), labels, bounds: owned(bounds) })
    });
    assert_eq!(parse(&exposition()), declared.collect());
}

#[test]
fn every_run_of_a_worker_is_in_the_text() {
    let text = exposition();
    for line in [
        r#"controller_runtime_reconcile_total{controller="orders",result="error"} 2"#,
        r#"controller_runtime_reconcile_total{controller="orders",result="requeue"} 3"#,
        r#"controller_runtime_reconcile_total{controller="orders",result="requeue_after"} 4"#,
        r#"controller_runtime_reconcile_total{controller="orders",result="success"} 1"#,
        r#"controller_runtime_reconcile_errors_total{controller="orders"} 2"#,
        r#"controller_runtime_terminal_reconcile_errors_total{controller="orders"} 5"#,
        r#"controller_runtime_reconcile_panics_total{controller="orders"} 6"#,
        r#"controller_runtime_reconcile_timeouts_total{controller="orders"} 7"#,
        r#"controller_runtime_reconcile_time_seconds_bucket{controller="orders",le="0.01"} 0"#,
        r#"controller_runtime_reconcile_time_seconds_bucket{controller="orders",le="0.025"} 10"#,
        r#"controller_runtime_reconcile_time_seconds_sum{controller="orders"} 0.25"#,
        r#"controller_runtime_reconcile_time_seconds_count{controller="orders"} 10"#,
        r#"controller_runtime_max_concurrent_reconciles{controller="orders"} 8"#,
        r#"controller_runtime_active_workers{controller="orders"} 1"#,
    ] {
        assert!(text.lines().any(|exposed| exposed == line), "{line} in:\n{text}");
    }
}

#[test]
fn the_dashboard_queries_exactly_the_exported_metrics() {
    let text = exposition();
    let samples: BTreeSet<&str> = text.lines().filter_map(|line| line.split('{').next()).collect();
    let dashboard = document("docs/grafana/requeue.json");
    let queried = metric_names(&dashboard);
    assert_eq!(queried.difference(&samples).collect::<Vec<_>>(), Vec::<&&str>::new());
    for name in parse(&text).keys() {
        assert!(
            queried.iter().any(|queried| queried.trim_end_matches("_bucket") == name),
            "{name}"
        );
    }
}

#[test]
fn the_list_of_metrics_is_complete() {
    let document = document("docs/metrics.md");
    let listed = document.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let exposed = parse(&exposition());
    assert_eq!(listed.collect::<BTreeSet<_>>(), exposed.keys().map(String::as_str).collect());
}

/// The text for one queue and one worker, both named `orders`.
fn exposition() -> String {
    let metrics = Metrics::new();
    let options = Options::new().metrics(&metrics, "orders");
    let _queue = Queue::<&str>::with(options.expect("no other has the name"));
    let worker = metrics.worker("orders").expect("no other has the name");
    let runs = [
        (RunResult::Success, 1),
        (RunResult::Error, 2),
        (RunResult::Requeue, 3),
        (RunResult::RequeueAfter, 4),
    ];
    let runs = runs.iter().flat_map(|&(result, times)| std::iter::repeat_n(result, times));
    for (n, result) in runs.enumerate() {
        let (given_up, panicked, timed_out) = (n < 5, n < 6, n < 7);
        worker.started();
        worker.ended(RunEnd { result, panicked, timed_out, given_up }, Duration::from_millis(25));
    }
    worker.set_concurrency(8);
    worker.started();
    Exporter::new(&metrics).text()
}

fn parse(text: &str) -> BTreeMap<String, Declared> {
    let mut metrics: BTreeMap<String, Declared> = BTreeMap::new();
    let mut family = "";
    for line in text.lines() {
        if let Some(line) = line.strip_prefix("# TYPE ") {
            let (name, kind) = line.split_once(' ').expect("a type has a name");
            family = name;
            let declared = Declared { kind: kind.to_owned(), ..Declared::default() };
            assert!(metrics.insert(name.to_owned(), declared).is_none(), "{name} comes twice");
        }
        if line.starts_with('#') {
            continue;
        }
        let declared = metrics.get_mut(family).expect("a type comes before its samples");
        let (name, rest) = line.split_once('{').expect("every sample has labels");
        let suffix = name.strip_prefix(family).expect("samples follow their type");
        let is_histogram = declared.kind == "histogram";
        assert_eq!(is_histogram, ["_bucket", "_sum", "_count"].contains(&suffix), "{line}");
        let (labels, _) = rest.split_once("} ").expect("every sample has a value");
        for label in labels.split(',') {
            let (label, value) = label.split_once('=').expect("every label has a value");
            match label {
                "le" => declared.bounds.push(value.trim_matches('"').to_owned()),
                _ => drop(declared.labels.insert(label.to_owned())),
            }
        }
    }
    metrics
}

/// All words that begin like our metrics.
fn metric_names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let prefixes = ["workqueue_", "controller_runtime_", "requeue_"];
    words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix))).collect()
}

fn document(path: &str) -> String {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

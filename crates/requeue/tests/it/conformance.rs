//! Replays traces recorded from client-go (`conformance/`) and compares every result and every
//! state, step by step.
//!
//! `REQUEUE_TRACES=DIR` replays the `*.jsonl` and `*.jsonl.gz` files of that folder instead of
//! the traces in the repository.

mod limiter;
mod metrics;
mod replay;
mod trace;

use flate2::read::GzDecoder;
use limiter::RecordedDelays;
use requeue::limiter::{ExponentialFailure, RateLimiter};
use requeue::{
    DelayingQueue, ManualClock, Metrics, Options, PriorityQueue, Queue, QueueAdapter,
    RateLimitingQueue,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use trace::Trace;

/// Intentional differences from client-go, by the flag of the traces that show them. Each has a
/// test in `tests/it/differences.rs`.
const DIFFERENCES: [&str; 4] =
    ["stray_done", "multi_drain", "noop_shut_down", "platform_dependent"];

/// Why a trace is skipped. A stray `done` is harmless in controller-runtime's priority queue,
/// so those traces are replayed.
fn difference(trace: &Trace) -> Option<&'static str> {
    let mut flags = DIFFERENCES.into_iter();
    flags.find(|&flag| {
        trace.config.contains_key(flag) && (trace.kind != "priority" || flag != "stray_done")
    })
}

/// Returns how many steps were replayed.
fn replay_trace(trace: &Trace) -> Result<usize, String> {
    let mut steps = &trace.steps[..];
    let clock = ManualClock::new();
    let delays = RecordedDelays::default();
    let options = || match trace.config.contains_key("metrics") {
        true => Options::new().clock(&clock).metrics(&Metrics::new(), "oracle"),
        false => Ok(Options::new().clock(&clock)),
    };
    let options = || options().expect("a new registry");
    let limiter = || limiter::build(trace.limiter());
    match trace.kind.as_str() {
        "queue" => replay::replay(&Queue::with(options()), &clock, &delays, steps)?,
        "delaying" => {
            replay::replay(&DelayingQueue::with(options()), &clock, &delays, steps)?;
            replay_adapted(ExponentialFailure::default(), &RecordedDelays::default(), steps)?;
        }
        "rate_limiting" | "metrics" => {
            let queue = RateLimitingQueue::with(delays.record(limiter()), options());
            replay::replay(&queue, &clock, &delays, steps)?;
            if trace.kind == "rate_limiting" {
                replay_adapted(delays.record(limiter()), &delays, steps)?;
            }
        }
        "priority" => {
            // From here on, requeue differs on purpose: see `tests/it/priority.rs`.
            let end = steps.iter().position(|step| step.op.starts_with("shut_down"));
            steps = &steps[..end.unwrap_or(steps.len())];
            let queue = PriorityQueue::with(delays.record(limiter()), options());
            replay::replay(&queue, &clock, &delays, steps)?;
        }
        "limiter" => limiter::replay(limiter(), steps)?,
        other => return Err(format!("unknown kind {other:?}")),
    }
    Ok(steps.len())
}

/// Replays a trace on an adapter.
fn replay_adapted(
    limiter: impl RateLimiter<String>,
    delays: &RecordedDelays,
    steps: &[trace::Step],
) -> Result<(), String> {
    let clock = ManualClock::new();
    let inner = Queue::with(Options::new().clock(&clock));
    let queue = QueueAdapter::new(inner, limiter, Options::new().clock(&clock));
    replay::replay(&queue, &clock, delays, steps).map_err(|error| format!("adapter: {error}"))
}

/// How much of one kind was replayed.
#[derive(Default)]
struct Tally {
    traces: usize,
    steps: usize,
    left_out: BTreeMap<&'static str, usize>,
}

fn lines(path: &Path) -> impl Iterator<Item = String> {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let read: Box<dyn Read> = match path.extension() {
        Some(extension) if extension == "gz" => Box::new(GzDecoder::new(file)),
        _ => Box::new(file),
    };
    let path = path.to_owned();
    let lines = BufReader::new(read).lines();
    lines.map(move |line| line.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

fn trace_files() -> Vec<PathBuf> {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/traces");
    let dir = std::env::var_os("REQUEUE_TRACES").map_or(PathBuf::from(kept), PathBuf::from);
    let entries = std::fs::read_dir(&dir);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let paths = entries.map(|entry| entry.expect("a folder can be read to its end").path());
    let is_trace = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.ends_with(".jsonl") || name.ends_with(".jsonl.gz")
    };
    let mut files: Vec<_> = paths.filter(is_trace).collect();
    files.sort();
    files
}

#[test]
fn every_trace_gives_the_same_results_as_client_go() {
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let mut failures = Vec::new();
    for path in trace_files() {
        for line in lines(&path) {
            let trace: Trace = serde_json::from_str(&line)
                .unwrap_or_else(|error| panic!("{}: {error}: {line}", path.display()));
            let tally = tallies.entry(trace.kind.clone()).or_default();
            if let Some(flag) = difference(&trace) {
                *tally.left_out.entry(flag).or_default() += 1;
                continue;
            }
            tally.traces += 1;
            match replay_trace(&trace) {
                Ok(steps) => tally.steps += steps,
                Err(error) => failures.push(format!("{}: {error}", trace.id)),
            }
        }
    }
    for (kind, tally) in &tallies {
        let Tally { traces, steps, left_out } = tally;
        let left_out: Vec<_> = left_out.iter().map(|(flag, n)| format!("{n} {flag}")).collect();
        let left_out = if left_out.is_empty() { "none".to_owned() } else { left_out.join(", ") };
        // Writes past the test harness, which shows output only of failed tests.
        let mut out = std::io::stdout();
        let replayed = format!("{kind}: {traces} traces, {steps} steps replayed");
        writeln!(out, "{replayed}; left out: {left_out}").expect("stdout is open");
    }
    assert!(failures.is_empty(), "{} traces differ:\n{}", failures.len(), failures.join("\n"));
    assert!(tallies.values().any(|tally| tally.traces > 0), "no trace was replayed");
}

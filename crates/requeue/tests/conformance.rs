//! Replays what the real client-go answered (`conformance/`) and compares every
//! answer and every state, step by step.
//!
//! `REQUEUE_TRACES=DIR` replays the `*.jsonl` and `*.jsonl.gz` of that folder
//! instead of the traces that are kept here.

#![cfg(not(requeue_loom))]

use flate2::read::GzDecoder;
use requeue::{Added, DelayingQueue, Get, Held, ManualClock, Options, Queue, WorkQueue};
use requeue::{ShutDownWithDrain, TryGetError};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Where we differ from client-go on purpose, by the flag of the traces that show
/// it; each has a test in `tests/differences.rs`.
const DIFFERENCES: [&str; 4] =
    ["stray_done", "multi_drain", "noop_shut_down", "platform_dependent"];

#[derive(Deserialize)]
struct Trace {
    id: String,
    kind: String,
    config: BTreeMap<String, serde_json::Value>,
    steps: Vec<Step>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Step {
    op: String,
    #[serde(default)]
    key: Option<String>,
    ns: Option<i64>,
    n: Option<usize>,
    value: Option<bool>,
    #[serde(default)]
    shutdown: bool,
    #[serde(default)]
    blocked: bool,
    woke: Option<Got>,
    len: Option<usize>,
    #[serde(default)]
    drained: Vec<bool>,
    // Of kinds that are not replayed here.
    #[serde(default, rename = "keys")]
    _keys: Vec<String>,
    #[serde(rename = "priority")]
    _priority: Option<i32>,
    #[serde(default, rename = "rate_limited")]
    _rate_limited: bool,
    #[serde(default, rename = "when_ns")]
    _when_ns: Vec<i64>,
    #[serde(rename = "m")]
    _metrics: Option<serde_json::Value>,
}

/// The answer of a get.
#[derive(Deserialize, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Got {
    key: Option<String>,
    #[serde(default)]
    shutdown: bool,
    #[serde(rename = "priority")]
    _priority: Option<i32>,
}

/// The calls that a trace makes, on whichever queue.
trait Subject: WorkQueue<Key = String> + Sized {
    fn add_after(&self, key: String, delay: Duration) -> Added;
    fn get(&self) -> Get<'_, Self>;
    fn try_get(&self) -> Result<Held<'_, Self>, TryGetError>;
    fn drain(&self) -> ShutDownWithDrain<'_, Self>;
}

macro_rules! subject {
    ($queue:ident, $add_after:expr) => {
        impl Subject for $queue<String> {
            fn add_after(&self, key: String, delay: Duration) -> Added {
                $add_after(self, key, delay)
            }
            fn get(&self) -> Get<'_, Self> {
                $queue::get(self)
            }
            fn try_get(&self) -> Result<Held<'_, Self>, TryGetError> {
                $queue::try_get(self)
            }
            fn drain(&self) -> ShutDownWithDrain<'_, Self> {
                self.shut_down_with_drain()
            }
        }
    };
}
subject!(DelayingQueue, DelayingQueue::add_after);
subject!(Queue, |_: &Queue<String>, _, _| panic!("a plain queue does not delay"));

/// A future that is polled only when it was woken: a lost wake-up fails the replay.
struct Parked<F> {
    future: Pin<Box<F>>,
    woken: Arc<Flag>,
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl<F: Future> Parked<F> {
    fn new(future: F) -> Self {
        Parked { future: Box::pin(future), woken: Arc::new(Flag(AtomicBool::new(true))) }
    }

    fn poll(&mut self) -> Poll<F::Output> {
        if !self.woken.0.swap(false, Ordering::SeqCst) {
            return Poll::Pending;
        }
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

fn replay<Q: Subject>(queue: &Q, clock: &ManualClock, steps: &[Step]) -> Result<(), String> {
    let mut held: Vec<Held<'_, Q>> = Vec::new();
    let mut parked: Option<Parked<Get<'_, Q>>> = None;
    let mut drains: Vec<Option<Parked<ShutDownWithDrain<'_, Q>>>> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let fail = |what: String| Err(format!("step {number}: {what}\n  {step:?}"));
        let key = || step.key.clone().unwrap_or_default();
        let ns = step.ns.unwrap_or_default();
        match step.op.as_str() {
            "add" => drop(queue.add(key())),
            "add_after" => drop(queue.add_after(key(), Duration::from_nanos(ns.max(0) as u64))),
            "advance" => clock.advance(Duration::from_nanos(ns as u64)),
            "get" if step.blocked => {
                let mut get = Parked::new(queue.get());
                if get.poll().is_ready() {
                    return fail("get answered at once".into());
                }
                parked = Some(get);
            }
            "get" => {
                let got = match queue.try_get() {
                    Ok(key) => {
                        held.push(key);
                        held.last().map(|held| held.key().clone())
                    }
                    Err(TryGetError::ShutDown) => None,
                    Err(TryGetError::Empty) => return fail("get would block".into()),
                };
                if got != step.key || step.shutdown != got.is_none() {
                    return fail(format!("got {got:?}"));
                }
            }
            "done" => match held.iter().position(|held| *held.key() == key()) {
                Some(index) => held.remove(index).done(),
                None => return fail("nobody holds it".into()),
            },
            "len" if Some(queue.len()) != step.n => return fail(format!("len is {}", queue.len())),
            "len" => {}
            "shut_down" => queue.shut_down(requeue::StopMode::Now),
            "shut_down_with_drain" => drains.push(Some(Parked::new(queue.drain()))),
            "shutting_down" if Some(queue.shutting_down()) != step.value => {
                return fail(format!("shutting_down is {}", queue.shutting_down()));
            }
            "shutting_down" => {}
            other => return fail(format!("unknown operation {other:?}")),
        }
        // A drain is let go before a getter runs on, as where it was recorded.
        for drain in &mut drains {
            if drain.as_mut().is_some_and(|drain| drain.poll().is_ready()) {
                *drain = None;
            }
        }
        let woke = match parked.as_mut().filter(|_| !step.blocked).map(Parked::poll) {
            Some(Poll::Ready(got)) => {
                parked = None;
                let key = got.as_ref().map(|held| held.key().clone());
                held.extend(got);
                Some(Got { shutdown: key.is_none(), key, _priority: None })
            }
            Some(Poll::Pending) | None => None,
        };
        if woke != step.woke {
            return fail(format!("woke {woke:?}"));
        }
        if Some(queue.len()) != step.len {
            return fail(format!("len is {}", queue.len()));
        }
        let drained: Vec<bool> = drains.iter().map(Option::is_none).collect();
        if drained != step.drained {
            return fail(format!("drained is {drained:?}"));
        }
    }
    Ok(())
}

fn replay_trace(trace: &Trace) -> Option<Result<(), String>> {
    let clock = ManualClock::new();
    let options = Options::new().clock(&clock);
    Some(match trace.kind.as_str() {
        "queue" => replay(&Queue::with(options), &clock, &trace.steps),
        "delaying" => replay(&DelayingQueue::with(options.clone()), &clock, &trace.steps)
            .and_then(|()| replay_over_a_given_queue(options, &trace.steps)),
        _ => return None,
    })
}

/// The same through an injected inner queue, on a clock of its own.
fn replay_over_a_given_queue(options: Options, steps: &[Step]) -> Result<(), String> {
    let clock = ManualClock::new();
    let inner = Arc::new(Queue::with(options.clock(&clock)));
    let queue = DelayingQueue::over(inner, Options::new().clock(&clock));
    replay(&queue, &clock, steps).map_err(|error| format!("over a given queue: {error}"))
}

/// What was replayed of one kind.
#[derive(Default)]
struct Tally {
    traces: usize,
    steps: usize,
    left_out: BTreeMap<&'static str, usize>,
    not_built: usize,
}

fn lines(path: &Path) -> Box<dyn BufRead> {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let read: Box<dyn Read> = match path.extension() {
        Some(extension) if extension == "gz" => Box::new(GzDecoder::new(file)),
        _ => Box::new(file),
    };
    Box::new(BufReader::new(read))
}

fn trace_files() -> Vec<PathBuf> {
    let dir = std::env::var_os("REQUEUE_TRACES").map(PathBuf::from);
    let dir = dir
        .unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/traces").into());
    let entries =
        std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let is_trace = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.ends_with(".jsonl") || name.ends_with(".jsonl.gz")
    };
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("a folder can be read to its end").path())
        .filter(is_trace)
        .collect();
    files.sort();
    files
}

#[test]
fn every_trace_is_answered_as_client_go_answered() {
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let mut failures = Vec::new();
    for path in trace_files() {
        for line in lines(&path).lines() {
            let line = line.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let trace: Trace = serde_json::from_str(&line)
                .unwrap_or_else(|error| panic!("{}: {error}: {line}", path.display()));
            let tally = tallies.entry(trace.kind.clone()).or_default();
            let flag = DIFFERENCES.iter().find(|&&flag| trace.config.contains_key(flag));
            if let Some(flag) = flag {
                *tally.left_out.entry(flag).or_default() += 1;
                continue;
            }
            match replay_trace(&trace) {
                None => tally.not_built += 1,
                Some(result) => {
                    tally.traces += 1;
                    tally.steps += trace.steps.len();
                    failures.extend(result.err().map(|error| format!("{}: {error}", trace.id)));
                }
            }
        }
    }
    for (kind, tally) in &tallies {
        let Tally { traces, steps, left_out, not_built } = tally;
        let left_out: Vec<_> = left_out.iter().map(|(flag, n)| format!("{n} {flag}")).collect();
        let left_out = if left_out.is_empty() { "none".to_owned() } else { left_out.join(", ") };
        // Past the test harness, which shows what tests print only when they fail.
        writeln!(
            std::io::stdout(),
            "{kind}: {traces} traces, {steps} steps replayed; left out: {left_out}; kind not built: {not_built}"
        )
        .expect("stdout is open");
    }
    assert!(failures.is_empty(), "{} traces differ:\n{}", failures.len(), failures.join("\n"));
    assert!(tallies.values().any(|tally| tally.traces > 0), "no trace was replayed");
}

//! The spans of attempts, as a `tracing` subscriber receives them.

use crate::support::TestEnv;
use crate::worker::{Log, SECOND};
use requeue_jobs::{JobWorker, Outcome};
use requeue_testkit::block_on;
use std::fmt::Debug;
use std::future::pending;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// A subscriber that records each call as one line. These tests have only one span at a time.
#[derive(Clone, Default)]
struct RecordingSubscriber(Log);

struct FieldText(String);

impl Visit for FieldText {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl RecordingSubscriber {
    fn note(&self, call: &str, visit: impl FnOnce(&mut FieldText)) {
        let mut line = FieldText(call.to_owned());
        visit(&mut line);
        self.0.record(line.0);
    }
}

impl Subscriber for RecordingSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("requeue") || metadata.target().starts_with("it::worker")
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.note(span.metadata().name(), |line| span.record(line));
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        self.note("record", |line| values.record(line));
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        self.note("event", |line| event.record(line));
    }
    fn enter(&self, _: &Id) {
        self.note("enter", |_| {});
    }
    fn exit(&self, _: &Id) {
        self.note("exit", |_| {});
    }
}

/// A subscriber that panics whenever it is called.
struct PanickingSubscriber;

impl Subscriber for PanickingSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("requeue")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {
        panic!("the subscriber panics")
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        panic!("the subscriber panics")
    }
    fn enter(&self, _: &Id) {
        panic!("the subscriber panics")
    }
    fn exit(&self, _: &Id) {
        panic!("the subscriber panics")
    }
    fn try_close(&self, _: Id) -> bool {
        panic!("the subscriber panics")
    }
}

/// Runs a worker with one job, and then `more`. Returns the recorded calls.
fn recorded(worker: fn(JobWorker) -> JobWorker, id: &str, more: impl Fn(&TestEnv)) -> Vec<String> {
    let (env, notes) = (TestEnv::new(), RecordingSubscriber::default());
    env.backoff_without_jitter();
    env.put(id);
    tracing::subscriber::with_default(notes.clone(), || {
        env.spawn(worker(env.worker(&Log::default())), |run| async move {
            tracing::info!("working");
            match run.job.id().as_str() {
                "done" => Ok(Outcome::Done),
                "fail" => Err("the bank is busy".into()),
                _ => pending().await,
            }
        });
        more(&env);
    });
    notes.0.take()
}

#[test]
fn an_attempt_has_a_span_with_its_outcome() {
    let expected = [
        r#"run kind="k" id="done" attempt=1"#,
        "enter", // calling the handler
        "exit",
        "enter", // polling its future
        "event message=working",
        "exit",
        "enter", // dropping it
        "exit",
        r#"record outcome="done""#,
    ];
    assert_eq!(recorded(JobWorker::traced, "done", |_| {}), expected);
}

#[test]
fn a_failure_is_an_event_in_its_span() {
    let notes = recorded(JobWorker::traced, "fail", |_| {});
    let expected = [
        r#"record outcome="retry""#,
        "event message=attempt failed cause=the bank is busy next=RetryIn(1s)",
        "enter", // the callback
        "exit",
    ];
    assert_eq!(notes[notes.len() - 4..], expected);
}

#[test]
fn an_attempt_that_is_stopped_has_an_outcome() {
    let cancelled = recorded(JobWorker::traced, "hang", |env| {
        block_on(env.jobs.cancel("k", "hang")).expect("it exists");
        env.advance(10 * SECOND, 1);
    });
    assert_eq!(cancelled.last().map(String::as_str), Some(r#"record outcome="cancelled""#));
    let lost = recorded(JobWorker::traced, "hang", |env| {
        env.clock.advance(100 * SECOND);
        block_on(env.jobs.claim(["k"], "other").into_future()).expect("the store works");
        env.executor.run();
    });
    assert_eq!(lost.last().map(String::as_str), Some(r#"record outcome="lost""#));
}

#[test]
fn a_worker_that_is_not_traced_opens_no_span() {
    assert_eq!(recorded(|worker| worker, "done", |_| {}), ["event message=working"]);
}

#[test]
fn a_subscriber_that_panics_has_no_effect() {
    let (env, log) = (TestEnv::new(), Log::default());
    env.backoff_without_jitter();
    env.put("i");
    tracing::subscriber::with_default(PanickingSubscriber, || {
        env.spawn(env.worker(&log).traced(), |run| async move {
            Ok(if run.attempt == 1 { Outcome::Retry } else { Outcome::Done })
        });
        env.advance(SECOND, 1);
    });
    assert_eq!(log.take(), ["i the handler requested a retry: again in 1s"]);
    assert_eq!(env.view("i"), None);
}

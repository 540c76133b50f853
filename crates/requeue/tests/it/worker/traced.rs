//! The spans of runs, seen by a subscriber of our own.

use super::executor::Executor;
use super::{Log, SECOND, lock, queue};
use requeue::RateLimitingQueue;
use requeue::worker::{Next, Outcome, Worker};
use std::fmt::Debug;
use std::future::pending;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes down what happens, one line each. All spans of these tests are one at a time.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl Notes {
    fn note(&self, what: &str, visit: impl FnOnce(&mut Line)) {
        let mut line = Line(what.to_owned());
        visit(&mut line);
        lock(&self.0).push(line.0);
    }
}

impl Subscriber for Notes {
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

fn noted(
    traced: bool,
    handler: impl Fn() -> Result<Outcome, &'static str> + Send + Sync + 'static,
) -> Vec<String> {
    let (notes, executor) = (Notes::default(), Executor::default());
    let (queue, _clock) = queue();
    queue.add("a");
    tracing::subscriber::with_default(notes.clone(), || {
        let worker = Worker::new(&queue);
        let worker = if traced { worker.traced() } else { worker };
        let _running = worker.spawn_with(executor.spawner(), move |_| {
            let answer = handler();
            async move {
                tracing::info!("working");
                Ok(answer?)
            }
        });
        executor.run();
    });
    std::mem::take(&mut *lock(&notes.0))
}

#[test]
fn a_run_has_a_span_that_tells_its_outcome() {
    assert_eq!(
        noted(true, || Ok(Outcome::Done)),
        [
            r#"run key="a" attempt=1"#,
            "enter", // the call of the handler
            "exit",
            "enter", // its future
            "event message=working",
            "exit",
            "enter", // dropping it
            "exit",
            "enter", // settling
            r#"record outcome="done""#,
            "exit",
        ]
    );
}

#[test]
fn a_failure_is_an_event_in_its_span() {
    let notes = noted(true, || Err("the bank is busy"));
    assert_eq!(
        notes[notes.len() - 4..],
        [
            "enter",
            r#"record outcome="retry""#,
            "event message=attempt failed cause=the bank is busy next=RetryIn(1s)",
            "exit",
        ]
    );
}

#[test]
fn who_did_not_ask_for_spans_gets_none() {
    assert_eq!(noted(false, || Err("the bank is busy")), ["event message=working"]);
}

/// A subscriber that panics in one of its calls.
struct Broken(&'static str);

impl Broken {
    fn called(&self, call: &str) {
        assert_ne!(self.0, call, "the subscriber fails");
    }
}

impl Subscriber for Broken {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("requeue")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        self.called("new_span");
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {
        self.called("record");
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        self.called("event");
    }
    fn enter(&self, _: &Id) {
        self.called("enter");
    }
    fn exit(&self, _: &Id) {
        self.called("exit");
    }
    fn try_close(&self, _: Id) -> bool {
        self.called("try_close");
        true
    }
}

#[test]
fn a_subscriber_that_panics_changes_nothing() {
    for call in ["new_span", "record", "event", "enter", "exit", "try_close"] {
        let (queue, _clock) = queue();
        let (executor, log) = (Executor::default(), Log::default());
        tracing::subscriber::with_default(Broken(call), || {
            let worker = Worker::new(&queue).traced().on_failure(log.callback());
            let running = worker.spawn_with(executor.spawner(), |run| async move {
                match run.key {
                    "requeue" => Ok(Outcome::RequeueAfter(SECOND)),
                    "retry" => Ok(Outcome::Retry),
                    "dead" => Ok(Outcome::give_up("no such order")),
                    "panic" => panic!("no such bank"),
                    "pending" => pending().await,
                    _ => Ok(Outcome::Done),
                }
            });
            for key in ["requeue", "retry", "dead", "panic", "done", "pending"] {
                queue.add(key);
            }
            executor.run();
            assert_eq!(running.keys()[0].key, "pending", "{call}");
            executor.abort();
        });
        let told: Vec<_> = log.take().into_iter().map(|failure| (failure.0, failure.3)).collect();
        let retry = Next::RetryIn(SECOND);
        assert_eq!(told, [("retry", retry), ("dead", Next::Dead), ("panic", retry)], "{call}");
        for key in ["requeue", "retry", "panic"] {
            assert_eq!(queue.status(key).due_in, Some(SECOND), "{call} of {key}");
        }
        assert!(queue.status("pending").ready, "{call}");
        assert_eq!((queue.len(), queue.waiting()), (1, 3), "{call}");
    }
}

/// The span asks for it.
#[test]
fn a_key_whose_debug_panics_is_worked_on_without_a_span() {
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Unspeakable;
    impl Debug for Unspeakable {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("debug")
        }
    }
    let queue = RateLimitingQueue::new(requeue::limiter::default_controller());
    let (notes, executor) = (Notes::default(), Executor::default());
    queue.add(Unspeakable);
    tracing::subscriber::with_default(notes.clone(), || {
        let worker = Worker::new(&queue).traced();
        let _running = worker.spawn_with(executor.spawner(), |_| async {
            tracing::info!("working");
            Ok(Outcome::Done)
        });
        executor.run();
    });
    assert_eq!(*lock(&notes.0), ["event message=working"]);
    assert_eq!(queue.status(&Unspeakable), requeue::KeyStatus::default());
}

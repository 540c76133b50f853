//! The spans of attempts, as a `tracing` subscriber receives them.

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

/// A subscriber that records each call as one line. These tests have only one span at a time.
#[derive(Clone, Default)]
struct RecordingSubscriber(Arc<Mutex<Vec<String>>>);

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
        lock(&self.0).push(line.0);
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

/// Processes one key, and returns the recorded calls.
fn recorded(
    traced: bool,
    handler: impl Fn() -> Result<Outcome, &'static str> + Send + Sync + 'static,
) -> Vec<String> {
    let (notes, executor) = (RecordingSubscriber::default(), Executor::default());
    let (queue, _clock) = queue();
    queue.add("a");
    tracing::subscriber::with_default(notes.clone(), || {
        let worker = Worker::new(&queue);
        let worker = if traced { worker.traced() } else { worker };
        let _running = worker.spawn_with(executor.spawner(), move |_| {
            let result = handler();
            async move {
                tracing::info!("working");
                Ok(result?)
            }
        });
        executor.run();
    });
    std::mem::take(&mut *lock(&notes.0))
}

#[test]
fn an_attempt_has_a_span_with_its_outcome() {
    assert_eq!(
        recorded(true, || Ok(Outcome::Done)),
        [
            r#"run key="a" attempt=1"#,
            "enter", // calling the handler
            "exit",
            "enter", // polling its future
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
    let notes = recorded(true, || Err("the bank is busy"));
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
fn without_traced_there_are_no_spans() {
    assert_eq!(recorded(false, || Err("the bank is busy")), ["event message=working"]);
}

/// A subscriber that panics in one of its calls.
struct PanickingSubscriber(&'static str);

impl PanickingSubscriber {
    fn called(&self, call: &str) {
        assert_ne!(self.0, call, "the subscriber fails");
    }
}

impl Subscriber for PanickingSubscriber {
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
fn a_subscriber_that_panics_has_no_effect() {
    for call in ["new_span", "record", "event", "enter", "exit", "try_close"] {
        let (queue, _clock) = queue();
        let (executor, log) = (Executor::default(), Log::default());
        tracing::subscriber::with_default(PanickingSubscriber(call), || {
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
        let reported: Vec<_> =
            log.take().into_iter().map(|failure| (failure.0, failure.3)).collect();
        let retry = Next::RetryIn(SECOND);
        assert_eq!(reported, [("retry", retry), ("dead", Next::Dead), ("panic", retry)], "{call}");
        for key in ["requeue", "retry", "panic"] {
            assert_eq!(queue.status(key).due_in, Some(SECOND), "{call} of {key}");
        }
        assert!(queue.status("pending").ready, "{call}");
        assert_eq!((queue.len(), queue.waiting()), (1, 3), "{call}");
    }
}

/// The span contains the key's `Debug` output.
#[test]
fn a_key_whose_debug_panics_is_processed_without_a_span() {
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct PanickingDebug;
    impl Debug for PanickingDebug {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("debug")
        }
    }
    let queue = RateLimitingQueue::new(requeue::limiter::default_controller());
    let (notes, executor) = (RecordingSubscriber::default(), Executor::default());
    queue.add(PanickingDebug);
    tracing::subscriber::with_default(notes.clone(), || {
        let worker = Worker::new(&queue).traced();
        let _running = worker.spawn_with(executor.spawner(), |_| async {
            tracing::info!("working");
            Ok(Outcome::Done)
        });
        executor.run();
    });
    assert_eq!(*lock(&notes.0), ["event message=working"]);
    assert_eq!(queue.status(&PanickingDebug), requeue::KeyStatus::default());
}

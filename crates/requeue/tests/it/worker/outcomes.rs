//! What the worker does with a key, depending on what its handler returns.

use super::executor::Executor;
use super::{Log, MINUTE, Queue, SECOND, entry, lock, queue};
use requeue::limiter::{Bucket, ExponentialFailure};
use requeue::worker::{BoxError, Next, Outcome, Run, Running, Worker};
use requeue::{ManualClock, Options, PriorityQueue, RateLimitingQueue, Remains, Retry, StopMode};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type HandlerResult = Result<Outcome, BoxError>;

/// A worker whose handler returns what a test specifies, and the calls of the handler.
struct Scripted {
    executor: Executor,
    failures: Log,
    dead: Log,
    calls: Arc<Mutex<Vec<(&'static str, u32)>>>,
    running: Running<&'static str>,
}

impl Scripted {
    fn new(
        worker: Worker<Queue>,
        handler: impl Fn(&Run<&'static str>) -> HandlerResult + Send + Sync + 'static,
    ) -> Self {
        let (executor, failures, dead) = (Executor::default(), Log::default(), Log::default());
        let calls = Arc::new(Mutex::new(Vec::new()));
        let worker = worker.on_failure(failures.callback()).on_dead(dead.callback());
        let note = Arc::clone(&calls);
        let running = worker.spawn_with(executor.spawner(), move |run| {
            lock(&note).push((run.key, run.attempt));
            let result = handler(&run);
            async move { result }
        });
        Scripted { executor, failures, dead, calls, running }
    }

    /// Returns the key and the attempt of each call since the last time.
    fn take_calls(&self) -> Vec<(&'static str, u32)> {
        std::mem::take(&mut *lock(&self.calls))
    }
}

/// Returns `true` if the queue contains no key: none held, ready or waiting.
fn has_no_keys(queue: &Queue) -> bool {
    let snapshot = queue.snapshot();
    snapshot.held.is_empty() && snapshot.ready.is_empty() && snapshot.waiting.is_empty()
}

#[test]
fn done_ends_the_hold_and_forgets_failures() {
    let (queue, clock) = queue();
    queue.add_rate_limited("a");
    clock.advance(SECOND);
    let worker = Scripted::new(Worker::new(&queue), |_| Ok(Outcome::Done));
    worker.executor.run();
    assert_eq!(worker.take_calls(), [("a", 2)]);
    assert_eq!(queue.num_requeues("a"), 0);
    assert!(has_no_keys(&queue));
    assert!(worker.failures.take().is_empty());
    assert!(worker.running.keys().is_empty());
}

#[test]
fn requeue_after_adds_the_key_after_the_delay_and_forgets_failures() {
    let (queue, clock) = queue();
    queue.add_rate_limited("a");
    clock.advance(SECOND);
    let worker = Scripted::new(Worker::new(&queue), |_| Ok(Outcome::RequeueAfter(MINUTE)));
    worker.executor.run();
    assert_eq!(worker.take_calls(), [("a", 2)]);
    assert_eq!(queue.status("a").due_in, Some(MINUTE));
    assert_eq!(queue.num_requeues("a"), 0);
    clock.advance(MINUTE);
    worker.executor.run();
    assert_eq!(worker.take_calls(), [("a", 1)]);
    assert!(worker.failures.take().is_empty());
}

#[test]
fn retry_uses_the_delay_of_the_limiter_and_counts_failures() {
    let (queue, clock) = queue();
    let worker = Scripted::new(Worker::new(&queue), |_| Ok(Outcome::Retry));
    queue.add("a");
    for (attempt, delay) in [(1, SECOND), (2, 2 * SECOND), (3, 4 * SECOND)] {
        worker.executor.run();
        assert_eq!(worker.take_calls(), [("a", attempt)]);
        let failure = entry("a", attempt, "the handler requested a retry", Next::RetryIn(delay));
        assert_eq!(worker.failures.take(), [failure]);
        clock.advance(delay - Duration::from_nanos(1));
        assert_eq!(worker.executor.run(), 0);
        clock.advance(Duration::from_nanos(1));
    }
    assert!(worker.dead.take().is_empty());
}

#[test]
fn an_error_is_a_retry_and_the_cause_of_the_failure() {
    let (queue, _clock) = queue();
    let worker = Scripted::new(Worker::new(&queue), |_| Err("the bank is busy".into()));
    queue.add("a");
    worker.executor.run();
    let failure = entry("a", 1, "the bank is busy", Next::RetryIn(SECOND));
    assert_eq!(worker.failures.take(), [failure]);
    assert_eq!(queue.num_requeues("a"), 1);
}

#[test]
fn after_give_up_the_key_is_dead_and_its_failures_are_forgotten() {
    let (queue, clock) = queue();
    queue.add_rate_limited("a");
    clock.advance(SECOND);
    let worker = Scripted::new(Worker::new(&queue), |_| Ok(Outcome::give_up("no such order")));
    worker.executor.run();
    let death = [entry("a", 2, "no such order", Next::Dead)];
    assert_eq!(worker.failures.take(), death);
    assert_eq!(worker.dead.take(), death);
    assert_eq!(queue.num_requeues("a"), 0);
    assert!(has_no_keys(&queue));
}

/// Also with a limiter that does not need the number of failures.
#[test]
fn a_key_is_dead_after_its_last_attempt_with_any_limiter() {
    let clock = ManualClock::new();
    let bucket = Bucket::new(1.0, 1).unwrap();
    let plain = RateLimitingQueue::with(bucket, Options::new().clock(&clock));
    for (queue, clock) in [queue(), (plain, clock)] {
        let worker = Worker::new(&queue).max_attempts(3);
        let worker = Scripted::new(worker, |_| Err("the bank is busy".into()));
        queue.add("a");
        for _ in 0..3 {
            worker.executor.run();
            clock.advance(MINUTE);
        }
        assert_eq!(worker.take_calls(), [("a", 1), ("a", 2), ("a", 3)]);
        assert_eq!(worker.dead.take(), [entry("a", 3, "the bank is busy", Next::Dead)]);
        assert_eq!(worker.failures.take().len(), 3);
        assert!(has_no_keys(&queue));
        queue.add("a");
        worker.executor.run();
        assert_eq!(worker.take_calls()[0], ("a", 1));
    }
}

#[test]
fn max_attempts_of_zero_counts_as_one() {
    let (queue, _clock) = queue();
    let worker = Scripted::new(Worker::new(&queue).max_attempts(0), |_| Ok(Outcome::Retry));
    queue.add("a");
    worker.executor.run();
    assert_eq!(worker.dead.take().len(), 1);
}

#[test]
fn a_dead_key_is_held_during_callbacks_and_a_retried_one_is_not() {
    for (outcome, held) in [(Outcome::give_up(""), true), (Outcome::Retry, false)] {
        let (queue, _clock) = queue();
        let (executor, seen) = (Executor::default(), Arc::new(Mutex::new(Vec::new())));
        let note = |seen: &Arc<Mutex<Vec<bool>>>| {
            let (queue, seen) = (queue.clone(), Arc::clone(seen));
            move |failed: &requeue::worker::Failed<'_, &'static str>| {
                lock(&seen).push(queue.status(failed.key).held);
            }
        };
        let worker = Worker::new(&queue).on_failure(note(&seen)).on_dead(note(&seen));
        let handler = move |_| std::future::ready(Ok(outcome.clone()));
        let _running = worker.spawn_with(executor.spawner(), handler);
        queue.add("a");
        executor.run();
        assert_eq!(*lock(&seen), if held { vec![true, true] } else { vec![false] });
        assert!(!queue.status("a").held);
    }
}

#[test]
fn a_key_added_while_it_is_processed_is_processed_once_more() {
    let (queue, _clock) = queue();
    let again = queue.clone();
    let worker = Scripted::new(Worker::new(&queue), move |run| {
        if again.num_requeues("seen") == 0 {
            again.add_rate_limited("seen");
            again.add(run.key);
        }
        Ok(Outcome::Done)
    });
    queue.add("a");
    worker.executor.run();
    assert_eq!(worker.take_calls(), [("a", 1), ("a", 1)]);
}

#[test]
fn a_retry_that_a_shut_down_queue_refuses_is_reported_as_dropped() {
    let (queue, _clock) = queue();
    queue.add("a");
    queue.shut_down();
    let worker = Scripted::new(Worker::new(&queue), |_| Ok(Outcome::Retry));
    worker.executor.run();
    let failure = entry("a", 1, "the handler requested a retry", Next::Dropped);
    assert_eq!(worker.failures.take(), [failure]);
}

#[test]
fn a_retry_while_draining_is_kept_for_the_result_of_the_drain() {
    let (queue, _clock) = queue();
    queue.add("a");
    queue.add_after("b", SECOND / 2); // sooner than any retry
    queue.add("b");
    let drain = queue.drain(MINUTE);
    let worker = Scripted::new(Worker::new(&queue), |_| Ok(Outcome::Retry));
    worker.executor.run();
    let failures = worker.failures.take();
    assert_eq!(
        failures.iter().map(|f| (f.0, f.3)).collect::<Vec<_>>(),
        [
            ("a", Next::Kept),
            ("b", Next::Kept), // the result would contain it anyway
        ]
    );
    let left = drain.wait();
    let mut keys: Vec<_> = left.waiting.iter().map(|(key, _)| *key).chain(left.ready).collect();
    keys.sort();
    assert_eq!(keys, ["a", "b"]);
    worker.running.join().wait();
}

/// Processes a key that fails once, was added again before the drain, and succeeds then. Returns what
/// the callback was called with, and the number of attempts.
fn fail_while_draining<Q>(queue: &Q, drain: impl Fn() -> Remains<&'static str>) -> (Vec<Next>, u32)
where
    Q: Retry<Key = &'static str>,
{
    let (executor, log) = (Executor::default(), Log::default());
    let runs = Arc::new(AtomicU32::new(0));
    let (count, again) = (Arc::clone(&runs), queue.clone());
    let worker = Worker::new(queue).on_failure(log.callback());
    let _running = worker.spawn_with(executor.spawner(), move |run| {
        let first = count.fetch_add(1, SeqCst) == 0;
        if first {
            again.add(run.key);
            again.stop(StopMode::WorkOff);
        }
        async move { Ok(if first { Outcome::Retry } else { Outcome::Done }) }
    });
    queue.add("a");
    executor.run();
    assert!(drain().is_empty());
    (log.take().into_iter().map(|failure| failure.3).collect(), runs.load(SeqCst))
}

#[test]
fn a_key_that_is_processed_again_while_draining_is_not_reported_as_kept() {
    let no_delay = || ExponentialFailure::new(Duration::ZERO, Duration::ZERO);
    let limited = RateLimitingQueue::with(no_delay(), Options::new());
    let reported = fail_while_draining(&limited, || limited.drain(Duration::ZERO).wait());
    assert_eq!(reported, (vec![Next::RetryIn(Duration::ZERO)], 2));

    let backoff = ExponentialFailure::new(SECOND, SECOND);
    let priority = PriorityQueue::with(backoff, Options::new().clock(ManualClock::new()));
    let reported = fail_while_draining(&priority, || priority.drain(Duration::ZERO).wait());
    assert_eq!(reported, (vec![Next::RetryIn(SECOND)], 2)); // or sooner, because it was already added
}

#[test]
fn a_handler_may_return_unit() {
    let (queue, _clock) = queue();
    let executor = Executor::default();
    let _running = Worker::new(&queue).spawn_with(executor.spawner(), |_run| async { Ok(()) });
    queue.add("a");
    executor.run();
    assert!(has_no_keys(&queue));
}

#[test]
fn a_handler_on_threads_may_return_unit() {
    let (queue, _clock) = queue();
    let running = Worker::new(&queue).spawn_threads(|_run| Ok(())).unwrap();
    queue.add("a");
    assert!(queue.drain(MINUTE).wait().is_empty());
    running.join().wait();
}

/// `T: Into<Outcome>` may be a type of the user, whose conversion may panic.
#[test]
fn a_conversion_into_an_outcome_that_panics_is_a_failed_attempt() {
    struct PanickingOutcome;
    impl From<PanickingOutcome> for Outcome {
        fn from(_: PanickingOutcome) -> Outcome {
            panic!("no outcome")
        }
    }
    let (queue, _clock) = queue();
    let (executor, log) = (Executor::default(), Log::default());
    let worker = Worker::new(&queue).on_failure(log.callback());
    let _running = worker.spawn_with(executor.spawner(), |_run| async { Ok(PanickingOutcome) });
    queue.add("a");
    executor.run();
    assert_eq!(log.take(), [entry("a", 1, "panicked: no outcome", Next::RetryIn(SECOND))]);
}

#[test]
fn giving_up_without_a_reason_is_reported_with_a_default_text() {
    let (queue, _clock) = queue();
    let worker = Scripted::new(Worker::new(&queue), |_| Ok(Outcome::give_up("")));
    queue.add("a");
    worker.executor.run();
    assert_eq!(worker.dead.take(), [entry("a", 1, "the handler gave up", Next::Dead)]);
}

//! A panic is a failed attempt, and the runner continues.

use super::executor::Executor;
use super::{Log, MINUTE, SECOND, entry, queue};
use requeue::limiter::RateLimiter;
use requeue::worker::{Next, Outcome, Worker};
use requeue::{AddOptions, ManualClock, Moment, Options, PriorityQueue, RateLimitingQueue, Retry};
use std::future::{pending, ready};
use std::time::Duration;

/// Processes the key "bad", for which the handler panics, and then "good". Checks that "bad" failed
/// with this cause.
fn check_panic<F, Fut>(handler: F, cause: &str)
where
    F: Fn(&'static str) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, requeue::worker::BoxError>> + Send + 'static,
{
    let (queue, clock) = queue();
    let (executor, log) = (Executor::default(), Log::default());
    let worker = Worker::new(&queue).timeout(MINUTE).on_failure(log.callback());
    let running = worker.spawn_with(executor.spawner(), move |run| handler(run.key));
    queue.add("bad");
    queue.add("good");
    executor.run();
    clock.advance(MINUTE);
    executor.run();
    assert_eq!(log.take()[0], entry("bad", 1, cause, Next::RetryIn(SECOND)));
    assert!(!queue.snapshot().held.iter().any(|held| held.key == "good"));
    assert_eq!(executor.tasks(), 1);
    drop(running);
}

/// Panics when it is dropped, if it is `true`.
struct PanicOnDrop(bool);

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        assert!(!self.0, "dropped");
    }
}

#[test]
fn a_panic_in_the_call_of_the_handler_is_a_failed_attempt() {
    let handler = |key| {
        assert_ne!(key, "bad", "called");
        ready(Ok(Outcome::Done))
    };
    check_panic(
        handler,
        "panicked: assertion `left != right` failed: called\n  left: \"bad\"\n right: \"bad\"",
    );
}

#[test]
fn a_panic_in_the_future_of_the_handler_is_a_failed_attempt() {
    let handler = |key| async move {
        if key == "bad" {
            panic!("polled");
        }
        Ok(Outcome::Done)
    };
    check_panic(handler, "panicked: polled");
}

#[test]
fn a_panic_in_dropping_the_future_is_a_failed_attempt() {
    let handler = |key| {
        let guard = PanicOnDrop(key == "bad");
        async move {
            let _guard = guard;
            match key {
                "bad" => pending().await,
                _ => Ok(Outcome::Done),
            }
        }
    };
    check_panic(handler, "panicked: dropped");
}

#[test]
fn callbacks_that_panic_have_no_effect() {
    for (outcome, gone) in [(Outcome::Retry, false), (Outcome::give_up(""), true)] {
        let (queue, _clock) = queue();
        let (executor, log) = (Executor::default(), Log::default());
        let record = log.callback();
        let worker = Worker::new(&queue).on_failure(|_| panic!("failure")).on_dead(move |dead| {
            record(dead);
            panic!("dead");
        });
        let handler = move |_| std::future::ready(Ok(outcome.clone()));
        let _running = worker.spawn_with(executor.spawner(), handler);
        queue.add("a");
        queue.add("b");
        executor.run();
        assert_eq!(executor.tasks(), 1);
        for key in ["a", "b"] {
            assert!(!queue.status(key).held);
            assert_eq!(queue.status(key).due_in.is_none(), gone);
        }
        assert_eq!(log.take().len(), if gone { 2 } else { 0 });
    }
}

struct AlwaysPanickingLimiter;

impl<K> RateLimiter<K> for AlwaysPanickingLimiter {
    fn when(&mut self, _: &K, _: u32, _: Moment) -> Duration {
        panic!("the limiter fails")
    }
}

/// Runs a worker whose handler always fails.
fn failing<Q: Retry<Key = &'static str>>(worker: Worker<Q>) -> (Executor, Log) {
    let (executor, log) = (Executor::default(), Log::default());
    let worker = worker.on_failure(log.callback());
    drop(worker.spawn_with(executor.spawner(), |_| async { Ok(Outcome::Retry) }));
    executor.run();
    (executor, log)
}

fn failure(attempt: u32, next: Next) -> super::Entry {
    entry("a", attempt, "the handler requested a retry", next)
}

#[test]
fn if_the_limiter_panics_a_key_is_retried_after_a_second_until_its_last_attempt() {
    let clock = ManualClock::new();
    let queue = RateLimitingQueue::with(AlwaysPanickingLimiter, Options::new().clock(&clock));
    queue.add("a");
    let (executor, log) = failing(Worker::new(&queue).max_attempts(3));
    for attempt in [1, 2] {
        assert_eq!(log.take(), [failure(attempt, Next::RetryIn(SECOND))]);
        assert_eq!(queue.status("a").due_in, Some(SECOND));
        clock.advance(SECOND);
        executor.run();
    }
    assert_eq!(log.take(), [failure(3, Next::Dead)]);
    assert_eq!(queue.status("a"), requeue::KeyStatus::default());
}

#[test]
fn if_the_limiter_panics_a_key_keeps_its_priority() {
    let clock = ManualClock::new();
    let queue = PriorityQueue::with(AlwaysPanickingLimiter, Options::new().clock(&clock));
    queue.add_with("a", AddOptions::new().priority(9));
    let (_executor, log) = failing(Worker::new(&queue));
    assert_eq!(log.take(), [failure(1, Next::RetryIn(SECOND))]);
    assert_eq!((queue.status("a").priority, queue.num_requeues("a")), (9, 1));
}

#[test]
fn if_the_limiter_panics_a_drain_returns_the_failed_key() {
    let queue =
        RateLimitingQueue::with(AlwaysPanickingLimiter, Options::new().clock(ManualClock::new()));
    queue.add("a");
    let drain = queue.drain(MINUTE);
    let (_executor, log) = failing(Worker::new(&queue));
    assert_eq!(log.take(), [failure(1, Next::Kept)]);
    assert_eq!(drain.wait().waiting, [("a", SECOND)]);
}

//! A panic is a failed attempt, and the runner lives on.

use crate::executor::Executor;
use crate::{Log, MINUTE, SECOND, entry, queue};
use requeue::limiter::RateLimiter;
use requeue::worker::{Next, Outcome, Worker};
use requeue::{ManualClock, Moment, Options, RateLimitingQueue};
use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

/// Works on "bad", which panics in some way, and then on "good".
fn panics<F, Fut>(handler: F, cause: &str)
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

/// Panics as it is dropped.
struct Bomb(bool);

impl Drop for Bomb {
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
    panics(
        handler,
        "it panicked: assertion `left != right` failed: called\n  left: \"bad\"\n right: \"bad\"",
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
    panics(handler, "it panicked: polled");
}

#[test]
fn a_panic_in_dropping_the_future_is_a_failed_attempt() {
    let handler = |key| {
        let bomb = Bomb(key == "bad");
        async move {
            let _bomb = bomb;
            match key {
                "bad" => pending().await,
                _ => Ok(Outcome::Done),
            }
        }
    };
    panics(handler, "it panicked: dropped");
}

#[test]
fn callbacks_that_panic_change_nothing() {
    for (outcome, gone) in [(Outcome::Retry, false), (Outcome::GiveUp, true)] {
        let (queue, _clock) = queue();
        let (executor, log) = (Executor::default(), Log::default());
        let told = log.callback();
        let worker = Worker::new(&queue).on_failure(|_| panic!("failure")).on_dead(move |dead| {
            told(dead);
            panic!("dead");
        });
        let _running = worker.spawn_with(executor.spawner(), move |_| async move { Ok(outcome) });
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

struct Broken;

impl<K> RateLimiter<K> for Broken {
    fn when(&mut self, _: &K, _: u32, _: Moment) -> Duration {
        panic!("the limiter fails")
    }
}

#[test]
fn a_limiter_that_panics_loses_no_key_and_no_runner() {
    let clock = ManualClock::new();
    let queue = RateLimitingQueue::with(Broken, Options::new().clock(&clock));
    let (executor, log) = (Executor::default(), Log::default());
    let worker = Worker::new(&queue).on_failure(log.callback());
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let _running = worker.spawn_with(executor.spawner(), move |_| {
        let first = count.fetch_add(1, SeqCst) == 0;
        async move { Ok(if first { Outcome::Retry } else { Outcome::Done }) }
    });
    queue.add("a");
    executor.run();
    let failure = entry("a", 1, "the handler said so", Next::RetryIn(Duration::ZERO));
    assert_eq!(log.take(), [failure]);
    assert_eq!(runs.load(SeqCst), 2);
}

//! An attempt that takes longer than the timeout has failed, whatever its handler returns.

use super::executor::Executor;
use super::{Log, MINUTE, SECOND, entry, lock, queue};
use requeue::worker::{Next, Outcome, Worker};
use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

const NANOSECOND: Duration = Duration::from_nanos(1);

fn timed_out(attempt: u32, delay: Duration) -> super::Entry {
    entry("a", attempt, "timed out", Next::RetryIn(delay))
}

#[test]
fn a_future_is_dropped_at_the_timeout_and_not_before() {
    let (queue, clock) = queue();
    let (executor, log) = (Executor::default(), Log::default());
    let polls = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&polls);
    let worker = Worker::new(&queue).timeout(MINUTE).on_failure(log.callback());
    let running = worker.spawn_with(executor.spawner(), move |_| {
        let count = Arc::clone(&count);
        poll_fn(move |_| {
            count.fetch_add(1, SeqCst);
            Poll::<Result<(), _>>::Pending
        })
    });
    queue.add("a");
    executor.run();
    assert_eq!((polls.load(SeqCst), Arc::strong_count(&polls)), (1, 3));
    clock.advance(MINUTE - NANOSECOND);
    assert_eq!(executor.run(), 0);
    assert_eq!(running.keys()[0].running_for, MINUTE - NANOSECOND);
    clock.advance(NANOSECOND);
    assert_eq!(executor.run(), 1);
    assert_eq!((polls.load(SeqCst), Arc::strong_count(&polls)), (1, 2));
    assert_eq!(log.take(), [timed_out(1, SECOND)]);
    // The next attempt has its own timeout.
    clock.advance(SECOND);
    executor.run();
    clock.advance(MINUTE);
    executor.run();
    assert_eq!(log.take(), [timed_out(2, 2 * SECOND)]);
}

#[test]
fn the_result_of_a_handler_is_ignored_after_the_timeout() {
    let outcomes =
        [Outcome::Done, Outcome::give_up(""), Outcome::RequeueAfter(SECOND), Outcome::Retry];
    for result in outcomes.map(Ok).into_iter().chain([Err("an error")]) {
        let (queue, clock) = queue();
        let (executor, log) = (Executor::default(), Log::default());
        let (slow, returned) = (clock.clone(), result.clone());
        let worker = Worker::new(&queue).timeout(SECOND).on_failure(log.callback());
        let _running = worker.spawn_with(executor.spawner(), move |_| {
            slow.advance(SECOND);
            let result = returned.clone();
            async move { Ok(result?) }
        });
        queue.add("a");
        executor.run();
        assert_eq!(log.take(), [timed_out(1, SECOND)], "{result:?}");
    }
}

#[test]
fn a_timeout_that_passes_during_a_poll_is_noticed_immediately() {
    let (queue, clock) = queue();
    let (executor, log) = (Executor::default(), Log::default());
    let worker = Worker::new(&queue).timeout(SECOND).on_failure(log.callback());
    let _running = worker.spawn_with(executor.spawner(), move |_| {
        let clock = clock.clone();
        poll_fn(move |_| {
            clock.advance(SECOND);
            Poll::<Result<(), _>>::Pending
        })
    });
    queue.add("a");
    assert!(executor.poll_one());
    assert_eq!(log.take()[0], timed_out(1, SECOND));
}

#[test]
fn an_attempt_that_ends_in_time_leaves_no_alarm_behind() {
    let (queue, clock) = queue();
    let executor = Executor::default();
    let waker = Arc::new(Mutex::new(None::<Waker>));
    let their_waker = Arc::clone(&waker);
    let _running = Worker::new(&queue).timeout(MINUTE).spawn_with(executor.spawner(), move |_| {
        let (waker, mut first) = (Arc::clone(&their_waker), true);
        poll_fn(move |cx| {
            *lock(&waker) = Some(cx.waker().clone());
            match std::mem::take(&mut first) {
                true => Poll::Pending,
                false => Poll::Ready(Ok(Outcome::Done)),
            }
        })
    });
    queue.add("a");
    executor.run();
    lock(&waker).take().unwrap().wake();
    executor.run();
    assert!(!queue.status("a").held);
    assert_eq!(clock.advance_to_next(), None);
}

#[test]
fn a_timed_out_key_is_dead_after_its_last_attempt() {
    let (queue, clock) = queue();
    let (executor, log) = (Executor::default(), Log::default());
    let worker = Worker::new(&queue).timeout(SECOND).max_attempts(1).on_dead(log.callback());
    let _running = worker.spawn_with(executor.spawner(), |_| pending::<Result<(), _>>());
    queue.add("a");
    executor.run();
    clock.advance(SECOND);
    executor.run();
    assert_eq!(log.take(), [entry("a", 1, "timed out", Next::Dead)]);
    assert_eq!(queue.status("a"), requeue::KeyStatus::default());
}

#[test]
fn remaining_returns_the_time_until_the_timeout() {
    for (limit, expected) in
        [(Some(MINUTE), [Some(MINUTE), Some(59 * SECOND), Some(Duration::ZERO)]), (None, [None; 3])]
    {
        let (queue, clock) = queue();
        let (executor, seen) = (Executor::default(), Arc::new(Mutex::new(Vec::new())));
        let worker = Worker::new(&queue);
        let worker = limit.into_iter().fold(worker, Worker::timeout);
        let note = Arc::clone(&seen);
        let _running = worker.spawn_with(executor.spawner(), move |run| {
            for time in [Duration::ZERO, SECOND, MINUTE] {
                clock.advance(time);
                lock(&note).push(run.remaining());
            }
            pending::<Result<(), _>>()
        });
        queue.add("a");
        assert!(executor.poll_one());
        assert_eq!(lock(&seen)[..3], expected);
    }
}

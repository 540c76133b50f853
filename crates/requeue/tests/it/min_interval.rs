//! `Options::min_interval`: a key runs at most once per interval, and nothing is lost.

use requeue::limiter::ExponentialFailure;
use requeue::{Added, Cancelled, DelayingQueue, ManualClock, Merge, Metrics, Options, Queue};
use requeue::{RateLimitingQueue, Remains, TryGetError, WorkQueue};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(20);

fn delaying() -> (DelayingQueue<&'static str>, ManualClock) {
    let clock = ManualClock::new();
    (DelayingQueue::with(Options::new().clock(&clock).min_interval(INTERVAL)), clock)
}

/// A queue whose key "a" ran at 0.
fn after_a_run() -> (DelayingQueue<&'static str>, ManualClock) {
    let (queue, clock) = delaying();
    queue.add("a");
    queue.try_get().expect("it never ran").done();
    (queue, clock)
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Advances the clock and checks that "a" becomes ready exactly then.
fn comes_after(queue: &DelayingQueue<&'static str>, clock: &ManualClock, wait: Duration) {
    assert_eq!(queue.status("a").due_in, Some(wait));
    clock.advance(wait - Duration::from_nanos(1));
    assert_eq!(queue.try_get().err(), Some(TryGetError::Empty));
    clock.advance(Duration::from_nanos(1));
    assert_eq!(queue.try_get().map(|held| *held.key()), Ok("a"));
}

#[test]
fn the_first_run_is_not_delayed() {
    let (queue, _clock) = delaying();
    assert_eq!(queue.add("a"), Added::Queued);
    assert_eq!(queue.add("a"), Added::Coalesced);
    assert_eq!(*queue.try_get().unwrap().key(), "a");
}

#[test]
fn an_add_too_soon_after_a_run_waits_and_others_join_it() {
    let (queue, clock) = after_a_run();
    clock.advance(3 * SECOND);
    assert_eq!(queue.add("a"), Added::Waiting);
    assert_eq!(queue.add("a"), Added::Coalesced);
    assert_eq!(queue.add("b"), Added::Queued, "every key has an interval of its own");
    queue.try_get().unwrap().done();
    comes_after(&queue, &clock, 7 * SECOND);
    assert_eq!(queue.waiting(), 0, "however often it was added");
}

#[test]
fn an_add_once_the_interval_has_passed_is_ready() {
    let (queue, clock) = after_a_run();
    clock.advance(INTERVAL);
    assert_eq!(queue.add("a"), Added::Queued);
}

#[test]
fn an_interval_counts_from_when_the_key_was_taken_and_not_from_done() {
    let (queue, clock) = delaying();
    queue.add("a");
    clock.advance(5 * SECOND);
    let held = queue.try_get().unwrap();
    clock.advance(4 * SECOND);
    held.done();
    queue.add("a");
    comes_after(&queue, &clock, 6 * SECOND);
}

#[test]
fn an_add_while_held_waits_for_the_interval() {
    let (queue, clock) = delaying();
    queue.add("a");
    let held = queue.try_get().unwrap();
    assert_eq!(queue.add("a"), Added::Waiting);
    held.done();
    comes_after(&queue, &clock, INTERVAL);
}

#[test]
fn after_a_hold_longer_than_the_interval_the_key_runs_immediately() {
    let (queue, clock) = delaying();
    queue.add("a");
    let held = queue.try_get().unwrap();
    assert_eq!(queue.add("a"), Added::Waiting);
    clock.advance(INTERVAL);
    assert!(queue.status("a").rerun);
    let held = held.next().wait().expect("it was added again");
    clock.advance(INTERVAL);
    assert_eq!(queue.add("a"), Added::Rerun);
    held.done();
    assert_eq!(*queue.try_get().unwrap().key(), "a");
}

#[test]
fn a_delay_shorter_than_what_is_left_is_made_longer_and_a_longer_one_stays() {
    let (queue, clock) = after_a_run();
    assert_eq!(queue.add_after("a", 30 * SECOND), Added::Waiting);
    assert_eq!(queue.status("a").due_in, Some(30 * SECOND));
    assert_eq!(queue.add_after("a", SECOND), Added::Waiting);
    assert_eq!(queue.status("a").due_in, Some(INTERVAL));
    assert_eq!(queue.add_after("a", 2 * SECOND), Added::Coalesced);
    assert_eq!(queue.add_after("a", Duration::ZERO), Added::Coalesced);
    comes_after(&queue, &clock, INTERVAL);
}

#[test]
fn no_merge_rule_lets_a_key_run_too_soon() {
    let rules = [
        (Merge::Earliest, INTERVAL),
        (Merge::Latest, 30 * SECOND),
        (Merge::Replace, INTERVAL),
        (Merge::Debounce { max_wait: 2 * SECOND }, INTERVAL),
    ];
    for (rule, due_in) in rules {
        for delay in [Duration::ZERO, SECOND] {
            let (queue, _clock) = after_a_run();
            queue.add_after("a", 30 * SECOND);
            queue.add_after_with("a", delay, rule);
            assert_eq!(queue.status("a").due_in, Some(due_in), "{rule:?} after {delay:?}");
            assert!(queue.is_empty());
        }
    }
}

#[test]
fn a_waiting_add_is_delayed_too_when_the_key_is_taken() {
    let (queue, clock) = delaying();
    queue.add_after("a", 12 * SECOND);
    queue.add_after("b", 12 * SECOND);
    clock.advance(9 * SECOND);
    queue.add("a");
    queue.try_get().unwrap().done();
    assert_eq!(queue.status("a").due_in, Some(INTERVAL));
    clock.advance(3 * SECOND);
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.try_get().unwrap().done_into_key(), "b");
    comes_after(&queue, &clock, 7 * SECOND);
}

#[test]
fn a_ready_key_stays_ready_however_long_it_is_not_taken() {
    let (queue, clock) = after_a_run();
    clock.advance(INTERVAL);
    queue.add("a");
    clock.advance(5 * INTERVAL);
    assert_eq!(queue.add("a"), Added::Coalesced);
    queue.try_get().unwrap().done();
    queue.add("a");
    comes_after(&queue, &clock, INTERVAL);
}

#[test]
fn a_key_that_its_guard_requeues_waits_for_the_interval() {
    let (queue, clock) = delaying();
    queue.add("a");
    let held = queue.try_get().unwrap();
    clock.advance(SECOND);
    assert_eq!(held.requeue(), Added::Waiting);
    comes_after(&queue, &clock, 9 * SECOND);
    queue.cancel("a");
    for (delay, wait) in [(Duration::ZERO, 10), (SECOND, 10), (12 * SECOND, 12)] {
        clock.advance(INTERVAL);
        queue.add("a");
        assert_eq!(queue.try_get().unwrap().requeue_after(delay), Added::Waiting);
        comes_after(&queue, &clock, wait * SECOND);
    }
}

#[test]
fn a_guard_that_held_its_key_for_the_interval_requeues_immediately() {
    let (queue, clock) = delaying();
    queue.add("a");
    let held = queue.try_get().unwrap();
    clock.advance(INTERVAL);
    assert_eq!(held.requeue(), Added::Queued);
    let held = queue.try_get().unwrap();
    assert!(!queue.status("a").ready);
    clock.advance(INTERVAL);
    assert_eq!(held.requeue_after(Duration::ZERO), Added::Queued);
}

#[test]
fn a_retry_waits_for_the_longer_of_backoff_and_interval() {
    let clock = ManualClock::new();
    let backoff = ExponentialFailure::new(4 * SECOND, Duration::from_secs(3600));
    let options = Options::new().clock(&clock).min_interval(INTERVAL);
    let queue = RateLimitingQueue::with(backoff, options);
    queue.add("a");
    for (delay, wait) in [(4, 10), (8, 10), (16, 16)] {
        let limited = queue.try_get().unwrap().retry();
        assert_eq!((limited.delay, limited.added), (delay * SECOND, Added::Waiting));
        assert_eq!(queue.status("a").due_in, Some(wait * SECOND));
        clock.advance(wait * SECOND);
    }
    queue.try_get().unwrap().forget();
    let limited = queue.add_rate_limited("a");
    assert_eq!((limited.delay, limited.added), (4 * SECOND, Added::Waiting));
    assert_eq!(queue.status("a").due_in, Some(INTERVAL));
    clock.advance(INTERVAL);
    queue.forget("a");
    assert_eq!(queue.try_get().unwrap().requeue(), Added::Waiting);
    assert_eq!(queue.num_requeues("a"), 0);
}

#[test]
fn a_limiter_that_asks_for_no_delay_is_subject_to_the_interval() {
    let clock = ManualClock::new();
    let at_once = ExponentialFailure::new(Duration::ZERO, Duration::ZERO);
    let options = Options::new().clock(&clock).min_interval(INTERVAL);
    let queue = RateLimitingQueue::with(at_once, options);
    assert_eq!(queue.add_rate_limited("a").added, Added::Queued);
    let held = queue.try_get().unwrap();
    assert_eq!(queue.add_rate_limited("a").added, Added::Waiting);
    assert_eq!(held.retry().added, Added::Coalesced);
    clock.advance(INTERVAL);
    let held = queue.try_get().unwrap();
    clock.advance(INTERVAL);
    assert_eq!(held.retry().added, Added::Queued);
}

#[test]
fn get_many_and_next_begin_runs_too() {
    let (queue, _clock) = delaying();
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    let held = queue.get_many(2).wait();
    assert_eq!(held.iter().map(|held| *held.key()).collect::<Vec<_>>(), ["a", "b"]);
    let last = held.into_iter().map(|held| held.next().wait().expect("c").done_into_key()).next();
    assert_eq!(last, Some("c"));
    for key in ["a", "b", "c"] {
        assert_eq!(queue.add(key), Added::Waiting, "{key}");
    }
}

#[test]
fn a_getter_that_waits_is_woken_when_the_interval_has_passed() {
    let (queue, clock) = after_a_run();
    queue.add("a");
    let mut getter = pin!(queue.get());
    assert!(poll(getter.as_mut()).is_pending());
    clock.advance(INTERVAL);
    let Poll::Ready(Some(held)) = poll(getter) else { panic!("it is due") };
    assert_eq!(*held.key(), "a");
}

#[test]
fn cancel_removes_what_waits_and_the_run_is_still_remembered() {
    let (queue, clock) = after_a_run();
    queue.add("a");
    let cancelled = queue.cancel("a");
    assert_eq!((cancelled.waiting, cancelled.ready, cancelled.rerun), (true, false, false));
    assert_eq!(queue.cancel("a"), Cancelled::default());
    assert_eq!(queue.waiting(), 0);
    clock.advance(SECOND);
    assert_eq!(queue.add("a"), Added::Waiting);
    comes_after(&queue, &clock, 9 * SECOND);
}

#[test]
fn keys_that_wait_for_their_interval_are_listed_with_the_others() {
    let (queue, clock) = after_a_run();
    queue.add("a");
    queue.add_after("b", 3 * SECOND);
    clock.advance(SECOND);
    let snapshot = queue.snapshot();
    let waiting: Vec<_> = snapshot.waiting.into_iter().map(|w| (w.key, w.due_in)).collect();
    assert_eq!(waiting, [("b", 2 * SECOND), ("a", 9 * SECOND)]);
    assert_eq!((snapshot.ready.len(), snapshot.held.len(), queue.waiting()), (0, 0, 2));
    assert_eq!(clock.advance_to_next(), Some(2 * SECOND));
}

#[test]
fn a_key_that_ran_and_neither_waits_nor_is_ready_is_listed_nowhere() {
    let (queue, _clock) = after_a_run();
    assert_eq!(queue.status("a"), queue.status("never added"));
    assert_eq!(queue.snapshot().waiting.len() + queue.waiting(), 0);
}

#[test]
fn a_shutdown_hands_out_what_is_ready_and_drops_what_waits() {
    let (queue, clock) = after_a_run();
    queue.add("a");
    clock.advance(INTERVAL);
    queue.add("b");
    queue.try_get().unwrap().done();
    queue.add("a");
    queue.shut_down();
    assert_eq!(queue.add("a"), Added::Refused);
    assert_eq!(queue.add("c"), Added::Refused);
    let held = queue.try_get().unwrap();
    assert_eq!(*held.key(), "b");
    assert_eq!(held.requeue(), Added::Refused);
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn a_drain_processes_ready_keys_and_returns_those_that_wait_for_their_interval() {
    let (queue, clock) = after_a_run();
    clock.advance(SECOND);
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    let b = queue.try_get().unwrap();
    assert_eq!(queue.add("b"), Added::Waiting);
    let mut drain = pin!(queue.drain(LIMIT));
    assert_eq!(queue.add("a"), Added::Refused);
    let c = queue.try_get().unwrap();
    clock.advance(SECOND);
    b.done();
    assert_eq!(c.requeue(), Added::Kept);
    let left = [("a", 8 * SECOND), ("b", 9 * SECOND), ("c", 9 * SECOND)];
    let Poll::Ready(Remains { ready, waiting, held, .. }) = poll(drain.as_mut()) else {
        panic!("no key is left")
    };
    assert_eq!((ready, waiting, held), (vec![], left.to_vec(), vec![]));
}

#[test]
fn a_drain_runs_again_what_was_held_for_its_interval() {
    let (queue, clock) = delaying();
    queue.add("a");
    let held = queue.try_get().unwrap();
    queue.add("a");
    clock.advance(INTERVAL);
    let drain = queue.drain(LIMIT);
    held.done();
    let held = queue.try_get().expect("a re-run from before the drain");
    clock.advance(INTERVAL);
    assert_eq!(held.requeue(), Added::Kept);
    assert_eq!(drain.wait().ready, ["a"]);
}

/// Another owner adds to the inner queue directly, so no add here could delay the key.
#[test]
fn over_a_custom_queue_a_key_that_comes_too_soon_is_delayed_when_it_is_taken() {
    let clock = ManualClock::new();
    let inner = Queue::new();
    let options = Options::new().clock(&clock).min_interval(INTERVAL);
    let queue = DelayingQueue::over(Arc::new(inner.clone()), options);
    queue.add("a");
    let held = queue.try_get().unwrap();
    assert_eq!(queue.add("a"), Added::Waiting);
    assert_eq!(inner.add("a"), Added::Rerun);
    held.done();
    inner.add("b");
    assert_eq!(queue.try_get().unwrap().done_into_key(), "b", "the next that may run");
    comes_after(&queue, &clock, INTERVAL);
    queue.try_get().expect_err("the two adds were merged");
    // The waiter whose key was delayed continues to wait.
    inner.add("a");
    let mut getter = pin!(queue.get());
    assert!(poll(getter.as_mut()).is_pending());
    clock.advance(INTERVAL);
    assert!(poll(getter).is_ready());
}

#[test]
fn over_a_custom_queue_a_key_that_comes_too_soon_during_shutdown_is_not_lost() {
    for drains in [false, true] {
        let clock = ManualClock::new();
        let inner = Queue::new();
        let options = Options::new().clock(&clock).min_interval(INTERVAL);
        let queue = DelayingQueue::over(Arc::new(inner.clone()), options);
        queue.add("a");
        queue.try_get().unwrap().done();
        inner.add("a");
        if drains {
            let drain = queue.drain(LIMIT);
            assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
            assert_eq!(drain.wait().waiting, [("a", INTERVAL)]);
        } else {
            // Shut down by its other owner: a waiting key could not come back.
            inner.shut_down();
            assert_eq!(queue.try_get().unwrap().done_into_key(), "a");
        }
    }
}

#[test]
fn under_another_layer_the_interval_holds() {
    let (inner, clock) = delaying();
    let queue = DelayingQueue::over(Arc::new(inner.clone()), Options::new().clock(&clock));
    queue.add("a");
    queue.try_get().unwrap().done();
    queue.add_after("a", SECOND);
    clock.advance(SECOND);
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    comes_after(&inner, &clock, 9 * SECOND);
}

#[test]
fn what_is_remembered_of_runs_is_forgotten_after_the_interval() {
    let clock = ManualClock::new();
    let queue = DelayingQueue::with(Options::new().clock(&clock).min_interval(INTERVAL));
    let keys: Vec<Arc<str>> = (0..100).map(|n| Arc::from(format!("key-{n}"))).collect();
    let kept = || keys.iter().filter(|key| Arc::strong_count(key) > 1).count();
    for key in &keys {
        queue.add(Arc::clone(key));
        queue.try_get().unwrap().done();
    }
    assert_eq!(kept(), 100);
    clock.advance(INTERVAL - Duration::from_nanos(1));
    queue.status("another");
    assert_eq!(kept(), 100);
    clock.advance(Duration::from_nanos(1));
    // A few with every call, which is enough because no call records more than one.
    for calls in 1.. {
        let before = kept();
        queue.status("another");
        assert!(kept() < before);
        if kept() == 0 {
            assert!(calls > 1, "a storm is not paid for by one call");
            break;
        }
    }
}

#[test]
fn a_key_in_constant_use_is_remembered_once() {
    let clock = ManualClock::new();
    let queue = DelayingQueue::with(Options::new().clock(&clock).min_interval(INTERVAL));
    let key: Arc<str> = Arc::from("a");
    for _round in 0..100 {
        queue.add(Arc::clone(&key));
        queue.try_get().unwrap().done();
        clock.advance(INTERVAL);
    }
    assert_eq!(Arc::strong_count(&key), 2);
    queue.status("another");
    assert_eq!(Arc::strong_count(&key), 1);
}

#[test]
fn an_interval_of_zero_is_none() {
    let queue = DelayingQueue::with(Options::new().min_interval(Duration::ZERO));
    queue.add("a");
    assert_eq!(queue.try_get().unwrap().requeue(), Added::Queued);
    assert_eq!(queue.try_get().unwrap().done_into_key(), "a");
    assert_eq!(queue.add("a"), Added::Queued);
}

#[test]
fn an_interval_past_the_end_of_the_clock_lets_a_key_run_once() {
    let clock = ManualClock::new();
    let queue = DelayingQueue::with(Options::new().clock(&clock).min_interval(Duration::MAX));
    queue.add("a");
    assert_eq!(queue.try_get().unwrap().requeue(), Added::Waiting);
    clock.advance(Duration::MAX);
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    assert_eq!(queue.waiting(), 1);
}

#[test]
fn only_delayed_and_rate_limited_adds_count_as_retries() {
    let clock = ManualClock::new();
    let metrics = Metrics::new();
    let options = Options::new().clock(&clock).min_interval(INTERVAL);
    let queue = DelayingQueue::with(options.metrics(&metrics, "q").unwrap());
    queue.add("a");
    queue.try_get().unwrap().done();
    queue.add("a");
    let metrics = || queue.metrics().expect("it has a name");
    assert_eq!((metrics().retries, metrics().waiting), (0, 1));
    queue.add_after("a", SECOND);
    queue.add_after("a", Duration::ZERO);
    assert_eq!((metrics().retries, metrics().waiting), (2, 1));
}

/// The same through the trait that outer layers use.
#[test]
fn an_add_by_a_layer_above_waits_too() {
    let (queue, _clock) = after_a_run();
    assert_eq!(WorkQueue::add(&queue, "a"), Added::Waiting);
}

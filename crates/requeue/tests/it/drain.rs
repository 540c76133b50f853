//! `drain(limit)`: open → draining → shut down, and nothing lost silently.

use requeue::limiter::ExponentialFailure;
use requeue::{Added, DelayingQueue, Drain, ManualClock, Options, PriorityQueue, Queue};
use requeue::{QueueAdapter, RateLimitingQueue, Remains, TryGetError};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(20);

fn delaying() -> (DelayingQueue<&'static str>, ManualClock) {
    let clock = ManualClock::new();
    (DelayingQueue::with(Options::new().clock(&clock)), clock)
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// What a drain left, by list.
fn left(remains: Remains<&str>) -> (Vec<&str>, Vec<(&str, Duration)>, Vec<&str>) {
    (remains.ready, remains.waiting, remains.held)
}

#[test]
fn ready_keys_are_processed_and_adds_are_refused() {
    let (queue, _clock) = delaying();
    queue.add("a");
    queue.add("b");
    let mut drain = pin!(queue.drain(LIMIT));
    assert!(queue.shutting_down());
    assert_eq!(queue.add("c"), Added::Refused);
    assert_eq!(queue.add("a"), Added::Refused);
    assert_eq!(queue.add_after("c", SECOND), Added::Refused);
    let a = queue.try_get().unwrap();
    let b = queue.try_get().unwrap();
    a.done();
    assert!(poll(drain.as_mut()).is_pending(), "a key is held");
    b.done();
    assert_eq!(poll(drain), Poll::Ready(Remains::default()));
}

#[test]
fn re_runs_added_before_it_run_and_getters_wait_for_them() {
    let (queue, _clock) = delaying();
    queue.add("a");
    let held = queue.try_get().unwrap();
    queue.add("a");
    let mut drain = pin!(queue.drain(LIMIT));
    // Not "shut down": the held key may become ready again, and does.
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    let mut getter = pin!(queue.get());
    assert!(poll(getter.as_mut()).is_pending());
    held.done();
    assert!(poll(drain.as_mut()).is_pending(), "a key is ready");
    let Poll::Ready(Some(held)) = poll(getter) else { panic!("the key came back") };
    held.done();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
    assert_eq!(poll(drain), Poll::Ready(Remains::default()));
}

#[test]
fn timers_stop_and_delayed_keys_are_returned_with_their_remaining_delay() {
    let (queue, clock) = delaying();
    queue.add_after("late", 9 * SECOND);
    queue.add_after("soon", 3 * SECOND);
    queue.add("a");
    let held = queue.try_get().unwrap();
    let mut drain = pin!(queue.drain(LIMIT));
    clock.advance(5 * SECOND);
    assert!(queue.is_empty(), "nothing falls due while draining");
    assert!(poll(drain.as_mut()).is_pending());
    held.done();
    let Poll::Ready(remains) = poll(drain) else { panic!("no key is left") };
    assert_eq!(remains.len(), 2);
    assert_eq!(
        left(remains),
        (vec![], vec![("soon", Duration::ZERO), ("late", 4 * SECOND)], vec![])
    );
}

#[test]
fn a_key_that_its_guard_requeues_is_kept_and_not_run() {
    let (queue, _clock) = delaying();
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    let drain = queue.drain(LIMIT);
    assert_eq!(queue.try_get().unwrap().requeue(), Added::Kept);
    assert_eq!(queue.try_get().unwrap().requeue_after(SECOND), Added::Kept);
    assert_eq!(queue.try_get().unwrap().requeue_after(Duration::ZERO), Added::Kept);
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
    assert_eq!(left(drain.wait()), (vec!["a", "c"], vec![("b", SECOND)], vec![]));
    assert_eq!(queue.waiting(), 0);
}

/// The result tells a holder whether the key runs once more before the drain ends.
#[test]
fn a_waiting_key_is_kept_too_and_a_key_that_runs_again_is_not() {
    let backoff = || ExponentialFailure::new(SECOND, SECOND);
    let limited = RateLimitingQueue::with(backoff(), Options::new().clock(ManualClock::new()));
    limited.add("waits");
    let held = limited.try_get().unwrap();
    limited.add_after("waits", SECOND / 2);
    let drain = limited.drain(LIMIT);
    assert_eq!(held.retry().added, Added::Kept);
    assert_eq!(left(drain.wait()), (vec![], vec![("waits", SECOND / 2)], vec![]));

    let priority = PriorityQueue::with(backoff(), Options::new().clock(ManualClock::new()));
    priority.add("runs");
    priority.add("waits");
    let (runs, waits) = (priority.try_get().unwrap(), priority.try_get().unwrap());
    priority.add("runs");
    priority.add_after("waits", SECOND / 2);
    let drain = priority.drain(LIMIT);
    assert_eq!(runs.retry().added, Added::Coalesced);
    assert_eq!(waits.retry().added, Added::Kept);
    assert_eq!(*priority.try_get().unwrap().key(), "runs");
    assert_eq!(left(drain.wait()), (vec![], vec![("waits", SECOND / 2)], vec![]));
}

#[test]
fn at_the_limit_it_returns_ready_and_held_keys_and_shuts_down() {
    let (queue, clock) = delaying();
    for key in ["a", "b"] {
        queue.add(key);
    }
    let held = queue.try_get().unwrap();
    queue.add("a");
    let mut drain = pin!(queue.drain(LIMIT));
    assert!(poll(drain.as_mut()).is_pending());
    clock.advance(LIMIT - Duration::from_nanos(1));
    assert!(poll(drain.as_mut()).is_pending());
    clock.advance(Duration::from_nanos(1));
    let Poll::Ready(remains) = poll(drain) else { panic!("the limit has passed") };
    assert_eq!(left(remains), (vec!["b", "a"], vec![], vec!["a"]));
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
    // The drain returned the key, so its holder's requeue is refused and it does not run again.
    assert_eq!(held.requeue(), Added::Refused);
    assert!(queue.is_empty());
}

#[test]
fn the_limit_wakes_the_waiter_of_the_drain() {
    let (queue, clock) = delaying();
    queue.add("a");
    let held = queue.try_get().unwrap();
    let woken = Arc::new(Flag::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut drain = pin!(queue.drain(LIMIT));
    assert!(drain.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    clock.advance(LIMIT);
    assert!(woken.0.load(std::sync::atomic::Ordering::SeqCst));
    assert_eq!(poll(drain).map(left), Poll::Ready((vec![], vec![], vec!["a"])));
    held.done();
}

#[derive(Default)]
struct Flag(std::sync::atomic::AtomicBool);

impl std::task::Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn on_the_system_clock_a_limit_of_zero_returns_immediately() {
    let queue = DelayingQueue::new();
    queue.add("a");
    queue.add_after("b", Duration::from_secs(3600));
    let remains = queue.drain(Duration::ZERO).wait();
    assert_eq!(remains.ready, ["a"]);
    assert_eq!(remains.waiting[0].0, "b");
}

#[test]
fn on_the_system_clock_the_limit_ends_the_wait() {
    let queue = Queue::new();
    queue.add("a");
    let _held = queue.try_get().unwrap();
    assert_eq!(queue.drain(Duration::from_millis(1)).wait().held, ["a"]);
}

#[test]
fn an_empty_queue_drains_immediately_and_getters_end() {
    let queue = Queue::<&str>::new();
    let mut getter = pin!(queue.get());
    assert!(poll(getter.as_mut()).is_pending());
    let drain: Drain<'_, _> = queue.drain(LIMIT);
    assert!(matches!(poll(getter), Poll::Ready(None)));
    assert!(drain.wait().is_empty());
}

#[test]
fn dropped_early_the_queue_goes_on_draining() {
    let (queue, clock) = delaying();
    queue.add("a");
    drop(queue.drain(LIMIT));
    clock.advance(2 * LIMIT);
    assert_eq!(queue.add("b"), Added::Refused);
    queue.try_get().expect("a ready key is still handed out").done();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::ShutDown);
}

#[test]
fn of_two_drains_the_first_to_end_returns_the_remaining_keys() {
    let (queue, clock) = delaying();
    queue.add_after("later", 30 * SECOND);
    queue.add("a");
    let held = queue.try_get().unwrap();
    let (mut long, mut short) = (pin!(queue.drain(LIMIT)), pin!(queue.drain(SECOND)));
    assert!(poll(long.as_mut()).is_pending() && poll(short.as_mut()).is_pending());
    clock.advance(SECOND);
    let expected = (vec![], vec![("later", 29 * SECOND)], vec!["a"]);
    assert_eq!(poll(short).map(left), Poll::Ready(expected));
    assert_eq!(poll(long).map(left), Poll::Ready((vec![], vec![], vec!["a"])));
    held.done();
}

#[test]
fn a_shutdown_ends_the_drain_which_returns_the_remaining_keys() {
    let (queue, _clock) = delaying();
    for key in ["a", "b"] {
        queue.add(key);
    }
    queue.add_after("c", SECOND);
    let held = queue.try_get().unwrap();
    let mut drain = pin!(queue.drain(LIMIT));
    assert!(poll(drain.as_mut()).is_pending());
    queue.shut_down();
    let expected = (vec!["b"], vec![("c", SECOND)], vec!["a"]);
    assert_eq!(poll(drain).map(left), Poll::Ready(expected));
    held.done();
}

#[test]
fn client_gos_drain_beside_it_waits_for_held_keys_only() {
    let (queue, _clock) = delaying();
    for key in ["a", "b"] {
        queue.add(key);
    }
    let held = queue.try_get().unwrap();
    let mut ours = pin!(queue.drain(LIMIT));
    let mut theirs = pin!(queue.shut_down_with_drain());
    assert!(poll(ours.as_mut()).is_pending() && poll(theirs.as_mut()).is_pending());
    held.done();
    assert!(poll(theirs).is_ready(), "no key is held");
    assert!(poll(ours.as_mut()).is_pending(), "one is ready");
    queue.try_get().unwrap().done();
    assert!(poll(ours).is_ready());
}

#[test]
fn with_an_adapter_it_is_the_same() {
    let clock = ManualClock::new();
    let inner = Queue::with(Options::new().clock(&clock));
    let backoff = ExponentialFailure::new(SECOND, SECOND);
    let queue = QueueAdapter::new(inner, backoff, Options::new().clock(&clock));
    for key in ["a", "b"] {
        queue.add(key);
    }
    queue.add_after("c", SECOND);
    let drain = queue.drain(LIMIT);
    assert_eq!(queue.try_get().unwrap().requeue_after(SECOND), Added::Kept);
    assert_eq!(queue.try_get().unwrap().requeue(), Added::Kept);
    assert_eq!(left(drain.wait()), (vec!["b"], vec![("c", SECOND), ("a", SECOND)], vec![]));
    assert!(queue.inner().shutting_down());
}

/// Regression test: a drain that was not polled yet missed its end.
#[test]
fn a_drain_that_is_ended_before_it_is_first_polled_ends() {
    let queue = Queue::new();
    queue.add("a");
    let _held = queue.try_get().unwrap();
    let drain = queue.drain(LIMIT);
    queue.shut_down();
    assert_eq!(drain.wait().held, ["a"]);
    let (first, mut second) = (queue.drain(Duration::ZERO), pin!(queue.drain(LIMIT)));
    assert_eq!(first.wait().held, ["a"]);
    assert!(poll(second.as_mut()).is_ready());
}

#[test]
fn a_shutdown_after_an_abandoned_drain_refuses_what_holders_delay() {
    let (queue, _clock) = delaying();
    queue.add("a");
    let held = queue.try_get().unwrap();
    drop(queue.drain(LIMIT));
    queue.shut_down();
    assert_eq!(held.requeue_after(SECOND), Added::Refused);
    assert_eq!(queue.waiting(), 0);
}

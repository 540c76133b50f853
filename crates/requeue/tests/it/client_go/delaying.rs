//! What `delaying_queue_test.go` checks.

use super::millis;
use requeue::{Added, DelayingQueue, ManualClock, Options};

/// client-go: TestSimpleQueue.
#[test]
fn a_delayed_key_is_ready_when_its_time_comes_and_only_then() {
    let (clock, queue) = delaying();
    queue.add_after("foo", millis(50));
    clock.advance(millis(49));
    assert_eq!((queue.len(), queue.waiting()), (0, 1));
    clock.advance(millis(1));
    assert_eq!((queue.len(), queue.waiting()), (1, 0));
    queue.try_get().unwrap().done();
    // client-go checks its heap at least this often; requeue has no such interval.
    clock.advance(millis(10_000));
    assert_eq!((queue.len(), queue.waiting()), (0, 0));
}

/// client-go: TestDeduping.
#[test]
fn a_later_time_does_not_delay_a_waiting_key() {
    let (clock, queue) = delaying();
    assert_eq!(queue.add_after("foo", millis(50)), Added::Waiting);
    assert_eq!(queue.add_after("foo", millis(70)), Added::Coalesced);
    assert_eq!((queue.len(), queue.waiting()), (0, 1));
    clock.advance(millis(60));
    assert_eq!((queue.len(), queue.waiting()), (1, 0));
    queue.try_get().unwrap().done();
    clock.advance(millis(20));
    assert_eq!(queue.len(), 0);
}

/// client-go: TestDeduping.
#[test]
fn an_earlier_time_replaces_that_of_a_waiting_key() {
    let (clock, queue) = delaying();
    assert_eq!(queue.add_after("foo", millis(50)), Added::Waiting);
    assert_eq!(queue.add_after("foo", millis(30)), Added::Waiting);
    assert_eq!((queue.len(), queue.waiting()), (0, 1));
    clock.advance(millis(40));
    assert_eq!((queue.len(), queue.waiting()), (1, 0));
    queue.try_get().unwrap().done();
    clock.advance(millis(20));
    assert_eq!(queue.len(), 0);
}

/// client-go: TestAddTwoFireEarly.
#[test]
fn each_key_falls_due_at_its_own_time_whenever_it_was_added() {
    let (clock, queue) = delaying();
    queue.add_after("foo", millis(1000));
    queue.add_after("bar", millis(50));
    assert_eq!(ready(&queue), [""; 0]);
    clock.advance(millis(60));
    assert_eq!(ready(&queue), ["bar"]);
    queue.add_after("baz", millis(2000));
    clock.advance(millis(1000));
    assert_eq!(ready(&queue), ["foo"]);
    clock.advance(millis(2000));
    assert_eq!(ready(&queue), ["baz"]);
}

/// client-go: TestCopyShifting.
#[test]
fn keys_that_fall_due_in_one_step_come_soonest_first() {
    let (clock, queue) = delaying();
    queue.add_after("foo", millis(1000));
    queue.add_after("bar", millis(500));
    queue.add_after("baz", millis(250));
    assert_eq!(ready(&queue), [""; 0]);
    clock.advance(millis(2000));
    assert_eq!(ready(&queue), ["baz", "bar", "foo"]);
}

fn delaying() -> (ManualClock, DelayingQueue<&'static str>) {
    let clock = ManualClock::new();
    let queue = DelayingQueue::with(Options::new().clock(&clock));
    (clock, queue)
}

/// Takes and finishes the ready keys, in order.
fn ready(queue: &DelayingQueue<&'static str>) -> Vec<&'static str> {
    std::iter::from_fn(|| queue.try_get().ok().map(|held| *held.key())).collect()
}

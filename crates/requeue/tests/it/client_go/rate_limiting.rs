//! What `rate_limiting_queue_test.go` checks.

use super::millis;
use requeue::limiter::ExponentialFailure;
use requeue::{Added, ManualClock, Options, RateLimitingQueue};

/// client-go: TestRateLimitingQueue.
#[test]
fn a_failed_key_is_ready_again_after_the_limiters_delay() {
    let (clock, queue) = doubling();
    for (key, delay) in [("one", 1), ("one", 2), ("two", 1), ("two", 2)] {
        let limited = queue.add_rate_limited(key);
        assert_eq!((limited.delay, limited.added), (millis(delay), Added::Waiting));
        assert!(queue.is_empty(), "{key} must wait");
        assert_eq!(clock.advance_to_next(), Some(millis(delay)));
        let held = queue.try_get().unwrap();
        assert_eq!(*held.key(), key);
    }
}

/// client-go: TestRateLimitingQueue.
#[test]
fn failures_are_counted_for_each_key_until_it_is_forgotten() {
    let (_clock, queue) = doubling();
    for key in ["one", "one", "two", "two"] {
        queue.add_rate_limited(key);
    }
    assert_eq!((queue.num_requeues("one"), queue.num_requeues("two")), (2, 2));
    queue.forget("one");
    assert_eq!((queue.num_requeues("one"), queue.num_requeues("two")), (0, 2));
    assert_eq!(queue.add_rate_limited("one").delay, millis(1));
    assert_eq!(queue.add_rate_limited("two").delay, millis(4));
}

/// From 1 ms to 1 s.
fn doubling() -> (ManualClock, RateLimitingQueue<&'static str>) {
    let clock = ManualClock::new();
    let limiter = ExponentialFailure::new(millis(1), millis(1000));
    let queue = RateLimitingQueue::with(limiter, Options::new().clock(&clock));
    (clock, queue)
}

//! What `default_rate_limiters_test.go` checks.

use super::millis;
use requeue::Moment;
use requeue::limiter::{
    Chain, ExponentialFailure, FastSlow, KeyedLimiter, RateLimiter, WithMaxWait,
};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// client-go: TestItemExponentialFailureRateLimiter.
#[test]
fn the_delay_of_a_key_doubles_with_each_failure() {
    let limiter = ExponentialFailure::new(millis(1), millis(1000));
    fails_key_by_key(limiter, [1, 2, 4, 8, 16].map(millis));
}

/// client-go: TestItemExponentialFailureRateLimiterOverFlow.
#[test]
fn a_delay_that_doubled_too_often_for_any_number_is_the_maximum() {
    for (base, max, sixth) in [
        (millis(1), Duration::from_secs(1000), millis(32)),
        (Duration::from_secs(60), 1000 * HOUR, Duration::from_secs(32 * 60)),
    ] {
        let mut limiter = KeyedLimiter::new(ExponentialFailure::new(base, max));
        let delays: Vec<Duration> = (0..1001).map(|_| when(&mut limiter, "one")).collect();
        assert_eq!(delays[..3], [base, 2 * base, 4 * base]);
        assert_eq!(delays[5], sixth);
        assert!(delays.is_sorted(), "from {base:?} to {max:?}");
        assert_eq!(delays[1000], max);
    }
}

/// client-go: TestItemFastSlowRateLimiter.
#[test]
fn the_first_failures_of_a_key_have_the_fast_delay_and_the_others_the_slow_one() {
    let limiter = FastSlow::new(millis(5), millis(10_000), 3);
    fails_key_by_key(limiter, [5, 5, 5, 10_000, 10_000].map(millis));
}

/// client-go: TestMaxOfRateLimiter.
#[test]
fn of_two_limiters_each_time_the_longer_delay_counts() {
    let limiter = FastSlow::new(millis(5), millis(3000), 3)
        .and(ExponentialFailure::new(millis(1), millis(1000)));
    fails_key_by_key(limiter, [5, 5, 5, 3000, 3000].map(millis));
}

/// client-go: TestWithMaxWaitRateLimiter.
#[test]
fn a_maximum_wait_cuts_longer_delays_and_leaves_shorter_ones() {
    let step = Step { calls: 0, threshold: 100, below: millis(5), above: millis(1_000_000) };
    let mut limiter = KeyedLimiter::new(WithMaxWait::new(step, millis(500_000)));
    for key in 0..200 {
        let expected = if key < 100 { millis(5) } else { millis(500_000) };
        assert_eq!(limiter.when(&key, Moment::default()), expected, "{key}");
        assert_eq!(limiter.num_requeues(&key), 0, "{key}");
    }
}

/// Five failures of one key have these delays; those of another start from the beginning, as do its own
/// once it is forgotten.
fn fails_key_by_key(limiter: impl RateLimiter<&'static str>, delays: [Duration; 5]) {
    let mut limiter = KeyedLimiter::new(limiter);
    for (before, delay) in (0..).zip(delays) {
        assert_eq!(limiter.num_requeues("one"), before);
        assert_eq!(when(&mut limiter, "one"), delay);
    }
    assert_eq!([(); 2].map(|()| when(&mut limiter, "two")), delays[..2]);
    assert_eq!((limiter.num_requeues("one"), limiter.num_requeues("two")), (5, 2));
    limiter.forget("one");
    assert_eq!((limiter.num_requeues("one"), limiter.num_requeues("two")), (0, 2));
    assert_eq!(when(&mut limiter, "one"), delays[0]);
}

fn when<L: RateLimiter<&'static str>>(
    limiter: &mut KeyedLimiter<&'static str, L>,
    key: &'static str,
) -> Duration {
    limiter.when(&key, Moment::default())
}

/// Counts all keys together, and no key by itself.
struct Step {
    calls: u32,
    threshold: u32,
    below: Duration,
    above: Duration,
}

impl<K> RateLimiter<K> for Step {
    fn when(&mut self, _key: &K, _failures: u32, _now: Moment) -> Duration {
        self.calls += 1;
        if self.calls <= self.threshold { self.below } else { self.above }
    }

    fn counts(&self) -> bool {
        false
    }
}

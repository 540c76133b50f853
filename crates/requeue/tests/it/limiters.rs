//! What limiters do beyond client-go's. The others are compared with recorded traces of client-go
//! in `conformance.rs`.

use proptest::prelude::*;
use requeue::limiter::{
    Bucket, Chain, ExponentialFailure, FastSlow, Jitter, KeyedLimiter, LONGEST, RateLimiter,
    default_controller,
};
use requeue::{Moment, Options, RateLimitingQueue};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn at(now: Duration) -> Moment {
    Moment::default().saturating_add(now)
}

/// Small and large numbers alike, and the edges.
fn nanos() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..63u32, any::<u64>()).prop_map(|(bits, n)| n & ((1 << bits) - 1)),
        1 => Just(0),
        1 => Just(i64::MAX as u64),
        1 => (0..63u32).prop_map(|bit| 1 << bit),
    ]
}

proptest! {
    #[test]
    fn jitter_takes_off_at_most_its_fraction_and_never_adds(
        delay in nanos(), fraction in 0.0..=1.0f64, seed in any::<u64>(),
    ) {
        let delay = Duration::from_nanos(delay);
        let fixed = FastSlow::new(delay, delay, 0);
        let mut limiter = KeyedLimiter::new(fixed.jittered(fraction).unwrap().seed(seed));
        for _ in 0..20 {
            let jittered = limiter.when(&"a", Moment::default());
            prop_assert!(jittered <= delay);
            // A float has 53 bits; a delay of a century has 62.
            let least = delay.as_secs_f64() * (1.0 - fraction);
            prop_assert!(jittered.as_secs_f64() >= least - least * 1e-12 - 1e-9);
        }
    }

    /// However long the storm, no key waits longer than the bound. After the bound has passed,
    /// the bucket is as full as without the storm.
    #[test]
    fn a_bounded_debt_is_paid_off_in_its_bound(rate in 0.1..1000.0f64, storm in 1..5000u32) {
        let ahead = 10 * SECOND;
        let mut bucket = KeyedLimiter::new(Bucket::new(rate, 5).unwrap().max_debt(ahead));
        for _ in 0..storm {
            prop_assert!(bucket.when(&"stormy", at(SECOND)) <= ahead);
        }
        prop_assert_eq!(bucket.when(&"other", at(SECOND + ahead + SECOND.div_f64(rate))), Duration::ZERO);
    }
}

/// Flag `platform_dependent`: at 2⁶³ ns, client-go returns a negative delay on amd64, and the
/// key runs again immediately.
#[test]
fn an_exponential_delay_of_two_to_the_63_nanoseconds_saturates() {
    let one = Duration::from_nanos(1);
    let mut limiter = KeyedLimiter::new(ExponentialFailure::new(one, LONGEST));
    let delays: Vec<Duration> = (0..70).map(|_| limiter.when(&"a", Moment::default())).collect();
    assert_eq!(delays[62], Duration::from_nanos(1 << 62));
    assert!(delays[63..].iter().all(|&delay| delay == LONGEST));
}

#[test]
fn counts_go_on_past_any_power_of_two() {
    let mut limiter = ExponentialFailure::default();
    for failures in [0, 1, 62, 63, 64, 1023, 1024, u32::MAX] {
        let delay = RateLimiter::<&str>::when(&mut limiter, &"a", failures, Moment::default());
        assert!((Duration::from_millis(5)..=Duration::from_secs(1000)).contains(&delay));
    }
}

#[test]
fn an_invalid_number_is_an_error_that_names_it() {
    for rate in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, -f64::MIN_POSITIVE] {
        let error = Bucket::new(rate, 1).unwrap_err().to_string();
        assert_eq!(error, format!("per_second is {rate}, but must be a number from 0 up"));
    }
    for fraction in [f64::NAN, f64::INFINITY, -0.1, 1.1] {
        let error = Jitter::new(Bucket::unlimited(), fraction).unwrap_err().to_string();
        assert_eq!(error, format!("fraction is {fraction}, but must be from 0 to 1"));
    }
}

#[test]
fn numbers_that_client_go_accepts_are_accepted() {
    for (rate, burst) in [(0.0, 0), (0.0, 1), (f64::MAX, 0), (1e-300, 1), (1e300, u32::MAX)] {
        assert!(Bucket::new(rate, burst).is_ok());
    }
    // If the maximum is below the base, the maximum is returned.
    let mut limiter = KeyedLimiter::new(ExponentialFailure::new(SECOND, Duration::ZERO));
    assert_eq!(limiter.when(&"a", Moment::default()), Duration::ZERO);
}

#[test]
fn the_same_seed_gives_the_same_jitter_and_another_seed_another() {
    let delays = |seed| {
        let limiter = FastSlow::new(SECOND, SECOND, 0).jittered(0.5).unwrap().seed(seed);
        let mut limiter = KeyedLimiter::new(limiter);
        [(); 8].map(|()| limiter.when(&"a", Moment::default()))
    };
    assert_eq!(delays(7), delays(7));
    assert_ne!(delays(7), delays(8));
    let spread = delays(7).iter().max().unwrap().abs_diff(*delays(7).iter().min().unwrap());
    assert!(spread > SECOND / 20, "{spread:?}");
}

#[test]
fn one_bucket_can_be_shared_by_several_queues() {
    let bucket = Arc::new(Mutex::new(Bucket::new(1.0, 1).unwrap()));
    let queues = [(); 2].map(|()| RateLimitingQueue::with(bucket.clone(), Options::new()));
    let [first, second] = queues.map(|queue| queue.add_rate_limited("a").delay);
    assert_eq!(first, Duration::ZERO);
    assert!(second > SECOND / 2, "{second:?}");
}

#[test]
fn a_storm_delays_other_keys_unless_its_debt_is_bounded() {
    let mut unbounded = KeyedLimiter::new(default_controller());
    let bounded =
        ExponentialFailure::default().and(Bucket::new(10.0, 100).unwrap().max_debt(SECOND));
    let mut bounded = KeyedLimiter::new(bounded);
    for key in 0..100_000 {
        unbounded.when(&key, Moment::default());
        bounded.when(&key, Moment::default());
    }
    assert!(unbounded.when(&-1, Moment::default()) > Duration::from_secs(2 * 3600));
    assert_eq!(bounded.when(&-1, Moment::default()), SECOND);
}

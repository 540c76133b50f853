use super::RateLimiter;
use crate::clock::Moment;
use std::time::Duration;

/// Above this value, client-go returns its maximum. At exactly this value it overflows, to a
/// negative delay on amd64; here the maximum applies from this value on.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// Doubles the delay with every failure, from `base` up to `max`, like client-go's
/// `ItemExponentialFailureRateLimiter`.
///
/// The default is 5 ms to 1000 s.
///
/// ```
/// use requeue::limiter::{ExponentialFailure, KeyedLimiter};
/// use std::time::Duration;
///
/// let mut limiter = KeyedLimiter::new(ExponentialFailure::default());
/// let delays = [(); 4].map(|()| limiter.when(&"a", Default::default()));
/// assert_eq!(delays, [5, 10, 20, 40].map(Duration::from_millis));
/// ```
#[derive(Debug, Clone)]
pub struct ExponentialFailure {
    base: f64,
    max: Duration,
}

impl ExponentialFailure {
    /// Creates a limiter that doubles from `base` to `max`. If `max` is below `base`, every
    /// delay is `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        ExponentialFailure { base: base.as_nanos() as f64, max }
    }
}

impl Default for ExponentialFailure {
    fn default() -> Self {
        ExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(1000))
    }
}

impl<K> RateLimiter<K> for ExponentialFailure {
    fn when(&mut self, _key: &K, failures: u32, _now: Moment) -> Duration {
        // A power of two is exact, and so is the product: the result equals client-go's to the
        // last bit.
        let power = f64::from_bits(u64::from(1023 + failures.min(1023)) << 52);
        let backoff = self.base * power;
        if backoff >= TWO_TO_63 {
            return self.max;
        }
        Duration::from_nanos(backoff as u64).min(self.max)
    }
}

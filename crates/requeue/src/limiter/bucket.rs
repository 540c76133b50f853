use super::{LONGEST, LimiterError, RateLimiter};
use crate::clock::Moment;
use std::time::Duration;

/// golang.org/x/time/rate's `Inf`: no limit.
const UNLIMITED: f64 = f64::MAX;

/// A token bucket over all keys: client-go's `BucketRateLimiter`.
///
/// It lends: who comes when it is empty is told when its token will be there, and those
/// behind it wait longer. So a storm of a million retries at 10 a second puts off the
/// next key's first retry by a day; [`max_debt`](Self::max_debt) bounds that.
///
/// ```
/// use requeue::limiter::{Bucket, KeyedLimiter};
/// use std::time::Duration;
///
/// let mut limiter = KeyedLimiter::new(Bucket::new(10.0, 2)?);
/// let delays = [(); 4].map(|()| limiter.when(&"any", Default::default()));
/// assert_eq!(delays, [0, 0, 100, 200].map(Duration::from_millis));
/// assert_eq!(limiter.num_requeues("any"), 0, "a bucket counts no failures");
///
/// let error = Bucket::new(f64::NAN, 2).unwrap_err();
/// assert_eq!(error.to_string(), "per_second is NaN, but must be a number from 0 up");
/// # Ok::<(), requeue::limiter::LimiterError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Bucket {
    per_second: f64,
    burst: u32,
    /// Below 0: lent.
    tokens: f64,
    filled_at: Moment,
    max_debt: Option<Duration>,
}

impl Bucket {
    /// A full bucket of `burst` tokens, refilled at `per_second`.
    ///
    /// A rate of 0 never refills; a burst of 0 never has a token: both answer
    /// [`LONGEST`]. `f64::MAX` is no limit at all. Other rates that are not finite, or
    /// are below 0, are errors.
    pub fn new(per_second: f64, burst: u32) -> Result<Self, LimiterError> {
        if !per_second.is_finite() || per_second < 0.0 {
            let allowed = "a number from 0 up";
            return Err(LimiterError { field: "per_second", value: per_second, allowed });
        }
        Ok(Bucket::full(per_second, burst))
    }

    pub(super) fn full(per_second: f64, burst: u32) -> Self {
        let tokens = f64::from(burst);
        Bucket { per_second, burst, tokens, filled_at: Moment::default(), max_debt: None }
    }

    /// A bucket that never makes anybody wait.
    pub fn unlimited() -> Self {
        Bucket::full(UNLIMITED, 1)
    }

    /// Lends no further ahead than this. Who would have to wait longer waits exactly so
    /// long, and costs nothing: the rate is exceeded then, but one storm does not put off
    /// other keys' first retry for hours. Default: no bound, as in client-go.
    #[must_use]
    pub fn max_debt(mut self, ahead: Duration) -> Self {
        self.max_debt = Some(ahead);
        self
    }
}

/// As Go's `Duration.Seconds`: whole seconds and the rest, added as floats.
fn seconds(duration: Duration) -> f64 {
    duration.as_secs() as f64 + f64::from(duration.subsec_nanos()) / 1e9
}

impl<K> RateLimiter<K> for Bucket {
    fn when(&mut self, _key: &K, _failures: u32, now: Moment) -> Duration {
        if self.per_second == UNLIMITED {
            return Duration::ZERO;
        }
        if self.burst == 0 {
            return LONGEST.min(self.max_debt.unwrap_or(LONGEST));
        }
        let refill = seconds(now.saturating_since(self.filled_at)) * self.per_second;
        let mut tokens = (self.tokens + refill).min(f64::from(self.burst)) - 1.0;
        let mut wait = Duration::ZERO;
        if tokens < 0.0 {
            // 0/0 cannot be: tokens are below 0. A rate of 0 gives infinity, which
            // saturates, as everything does past what client-go can say.
            let nanos = (-tokens / self.per_second) * 1e9;
            wait = Duration::from_nanos(nanos as u64).min(LONGEST);
        }
        if let Some(ahead) = self.max_debt.filter(|&ahead| wait > ahead) {
            wait = ahead;
            tokens += 1.0;
        }
        (self.tokens, self.filled_at) = (tokens, now);
        wait
    }

    fn counts(&self) -> bool {
        false
    }
}

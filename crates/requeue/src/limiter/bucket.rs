use super::{LONGEST, LimiterError, RateLimiter};
use crate::clock::Moment;
use std::time::Duration;

/// No limit, like `Inf` of golang.org/x/time/rate.
const UNLIMITED: f64 = f64::MAX;

/// A token bucket over all keys, like client-go's `BucketRateLimiter`.
///
/// When the bucket is empty, it lends tokens: the delay lasts until the token exists, and later
/// keys wait longer. After a storm of a million retries at 10 per second, the first retry of
/// another key therefore waits a day. [`max_debt`](Self::max_debt) bounds that.
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
    /// Negative if tokens were lent.
    tokens: f64,
    filled_at: Moment,
    max_debt: Option<Duration>,
}

impl Bucket {
    /// Creates a full bucket of `burst` tokens that is refilled with `per_second` tokens per
    /// second.
    ///
    /// A rate of 0 never refills the bucket, and a burst of 0 never has a token: the delay is
    /// then [`LONGEST`]. `f64::MAX` means no limit. Fails if another rate is negative or not
    /// finite.
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

    /// Creates a bucket without a limit: every delay is zero.
    pub fn unlimited() -> Self {
        Bucket::full(UNLIMITED, 1)
    }

    /// Limits how far ahead the bucket lends tokens. A key that would have to wait longer than
    /// `ahead` waits exactly `ahead` and takes no token. The rate is then exceeded, but one
    /// storm does not delay the first retry of other keys for hours. Default: no limit, as in
    /// client-go.
    #[must_use]
    pub fn max_debt(mut self, ahead: Duration) -> Self {
        self.max_debt = Some(ahead);
        self
    }
}

/// Converts like Go's `Duration.Seconds`: whole seconds and the rest, added as floats.
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
            // Not 0/0: tokens are below 0. A rate of 0 gives infinity, which saturates, like
            // everything past the longest delay of client-go.
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

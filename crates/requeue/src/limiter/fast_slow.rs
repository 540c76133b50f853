use super::RateLimiter;
use crate::clock::Moment;
use std::time::Duration;

/// Uses a short delay for the first failures of a key, then a long one, like client-go's
/// `ItemFastSlowRateLimiter`.
#[derive(Debug, Clone)]
pub struct FastSlow {
    fast: Duration,
    slow: Duration,
    max_fast_attempts: u32,
}

impl FastSlow {
    /// Creates a limiter with the delay `fast` for the first `max_fast_attempts` failures of a
    /// key and `slow` after that.
    pub fn new(fast: Duration, slow: Duration, max_fast_attempts: u32) -> Self {
        FastSlow { fast, slow, max_fast_attempts }
    }
}

impl<K> RateLimiter<K> for FastSlow {
    fn when(&mut self, _key: &K, failures: u32, _now: Moment) -> Duration {
        if failures < self.max_fast_attempts { self.fast } else { self.slow }
    }
}

use super::RateLimiter;
use crate::clock::Moment;
use std::time::Duration;

/// Limits a delay to a maximum, like client-go's `WithMaxWaitRateLimiter`.
///
/// It only caps the returned delay: the debt of a bucket continues to grow. To bound the debt,
/// use [`Bucket::max_debt`](super::Bucket::max_debt).
#[derive(Debug, Clone)]
pub struct WithMaxWait<L> {
    limiter: L,
    max: Duration,
}

impl<L> WithMaxWait<L> {
    /// Creates a limiter that returns the delay of `limiter`, but at most `max`.
    pub fn new(limiter: L, max: Duration) -> Self {
        WithMaxWait { limiter, max }
    }
}

impl<K, L: RateLimiter<K>> RateLimiter<K> for WithMaxWait<L> {
    fn when(&mut self, key: &K, failures: u32, now: Moment) -> Duration {
        self.limiter.when(key, failures, now).min(self.max)
    }

    fn counts(&self) -> bool {
        self.limiter.counts()
    }
}

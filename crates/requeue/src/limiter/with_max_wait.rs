use super::RateLimiter;
use crate::clock::Moment;
use std::time::Duration;

/// Never longer than a maximum: client-go's `WithMaxWaitRateLimiter`.
///
/// It cuts the answer, not what is behind it: a bucket's debt goes on growing. To bound
/// that see [`Bucket::max_debt`](super::Bucket::max_debt).
#[derive(Debug, Clone)]
pub struct WithMaxWait<L> {
    limiter: L,
    max: Duration,
}

impl<L> WithMaxWait<L> {
    /// What `limiter` answers, but at most `max`.
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

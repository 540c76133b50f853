use super::RateLimiter;
use crate::clock::Moment;
use std::time::Duration;

/// Uses the longer of two delays, like client-go's `MaxOfRateLimiter`. Chain it for more than
/// two.
///
/// Both limiters are called every time, so a bucket spends a token even if the other delay is
/// longer.
#[derive(Debug, Clone)]
pub struct MaxOf<A, B> {
    first: A,
    second: B,
}

impl<A, B> MaxOf<A, B> {
    /// Creates a limiter that returns the longer delay of `first` and `second`.
    pub fn new(first: A, second: B) -> Self {
        MaxOf { first, second }
    }
}

impl<K, A: RateLimiter<K>, B: RateLimiter<K>> RateLimiter<K> for MaxOf<A, B> {
    fn when(&mut self, key: &K, failures: u32, now: Moment) -> Duration {
        let first = self.first.when(key, failures, now);
        first.max(self.second.when(key, failures, now))
    }

    fn counts(&self) -> bool {
        self.first.counts() || self.second.counts()
    }
}

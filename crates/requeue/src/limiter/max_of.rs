use super::RateLimiter;
use crate::clock::Moment;
use std::time::Duration;

/// The longer of two delays: client-go's `MaxOfRateLimiter`. For more than two, chain.
///
/// Both are asked every time, so that a bucket pays also for keys that wait longer anyway.
#[derive(Debug, Clone)]
pub struct MaxOf<A, B> {
    first: A,
    second: B,
}

impl<A, B> MaxOf<A, B> {
    /// The longer of what the two answer.
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

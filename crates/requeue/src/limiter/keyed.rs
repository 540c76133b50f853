use super::RateLimiter;
use crate::clock::Moment;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// A limiter with its failure counts, for use without a queue, like client-go's `RateLimiter`.
///
/// ```
/// use requeue::limiter::{ExponentialFailure, KeyedLimiter};
/// use std::time::Duration;
///
/// let mut limiter = KeyedLimiter::new(ExponentialFailure::default());
/// limiter.when(&"a".to_string(), Default::default());
/// assert_eq!(limiter.num_requeues("a"), 1);
/// limiter.forget("a");
/// assert_eq!(limiter.num_requeues("a"), 0);
/// ```
#[derive(Debug, Clone)]
pub struct KeyedLimiter<K, L> {
    limiter: L,
    failures: HashMap<K, u32>,
}

impl<K: Eq + Hash + Clone, L: RateLimiter<K>> KeyedLimiter<K, L> {
    /// Creates a keyed limiter without failures.
    pub fn new(limiter: L) -> Self {
        KeyedLimiter { limiter, failures: HashMap::new() }
    }

    /// Counts a failure of `key` and returns its delay.
    pub fn when(&mut self, key: &K, now: Moment) -> Duration {
        if !self.limiter.counts() {
            return self.limiter.when(key, 0, now);
        }
        let delay = self.limiter.when(key, self.num_requeues(key), now);
        let failures = self.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        delay
    }

    /// Resets the failure count of `key`.
    pub fn forget<B>(&mut self, key: &B)
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        self.failures.remove(key);
    }

    /// Returns how often `key` has failed since it was last forgotten. Returns 0 if the limiter
    /// does not [count](RateLimiter::counts) failures.
    pub fn num_requeues<B>(&self, key: &B) -> u32
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        self.failures.get(key).copied().unwrap_or(0)
    }
}

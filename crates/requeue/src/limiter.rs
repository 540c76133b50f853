//! Rate limiters: how long a failed key waits before it runs again.
//!
//! A limiter computes a delay from the key, its number of failures and the time. It stores
//! nothing per key: the caller counts the failures and passes the count. So one lookup serves
//! any combination of limiters, failure counts are bounded in one place, and a limiter of your
//! own is one method.
//!
//! ```
//! use requeue::limiter::{Bucket, Chain, ExponentialFailure};
//! use requeue::RateLimitingQueue;
//! use std::time::Duration;
//!
//! // From 5 ms doubling up to a minute, no more than 50 a second over all keys, and a
//! // fifth of it at random, so that keys which failed together do not return together.
//! let limiter = ExponentialFailure::new(Duration::from_millis(5), Duration::from_secs(60))
//!     .and(Bucket::new(50.0, 100)?)
//!     .jittered(0.2)?;
//! let queue = RateLimitingQueue::new(limiter);
//! queue.add_rate_limited("order-7");
//! # Ok::<(), requeue::limiter::LimiterError>(())
//! ```

mod bucket;
mod exponential_failure;
mod fast_slow;
mod jitter;
mod keyed;
mod max_of;
mod with_max_wait;

pub use bucket::Bucket;
pub use exponential_failure::ExponentialFailure;
pub use fast_slow::FastSlow;
pub use jitter::Jitter;
pub use keyed::KeyedLimiter;
pub use max_of::MaxOf;
pub use with_max_wait::WithMaxWait;

use crate::clock::Moment;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The longest delay in client-go, 2⁶³ − 1 ns (about 292 years). Limiters return it if there is
/// no finite delay, for example for a bucket that is never refilled.
pub const LONGEST: Duration = Duration::from_nanos(i64::MAX as u64);

/// Computes how long a failed key waits before it runs again.
///
/// ```
/// use requeue::limiter::{KeyedLimiter, RateLimiter};
/// use requeue::Moment;
/// use std::time::Duration;
///
/// /// One second more each time.
/// struct Linear;
///
/// impl<K> RateLimiter<K> for Linear {
///     fn when(&mut self, _key: &K, failures: u32, _now: Moment) -> Duration {
///         Duration::from_secs(1) * (failures + 1)
///     }
/// }
///
/// let mut limiter = KeyedLimiter::new(Linear);
/// limiter.when(&"a", Moment::default());
/// assert_eq!(limiter.when(&"a", Moment::default()), Duration::from_secs(2));
/// ```
pub trait RateLimiter<K>: Send + 'static {
    /// Returns the delay of `key`. `failures` is how often the key has failed before, since it
    /// was last forgotten. A queue calls this under its lock, so it must not use the queue.
    fn when(&mut self, key: &K, failures: u32, now: Moment) -> Duration;

    /// Returns `true` if the delay depends on `failures`. If `false`, the queue counts none.
    fn counts(&self) -> bool {
        true
    }
}

/// Returns client-go's default for controllers: the longer of an exponential delay from 5 ms to
/// 1000 s and a token bucket over all keys, 10 per second with a burst of 100.
pub fn default_controller() -> MaxOf<ExponentialFailure, Bucket> {
    ExponentialFailure::default().and(Bucket::full(10.0, 100))
}

/// Returns client-go's default without a bucket over all keys: exponential from 1 ms to 1000 s.
pub fn default_item_based() -> ExponentialFailure {
    ExponentialFailure::new(Duration::from_millis(1), Duration::from_secs(1000))
}

/// Methods to combine limiters, from left to right. Implement this trait for a limiter of your
/// own to get them too.
pub trait Chain: Sized {
    /// Uses the longer of two delays. Both limiters are called every time.
    fn and<L>(self, other: L) -> MaxOf<Self, L> {
        MaxOf::new(self, other)
    }

    /// Limits the delay to at most `max`.
    fn at_most(self, max: Duration) -> WithMaxWait<Self> {
        WithMaxWait::new(self, max)
    }

    /// Shortens the delay by a random part of up to `fraction`. See [`Jitter`].
    fn jittered(self, fraction: f64) -> Result<Jitter<Self>, LimiterError> {
        Jitter::new(self, fraction)
    }
}

impl Chain for ExponentialFailure {}
impl Chain for FastSlow {}
impl Chain for Bucket {}
impl<A, B> Chain for MaxOf<A, B> {}
impl<L> Chain for WithMaxWait<L> {}
impl<L> Chain for Jitter<L> {}
impl<K> Chain for Box<dyn RateLimiter<K>> {}
impl<L> Chain for Arc<Mutex<L>> {}

impl<K: 'static> RateLimiter<K> for Box<dyn RateLimiter<K>> {
    fn when(&mut self, key: &K, failures: u32, now: Moment) -> Duration {
        (**self).when(key, failures, now)
    }

    fn counts(&self) -> bool {
        (**self).counts()
    }
}

/// Shares one limiter between several queues.
impl<K, L: RateLimiter<K>> RateLimiter<K> for Arc<Mutex<L>> {
    fn when(&mut self, key: &K, failures: u32, now: Moment) -> Duration {
        // A limiter is still usable after a panic.
        let mut limiter = self.lock().unwrap_or_else(PoisonError::into_inner);
        limiter.when(key, failures, now)
    }

    fn counts(&self) -> bool {
        self.lock().unwrap_or_else(PoisonError::into_inner).counts()
    }
}

/// An invalid number for a limiter. The message names the parameter, its value and the allowed
/// range.
#[derive(Debug, Clone, PartialEq)]
pub struct LimiterError {
    field: &'static str,
    value: f64,
    allowed: &'static str,
}

impl fmt::Display for LimiterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, but must be {}", self.field, self.value, self.allowed)
    }
}

impl std::error::Error for LimiterError {}

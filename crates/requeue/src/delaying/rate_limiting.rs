//! Failed keys that come back with backoff.
//!
//! ```text
//!   add_rate_limited: the limiter returns a delay, the failure is counted, add_after
//!   forget:           the next failure counts as the first
//! ```
//!
//! The failure count of a key is stored beside its timer, under the delaying queue's lock, so one
//! lookup finds both.

use super::DelayingQueue;
use super::state::State;
use crate::backoff::Backoff;
use crate::built_in::{BuiltIn, Keyed};
use crate::clock::Clock;
use crate::get::{Get, GetMany, TryGetError, try_get};
use crate::held::Held;
use crate::limiter::RateLimiter;
use crate::options::Options;
use crate::order::{Order, Ready};
use crate::retry::{Retry, sealed::Sealed};
use crate::shared::Shared;
use crate::shell::Rules;
use crate::snapshot::{Added, Limited};
use crate::timers::TimedRules;
use crate::work_queue::{Key, Taken};
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// A [`DelayingQueue`] that retries failed keys with backoff.
///
/// A [limiter](crate::limiter) decides how long a failed key waits. The queue counts the
/// failures of each key until the key is forgotten.
///
/// It has all methods of a `DelayingQueue`, to which it dereferences. `RateLimitingQueue` is a
/// handle: clones share one queue.
///
/// ```
/// use requeue::limiter::ExponentialFailure;
/// use requeue::{ManualClock, Options, RateLimitingQueue};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let backoff = ExponentialFailure::new(Duration::from_secs(1), Duration::from_secs(60));
/// let queue = RateLimitingQueue::with(backoff, Options::new().clock(&clock));
/// queue.add("order-7");
///
/// assert_eq!(queue.try_get()?.retry().delay, Duration::from_secs(1)); // it failed
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(queue.try_get()?.retry().delay, Duration::from_secs(2)); // and failed again
/// clock.advance(Duration::from_secs(2));
/// queue.try_get()?.forget(); // it succeeded
/// assert_eq!(queue.num_requeues("order-7"), 0);
/// # Ok::<(), requeue::TryGetError>(())
/// ```
pub struct RateLimitingQueue<K: Key> {
    delaying: DelayingQueue<K>,
}

impl<K: Key> Deref for RateLimitingQueue<K> {
    type Target = DelayingQueue<K>;

    #[inline(always)]
    fn deref(&self) -> &DelayingQueue<K> {
        &self.delaying
    }
}

impl<K: Key> Keyed for RateLimitingQueue<K> {
    type Key = K;
}

impl<K: Key> BuiltIn for RateLimitingQueue<K> {
    type Rules = State<K>;

    #[inline(always)]
    fn shared(&self) -> &Arc<Shared<State<K>>> {
        &self.delaying.shared
    }
}

impl<K: Key> RateLimitingQueue<K> {
    /// Creates an empty FIFO queue on the system clock.
    pub fn new(limiter: impl RateLimiter<K>) -> Self {
        RateLimitingQueue::with(limiter, Options::new())
    }

    /// Creates an empty FIFO queue with the given options.
    pub fn with(limiter: impl RateLimiter<K>, options: Options) -> Self {
        RateLimitingQueue::build(Ready::fifo(), limiter, options)
    }

    /// Creates an empty queue that hands out ready keys in the given [`Order`].
    ///
    /// ```
    /// use requeue::{Fair, Options, RateLimitingQueue, limiter::default_controller};
    ///
    /// // Tenants take turns, however many keys each of them has.
    /// let tenant = |key: &String| key.split('/').next().unwrap_or_default().to_owned();
    /// let order = Fair::by(tenant);
    /// let queue = RateLimitingQueue::with_order(order, default_controller(), Options::new());
    /// for key in ["a/1", "a/2", "b/1"] {
    ///     queue.add(key.to_owned());
    /// }
    /// let keys = queue.get_many(3).wait().into_iter().map(|held| held.done_into_key());
    /// assert_eq!(keys.collect::<Vec<_>>(), ["a/1", "b/1", "a/2"]);
    /// ```
    pub fn with_order(
        order: impl Order<K>,
        limiter: impl RateLimiter<K>,
        options: Options,
    ) -> Self {
        RateLimitingQueue::build(Ready::Given(Box::new(order)), limiter, options)
    }

    fn build(order: Ready<K>, limiter: impl RateLimiter<K>, options: Options) -> Self {
        let backoff = Backoff::new(limiter, options.failures);
        RateLimitingQueue { delaying: DelayingQueue::build(order, options, Some(backoff)) }
    }

    /// Counts a failure of `key` and adds it after the delay that the limiter returns.
    ///
    /// If the key already waits, the earlier time wins. After a shutdown and during a drain the
    /// key is refused, but the limiter is still called and the failure is still counted, as in
    /// client-go.
    ///
    /// # Panics
    ///
    /// Panics in the same case as [`DelayingQueue::add_after`].
    pub fn add_rate_limited(&self, key: K) -> Limited {
        let mut delay = Duration::ZERO;
        let added = self.delaying.delay(key, |state, offer, now| {
            let accepts = state.ending().is_open();
            state.add_rate_limited(state.find_offer(offer), offer, now, &mut delay, accepts)
        });
        Limited { delay, added }
    }

    /// Resets the failure count of `key`. If the key waits, it continues to wait.
    pub fn forget<B>(&self, key: &B)
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        self.shared().forget_key(key);
    }

    /// Returns how often `key` has failed since it was last forgotten. Returns 0 if the limiter
    /// does not [count](RateLimiter::counts) failures, unless a worker with a maximum number of
    /// attempts counts them.
    pub fn num_requeues<B>(&self, key: &B) -> u32
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        self.shared().failures_of_key(key)
    }

    /// Waits for a key, like [`DelayingQueue::get`]. The guard can also [`retry`](Held::retry).
    #[inline]
    pub fn get(&self) -> Get<'_, Self> {
        Get::new(self)
    }

    /// Returns a key if one is ready now. Never waits.
    #[inline]
    pub fn try_get(&self) -> Result<Held<'_, Self>, TryGetError> {
        try_get(self)
    }

    /// Waits for up to `max` keys, like [`DelayingQueue::get_many`].
    pub fn get_many(&self, max: usize) -> GetMany<'_, Self> {
        GetMany::new(self, max)
    }
}

impl<K: Key> Sealed for RateLimitingQueue<K> {}

impl<K: Key> Retry for RateLimitingQueue<K> {
    fn requeue_after(&self, taken: Taken<K>, delay: Duration) -> Added {
        self.delaying.requeue_after(taken, delay)
    }

    #[inline]
    fn retry(&self, taken: Taken<K>) -> Limited {
        let mut delay = Duration::ZERO;
        let added = self.delaying.settle(taken, |state, slot, offer, now| {
            let accepts = !state.is_down();
            state.add_rate_limited(Some(slot), offer, now, &mut delay, accepts)
        });
        Limited { delay, added }
    }

    fn fail_held(&self, token: u64, key: &K) -> Duration {
        self.shared().fail_held(token, key)
    }

    #[inline]
    fn forget_held(&self, token: u64, _: &K) {
        self.shared().forget(|state| state.held_slot(token));
    }

    #[inline]
    fn num_requeues_held(&self, token: u64, _: &K) -> u32 {
        self.shared().failures(|state| state.held_slot(token))
    }

    fn count_failures(&self) {
        self.shared().shell.lock().state.count_failures();
    }

    fn clock(&self) -> &Clock {
        &self.shared().clock
    }
}

impl<K: Key> Clone for RateLimitingQueue<K> {
    fn clone(&self) -> Self {
        RateLimitingQueue { delaying: self.delaying.clone() }
    }
}

impl<K: Key> fmt::Debug for RateLimitingQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateLimitingQueue").field(&self.delaying).finish()
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::keys::LOOKUPS;
    use crate::limiter::ExponentialFailure;
    use crate::shell::LOCKS;

    /// Returns how often `f` locks the queue, and how often it searches or changes a table.
    fn cost(f: impl FnOnce()) -> (u64, u64) {
        let before = (LOCKS.get(), LOOKUPS.get());
        f();
        (LOCKS.get() - before.0, LOOKUPS.get() - before.1)
    }

    #[test]
    fn a_retry_locks_once_per_call_and_searches_no_table() {
        let clock = ManualClock::new();
        let second = Duration::from_secs(1);
        let backoff = ExponentialFailure::new(second, second);
        let queue = RateLimitingQueue::with(backoff, Options::new().clock(&clock));
        queue.add("a");
        let fail = || {
            let held = queue.get().wait().expect("it is ready");
            assert_eq!(held.num_requeues(), 0);
            assert_eq!(held.retry(), Limited { delay: second, added: Added::Waiting });
        };
        let succeed = || {
            let held = queue.get().wait().expect("it fell due");
            assert_eq!(held.num_requeues(), 1);
            held.forget();
            assert_eq!(held.requeue(), Added::Queued);
        };
        for _ in 0..2 {
            assert_eq!(cost(fail), (3, 0));
            assert_eq!(cost(|| clock.advance(second)).1, 0, "falling due searches no table");
            assert_eq!(cost(succeed), (4, 0));
        }
    }

    #[test]
    fn a_failed_key_that_is_cancelled_and_added_again_is_ready_once_and_last() {
        let clock = ManualClock::new();
        let second = Duration::from_secs(1);
        let backoff = ExponentialFailure::new(second, second);
        let queue = RateLimitingQueue::with(backoff, Options::new().clock(&clock));
        let check = || queue.delaying.shared.shell.lock().state.check();
        queue.add_rate_limited("a");
        assert!(queue.cancel("a").waiting);
        // More often than the order keeps cancelled keys.
        for round in 0..100 {
            assert_eq!(queue.add("a"), Added::Queued);
            assert_eq!(queue.add("b"), if round == 0 { Added::Queued } else { Added::Coalesced });
            check();
            assert!(queue.cancel("a").ready);
            check();
            assert_eq!((queue.len(), queue.num_requeues("a")), (1, 1));
        }
        queue.add("a");
        let ready = queue.snapshot().ready;
        assert_eq!(ready.iter().map(|ready| ready.key).collect::<Vec<_>>(), ["b", "a"]);
        // Its failures are forgotten while an older place in the order is still to be skipped.
        queue.cancel("a");
        queue.forget("a");
        check();
        queue.add("a");
        let keys = queue.get_many(9).wait().into_iter().map(Held::done_into_key);
        assert_eq!(keys.collect::<Vec<_>>(), ["b", "a"]);
        check();
    }
}

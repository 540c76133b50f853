//! Failed keys that come back with backoff, on top of a delaying queue.
//!
//! ```text
//!   add_rate_limited: the limiter returns a delay, the failure is counted, add_after
//!   forget:           the next failure counts as the first
//! ```
//!
//! This layer has no lock and no table of its own. The failure count of a key is stored beside
//! its timer, under the delaying queue's lock, so one lookup finds both.

use super::DelayingQueue;
use super::state::{By, Offer, State};
use crate::clock::Clock;
use crate::get::{Drain, Get, GetMany, ShutDownWithDrain, TryGetError, try_get};
use crate::held::{Held, Hold};
use crate::limiter::RateLimiter;
use crate::metrics::QueueMetrics;
use crate::options::{Merge, Options};
use crate::retry::{Retry, sealed::Sealed};
use crate::snapshot::{Added, Cancelled, KeyStatus, Limited, Remains, Snapshot};
use crate::waiters::Waiter;
use crate::work_queue::{Key, StopMode, Taken, Wakeups, WorkQueue};
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::task::{Poll, Waker};
use std::time::Duration;

/// A [`DelayingQueue`] that retries failed keys with backoff.
///
/// A [limiter](crate::limiter) decides how long a failed key waits. The queue counts the
/// failures of each key until the key is forgotten.
///
/// `RateLimitingQueue` is a handle: clones share one queue.
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

/// Error of [`RateLimitingQueue::over`]: the delaying queue already belongs to a rate-limiting
/// queue. Two limiters would share its failure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlreadyLimited;

impl fmt::Display for AlreadyLimited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this delaying queue already belongs to a rate-limiting queue")
    }
}

impl std::error::Error for AlreadyLimited {}

impl<K: Key> RateLimitingQueue<K> {
    /// Creates an empty queue on the system clock.
    pub fn new(limiter: impl RateLimiter<K>) -> Self {
        RateLimitingQueue::with(limiter, Options::new())
    }

    /// Creates an empty queue with the given options.
    pub fn with(limiter: impl RateLimiter<K>, options: Options) -> Self {
        let bounds = options.failures;
        let delaying = DelayingQueue::with(options);
        delaying.shared.shell.lock().state.limit(Box::new(limiter), bounds);
        RateLimitingQueue { delaying }
    }

    /// Creates a rate-limiting queue on top of `delaying`, which keeps its clock and its name.
    /// Of `options`, only the bounds on failure counts ([`Options::forget_failures_after`],
    /// [`Options::max_failing_keys`]) are used.
    ///
    /// Fails with [`AlreadyLimited`] if `delaying` already belongs to a rate-limiting queue.
    ///
    /// ```
    /// use requeue::limiter::default_controller;
    /// use requeue::{AlreadyLimited, DelayingQueue, Options, RateLimitingQueue};
    ///
    /// let delaying = DelayingQueue::<String>::new();
    /// let queue = RateLimitingQueue::over(delaying.clone(), default_controller(), Options::new())?;
    /// let again = RateLimitingQueue::over(delaying, default_controller(), Options::new());
    /// assert_eq!(again.unwrap_err(), AlreadyLimited);
    /// # Ok::<(), AlreadyLimited>(())
    /// ```
    pub fn over(
        delaying: DelayingQueue<K>,
        limiter: impl RateLimiter<K>,
        options: Options,
    ) -> Result<Self, AlreadyLimited> {
        if !delaying.shared.shell.lock().state.limit(Box::new(limiter), options.failures) {
            return Err(AlreadyLimited);
        }
        Ok(RateLimitingQueue { delaying })
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
        let offer = Offer::new(self.delaying.shared.hasher.hash(&key), key);
        match self.rate_limit(By::Anyone, offer) {
            (limited, Some(key)) => Limited { added: self.delaying.add(key), ..limited },
            (limited, None) => limited,
        }
    }

    /// Resets the failure count of `key`. If the key waits, it continues to wait.
    pub fn forget<B>(&self, key: &B)
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let hash = self.delaying.shared.hasher.hash(key);
        self.forget_found(|state| state.queue.keys.find(hash, key));
    }

    #[inline]
    fn forget_found(&self, find: impl FnOnce(&State<K>) -> Option<u32>) {
        let mut inner = self.delaying.shared.shell.lock();
        let found = find(&inner.state);
        let forgotten = inner.state.forget(found);
        drop(inner);
        drop(forgotten);
    }

    /// Returns how often `key` has failed since it was last forgotten. Returns 0 if the limiter
    /// does not [count](RateLimiter::counts) failures, unless a worker with a maximum number of
    /// attempts counts them.
    pub fn num_requeues<B>(&self, key: &B) -> u32
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let hash = self.delaying.shared.hasher.hash(key);
        self.failures(|state| state.queue.keys.find(hash, key))
    }

    #[inline]
    fn failures(&self, find: impl FnOnce(&State<K>) -> Option<u32>) -> u32 {
        let stale = &mut Vec::new(); // dropped after the lock, also in a panic
        let mut inner = self.delaying.shared.shell.lock();
        let state = &mut inner.state;
        if state.forgets_by_time() {
            state.forget_stale(self.delaying.shared.clock.now(), stale);
        }
        state.failures(find(state))
    }

    /// Makes a key wait for the delay that the limiter returns. If the key is due now, returns
    /// it for the caller to make ready.
    #[inline(always)]
    fn rate_limit(&self, by: By, mut offer: Offer<K>) -> (Limited, Option<K>) {
        let mut delay = Duration::ZERO;
        let outcome = self.delaying.update(by, |state, caller, now| {
            state.add_rate_limited(state.find(&offer), &mut offer, now, caller, &mut delay)
        });
        (Limited { delay, added: outcome.added }, offer.key.filter(|_| outcome.due))
    }

    /// Adds `key` now. See [`DelayingQueue::add`].
    #[inline]
    pub fn add(&self, key: K) -> Added {
        self.delaying.add(key)
    }

    /// Adds `key` once `delay` has passed. See [`DelayingQueue::add_after`].
    ///
    /// # Panics
    ///
    /// Panics in the same case as [`DelayingQueue::add_after`].
    #[inline]
    pub fn add_after(&self, key: K, delay: Duration) -> Added {
        self.delaying.add_after(key, delay)
    }

    /// Adds `key` once `delay` has passed, with a rule for a key that already waits. See
    /// [`DelayingQueue::add_after_with`].
    ///
    /// # Panics
    ///
    /// Panics in the same case as [`DelayingQueue::add_after`].
    pub fn add_after_with(&self, key: K, delay: Duration, merge: Merge) -> Added {
        self.delaying.add_after_with(key, delay, merge)
    }

    /// Waits for a key: `.await` it, or call `.wait()` on a thread. Resolves to `None` once the
    /// queue is shut down and no key is ready.
    ///
    /// After a shutdown, keys that are still ready are handed out first; waiting keys are not.
    /// See [`Get`] for timeouts and cancellation.
    #[inline]
    pub fn get(&self) -> Get<'_, Self> {
        Get::new(self)
    }

    /// Returns a key if one is ready now. Never waits.
    #[inline]
    pub fn try_get(&self) -> Result<Held<'_, Self>, TryGetError> {
        try_get(self)
    }

    /// Waits for up to `max` keys and returns at least one. Resolves to an empty list once the
    /// queue is shut down and no key is ready. A `max` of 0 counts as 1.
    pub fn get_many(&self, max: usize) -> GetMany<'_, Self> {
        GetMany::new(self, max)
    }

    /// Returns the number of ready keys. Waiting keys do not count; see
    /// [`waiting`](Self::waiting).
    pub fn len(&self) -> usize {
        self.delaying.len()
    }

    /// Returns `true` if no key is ready.
    pub fn is_empty(&self) -> bool {
        self.delaying.is_empty()
    }

    /// Returns the number of keys that wait for their due time.
    pub fn waiting(&self) -> usize {
        self.delaying.waiting()
    }

    /// Removes `key` if it waits and if it is ready. See [`DelayingQueue::cancel`]. The failure
    /// count of the key is kept.
    pub fn cancel<B>(&self, key: &B) -> Cancelled
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        self.delaying.cancel(key)
    }

    /// Returns the state of `key`.
    pub fn status<B>(&self, key: &B) -> KeyStatus
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        self.delaying.status(key)
    }

    /// Returns all keys at one instant. See [`DelayingQueue::snapshot`].
    pub fn snapshot(&self) -> Snapshot<K> {
        self.delaying.snapshot()
    }

    /// Returns the queue's metrics, or `None` if the queue has no [name](Options::metrics).
    pub fn metrics(&self) -> Option<QueueMetrics> {
        self.delaying.metrics()
    }

    /// Shuts the queue down. See [`DelayingQueue::shut_down`].
    pub fn shut_down(&self) {
        self.delaying.shut_down();
    }

    /// Shuts the queue down and waits until no key is held. See
    /// [`DelayingQueue::shut_down_with_drain`].
    pub fn shut_down_with_drain(&self) -> ShutDownWithDrain<'_, Self> {
        ShutDownWithDrain::new(self)
    }

    /// Returns `true` if adds are refused because the queue is shut down or draining.
    pub fn shutting_down(&self) -> bool {
        self.delaying.shutting_down()
    }

    /// Refuses adds, waits for the remaining work and returns the keys that were left. See
    /// [`DelayingQueue::drain`]. A key whose guard calls [`retry`](Held::retry) is returned
    /// too.
    pub fn drain(&self, limit: Duration) -> Drain<'_, Self> {
        Drain::new(self, &self.delaying.shared.clock, limit)
    }
}

impl<K: Key> WorkQueue for RateLimitingQueue<K> {
    type Key = K;

    fn add(&self, key: K) -> Added {
        self.delaying.add(key)
    }

    #[inline]
    fn poll_take(&self, waiter: &mut Waiter, waker: Option<&Waker>) -> Poll<Option<Taken<K>>> {
        self.delaying.poll_take(waiter, waker)
    }

    fn leave(&self, waiter: &mut Waiter) {
        self.delaying.leave(waiter);
    }

    #[inline]
    fn done(&self, token: u64) {
        self.delaying.done(token);
    }

    fn len(&self) -> usize {
        self.delaying.len()
    }

    fn shut_down(&self, mode: StopMode) {
        WorkQueue::shut_down(&self.delaying, mode);
    }

    fn poll_drained(&self, mode: StopMode, waiter: &mut Waiter, waker: &Waker) -> Poll<()> {
        self.delaying.poll_drained(mode, waiter, waker)
    }

    fn shutting_down(&self) -> bool {
        self.delaying.shutting_down()
    }

    #[inline]
    fn requeue(&self, taken: Taken<K>) -> Added {
        self.delaying.requeue(taken)
    }

    fn take_ready(&self, max: usize, taken: &mut Vec<Taken<K>>) {
        self.delaying.take_ready(max, taken);
    }

    #[inline(always)]
    fn take_now<R>(&self, make: impl FnOnce(Taken<K>) -> R) -> Option<R> {
        self.delaying.take_now(make)
    }

    #[inline(always)]
    fn next_now<R>(&self, token: u64, make: impl FnOnce(Taken<K>) -> R) -> Option<R> {
        self.delaying.next_now(token, make)
    }

    fn add_due(&self, keys: &mut dyn Iterator<Item = K>) -> Wakeups {
        self.delaying.add_due(keys)
    }

    fn take_remaining(&self) -> Remains<K> {
        self.delaying.take_remaining()
    }
}

impl<K: Key> Sealed for RateLimitingQueue<K> {}

impl<K: Key> Retry for RateLimitingQueue<K> {
    fn requeue_after(&self, taken: Taken<K>, delay: Duration) -> Added {
        self.delaying.requeue_after(taken, delay)
    }

    #[inline]
    fn retry(&self, taken: Taken<K>) -> Limited {
        if self.delaying.shared.given.is_none() {
            let mut delay = Duration::ZERO;
            let added = self.delaying.settle(taken, |state, found, offer, caller, now| {
                state.add_rate_limited(found, offer, now, caller, &mut delay)
            });
            return Limited { delay, added };
        }
        let (hold, key) = Hold::of(self, taken);
        let offer = Offer::new(self.delaying.shared.hasher.hash(&key), key);
        match self.rate_limit(By::Holder, offer) {
            (limited, Some(key)) => Limited { added: hold.requeue(key), ..limited },
            (limited, None) => limited,
        }
    }

    fn fail_held(&self, token: u64, hash: u32, key: &K) -> Duration {
        let hash = self.delaying.hash_of_held(hash, key);
        let find = self.delaying.find_held(token, key);
        let now = self.delaying.shared.clock.now();
        let stale = &mut Vec::new(); // dropped after the lock, also in a panic
        let mut inner = self.delaying.shared.shell.lock();
        inner.state.forget_stale(now, stale);
        let mut found = find(&inner.state);
        inner.state.fail(&mut found, hash, key, now)
    }

    #[inline]
    fn forget_held(&self, token: u64, key: &K) {
        self.forget_found(self.delaying.find_held(token, key));
    }

    #[inline]
    fn num_requeues_held(&self, token: u64, key: &K) -> u32 {
        self.failures(self.delaying.find_held(token, key))
    }

    fn count_failures(&self) {
        self.delaying.shared.shell.lock().state.count_failures();
    }

    fn clock(&self) -> &Clock {
        &self.delaying.shared.clock
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

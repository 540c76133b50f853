//! Keys that become ready later.
//!
//! ```text
//!   add_after            due
//!   ----------> waiting -----> ready, as in a plain queue
//!                 |  ^
//!                 +--+ add_after: the merge rule decides
//! ```
//!
//! A key can wait and, independently, be ready or held. The rules of the plain queue are part of
//! [`State`]: one lock, and one entry per key.

mod adapter;
#[cfg(all(test, not(requeue_loom)))]
mod model;
mod rate_limiting;
mod state;
mod view;

use crate::backoff::Backoff;
use crate::built_in::{BuiltIn, Keyed};
use crate::clock::Moment;
use crate::get::{Drain, Get, GetMany, ShutDownWithDrain, TryGetError, try_get};
use crate::held::{Held, Hold};
use crate::metrics::QueueMetrics;
use crate::options::{Merge, Options};
use crate::order::{Order, Ready};
use crate::shared::Shared;
use crate::shell::Rules;
use crate::snapshot::{Added, Cancelled, KeyStatus, Snapshot};
use crate::timers::TimedRules;
use crate::work_queue::{Key, StopMode, Taken, WorkQueue};
pub use adapter::QueueAdapter;
pub use rate_limiting::RateLimitingQueue;
use state::{Offer, Outcome, State};
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// A [`Queue`](crate::Queue) to which keys can be added with a delay.
///
/// Each key waits at most once. If a key is added again while it waits, the earlier time wins,
/// unless the caller chooses another [`Merge`] rule. When a key falls due, it is added as if by
/// [`add`](Self::add). Keys that fall due at the same time become ready in the order in which
/// they were added.
///
/// `DelayingQueue` is a handle: clones share one queue. Delays of any length are exact. A delay
/// that reaches past the end of the clock ([`Moment::END`], 584 years) never falls due; the key
/// waits until it is cancelled.
///
/// ```
/// use requeue::{DelayingQueue, ManualClock, Options};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let queue = DelayingQueue::with(Options::new().clock(&clock));
/// queue.add_after("order-7", Duration::from_secs(300));
/// queue.add_after("order-7", Duration::from_secs(60));
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(*queue.try_get()?.key(), "order-7");
/// # Ok::<(), requeue::TryGetError>(())
/// ```
pub struct DelayingQueue<K: Key> {
    shared: Arc<Shared<State<K>>>,
}

impl<K: Key> Keyed for DelayingQueue<K> {
    type Key = K;
}

impl<K: Key> BuiltIn for DelayingQueue<K> {
    type Rules = State<K>;

    #[inline(always)]
    fn shared(&self) -> &Arc<Shared<State<K>>> {
        &self.shared
    }
}

impl<K: Key> DelayingQueue<K> {
    /// Creates an empty FIFO queue on the system clock.
    pub fn new() -> Self {
        DelayingQueue::with(Options::new())
    }

    /// Creates an empty FIFO queue with the given options.
    pub fn with(options: Options) -> Self {
        DelayingQueue::build(Ready::fifo(), options, None)
    }

    /// Creates an empty queue that hands out ready keys in the given [`Order`].
    ///
    /// To add delays to a whole queue of your own, use a [`QueueAdapter`].
    pub fn with_order(order: impl Order<K>, options: Options) -> Self {
        DelayingQueue::build(Ready::Given(Box::new(order)), options, None)
    }

    fn build(order: Ready<K>, options: Options, backoff: Option<Backoff<K>>) -> Self {
        let Options { clock, name, .. } = options;
        let state = State::new(order, backoff, name.is_some());
        DelayingQueue { shared: Shared::new(state, clock, name, false) }
    }

    /// Adds `key` now. If the key also waits for a later time, it becomes ready again at that
    /// time.
    ///
    /// Returns [`Added::Refused`] after a shutdown and during a drain.
    #[inline]
    pub fn add(&self, key: K) -> Added {
        let Shared { shell, hasher, .. } = &*self.shared;
        shell.add(hasher.hash(&key), key)
    }

    /// Adds `key` once `delay` has passed. If the key already waits, the earlier time wins.
    ///
    /// A delay of zero is the same as [`add`](Self::add). Returns [`Added::Refused`] after a
    /// shutdown and during a drain.
    ///
    /// To run a key at most once per interval, always add it with the interval as the delay: the
    /// first add starts the wait, and adds during the wait change nothing.
    ///
    /// # Panics
    ///
    /// Panics if the operating system refuses to start the process's timer thread. The first
    /// queue that delays a key starts it. In this case nothing is added.
    #[inline]
    pub fn add_after(&self, key: K, delay: Duration) -> Added {
        if delay.is_zero() {
            self.count_retry();
            return self.add(key);
        }
        self.add_after_with(key, delay, Merge::Earliest)
    }

    /// Adds `key` once `delay` has passed, like [`add_after`](Self::add_after). `merge` decides
    /// what happens if the key already waits.
    ///
    /// ```
    /// use requeue::{DelayingQueue, ManualClock, Merge, Options};
    /// use std::time::Duration;
    ///
    /// // Save two seconds after the last keystroke, and every ten at the latest.
    /// let clock = ManualClock::new();
    /// let queue = DelayingQueue::with(Options::new().clock(&clock));
    /// let rule = Merge::Debounce { max_wait: Duration::from_secs(10) };
    /// for _keystroke in 0..9 {
    ///     queue.add_after_with("draft", Duration::from_secs(2), rule);
    ///     clock.advance(Duration::from_secs(1));
    /// }
    /// assert!(queue.is_empty());
    /// queue.add_after_with("draft", Duration::from_secs(2), rule);
    /// clock.advance(Duration::from_secs(1));
    /// assert_eq!(queue.len(), 1);
    /// ```
    ///
    /// # Panics
    ///
    /// Panics in the same case as [`add_after`](Self::add_after).
    #[inline]
    pub fn add_after_with(&self, key: K, delay: Duration, merge: Merge) -> Added {
        self.delay(key, |state, offer, now| {
            let accepts = state.ending().is_open();
            state.add_after(state.find_offer(offer), offer, now, delay, merge, accepts)
        })
    }

    /// Adds a key that `change` delays, under the lock, and arms the clock.
    #[inline(always)]
    fn delay(
        &self,
        key: K,
        change: impl FnOnce(&mut State<K>, &mut Offer<K>, Moment) -> Outcome,
    ) -> Added {
        let Shared { shell, hasher, clock, .. } = &*self.shared;
        let registration = self.shared.registration();
        // Both are dropped after the lock, also in a panic.
        let (mut offer, stale) = (Offer::new(hasher.hash(&key), key), &mut Vec::new());
        let now = clock.now();
        let mut inner = shell.lock();
        inner.state.forget_stale(now, stale);
        let outcome = change(&mut inner.state, &mut offer, now);
        drop(inner);
        if outcome.arm < Moment::END {
            registration.arm(outcome.arm);
        }
        match offer.key.take_if(|_| outcome.due) {
            Some(key) => shell.add(offer.hash, key),
            None => outcome.added,
        }
    }

    /// Counts an add without delay as a retry, if the queue has a name.
    #[inline]
    fn count_retry(&self) {
        if self.shared.has_name() {
            self.shared.shell.lock().state.count_retry();
        }
    }

    /// Does `add_after` for the holder of a key, and ends its hold. If the timer thread cannot be
    /// started, the key becomes ready; the panic then propagates, and the key is not lost.
    pub(crate) fn requeue_after(&self, taken: Taken<K>, delay: Duration) -> Added {
        if delay.is_zero() {
            self.count_retry();
            return self.requeue(taken);
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| _ = self.shared.registration())) {
            self.requeue(taken);
            resume_unwind(panic);
        }
        self.settle(taken, |state, slot, offer, now| {
            let accepts = !state.is_down();
            state.add_after(Some(slot), offer, now, delay, Merge::Earliest, accepts)
        })
    }

    /// Ends the hold of a key that `change` delays, under one lock and without a lookup. If
    /// `change` panics, the hold ends too.
    #[inline]
    fn settle(
        &self,
        taken: Taken<K>,
        change: impl FnOnce(&mut State<K>, u32, &mut Offer<K>, Moment) -> Outcome,
    ) -> Added {
        let token = taken.token;
        let (hold, key) = Hold::of(self, taken);
        let registration = self.shared.registration();
        let Shared { shell, clock, .. } = &*self.shared;
        let (now, stamp) = (clock.now(), shell.now());
        // Both are dropped after the lock, also in a panic. The hash is not used: a held key has
        // an entry.
        let (stale, mut offer) = (&mut Vec::new(), Offer::new(0, key));
        let mut inner = shell.lock();
        inner.state.forget_stale(now, stale);
        let outcome = match inner.state.held_slot(token) {
            Some(slot) => change(&mut inner.state, slot, &mut offer, now),
            None => Outcome::REFUSED,
        };
        let finished = if outcome.due {
            inner.state.finish_and_add(token, &mut offer.key, stamp)
        } else {
            inner.state.finish(token, stamp)
        };
        hold.disarm();
        let requeued = shell.finished(inner, finished);
        if outcome.arm < Moment::END {
            registration.arm(outcome.arm);
        }
        if outcome.due { requeued } else { outcome.added }
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
        self.shared.len()
    }

    /// Returns `true` if no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys that wait for their due time.
    pub fn waiting(&self) -> usize {
        self.shared.waiting()
    }

    /// Removes `key` if it waits and if it is ready. If `key` is held, its holder is not
    /// interrupted, but the key does not run again afterwards. Its failure count is kept.
    pub fn cancel<B>(&self, key: &B) -> Cancelled
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        self.shared.cancel(key)
    }

    /// Returns the state of `key`.
    pub fn status<B>(&self, key: &B) -> KeyStatus
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        self.shared.status(key)
    }

    /// Returns all keys at one instant.
    ///
    /// This clones every key while it holds the queue's lock. Use it for debugging and tests,
    /// not in a loop.
    pub fn snapshot(&self) -> Snapshot<K> {
        self.shared.snapshot()
    }

    /// Returns the queue's metrics, or `None` if the queue has no [name](Options::metrics).
    pub fn metrics(&self) -> Option<QueueMetrics> {
        self.shared.metrics()
    }

    /// Shuts the queue down: adds are refused from now on, and waiting getters and drains are
    /// woken. Keys that are ready are still handed out. Waiting keys are dropped; if this call
    /// ends a [`drain`](Self::drain), the drain returns them. This method is idempotent.
    pub fn shut_down(&self) {
        self.stop(StopMode::Now);
    }

    /// Shuts the queue down and waits until no key is held, like client-go's
    /// `ShutDownWithDrain`.
    ///
    /// This does not wait for ready keys, and it drops waiting keys; use [`drain`](Self::drain)
    /// to keep both. A [`shut_down`](Self::shut_down) ends the wait.
    pub fn shut_down_with_drain(&self) -> ShutDownWithDrain<'_, Self> {
        ShutDownWithDrain::new(self)
    }

    /// Returns `true` if adds are refused because the queue is shut down or draining.
    pub fn shutting_down(&self) -> bool {
        self.shared.shutting_down()
    }

    /// Refuses adds from now on and waits until no key is ready or held, or until `limit` has
    /// passed. Then shuts the queue down and returns the keys that were left.
    ///
    /// Waiting keys no longer fall due. They are returned, each with its remaining delay. A key
    /// that was added while it was held still runs again. A key whose guard requeues it, now or
    /// for later, does not run again; it is returned with the remaining keys.
    pub fn drain(&self, limit: Duration) -> Drain<'_, Self> {
        Drain::new(self, &self.shared.clock, limit)
    }
}

impl<K: Key> Clone for DelayingQueue<K> {
    fn clone(&self) -> Self {
        DelayingQueue { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Key> Default for DelayingQueue<K> {
    fn default() -> Self {
        DelayingQueue::new()
    }
}

impl<K: Key> fmt::Debug for DelayingQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayingQueue")
            .field("len", &self.len())
            .field("waiting", &self.waiting())
            .field("shutting_down", &self.shutting_down())
            .finish_non_exhaustive()
    }
}

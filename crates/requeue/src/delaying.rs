//! Keys that become ready later, on top of any inner queue.
//!
//! ```text
//!   add_after            due
//!   ----------> waiting -----> inner queue: add
//!                 |  ^
//!                 +--+ add_after: the merge rule decides
//! ```
//!
//! A key can wait and, independently, be ready or held. The rules of the inner queue are part of
//! this layer's state: one lock, and one entry per key. With an injected inner queue, this layer
//! only calls `add` on it. A due key then moves to the inner queue under this layer's lock, so
//! that it is always in one of the two. Locks are taken outer first, inner second. Nobody is
//! woken before both are released.

#[cfg(all(test, not(requeue_loom)))]
mod model;
mod rate_limiting;
mod state;

use crate::clock::{Clock, Fire, Moment, Registration};
use crate::get::{Drain, Get, GetMany, ShutDownWithDrain, TryGetError, try_get};
use crate::held::{Held, Hold};
use crate::keys::Hasher;
use crate::metrics::{Name, QueueMetrics, Report};
use crate::options::{Merge, Options};
use crate::shell::{AddRules, Rules, Shell, wake_all};
use crate::snapshot::{Added, Cancelled, KeyStatus, Remains, Snapshot};
use crate::waiters::Waiter;
use crate::work_queue::{Key, StopMode, Taken, Wakeups, WorkQueue};
pub use rate_limiting::{AlreadyLimited, RateLimitingQueue};
use state::{By, Caller, Offer, Outcome, State};
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

/// The number of due keys that are moved under one lock. Between two batches, other callers get
/// the lock and the timer thread serves other queues.
const BATCH: usize = 64;

/// A [`Queue`](crate::Queue) to which keys can be added with a delay.
///
/// Each key waits at most once. If a key is added again while it waits, the earlier time wins,
/// unless the caller chooses another [`Merge`] rule. When a key falls due, it is added to the
/// inner queue, under that queue's rules. Keys that fall due at the same time become ready in
/// the order in which they were added.
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
    shared: Arc<Shared<K>>,
}

struct Shared<K: Key> {
    shell: Shell<State<K>>,
    /// An injected inner queue. It is called through dynamic dispatch and has a hasher of its
    /// own. Without one, the keys are ready and held in `shell`.
    given: Option<Arc<dyn WorkQueue<Key = K>>>,
    hasher: Hasher,
    clock: Clock,
    /// Created for the first delayed key: a queue that never delays needs no timer.
    registration: OnceLock<Registration>,
    name: Option<Name>,
}

impl<K: Key> Shared<K> {
    /// Makes due keys ready. Returns when to call again.
    fn fire_own(&self, now: Moment) -> Option<Moment> {
        let (mut refused, mut notices) = (Vec::new(), Vec::new());
        let stamp = self.shell.now();
        let mut inner = self.shell.lock();
        for _ in 0..BATCH {
            let Some((added, key)) = inner.state.fire(now, stamp) else { break };
            refused.extend(key);
            if added == Added::Queued {
                notices.extend(inner.notify());
            }
        }
        let next = inner.state.rearm(now);
        drop(inner);
        notices.into_iter().for_each(|notice| self.shell.wake(Some(notice)));
        next
    }
}

impl<K: Key> Fire for Shared<K> {
    fn fire(&self, now: Moment) -> Option<Moment> {
        let Some(given) = &self.given else { return self.fire_own(now) };
        let mut inner = self.shell.lock();
        // Collected first: if the queue panics or does not consume all keys, the same keys are
        // not offered to it again forever.
        let due: Vec<K> = std::iter::from_fn(|| inner.state.pop_key(now)).take(BATCH).collect();
        let wakeups = given.add_due(&mut due.into_iter());
        let next = inner.state.rearm(now);
        drop(inner);
        drop(wakeups);
        next
    }

    fn next_due(&self) -> Option<Moment> {
        self.shell.lock().state.next_due()
    }
}

impl<K: Key> Report for Shared<K> {
    fn report(&self) -> QueueMetrics {
        let stamp = self.shell.now();
        let inner = self.shell.lock();
        let mut metrics = match &self.given {
            None => inner.state.queue.metrics(stamp).unwrap_or_default(),
            Some(_) => QueueMetrics::default(),
        };
        inner.state.report(&mut metrics);
        drop(inner);
        if let Some(name) = &self.name {
            metrics.name = name.as_str().to_owned();
        }
        metrics
    }
}

impl<K: Key> DelayingQueue<K> {
    /// Creates an empty queue on the system clock.
    pub fn new() -> Self {
        DelayingQueue::with(Options::new())
    }

    /// Creates an empty queue with the given options.
    pub fn with(options: Options) -> Self {
        DelayingQueue::build(None, options)
    }

    /// Creates a delaying queue on top of `inner`: your own [`WorkQueue`], or a
    /// [`Queue`](crate::Queue) with your own order.
    ///
    /// `inner` keeps its own options. [`cancel`](Self::cancel), [`status`](Self::status),
    /// [`snapshot`](Self::snapshot) and [`metrics`](Self::metrics) of the delaying queue cover
    /// only the waiting keys; call `inner` for the others.
    ///
    /// ```
    /// use requeue::{DelayingQueue, Options, Queue};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let inner = Queue::new();
    /// let queue = DelayingQueue::over(Arc::new(inner.clone()), Options::new());
    /// queue.add_after("a", Duration::ZERO);
    /// assert_eq!(inner.len(), 1);
    /// ```
    pub fn over(inner: Arc<dyn WorkQueue<Key = K>>, options: Options) -> Self {
        DelayingQueue::build(Some(inner), options)
    }

    fn build(given: Option<Arc<dyn WorkQueue<Key = K>>>, options: Options) -> Self {
        let records = options.name.is_some();
        let state = State::new(records);
        let shared = Shared {
            given,
            shell: Shell::new(state, records.then(|| options.clock.stopwatch())),
            hasher: Hasher::default(),
            clock: options.clock,
            registration: OnceLock::new(),
            name: options.name,
        };
        let shared = Arc::new(shared);
        if let Some(name) = &shared.name {
            let reporter: Weak<Shared<K>> = Arc::downgrade(&shared);
            name.reporter(reporter);
        }
        DelayingQueue { shared }
    }

    /// Adds `key` now. If the key also waits for a later time, it becomes ready again at that
    /// time.
    ///
    /// Returns [`Added::Refused`] after a shutdown and during a drain.
    #[inline]
    pub fn add(&self, key: K) -> Added {
        let Shared { shell, given, hasher, .. } = &*self.shared;
        match given {
            None => shell.add(hasher.hash(&key), key),
            Some(queue) => queue.add(key),
        }
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
        self.add_delayed(key, delay, Merge::Earliest)
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
    pub fn add_after_with(&self, key: K, delay: Duration, merge: Merge) -> Added {
        self.add_delayed(key, delay, merge)
    }

    fn add_delayed(&self, key: K, delay: Duration, merge: Merge) -> Added {
        let offer = Offer::new(self.shared.hasher.hash(&key), key);
        let (added, due) = self.delay(By::Anyone, offer, delay, merge);
        due.map_or(added, |key| self.add(key))
    }

    /// Makes a key wait. If the key is due now, returns it for the caller to make ready.
    #[inline(always)]
    fn delay(
        &self,
        by: By,
        mut offer: Offer<K>,
        delay: Duration,
        merge: Merge,
    ) -> (Added, Option<K>) {
        let outcome = self.update(by, |state, caller, now| {
            state.add_after(state.find(&offer), &mut offer, now, delay, merge, caller)
        });
        (outcome.added, offer.key.filter(|_| outcome.due))
    }

    /// Applies `change` to the state under its lock, then arms the clock as the outcome
    /// requests.
    #[inline(always)]
    fn update(
        &self,
        by: By,
        change: impl FnOnce(&mut State<K>, Caller, Moment) -> Outcome,
    ) -> Outcome {
        let registration = self.registration();
        let caller = Caller { by, closed_below: self.is_closed_below() };
        let now = self.shared.clock.now();
        let stale = &mut Vec::new(); // dropped after the lock, also in a panic
        let mut inner = self.shared.shell.lock();
        inner.state.forget_stale(now, stale);
        let outcome = change(&mut inner.state, caller, now);
        drop(inner);
        if outcome.arm < Moment::END {
            registration.arm(outcome.arm);
        }
        outcome
    }

    /// Creates the registration on first use. Call this before anything changes: it may panic.
    #[inline]
    fn registration(&self) -> &Registration {
        self.shared.registration.get_or_init(|| {
            let queue: Weak<Shared<K>> = Arc::downgrade(&self.shared);
            self.shared.clock.register(queue)
        })
    }

    /// A `Given` queue may have been shut down by another owner.
    #[inline]
    fn is_closed_below(&self) -> bool {
        self.shared.given.as_ref().is_some_and(|queue| queue.shutting_down())
    }

    /// Counts an add without delay as a retry, if the queue has a name.
    #[inline]
    fn count_retry(&self) {
        if self.shared.name.is_some() && !self.is_closed_below() {
            self.shared.shell.lock().state.count_retry();
        }
    }

    /// Does `add_after` for the holder of a key, and ends its hold.
    pub(crate) fn requeue_after(&self, taken: Taken<K>, delay: Duration) -> Added {
        if delay.is_zero() {
            self.count_retry();
            return self.requeue(taken);
        }
        self.put_back(taken, |state, found, offer, caller, now| {
            state.add_after(found, offer, now, delay, Merge::Earliest, caller)
        })
    }

    /// Ends the hold of a key that `change` delays. A key that is due now becomes ready. So
    /// does the key if `Eq` of a key panics or the timer thread cannot be started; the panic
    /// then propagates, and the key is not lost.
    fn put_back(
        &self,
        taken: Taken<K>,
        change: impl FnOnce(&mut State<K>, Option<u32>, &mut Offer<K>, Caller, Moment) -> Outcome,
    ) -> Added {
        if self.shared.given.is_none() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| _ = self.registration())) {
                self.requeue(taken);
                resume_unwind(panic);
            }
            return self.settle(taken, change);
        }
        let Taken { key, token, hash, priority } = taken;
        let mut offer = Offer::new(hash, key);
        let updated = catch_unwind(AssertUnwindSafe(|| {
            if let Some(key) = &offer.key {
                offer.hash = self.hash_of_held(hash, key);
            }
            self.update(By::Holder, |state, caller, now| {
                change(state, state.find(&offer), &mut offer, caller, now)
            })
        }));
        let due = updated.as_ref().map_or(true, |outcome| outcome.due);
        let requeued = offer
            .key
            .take_if(|_| due)
            .map(|key| self.requeue(Taken { key, token, hash, priority }));
        if requeued.is_none() {
            self.done(token);
        }
        match updated {
            Ok(outcome) => requeued.unwrap_or(outcome.added),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Ends the hold of a key that `change` delays, under one lock and without a lookup. If
    /// `change` panics, the hold ends too. Not for an injected queue.
    #[inline]
    fn settle(
        &self,
        taken: Taken<K>,
        change: impl FnOnce(&mut State<K>, Option<u32>, &mut Offer<K>, Caller, Moment) -> Outcome,
    ) -> Added {
        let (token, hash) = (taken.token, taken.hash);
        let (hold, key) = Hold::of(self, taken);
        let registration = self.registration();
        let Shared { shell, clock, .. } = &*self.shared;
        let (now, stamp) = (clock.now(), shell.now());
        // Both are dropped after the lock, also in a panic.
        let (stale, mut offer) = (&mut Vec::new(), Offer::new(hash, key));
        let mut inner = shell.lock();
        inner.state.forget_stale(now, stale);
        let caller = Caller { by: By::Holder, closed_below: false };
        let outcome = match inner.state.queue.held_slot(token) {
            slot @ Some(_) => change(&mut inner.state, slot, &mut offer, caller, now),
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

    /// A guard carries the hash of the inner queue. An injected queue has another hasher.
    #[inline]
    fn hash_of_held(&self, hash: u32, key: &K) -> u32 {
        if self.shared.given.is_some() { self.shared.hasher.hash(key) } else { hash }
    }

    /// Returns how to find the entry of a held key: by its token, or by the key if the inner
    /// queue is injected.
    #[inline]
    fn find_held<'a>(
        &self,
        token: u64,
        key: &'a K,
    ) -> impl FnOnce(&State<K>) -> Option<u32> + use<'a, K> {
        let hash = self.shared.given.as_ref().map(|_| self.shared.hasher.hash(key));
        move |state| match hash {
            None => state.queue.held_slot(token),
            Some(hash) => state.queue.keys.find(hash, key),
        }
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
        match &self.shared.given {
            None => self.shared.shell.lock().state.load().ready,
            Some(queue) => queue.len(),
        }
    }

    /// Returns `true` if no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys that wait for their due time.
    pub fn waiting(&self) -> usize {
        self.shared.shell.lock().state.waiting()
    }

    /// Removes `key` if it waits and if it is ready. If `key` is held, its holder is not
    /// interrupted, but the key does not run again afterwards.
    pub fn cancel<B>(&self, key: &B) -> Cancelled
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let hash = self.shared.hasher.hash(key);
        let shell = &self.shared.shell;
        let mut inner = shell.lock();
        let (waiting, removed) = inner.state.cancel(hash, key);
        let (mut cancelled, ready) = inner.state.queue.cancel(hash, key);
        shell.settle(inner);
        drop((removed, ready));
        cancelled.waiting = waiting;
        cancelled
    }

    /// Returns the state of `key`.
    pub fn status<B>(&self, key: &B) -> KeyStatus
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let hash = self.shared.hasher.hash(key);
        let now = self.shared.clock.now();
        let stale = &mut Vec::new(); // dropped after the lock, also in a panic
        let mut inner = self.shared.shell.lock();
        let state = &mut inner.state;
        state.forget_stale(now, stale);
        let mut status = state.queue.status(hash, key);
        status.due_in = state.due_in(hash, key, now);
        status.failures = state.failures(state.queue.keys.find(hash, key));
        status
    }

    /// Returns all keys at one instant.
    ///
    /// This clones every key while it holds the queue's lock. Use it for debugging and tests,
    /// not in a loop.
    pub fn snapshot(&self) -> Snapshot<K> {
        let now = self.shared.clock.now();
        let stamp = self.shared.shell.now();
        let inner = self.shared.shell.lock();
        let mut snapshot = inner.state.queue.snapshot(stamp);
        snapshot.waiting = inner.state.snapshot(now);
        snapshot
    }

    /// Returns the queue's metrics, or `None` if the queue has no [name](Options::metrics).
    pub fn metrics(&self) -> Option<QueueMetrics> {
        self.shared.name.is_some().then(|| self.shared.report())
    }

    /// Shuts the queue down: adds are refused from now on, and waiting getters and drains are
    /// woken. Keys that are ready are still handed out. Waiting keys are dropped; if this call
    /// ends a [`drain`](Self::drain), the drain returns them. This method is idempotent.
    pub fn shut_down(&self) {
        WorkQueue::shut_down(self, StopMode::Now);
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
        match &self.shared.given {
            None => !self.shared.shell.lock().state.ending().is_open(),
            Some(queue) => queue.shutting_down(),
        }
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

impl<K: Key> WorkQueue for DelayingQueue<K> {
    type Key = K;

    fn add(&self, key: K) -> Added {
        DelayingQueue::add(self, key)
    }

    #[inline]
    fn poll_take(&self, waiter: &mut Waiter, waker: Option<&Waker>) -> Poll<Option<Taken<K>>> {
        match &self.shared.given {
            None => self.shared.shell.poll_take(waiter, waker),
            Some(queue) => queue.poll_take(waiter, waker),
        }
    }

    fn leave(&self, waiter: &mut Waiter) {
        match &self.shared.given {
            None => self.shared.shell.leave(waiter),
            Some(queue) => queue.leave(waiter),
        }
    }

    #[inline]
    fn done(&self, token: u64) {
        match &self.shared.given {
            None => self.shared.shell.done(token),
            Some(queue) => queue.done(token),
        }
    }

    fn len(&self) -> usize {
        DelayingQueue::len(self)
    }

    fn shut_down(&self, mode: StopMode) {
        let mut inner = self.shared.shell.lock();
        let dropped = inner.state.shut_down(mode);
        let notices = match &self.shared.given {
            None => inner.shut_down(mode),
            Some(_) => Vec::new(),
        };
        drop(inner);
        drop(dropped);
        wake_all(notices);
        if let Some(queue) = &self.shared.given {
            queue.shut_down(mode);
        }
    }

    fn poll_drained(&self, mode: StopMode, waiter: &mut Waiter, waker: &Waker) -> Poll<()> {
        match &self.shared.given {
            None => self.shared.shell.poll_drained(mode, waiter, waker),
            Some(queue) => queue.poll_drained(mode, waiter, waker),
        }
    }

    fn shutting_down(&self) -> bool {
        DelayingQueue::shutting_down(self)
    }

    #[inline]
    fn requeue(&self, taken: Taken<K>) -> Added {
        match &self.shared.given {
            None => self.shared.shell.requeue(taken),
            Some(queue) => queue.requeue(taken),
        }
    }

    fn take_ready(&self, max: usize, taken: &mut Vec<Taken<K>>) {
        match &self.shared.given {
            None => self.shared.shell.take_ready(max, taken),
            Some(queue) => queue.take_ready(max, taken),
        }
    }

    #[inline(always)]
    fn take_now<R>(&self, make: impl FnOnce(Taken<K>) -> R) -> Option<R> {
        match &self.shared.given {
            None => self.shared.shell.take_now(make),
            Some(queue) => match queue.poll_take(&mut Waiter::for_task(), None) {
                Poll::Ready(taken) => taken.map(make),
                Poll::Pending => None,
            },
        }
    }

    #[inline(always)]
    fn next_now<R>(&self, token: u64, make: impl FnOnce(Taken<K>) -> R) -> Option<R> {
        if self.shared.given.is_some() {
            self.done(token);
            return self.take_now(make);
        }
        self.shared.shell.next_now(token, make)
    }

    fn add_due(&self, keys: &mut dyn Iterator<Item = K>) -> Wakeups {
        let Shared { shell, given, hasher, .. } = &*self.shared;
        match given {
            None => {
                let keys = keys.map(|key| (hasher.hash(&key), key));
                shell.add_due(keys, &self.shared, |shared| &shared.shell)
            }
            Some(queue) => queue.add_due(keys),
        }
    }

    fn take_remaining(&self) -> Remains<K> {
        let Shared { shell, given, clock, .. } = &*self.shared;
        if let Some(queue) = given {
            let mut remains = queue.take_remaining();
            let now = clock.now();
            remains.waiting.extend(shell.lock().state.take_remaining(now));
            return remains;
        }
        let now = clock.now();
        let mut inner = shell.lock();
        // Cloning may panic, so it happens before anything changes.
        let mut remaining = inner.state.queue.remaining();
        let waiting = inner.state.take_remaining(now);
        // Under the same lock: otherwise a key that a guard requeues in between would be lost.
        let notices = inner.shut_down(StopMode::Now);
        let ready = inner.state.queue.take_ready(&mut remaining);
        drop(inner);
        wake_all(notices);
        Remains { ready, waiting, held: remaining.held }
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

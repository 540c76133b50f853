//! Delays and backoff on top of any [`WorkQueue`].
//!
//! A due key moves to the inner queue under the adapter's lock, so that it is always in one of
//! the two. Locks are taken outer first, inner second. Nobody is woken before both are released.

use super::state::{Offer, Outcome, State};
use crate::backoff::Backoff;
use crate::clock::{Clock, Fire, Moment, Registration};
use crate::ending::Load;
use crate::get::{Drain, Get, GetMany, ShutDownWithDrain, TryGetError, try_get};
use crate::held::{Held, Hold};
use crate::limiter::RateLimiter;
use crate::metrics::QueueMetrics;
use crate::options::{Merge, Options};
use crate::order::Ready;
use crate::retry::{Retry, sealed::Sealed};
use crate::shared::Shared;
use crate::shell::Rules;
use crate::snapshot::{Added, Cancelled, KeyStatus, Limited, Remains, Snapshot};
use crate::timers::{BATCH, TimedRules};
use crate::waiters::Waiter;
use crate::work_queue::{StopMode, Taken, Wakeups, WorkQueue};
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Adds delays and backoff to a [`WorkQueue`] of your own.
///
/// The adapter keeps the waiting keys and the failure counts. When a key falls due, it is added
/// to the inner queue, which keeps the keys that are ready and held. A
/// [`RateLimitingQueue`](crate::RateLimitingQueue) does the same with one lock instead of two. To
/// only change the order of the ready keys, give that queue an [`Order`](crate::Order).
///
/// `QueueAdapter` is a handle: clones share one queue.
///
/// ```
/// use requeue::limiter::ExponentialFailure;
/// use requeue::{Options, Queue, QueueAdapter};
/// use std::time::Duration;
///
/// let inner = Queue::new();
/// let queue = QueueAdapter::new(inner, ExponentialFailure::default(), Options::new());
/// queue.add_after("a", Duration::from_secs(60));
/// queue.add("b");
/// assert_eq!((queue.waiting(), queue.inner().len()), (1, 1));
/// assert_eq!(queue.try_get()?.retry().delay, Duration::from_millis(5));
/// # Ok::<(), requeue::TryGetError>(())
/// ```
pub struct QueueAdapter<Q: WorkQueue> {
    layers: Arc<Layers<Q>>,
}

struct Layers<Q: WorkQueue> {
    /// Invariant: no key is ready or held here.
    delays: Arc<Shared<State<Q::Key>>>,
    inner: Q,
}

/// The load of the inner queue is not known here. It decides when a drain ends.
const UNKNOWN: Load = Load { ready: 1, held: 1 };

impl<Q: WorkQueue> Fire for Layers<Q> {
    fn fire(&self, now: Moment) -> Option<Moment> {
        let mut inner = self.delays.shell.lock();
        // Collected first: if the inner queue panics or does not consume all keys, the same keys
        // are not offered to it again forever.
        let due: Vec<_> = std::iter::from_fn(|| inner.state.pop_key(now)).take(BATCH).collect();
        let wakeups = self.inner.add_due(&mut due.into_iter());
        let next = inner.state.rearm(now);
        drop(inner);
        drop(wakeups);
        next
    }

    fn next_due(&self) -> Option<Moment> {
        self.delays.next_due()
    }
}

impl<Q: WorkQueue> QueueAdapter<Q> {
    /// Creates an adapter on top of `inner`. Of `options`, the clock, the bounds on failure
    /// counts, and the name are used.
    pub fn new(inner: Q, limiter: impl RateLimiter<Q::Key>, options: Options) -> Self {
        let Options { clock, name, failures, .. } = options;
        let backoff = Backoff::new(limiter, failures);
        let state = State::new(Ready::fifo(), Some(backoff), name.is_some());
        let delays = Shared::new(state, clock, name, false);
        QueueAdapter { layers: Arc::new(Layers { delays, inner }) }
    }

    /// Returns the inner queue.
    pub fn inner(&self) -> &Q {
        &self.layers.inner
    }

    /// Adds `key` to the inner queue.
    pub fn add(&self, key: Q::Key) -> Added {
        self.inner().add(key)
    }

    /// Adds `key` once `delay` has passed, like
    /// [`DelayingQueue::add_after`](crate::DelayingQueue::add_after).
    ///
    /// # Panics
    ///
    /// Panics if the operating system refuses to start the process's timer thread. The first
    /// queue that delays a key starts it. In this case nothing is added.
    pub fn add_after(&self, key: Q::Key, delay: Duration) -> Added {
        if delay.is_zero() {
            self.count_retry();
            return self.add(key);
        }
        self.add_after_with(key, delay, Merge::Earliest)
    }

    /// Adds `key` once `delay` has passed, with a rule for a key that already waits, like
    /// [`DelayingQueue::add_after_with`](crate::DelayingQueue::add_after_with).
    ///
    /// # Panics
    ///
    /// Panics in the same case as [`add_after`](Self::add_after).
    pub fn add_after_with(&self, key: Q::Key, delay: Duration, merge: Merge) -> Added {
        self.delay(key, |state, offer, now, accepts| {
            state.add_after(state.find_offer(offer), offer, now, delay, merge, accepts)
        })
    }

    /// Counts a failure of `key` and adds it after the delay that the limiter returns, like
    /// [`RateLimitingQueue::add_rate_limited`](crate::RateLimitingQueue::add_rate_limited).
    ///
    /// # Panics
    ///
    /// Panics in the same case as [`add_after`](Self::add_after).
    pub fn add_rate_limited(&self, key: Q::Key) -> Limited {
        let mut delay = Duration::ZERO;
        let added = self.delay(key, |state, offer, now, accepts| {
            state.add_rate_limited(state.find_offer(offer), offer, now, &mut delay, accepts)
        });
        Limited { delay, added }
    }

    /// Adds a key that `change` delays.
    fn delay(
        &self,
        key: Q::Key,
        change: impl FnOnce(&mut State<Q::Key>, &mut Offer<Q::Key>, Moment, bool) -> Outcome,
    ) -> Added {
        let closed = self.inner().shutting_down();
        let mut offer = self.offer(key);
        let outcome = self.update(|state, now| {
            let accepts = state.ending().is_open() && !closed;
            change(state, &mut offer, now, accepts)
        });
        match offer.key.take_if(|_| outcome.due) {
            Some(key) => self.add(key),
            None => outcome.added,
        }
    }

    fn offer(&self, key: Q::Key) -> Offer<Q::Key> {
        Offer::new(self.layers.delays.hasher.hash(&key), key)
    }

    /// Applies `change` to the state under its lock, then arms the clock.
    fn update(&self, change: impl FnOnce(&mut State<Q::Key>, Moment) -> Outcome) -> Outcome {
        let delays = &self.layers.delays;
        let registration = self.registration();
        let now = delays.clock.now();
        let stale = &mut Vec::new(); // dropped after the lock, also in a panic
        let mut inner = delays.shell.lock();
        inner.state.forget_stale(now, stale);
        let outcome = change(&mut inner.state, now);
        drop(inner);
        if outcome.arm < Moment::END {
            registration.arm(outcome.arm);
        }
        outcome
    }

    /// Creates the registration on first use. Call this before anything changes: it may panic.
    fn registration(&self) -> &Registration {
        self.layers.delays.registration_of(|| {
            let layers: Weak<Layers<Q>> = Arc::downgrade(&self.layers);
            layers
        })
    }

    /// Counts an add without delay as a retry.
    fn count_retry(&self) {
        if !self.inner().shutting_down() {
            self.layers.delays.shell.lock().state.count_retry();
        }
    }

    /// Resets the failure count of `key`. If the key waits, it continues to wait.
    pub fn forget<B>(&self, key: &B)
    where
        Q::Key: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        self.layers.delays.forget_key(key);
    }

    /// Returns how often `key` has failed since it was last forgotten. Returns 0 if the limiter
    /// does not [count](RateLimiter::counts) failures, unless a worker with a maximum number of
    /// attempts counts them.
    pub fn num_requeues<B>(&self, key: &B) -> u32
    where
        Q::Key: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        self.layers.delays.failures_of_key(key)
    }

    /// Waits for a key: `.await` it, or call `.wait()` on a thread. Resolves to `None` once the
    /// inner queue is shut down and has no ready key.
    pub fn get(&self) -> Get<'_, Self> {
        Get::new(self)
    }

    /// Returns a key if one is ready now. Never waits.
    pub fn try_get(&self) -> Result<Held<'_, Self>, TryGetError> {
        try_get(self)
    }

    /// Waits for up to `max` keys and returns at least one. Resolves to an empty list once the
    /// inner queue is shut down and has no ready key. A `max` of 0 counts as 1.
    pub fn get_many(&self, max: usize) -> GetMany<'_, Self> {
        GetMany::new(self, max)
    }

    /// Returns the number of keys that wait for their due time.
    pub fn waiting(&self) -> usize {
        self.layers.delays.waiting()
    }

    /// Removes `key` if it waits. For a key that is ready or held, call the inner queue.
    pub fn cancel<B>(&self, key: &B) -> Cancelled
    where
        Q::Key: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let delays = &self.layers.delays;
        let hash = delays.hasher.hash(key);
        // The key is dropped after the lock.
        let (cancelled, _key) = delays.shell.lock().state.cancel(hash, key);
        cancelled
    }

    /// Returns when `key` falls due, if it waits, and how often it has failed. Whether it is ready
    /// or held is known to the inner queue.
    pub fn status<B>(&self, key: &B) -> KeyStatus
    where
        Q::Key: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        self.layers.delays.status(key)
    }

    /// Returns all waiting keys at one instant. The others are known to the inner queue.
    pub fn snapshot(&self) -> Snapshot<Q::Key> {
        self.layers.delays.snapshot()
    }

    /// Returns the adapter's own metrics, or `None` if it has no [name](Options::metrics):
    /// `retries`, `waiting`, `lateness`, and the adds and waiting keys that it `dropped`. The
    /// inner queue may report the rest.
    pub fn metrics(&self) -> Option<QueueMetrics> {
        self.layers.delays.metrics()
    }

    /// Shuts both queues down, like
    /// [`DelayingQueue::shut_down`](crate::DelayingQueue::shut_down).
    pub fn shut_down(&self) {
        self.stop(StopMode::Now);
    }

    /// Shuts both queues down and waits until no key is held, like
    /// [`DelayingQueue::shut_down_with_drain`](crate::DelayingQueue::shut_down_with_drain).
    pub fn shut_down_with_drain(&self) -> ShutDownWithDrain<'_, Self> {
        ShutDownWithDrain::new(self)
    }

    /// Refuses adds, waits for the remaining work and returns the keys that were left, like
    /// [`DelayingQueue::drain`](crate::DelayingQueue::drain).
    pub fn drain(&self, limit: Duration) -> Drain<'_, Self> {
        Drain::new(self, &self.layers.delays.clock, limit)
    }

    /// Whether a key that its holder delays is accepted, if the inner queue is `closed`: not if
    /// the inner queue was shut down by another owner.
    fn accepts_held(state: &State<Q::Key>, closed: bool) -> bool {
        !(state.is_down() || closed && state.ending().is_open())
    }
}

impl<Q: WorkQueue> WorkQueue for QueueAdapter<Q> {
    type Key = Q::Key;

    fn add(&self, key: Q::Key) -> Added {
        self.inner().add(key)
    }

    fn poll_take(&self, waiter: &mut Waiter, waker: Option<&Waker>) -> Poll<Option<Taken<Q::Key>>> {
        self.inner().poll_take(waiter, waker)
    }

    fn leave(&self, waiter: &mut Waiter) {
        self.inner().leave(waiter);
    }

    fn done(&self, token: u64) {
        self.inner().done(token);
    }

    fn len(&self) -> usize {
        self.inner().len()
    }

    fn stop(&self, mode: StopMode) {
        let mut inner = self.layers.delays.shell.lock();
        let dropped = inner.state.stop_waiting(mode);
        inner.state.ending_mut().shut_down(mode, UNKNOWN);
        drop(inner);
        drop(dropped);
        self.inner().stop(mode);
    }

    fn poll_drained(&self, mode: StopMode, waiter: &mut Waiter, waker: &Waker) -> Poll<()> {
        self.inner().poll_drained(mode, waiter, waker)
    }

    fn shutting_down(&self) -> bool {
        self.inner().shutting_down()
    }

    fn requeue(&self, taken: Taken<Q::Key>) -> Added {
        self.inner().requeue(taken)
    }

    fn take_ready(&self, max: usize, taken: &mut Vec<Taken<Q::Key>>) {
        self.inner().take_ready(max, taken);
    }

    fn add_due(&self, keys: &mut dyn Iterator<Item = Q::Key>) -> Wakeups {
        self.inner().add_due(keys)
    }

    fn take_remaining(&self) -> Remains<Q::Key> {
        let delays = &self.layers.delays;
        let mut remains = self.inner().take_remaining();
        let now = delays.clock.now();
        let mut inner = delays.shell.lock();
        inner.state.ending_mut().shut_down(StopMode::Now, UNKNOWN);
        remains.waiting.extend(inner.state.take_remaining(now).0.waiting);
        remains
    }
}

impl<Q: WorkQueue> Sealed for QueueAdapter<Q> {}

impl<Q: WorkQueue> Retry for QueueAdapter<Q> {
    /// If `Eq` or `Hash` of a key panics or the timer thread cannot be started, the key becomes
    /// ready; the panic then propagates, and the key is not lost.
    fn requeue_after(&self, taken: Taken<Q::Key>, delay: Duration) -> Added {
        if delay.is_zero() {
            self.count_retry();
            return self.requeue(taken);
        }
        let Taken { key, token, priority } = taken;
        let closed = self.inner().shutting_down();
        let mut offer = Offer::new(0, key);
        let updated = catch_unwind(AssertUnwindSafe(|| {
            offer.hash = offer.key.as_ref().map_or(0, |key| self.layers.delays.hasher.hash(key));
            self.update(|state, now| {
                let (found, accepts) =
                    (state.find_offer(&offer), Self::accepts_held(state, closed));
                state.add_after(found, &mut offer, now, delay, Merge::Earliest, accepts)
            })
        }));
        let due = updated.as_ref().map_or(true, |outcome| outcome.due);
        let requeued =
            offer.key.take_if(|_| due).map(|key| self.requeue(Taken { key, token, priority }));
        if requeued.is_none() {
            self.done(token);
        }
        match updated {
            Ok(outcome) => requeued.unwrap_or(outcome.added),
            Err(panic) => resume_unwind(panic),
        }
    }

    fn retry(&self, taken: Taken<Q::Key>) -> Limited {
        let (hold, key) = Hold::of(self, taken);
        let closed = self.inner().shutting_down();
        let (mut offer, mut delay) = (self.offer(key), Duration::ZERO);
        let outcome = self.update(|state, now| {
            let (found, accepts) = (state.find_offer(&offer), Self::accepts_held(state, closed));
            state.add_rate_limited(found, &mut offer, now, &mut delay, accepts)
        });
        let added = match offer.key.take_if(|_| outcome.due) {
            Some(key) => hold.requeue(key),
            None => outcome.added,
        };
        Limited { delay, added }
    }

    fn fail_held(&self, _: u64, key: &Q::Key) -> Duration {
        let delays = &self.layers.delays;
        let hash = delays.hasher.hash(key);
        let now = delays.clock.now();
        let stale = &mut Vec::new(); // dropped after the lock, also in a panic
        let mut inner = delays.shell.lock();
        inner.state.forget_stale(now, stale);
        let mut found = inner.state.find(hash, key);
        inner.state.fail_found(&mut found, hash, key, now)
    }

    fn forget_held(&self, _: u64, key: &Q::Key) {
        self.forget(key);
    }

    fn num_requeues_held(&self, _: u64, key: &Q::Key) -> u32 {
        self.num_requeues(key)
    }

    fn count_failures(&self) {
        self.layers.delays.shell.lock().state.count_failures();
    }

    fn clock(&self) -> &Clock {
        &self.layers.delays.clock
    }
}

impl<Q: WorkQueue> Clone for QueueAdapter<Q> {
    fn clone(&self) -> Self {
        QueueAdapter { layers: Arc::clone(&self.layers) }
    }
}

impl<Q: WorkQueue> fmt::Debug for QueueAdapter<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueAdapter")
            .field("len", &self.len())
            .field("waiting", &self.waiting())
            .field("shutting_down", &self.shutting_down())
            .finish_non_exhaustive()
    }
}

//! Keys that become ready later, on top of any inner queue.
//!
//! ```text
//!   add_after            due
//!   ----------> waiting -----> inner queue: add
//!                 |  ^
//!                 +--+ add_after: the merge rule decides
//! ```
//!
//! If the queue has a minimum interval between the runs of a key, [`interval`] decides when a
//! key enters and leaves.
//!
//! A key can wait and, independently, be ready or held: this layer only calls `add` on the
//! inner queue. A due key moves to the inner queue under this layer's lock, so that it is
//! always in one of the two. Locks are taken outer first, inner second. Nobody is woken before
//! both are released.

mod interval;
#[cfg(all(test, not(requeue_loom)))]
mod model;
mod rate_limiting;
mod state;

use crate::clock::{Clock, Fire, Moment, Registration};
use crate::get::{Drain, Get, GetMany, ShutDownWithDrain, TryGetError, try_get};
use crate::held::Held;
use crate::keys::Hasher;
use crate::metrics::{Name, QueueMetrics, Report};
use crate::options::{Merge, Options};
use crate::queue::Queue;
use crate::snapshot::{Added, Cancelled, KeyStatus, Remains, Snapshot};
use crate::sync::Mutex;
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

/// A [`Queue`] to which keys can be added with a delay.
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
    inner: Inner<K>,
    state: Mutex<State<K>>,
    hasher: Hasher,
    clock: Clock,
    /// Created for the first delayed key: a queue that never delays needs no timer.
    registration: OnceLock<Registration>,
    name: Option<Name>,
    /// Whether the queue has a minimum interval. If so, adds and takes go through
    /// `interval.rs`.
    paced: bool,
}

/// `Ours` is called directly and shares its hasher with this layer. `Given` is called through
/// dynamic dispatch.
enum Inner<K: Key> {
    Ours(Queue<K>),
    Given(Arc<dyn WorkQueue<Key = K>>),
}

/// Evaluates `$call` with the inner queue, whichever variant it is.
macro_rules! inner {
    ($shared:expr, $queue:ident => $call:expr) => {
        match &$shared.inner {
            Inner::Ours($queue) => $call,
            Inner::Given($queue) => $call,
        }
    };
}

impl<K: Key> Fire for Shared<K> {
    fn fire(&self, now: Moment) -> Option<Moment> {
        let mut state = self.state.lock();
        let due = std::iter::from_fn(|| state.pop(now)).take(BATCH);
        let wakeups = match &self.inner {
            Inner::Ours(queue) => queue.add_due_hashed(due),
            Inner::Given(queue) => {
                // Collected first: if the queue panics or does not consume all keys, the same
                // keys are not offered to it again forever.
                let due: Vec<K> = due.map(|(_, key)| key).collect();
                queue.add_due(&mut due.into_iter())
            }
        };
        let next = state.rearm(now);
        drop(state);
        drop(wakeups);
        next
    }

    fn next_due(&self) -> Option<Moment> {
        self.state.lock().next_due()
    }
}

impl<K: Key> Report for Shared<K> {
    fn report(&self) -> QueueMetrics {
        let state = self.state.lock();
        let mut metrics = match &self.inner {
            Inner::Ours(queue) => queue.metrics().unwrap_or_default(),
            Inner::Given(_) => QueueMetrics::default(),
        };
        state.report(&mut metrics);
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
        let queue = Queue::new_inner(options.clock.clone(), options.name.is_some());
        let hasher = queue.hasher();
        DelayingQueue::build(Inner::Ours(queue), hasher, options)
    }

    /// Creates a delaying queue on top of `inner`: your own [`WorkQueue`], or a [`Queue`] with
    /// your own order.
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
        DelayingQueue::build(Inner::Given(inner), Hasher::default(), options)
    }

    fn build(inner: Inner<K>, hasher: Hasher, options: Options) -> Self {
        let state = State::new(options.min_interval, options.name.is_some());
        let shared = Shared {
            inner,
            paced: state.interval.is_some(),
            state: Mutex::new(state),
            hasher,
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
    /// Under a [minimum interval](Options::min_interval), a key that ran less than an interval
    /// ago waits first. Returns [`Added::Refused`] after a shutdown and during a drain.
    #[inline]
    pub fn add(&self, key: K) -> Added {
        if self.shared.paced {
            return self.add_paced(key);
        }
        self.add_ready(key)
    }

    #[inline]
    fn add_ready(&self, key: K) -> Added {
        inner!(self.shared, queue => queue.add(key))
    }

    /// Adds `key` once `delay` has passed. If the key already waits, the earlier time wins.
    ///
    /// A delay of zero is the same as [`add`](Self::add). Returns [`Added::Refused`] after a
    /// shutdown and during a drain.
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
        due.map_or(added, |key| self.add_ready(key))
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
            state.add_after(&mut offer, now, delay, merge, caller)
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
        let mut state = self.shared.state.lock();
        state.forget_stale(now, stale);
        let outcome = change(&mut state, caller, now);
        drop(state);
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
        match &self.shared.inner {
            Inner::Ours(_) => false,
            Inner::Given(queue) => queue.shutting_down(),
        }
    }

    /// Counts an add without delay as a retry, if the queue has a name.
    #[inline]
    fn count_retry(&self) {
        if self.shared.name.is_some() && !self.is_closed_below() {
            self.shared.state.lock().count_retry();
        }
    }

    /// Does `add_after` for the holder of a key, and ends its hold.
    pub(crate) fn requeue_after(&self, taken: Taken<K>, delay: Duration) -> Added {
        if delay.is_zero() {
            self.count_retry();
            return self.requeue(taken);
        }
        self.put_back(taken, |state, offer, caller, now| {
            state.add_after(offer, now, delay, Merge::Earliest, caller)
        })
    }

    /// Ends the hold of a key that `change` delays. A key that is due now becomes ready. So
    /// does the key if `Eq` of a key panics or the timer thread cannot be started; the panic
    /// then propagates, and the key is not lost.
    fn put_back(
        &self,
        taken: Taken<K>,
        change: impl FnOnce(&mut State<K>, &mut Offer<K>, Caller, Moment) -> Outcome,
    ) -> Added {
        let Taken { key, token, hash, priority } = taken;
        let mut offer = Offer::new(hash, key);
        let updated = catch_unwind(AssertUnwindSafe(|| {
            if let Some(key) = &offer.key {
                offer.hash = self.hash_of_held(hash, key);
            }
            self.update(By::Holder, |state, caller, now| change(state, &mut offer, caller, now))
        }));
        let due = updated.as_ref().map_or(true, |outcome| outcome.due);
        let requeued = offer.key.take_if(|_| due).map(|key| {
            let taken = Taken { key, token, hash, priority };
            inner!(self.shared, queue => queue.requeue(taken))
        });
        if requeued.is_none() {
            self.done(token);
        }
        match updated {
            Ok(outcome) => requeued.unwrap_or(outcome.added),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// A guard carries the hash of the inner queue. Only `Ours` shares its hasher with this
    /// layer.
    #[inline]
    fn hash_of_held(&self, hash: u32, key: &K) -> u32 {
        match &self.shared.inner {
            Inner::Ours(_) => hash,
            Inner::Given(_) => self.shared.hasher.hash(key),
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
        inner!(self.shared, queue => queue.len())
    }

    /// Returns `true` if no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys that wait for their due time.
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().waiting()
    }

    /// Removes `key` if it waits and if it is ready. If `key` is held, its holder is not
    /// interrupted, but the key does not run again afterwards.
    pub fn cancel<B>(&self, key: &B) -> Cancelled
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let hash = self.shared.hasher.hash(key);
        let (waited, removed) = self.shared.state.lock().cancel(hash, key);
        drop(removed);
        let mut cancelled = match &self.shared.inner {
            Inner::Ours(queue) => queue.cancel(key),
            Inner::Given(_) => Cancelled::default(),
        };
        cancelled.waiting = waited;
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
        let mut state = self.shared.state.lock();
        state.forget_stale(now, stale);
        let mut status = match &self.shared.inner {
            Inner::Ours(queue) => queue.status(key),
            Inner::Given(_) => KeyStatus::default(),
        };
        status.due_in = state.due_in(hash, key, now);
        status.failures = state.failures(hash, key);
        status
    }

    /// Returns all keys at one instant.
    ///
    /// This clones every key while it holds the queue's lock. Use it for debugging and tests,
    /// not in a loop.
    pub fn snapshot(&self) -> Snapshot<K> {
        let now = self.shared.clock.now();
        let state = self.shared.state.lock();
        let mut snapshot = match &self.shared.inner {
            Inner::Ours(queue) => queue.snapshot(),
            Inner::Given(_) => Snapshot::default(),
        };
        snapshot.waiting = state.snapshot(now);
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
        inner!(self.shared, queue => queue.shutting_down())
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
        if self.shared.paced {
            return self.poll_take_paced(waiter, waker);
        }
        inner!(self.shared, queue => queue.poll_take(waiter, waker))
    }

    fn leave(&self, waiter: &mut Waiter) {
        inner!(self.shared, queue => queue.leave(waiter));
    }

    #[inline]
    fn done(&self, token: u64) {
        inner!(self.shared, queue => queue.done(token));
    }

    fn len(&self) -> usize {
        DelayingQueue::len(self)
    }

    fn shut_down(&self, mode: StopMode) {
        let dropped = self.shared.state.lock().shut_down(mode);
        drop(dropped);
        match &self.shared.inner {
            Inner::Ours(queue) => WorkQueue::shut_down(queue, mode),
            Inner::Given(queue) => queue.shut_down(mode),
        }
    }

    fn poll_drained(&self, mode: StopMode, waiter: &mut Waiter, waker: &Waker) -> Poll<()> {
        inner!(self.shared, queue => queue.poll_drained(mode, waiter, waker))
    }

    fn shutting_down(&self) -> bool {
        DelayingQueue::shutting_down(self)
    }

    #[inline]
    fn requeue(&self, taken: Taken<K>) -> Added {
        if self.shared.paced {
            return self.requeue_paced(taken);
        }
        inner!(self.shared, queue => queue.requeue(taken))
    }

    fn take_ready(&self, max: usize, taken: &mut Vec<Taken<K>>) {
        if self.shared.paced {
            return self.take_ready_paced(max, taken);
        }
        inner!(self.shared, queue => queue.take_ready(max, taken));
    }

    #[inline(always)]
    fn take_now<R>(&self, make: impl FnOnce(Taken<K>) -> R) -> Option<R> {
        if self.shared.paced {
            return self.take_paced().map(make);
        }
        match &self.shared.inner {
            Inner::Ours(queue) => queue.take_now(make),
            Inner::Given(queue) => match queue.poll_take(&mut Waiter::for_task(), None) {
                Poll::Ready(taken) => taken.map(make),
                Poll::Pending => None,
            },
        }
    }

    #[inline(always)]
    fn next_now<R>(&self, token: u64, make: impl FnOnce(Taken<K>) -> R) -> Option<R> {
        match &self.shared.inner {
            Inner::Ours(queue) if !self.shared.paced => queue.next_now(token, make),
            _ => {
                self.done(token);
                self.take_now(make)
            }
        }
    }

    /// The caller holds a lock, and delaying a key may call the clock. So a key that must wait
    /// for its interval starts to wait when it is taken.
    fn add_due(&self, keys: &mut dyn Iterator<Item = K>) -> Wakeups {
        inner!(self.shared, queue => queue.add_due(keys))
    }

    fn take_remaining(&self) -> Remains<K> {
        let mut remains = inner!(self.shared, queue => queue.take_remaining());
        let now = self.shared.clock.now();
        remains.waiting.extend(self.shared.state.lock().take_remaining(now));
        remains
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

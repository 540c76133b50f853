//! Keys that become ready later, on any inner queue.
//!
//! ```text
//!   add_after            due
//!   ----------> waiting -----> inner queue: add
//!                 |  ^
//!                 +--+ add_after: the merge rule decides
//! ```
//!
//! Where a key is to run at most once per interval, it passes through [`interval`] on its
//! way in and out.
//!
//! A key can wait and be ready or held at once: the two layers know each other by
//! `add` alone. A due key moves to the inner queue under this layer's lock, so
//! that it is never in neither. Locks are taken outer first, inner second, and
//! nobody is woken before both are released.

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

/// Due keys that are moved in one go. Between two goes others get the lock, and
/// the timer thread sees to other queues.
const BATCH: usize = 64;

/// A [`Queue`] whose keys can be added for later.
///
/// Each key waits at most once: of two times the sooner wins, unless another
/// [`Merge`] rule is asked for. When a key falls due it is added to the inner
/// queue, under that queue's rules. Keys due at the same time become ready in the
/// order in which they were put off.
///
/// This is a handle: clones share one queue. Delays of any length are kept exactly;
/// one that reaches past the end of the clock ([`Moment::END`], after 584 years) waits
/// until it is cancelled.
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
    /// Made when the first key is put off: a queue that never delays needs no timer.
    registration: OnceLock<Registration>,
    name: Option<Name>,
    /// Whether keys run at most once per interval: then adds and takes go by `interval.rs`.
    paced: bool,
}

/// The usual inner queue is called directly, and lends its hasher; one that was
/// given is called through its table of functions.
enum Inner<K: Key> {
    Ours(Queue<K>),
    Given(Arc<dyn WorkQueue<Key = K>>),
}

/// Calls `$call` on the inner queue, whichever it is.
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
                // Taken out first: a queue that panics, or leaves some, is not asked for
                // the same keys for ever.
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
    /// An empty queue on the system clock.
    pub fn new() -> Self {
        DelayingQueue::with(Options::new())
    }

    /// An empty queue with these settings.
    pub fn with(options: Options) -> Self {
        let queue = Queue::beneath(options.clock.clone(), options.name.is_some());
        let hasher = queue.hasher();
        DelayingQueue::build(Inner::Ours(queue), hasher, options)
    }

    /// Delays on a queue of your own, or on one of ours with an order of your own.
    ///
    /// `inner` keeps its own settings. What this answers from
    /// [`cancel`](Self::cancel), [`status`](Self::status), [`snapshot`](Self::snapshot) and
    /// [`metrics`](Self::metrics) covers the keys that wait; ask `inner` for the others.
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

    /// Adds `key` now. A later time that it waits for stays: it will come again.
    ///
    /// Under a [minimum interval](Options::min_interval) a key that ran not long ago waits.
    /// After a shutdown, and while draining, the answer is [`Added::Refused`].
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

    /// Adds `key` once `delay` has passed. If it waits already, the sooner time wins.
    ///
    /// A delay of zero is [`add`](Self::add). After a shutdown, and while draining,
    /// the answer is [`Added::Refused`].
    ///
    /// # Panics
    ///
    /// If the system refuses to start the process's timer thread, before anything
    /// was added. It is started by the first queue that delays a key.
    #[inline]
    pub fn add_after(&self, key: K, delay: Duration) -> Added {
        if delay.is_zero() {
            self.count_retry();
            return self.add(key);
        }
        self.put_off(key, delay, Merge::Earliest)
    }

    /// As [`add_after`](Self::add_after), with a rule for a key that waits already.
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
    /// As [`add_after`](Self::add_after).
    pub fn add_after_with(&self, key: K, delay: Duration, merge: Merge) -> Added {
        self.put_off(key, delay, merge)
    }

    fn put_off(&self, key: K, delay: Duration, merge: Merge) -> Added {
        let offer = Offer::new(self.shared.hasher.hash(&key), key);
        let (added, due) = self.delay(By::Anyone, offer, delay, merge);
        due.map_or(added, |key| self.add_ready(key))
    }

    /// Lets a key wait. Answers it where it is due now, for the caller to pass on.
    #[inline(always)]
    fn delay(
        &self,
        by: By,
        mut offer: Offer<K>,
        delay: Duration,
        merge: Merge,
    ) -> (Added, Option<K>) {
        let outcome = self
            .ask(by, |state, caller, now| state.add_after(&mut offer, now, delay, merge, caller));
        (outcome.added, offer.key.filter(|_| outcome.due))
    }

    /// Asks the state under its lock, and arms the clock as it asks in turn.
    #[inline(always)]
    fn ask(&self, by: By, ask: impl FnOnce(&mut State<K>, Caller, Moment) -> Outcome) -> Outcome {
        let registration = self.registration();
        let caller = Caller { by, closed_below: self.is_closed_below() };
        let now = self.shared.clock.now();
        let stale = &mut Vec::new(); // dropped after the lock, also in a panic
        let mut state = self.shared.state.lock();
        state.forget_stale(now, stale);
        let outcome = ask(&mut state, caller, now);
        drop(state);
        if outcome.arm < Moment::END {
            registration.arm(outcome.arm);
        }
        outcome
    }

    /// Made when first needed, before anything is changed: it may panic.
    #[inline]
    fn registration(&self) -> &Registration {
        self.shared.registration.get_or_init(|| {
            let queue: Weak<Shared<K>> = Arc::downgrade(&self.shared);
            self.shared.clock.register(queue)
        })
    }

    /// A queue that was given may have been shut down by its other owner.
    #[inline]
    fn is_closed_below(&self) -> bool {
        match &self.shared.inner {
            Inner::Ours(_) => false,
            Inner::Given(queue) => queue.shutting_down(),
        }
    }

    /// Counts an add without delay, where anybody will ask.
    #[inline]
    fn count_retry(&self) {
        if self.shared.name.is_some() && !self.is_closed_below() {
            self.shared.state.lock().count_retry();
        }
    }

    /// `add_after` by the key's holder, and the end of its hold.
    pub(crate) fn requeue_after(&self, taken: Taken<K>, delay: Duration) -> Added {
        if delay.is_zero() {
            self.count_retry();
            return self.requeue(taken);
        }
        self.put_back(taken, |state, offer, caller, now| {
            state.add_after(offer, now, delay, Merge::Earliest, caller)
        })
    }

    /// Ends the hold of a key that `ask` puts off; of one that is due now, by making it
    /// ready. So too if `Eq` of a key panics, or the timer thread cannot be started: the
    /// panic goes on, and the key is not lost.
    fn put_back(
        &self,
        taken: Taken<K>,
        ask: impl FnOnce(&mut State<K>, &mut Offer<K>, Caller, Moment) -> Outcome,
    ) -> Added {
        let Taken { key, token, hash, priority } = taken;
        let mut offer = Offer::new(hash, key);
        let asked = catch_unwind(AssertUnwindSafe(|| {
            if let Some(key) = &offer.key {
                offer.hash = self.hash_of_held(hash, key);
            }
            self.ask(By::Holder, |state, caller, now| ask(state, &mut offer, caller, now))
        }));
        let due = asked.as_ref().map_or(true, |outcome| outcome.due);
        let requeued = offer.key.take_if(|_| due).map(|key| {
            let taken = Taken { key, token, hash, priority };
            inner!(self.shared, queue => queue.requeue(taken))
        });
        if requeued.is_none() {
            self.done(token);
        }
        match asked {
            Ok(outcome) => requeued.unwrap_or(outcome.added),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// A guard carries the hash of the queue that it came from, which lends us its
    /// hasher if it is ours.
    #[inline]
    fn hash_of_held(&self, hash: u32, key: &K) -> u32 {
        match &self.shared.inner {
            Inner::Ours(_) => hash,
            Inner::Given(_) => self.shared.hasher.hash(key),
        }
    }

    /// Waits for a key: `.await` it, or `.wait()` on a thread. `None`: shut down.
    ///
    /// See [`Get`] for timeouts and cancellation. After a shutdown, what is still
    /// ready is handed out; what waits is not.
    #[inline]
    pub fn get(&self) -> Get<'_, Self> {
        Get::new(self)
    }

    /// A key, if one is ready now.
    #[inline]
    pub fn try_get(&self) -> Result<Held<'_, Self>, TryGetError> {
        try_get(self)
    }

    /// Waits for 1 to `max` keys at once. Empty: shut down. A `max` of 0 counts as 1.
    pub fn get_many(&self, max: usize) -> GetMany<'_, Self> {
        GetMany::new(self, max)
    }

    /// How many keys are ready. Those that wait do not count; see [`waiting`](Self::waiting).
    pub fn len(&self) -> usize {
        inner!(self.shared, queue => queue.len())
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys wait for their time.
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().waiting()
    }

    /// Removes `key` where it waits and where it is ready; if it is held, it will
    /// not run again after its holder.
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

    /// What is known of `key`.
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

    /// All keys at one instant. Clones every key under the lock: for people and
    /// tests, not for a loop.
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

    /// What the queue reports. `None`: it has no name.
    pub fn metrics(&self) -> Option<QueueMetrics> {
        self.shared.name.is_some().then(|| self.shared.report())
    }

    /// Refuses adds from now on, and tells waiting getters and drains. Keys that wait
    /// are dropped, or answered by a [`drain`](Self::drain) that this ends; what is ready is
    /// still handed out. Calling it again does no harm.
    pub fn shut_down(&self) {
        WorkQueue::shut_down(self, StopMode::Now);
    }

    /// client-go's drain: shuts down now, and waits until no key is held.
    ///
    /// It does not wait for keys that are ready, and drops those that wait for their
    /// time; for that see [`drain`](Self::drain). A [`shut_down`](Self::shut_down) ends
    /// the wait.
    pub fn shut_down_with_drain(&self) -> ShutDownWithDrain<'_, Self> {
        ShutDownWithDrain::new(self)
    }

    /// Whether adds are refused: the queue is shut down or draining.
    pub fn shutting_down(&self) -> bool {
        inner!(self.shared, queue => queue.shutting_down())
    }

    /// Refuses adds from now on, and waits until all that is ready or held is
    /// worked off, or `limit` has passed; then shuts down and answers what was left.
    ///
    /// Keys that wait for their time do not fall due any more: they are in the
    /// answer, with the delay that each still had. A key that was added while it was
    /// held still runs again. One that its guard requeues, now or for later, does
    /// not: it is kept for the answer.
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

    /// The caller holds a lock, and putting a key off may call the clock: one that must
    /// wait for its interval begins to when it is taken.
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

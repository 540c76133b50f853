//! Priorities, delays and rate limits in one queue, like controller-runtime's priority queue.
//!
//! ```text
//!                                    add, or due
//!           add, later     +---------------------------+
//!   absent ----------> waiting                         v
//!      |                   ^      add               ready -----> held -----> absent
//!      +-------------------|----------------------->   ^   get     |   done
//!                          |                           |  done     | add
//!                          +--- held, and again later, or again ---+
//! ```
//!
//! A key is added with a priority and a due time. If it is added again before it is handed out,
//! it keeps the higher priority and the earlier time. Adds while the key is held apply to its
//! next run.
//!
//! There is one lock and one entry per key, where three layers would have three. [`State`]
//! contains the rules, [`ReadyList`] the order of the ready keys, [`Shell`] the lock and the
//! waiters.

mod levels;
#[cfg(all(test, not(requeue_loom)))]
mod model;
mod ready_list;
mod state;
mod view;

use crate::clock::{Clock, Fire, Moment, Registration};
use crate::get::{Drain, Get, GetMany, ShutDownWithDrain, TryGetError, try_get};
use crate::held::{Held, Hold};
use crate::keys::Hasher;
use crate::limiter::RateLimiter;
use crate::metrics::{Name, QueueMetrics, Recorder, Report};
use crate::options::Options;
use crate::retry::{Retry, sealed::Sealed};
use crate::shell::{Rules, Shell, wake_all};
use crate::snapshot::{Added, Cancelled, KeyStatus, Limited, Remains, Snapshot};
use crate::waiters::{Notice, Waiter};
use crate::work_queue::{Key, StopMode, Taken, Wakeups, WorkQueue};
use ready_list::ReadyList;
use state::{Outcome, RequeueMode, State, Time};
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

/// The number of keys that are added or made ready under one lock. Between two batches, other
/// callers get the lock.
const BATCH: usize = 64;

/// A queue whose keys have priorities, like controller-runtime's priority queue.
///
/// Keys with a higher priority are handed out first; keys of the same priority are handed out
/// first in, first out. Otherwise it is a [`RateLimitingQueue`](crate::RateLimitingQueue): it
/// deduplicates, delays and retries with backoff. Three things differ, as they do in
/// controller-runtime:
///
/// - An [`add`](Self::add) makes a waiting key ready. The key then no longer waits.
/// - [`len`](Self::len) also counts keys that are held and run again.
/// - A delayed add of a key that is already ready has no effect on its due time.
///
/// A key of low priority can starve as long as keys of higher priority are ready.
/// [`Options::ageing`] prevents that.
///
/// `PriorityQueue` is a handle: clones share one queue.
///
/// ```
/// use requeue::limiter::default_controller;
/// use requeue::{AddOptions, PriorityQueue};
///
/// let queue = PriorityQueue::new(default_controller());
/// queue.add_many(["pod-1", "pod-2", "pod-3"], AddOptions::new().priority(-100)); // a resync
/// queue.add("pod-3"); // an event
/// let held = queue.try_get()?;
/// assert_eq!((*held.key(), held.priority()), ("pod-3", 0));
/// # Ok::<(), requeue::TryGetError>(())
/// ```
pub struct PriorityQueue<K: Key> {
    shared: Arc<Shared<K>>,
}

struct Shared<K: Key> {
    shell: Shell<State<K>>,
    hasher: Hasher,
    clock: Clock,
    ages: bool,
    /// Created for the first delayed key: a queue that never delays needs no timer.
    registration: OnceLock<Registration>,
    name: Option<Name>,
}

/// Options of one add to a [`PriorityQueue`]: priority, delay and rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddOptions {
    priority: i32,
    after: Option<Duration>,
    rate_limited: bool,
}

impl AddOptions {
    /// Creates options for an immediate add with priority 0.
    pub fn new() -> Self {
        AddOptions::default()
    }

    /// Sets the priority. Keys with a higher priority are handed out first. Default: 0.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Delays the key by at least `delay`. A delay of zero makes the key ready now, whatever
    /// the limiter returns.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = Some(delay);
        self
    }

    /// Counts a failure and delays the key by what the limiter returns. Together with
    /// [`after`](Self::after), the shorter delay applies.
    #[must_use]
    pub fn rate_limited(mut self) -> Self {
        self.rate_limited = true;
        self
    }

    /// Whether the add may need a delay, and so the timer.
    fn may_wait(self) -> bool {
        self.rate_limited || self.after.is_some_and(|after| !after.is_zero())
    }
}

impl<K: Key> Fire for Shared<K> {
    fn fire(&self, now: Moment) -> Option<Moment> {
        let time = Time { now, stamp: self.shell.now() };
        let mut inner = self.shell.lock();
        let fired = inner.state.fire(BATCH, time);
        let notices: Vec<Notice> = (0..fired).map_while(|_| inner.notify()).collect();
        let next = inner.state.rearm(now);
        drop(inner);
        notices.into_iter().for_each(|notice| self.shell.wake(Some(notice)));
        next
    }

    fn next_due(&self) -> Option<Moment> {
        self.shell.lock().state.next_due()
    }
}

impl<K: Key> Report for Shared<K> {
    fn report(&self) -> QueueMetrics {
        let stamp = self.shell.now();
        let mut metrics = self.shell.lock().state.metrics(stamp).unwrap_or_default();
        if let Some(name) = &self.name {
            metrics.name = name.as_str().to_owned();
        }
        metrics
    }
}

impl<K: Key> Shared<K> {
    /// Reads the clocks whose time is used. The other times stay at their default.
    #[inline]
    fn time(&self, may_wait: bool) -> Time {
        let now = if may_wait || self.ages { self.clock.now() } else { Moment::default() };
        Time { now, stamp: self.shell.now() }
    }
}

impl<K: Key> PriorityQueue<K> {
    /// Creates an empty queue on the system clock.
    pub fn new(limiter: impl RateLimiter<K>) -> Self {
        PriorityQueue::with(limiter, Options::new())
    }

    /// Creates an empty queue with the given options.
    pub fn with(limiter: impl RateLimiter<K>, options: Options) -> Self {
        let Options { clock, name, failures, ageing, .. } = options;
        let recorder = name.is_some().then(Box::<Recorder>::default);
        let stopwatch = name.is_some().then(|| clock.stopwatch());
        let state = State::new(Box::new(limiter), failures, ReadyList::new(ageing), recorder);
        let shared = Arc::new(Shared {
            shell: Shell::new(state, stopwatch),
            hasher: Hasher::default(),
            clock,
            ages: ageing.is_some(),
            registration: OnceLock::new(),
            name,
        });
        if let Some(name) = &shared.name {
            let reporter: Weak<Shared<K>> = Arc::downgrade(&shared);
            name.reporter(reporter);
        }
        PriorityQueue { shared }
    }

    /// Adds `key` now, with priority 0. If the key waits, it becomes ready and no longer waits.
    ///
    /// Returns [`Added::Refused`] after a shutdown and during a drain.
    #[inline]
    pub fn add(&self, key: K) -> Added {
        self.add_with(key, AddOptions::new()).added
    }

    /// Adds `key` once `delay` has passed, with priority 0. If the key already waits, the
    /// earlier time wins. If it is ready, it stays ready.
    ///
    /// # Panics
    ///
    /// Panics in the same case as [`add_with`](Self::add_with).
    pub fn add_after(&self, key: K, delay: Duration) -> Added {
        self.add_with(key, AddOptions::new().after(delay)).added
    }

    /// Counts a failure of `key` and adds it after the delay that the limiter returns, with
    /// priority 0.
    ///
    /// # Panics
    ///
    /// Panics in the same case as [`add_with`](Self::add_with).
    pub fn add_rate_limited(&self, key: K) -> Limited {
        self.add_with(key, AddOptions::new().rate_limited())
    }

    /// Adds `key` with the given options. Returns the result and the delay.
    ///
    /// If a key is added again before it is handed out, it keeps the highest of its priorities
    /// and the earliest of its times. A key whose priority is raised goes behind the ready keys
    /// of its new priority. If keys [age](Options::ageing), it instead keeps the time for which
    /// it has been ready. After a shutdown and during a drain the result is [`Added::Refused`],
    /// and the limiter is not called.
    ///
    /// # Panics
    ///
    /// Panics if the operating system refuses to start the process's timer thread. The first
    /// queue that delays a key starts it. In this case nothing is added.
    ///
    /// ```
    /// use requeue::limiter::default_item_based;
    /// use requeue::{AddOptions, ManualClock, Options, PriorityQueue};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let queue = PriorityQueue::with(default_item_based(), Options::new().clock(&clock));
    /// queue.add_with("a", AddOptions::new().after(Duration::from_secs(60)));
    /// queue.add_with("a", AddOptions::new().after(Duration::from_secs(90)).priority(7));
    /// clock.advance(Duration::from_secs(60));
    /// assert_eq!(queue.try_get()?.priority(), 7);
    /// # Ok::<(), requeue::TryGetError>(())
    /// ```
    #[inline]
    pub fn add_with(&self, key: K, options: AddOptions) -> Limited {
        let Shared { shell, hasher, .. } = &*self.shared;
        let hash = hasher.hash(&key);
        let may_wait = options.may_wait();
        let registration = may_wait.then(|| self.registration());
        let time = self.shared.time(may_wait);
        // Declared before the lock, so that they are dropped after it, also in a panic.
        let (mut key, stale) = (Some(key), &mut Vec::new());
        let mut inner = shell.lock();
        inner.state.forget_stale(time.now, stale);
        let Outcome { limited, came_ready, arm } = inner.state.add(hash, &mut key, options, time);
        if came_ready && inner.getters.any_waiting() {
            shell.unlock_and_wake(inner);
        } else {
            drop(inner);
        }
        if let (Some(registration), Some(at)) = (registration, arm) {
            registration.arm(at);
        }
        limited
    }

    /// Adds many keys with the same options, like [`add_with`](Self::add_with) for each. The
    /// lock is taken once per batch of keys, and all delays count from one instant.
    ///
    /// # Panics
    ///
    /// Panics in the same case as [`add_with`](Self::add_with).
    pub fn add_many(&self, keys: impl IntoIterator<Item = K>, options: AddOptions) -> Vec<Limited> {
        // Collected first, because the iterator may use the queue.
        let hasher = &self.shared.hasher;
        let keys: Vec<(u32, K)> = keys.into_iter().map(|key| (hasher.hash(&key), key)).collect();
        let mut results = Vec::with_capacity(keys.len());
        let may_wait = options.may_wait();
        let registration = may_wait.then(|| self.registration());
        let time = self.shared.time(may_wait);
        let mut keys = keys.into_iter();
        while keys.len() > 0 {
            let mut batch = keys.by_ref().take(BATCH);
            let (wakeups, arm) = self.add_batch(&mut batch, options, time, &mut results);
            drop(wakeups);
            if let (Some(registration), Some(at)) = (registration, arm) {
                registration.arm(at);
            }
        }
        results
    }

    /// Adds keys under one lock. If `Eq` of a key or the limiter panics, the waiters of the
    /// keys added so far are still woken.
    fn add_batch(
        &self,
        keys: &mut dyn Iterator<Item = (u32, K)>,
        options: AddOptions,
        time: Time,
        results: &mut Vec<Limited>,
    ) -> (Wakeups, Option<Moment>) {
        let (mut arm, mut notices) = (None::<Moment>, Vec::new());
        // Declared before the lock, so that they are dropped after it.
        let (mut offered, mut unused) = (None, Vec::new());
        let mut inner = self.shared.shell.lock();
        inner.state.forget_stale(time.now, &mut unused);
        let added = catch_unwind(AssertUnwindSafe(|| {
            for (hash, key) in keys {
                offered = Some(key);
                let outcome = inner.state.add(hash, &mut offered, options, time);
                unused.extend(offered.take());
                results.push(outcome.limited);
                arm = [arm, outcome.arm].into_iter().flatten().min();
                if outcome.came_ready {
                    notices.extend(inner.notify());
                }
            }
        }));
        drop(inner);
        let shared = Arc::clone(&self.shared);
        let wakeups = Wakeups(Some(Box::new(move || {
            notices.into_iter().for_each(|notice| shared.shell.wake(Some(notice)));
            drop(unused);
        })));
        if let Err(panic) = added {
            drop(wakeups);
            resume_unwind(panic);
        }
        (wakeups, arm)
    }

    /// Creates the registration on first use. Call this before anything changes: it may panic.
    #[inline]
    fn registration(&self) -> &Registration {
        self.shared.registration.get_or_init(|| {
            let queue: Weak<Shared<K>> = Arc::downgrade(&self.shared);
            self.shared.clock.register(queue)
        })
    }

    /// Ends a hold and adds the key again in the same step.
    fn requeue_with(&self, taken: Taken<K>, mode: RequeueMode) -> Limited {
        let token = taken.token;
        // If the limiter panics, dropping `hold` ends the hold.
        let (hold, key) = Hold::of(self, taken);
        let may_wait = !matches!(mode, RequeueMode::After(Duration::ZERO));
        let registration = may_wait.then(|| self.registration());
        let time = self.shared.time(may_wait);
        let (mut key, stale) = (Some(key), &mut Vec::new());
        let mut inner = self.shared.shell.lock();
        inner.state.forget_stale(time.now, stale);
        let (outcome, finished) = inner.state.finish_and_requeue(token, &mut key, mode, time);
        self.shared.shell.finished(inner, finished);
        hold.disarm();
        if let (Some(registration), Some(at)) = (registration, outcome.arm) {
            registration.arm(at);
        }
        outcome.limited
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

    /// Resets the failure count of `key`. If the key waits, it continues to wait.
    pub fn forget<B>(&self, key: &B)
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let hash = self.shared.hasher.hash(key);
        self.forget_found(|state| state.keys.find(hash, key));
    }

    fn forget_found(&self, find: impl FnOnce(&State<K>) -> Option<u32>) {
        let mut inner = self.shared.shell.lock();
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
        let hash = self.shared.hasher.hash(key);
        self.failures(|state| state.keys.find(hash, key))
    }

    fn failures(&self, find: impl FnOnce(&State<K>) -> Option<u32>) -> u32 {
        let stale = &mut Vec::new(); // dropped after the lock
        let mut inner = self.shared.shell.lock();
        if inner.state.forgets_by_time() {
            inner.state.forget_stale(self.shared.clock.now(), stale);
        }
        find(&inner.state).map_or(0, |slot| inner.state.keys[slot].failures)
    }

    /// Returns the number of keys to run: ready keys, and held keys that were added again.
    /// Waiting keys do not count; see [`waiting`](Self::waiting).
    pub fn len(&self) -> usize {
        self.shared.shell.lock().state.len()
    }

    /// Returns `true` if [`len`](Self::len) is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys that wait for their due time.
    pub fn waiting(&self) -> usize {
        self.shared.shell.lock().state.waiting()
    }

    /// Removes `key` if it waits or is ready. If `key` is held, its holder is not interrupted,
    /// but the key does not run again afterwards. The failure count of the key is kept.
    pub fn cancel<B>(&self, key: &B) -> Cancelled
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let hash = self.shared.hasher.hash(key);
        let mut inner = self.shared.shell.lock();
        let (cancelled, key) = inner.state.cancel(hash, key);
        self.shared.shell.settle(inner);
        drop(key);
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
        let stale = &mut Vec::new(); // dropped after the lock
        let mut inner = self.shared.shell.lock();
        inner.state.forget_stale(now, stale);
        inner.state.status(hash, key, now)
    }

    /// Returns all keys at one instant.
    ///
    /// This clones every key while it holds the queue's lock. Use it for debugging and tests,
    /// not in a loop.
    pub fn snapshot(&self) -> Snapshot<K> {
        let time = self.shared.time(true);
        self.shared.shell.lock().state.snapshot(time)
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
        !self.shared.shell.lock().state.ending().is_open()
    }

    /// Refuses adds, waits for the remaining work and returns the keys that were left. See
    /// [`RateLimitingQueue::drain`](crate::RateLimitingQueue::drain).
    pub fn drain(&self, limit: Duration) -> Drain<'_, Self> {
        Drain::new(self, &self.shared.clock, limit)
    }
}

impl<K: Key> WorkQueue for PriorityQueue<K> {
    type Key = K;

    fn add(&self, key: K) -> Added {
        PriorityQueue::add(self, key)
    }

    #[inline]
    fn poll_take(&self, waiter: &mut Waiter, waker: Option<&Waker>) -> Poll<Option<Taken<K>>> {
        self.shared.shell.poll_take(waiter, waker)
    }

    fn leave(&self, waiter: &mut Waiter) {
        self.shared.shell.leave(waiter);
    }

    #[inline]
    fn done(&self, token: u64) {
        self.shared.shell.done(token);
    }

    fn len(&self) -> usize {
        PriorityQueue::len(self)
    }

    fn shut_down(&self, mode: StopMode) {
        let mut inner = self.shared.shell.lock();
        let dropped = inner.state.stop_waiting(mode);
        let notices = inner.shut_down(mode);
        drop(inner);
        drop(dropped);
        wake_all(notices);
    }

    fn poll_drained(&self, mode: StopMode, waiter: &mut Waiter, waker: &Waker) -> Poll<()> {
        self.shared.shell.poll_drained(mode, waiter, waker)
    }

    fn shutting_down(&self) -> bool {
        PriorityQueue::shutting_down(self)
    }

    fn requeue(&self, taken: Taken<K>) -> Added {
        self.requeue_with(taken, RequeueMode::After(Duration::ZERO)).added
    }

    fn take_ready(&self, max: usize, taken: &mut Vec<Taken<K>>) {
        self.shared.shell.take_ready(max, taken);
    }

    #[inline(always)]
    fn take_now<R>(&self, make: impl FnOnce(Taken<K>) -> R) -> Option<R> {
        self.shared.shell.take_now(make)
    }

    #[inline(always)]
    fn next_now<R>(&self, token: u64, make: impl FnOnce(Taken<K>) -> R) -> Option<R> {
        self.shared.shell.next_now(token, make)
    }

    fn add_due(&self, keys: &mut dyn Iterator<Item = K>) -> Wakeups {
        let hasher = &self.shared.hasher;
        let mut keys = keys.map(|key| (hasher.hash(&key), key));
        let time = self.shared.time(false);
        self.add_batch(&mut keys, AddOptions::new(), time, &mut Vec::new()).0
    }

    fn take_remaining(&self) -> Remains<K> {
        let now = self.shared.clock.now();
        let mut inner = self.shared.shell.lock();
        let (remains, gone) = inner.state.take_remaining(now);
        // Under the same lock: otherwise a key that a guard requeues in between would be lost.
        let notices = inner.shut_down(StopMode::Now);
        drop(inner);
        drop(gone);
        wake_all(notices);
        remains
    }
}

impl<K: Key> Sealed for PriorityQueue<K> {}

impl<K: Key> Retry for PriorityQueue<K> {
    fn requeue_after(&self, taken: Taken<K>, delay: Duration) -> Added {
        if delay.is_zero() {
            return self.requeue(taken);
        }
        // If the timer thread cannot be started, the key becomes ready immediately and is not
        // lost.
        let can_wait = catch_unwind(AssertUnwindSafe(|| self.registration()));
        let delay = if can_wait.is_ok() { delay } else { Duration::ZERO };
        let added = self.requeue_with(taken, RequeueMode::After(delay)).added;
        match can_wait {
            Ok(_) => added,
            Err(panic) => resume_unwind(panic),
        }
    }

    fn retry(&self, taken: Taken<K>) -> Limited {
        self.requeue_with(taken, RequeueMode::Limited)
    }

    fn fail_held(&self, token: u64, _hash: u32, key: &K) -> Duration {
        let now = self.shared.clock.now();
        let stale = &mut Vec::new(); // dropped after the lock
        let mut inner = self.shared.shell.lock();
        inner.state.forget_stale(now, stale);
        inner.state.fail(token, key, now)
    }

    fn forget_held(&self, token: u64, _key: &K) {
        self.forget_found(|state| state.held_slot(token));
    }

    fn num_requeues_held(&self, token: u64, _key: &K) -> u32 {
        self.failures(|state| state.held_slot(token))
    }

    fn count_failures(&self) {
        self.shared.shell.lock().state.count_failures();
    }

    fn clock(&self) -> &Clock {
        &self.shared.clock
    }
}

impl<K: Key> Clone for PriorityQueue<K> {
    fn clone(&self) -> Self {
        PriorityQueue { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Key> fmt::Debug for PriorityQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PriorityQueue")
            .field("len", &self.len())
            .field("waiting", &self.waiting())
            .field("shutting_down", &self.shutting_down())
            .finish_non_exhaustive()
    }
}

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
//! contains the rules, [`ReadyList`] the order of the ready keys.

mod item;
mod levels;
#[cfg(all(test, not(requeue_loom)))]
mod model;
mod ready_list;
mod state;
mod view;

use crate::backoff::Backoff;
use crate::built_in::{BuiltIn, Keyed};
use crate::clock::{Clock, Moment, Registration};
use crate::get::{Drain, Get, GetMany, ShutDownWithDrain, TryGetError, try_get};
use crate::held::{Held, Hold};
use crate::limiter::RateLimiter;
use crate::metrics::{QueueMetrics, Recorder};
use crate::options::Options;
use crate::retry::{Retry, sealed::Sealed};
use crate::shared::Shared;
use crate::shell::Rules;
use crate::snapshot::{Added, Cancelled, KeyStatus, Limited, Snapshot};
use crate::timers::{BATCH, TimedRules};
use crate::work_queue::{Key, StopMode, Taken, WorkQueue};
use ready_list::ReadyList;
use state::{Outcome, RequeueMode, State, Time};
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

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
    shared: Arc<Shared<State<K>>>,
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

impl<K: Key> Keyed for PriorityQueue<K> {
    type Key = K;
}

impl<K: Key> BuiltIn for PriorityQueue<K> {
    type Rules = State<K>;

    #[inline(always)]
    fn shared(&self) -> &Arc<Shared<State<K>>> {
        &self.shared
    }
}

impl<K: Key> PriorityQueue<K> {
    /// Creates an empty queue on the system clock.
    pub fn new(limiter: impl RateLimiter<K>) -> Self {
        PriorityQueue::with(limiter, Options::new())
    }

    /// Creates an empty queue with the given options.
    pub fn with(limiter: impl RateLimiter<K>, options: Options) -> Self {
        let Options { clock, name, failures, ageing } = options;
        let recorder = name.is_some().then(Box::<Recorder>::default);
        let backoff = Backoff::new(limiter, failures);
        let state = State::new(backoff, ReadyList::new(ageing), recorder);
        PriorityQueue { shared: Shared::new(state, clock, name, ageing.is_some()) }
    }

    /// Adds `key` now, with priority 0. If the key waits, it becomes ready and no longer waits.
    ///
    /// Returns [`Added::Refused`] after a shutdown and during a drain.
    #[inline]
    pub fn add(&self, key: K) -> Added {
        let Shared { shell, hasher, .. } = &*self.shared;
        shell.add(hasher.hash(&key), key)
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
        let (registration, time) = self.prepare(options.may_wait());
        // Declared before the lock, so that they are dropped after it, also in a panic.
        let (mut key, stale) = (Some(key), &mut Vec::new());
        let mut inner = shell.lock();
        inner.state.forget_stale(time.now, stale);
        let Outcome { limited, came_ready, arm } =
            inner.state.add_with(hash, &mut key, options, time);
        if came_ready && inner.getters.any_waiting() {
            shell.unlock_and_wake(inner);
        } else {
            drop(inner);
        }
        arm_at(registration, arm);
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
        let (registration, time) = self.prepare(options.may_wait());
        let mut keys = keys.into_iter();
        while keys.len() > 0 {
            let batch = keys.by_ref().take(BATCH);
            arm_at(registration, self.add_batch(batch, options, time, &mut results));
        }
        results
    }

    /// Adds keys under one lock. Returns the time for which to arm the clock. If `Eq` of a key or
    /// the limiter panics, the waiters of the keys added so far are still woken.
    fn add_batch(
        &self,
        keys: impl Iterator<Item = (u32, K)>,
        options: AddOptions,
        time: Time,
        results: &mut Vec<Limited>,
    ) -> Moment {
        let (mut arm, mut notices) = (Moment::END, Vec::new());
        // Declared before the lock, so that they are dropped after it.
        let (mut offered, mut unused) = (None, Vec::new());
        let mut inner = self.shared.shell.lock();
        inner.state.forget_stale(time.now, &mut unused);
        let added = catch_unwind(AssertUnwindSafe(|| {
            for (hash, key) in keys {
                offered = Some(key);
                let outcome = inner.state.add_with(hash, &mut offered, options, time);
                unused.extend(offered.take());
                results.push(outcome.limited);
                arm = arm.min(outcome.arm);
                if outcome.came_ready {
                    notices.extend(inner.notify());
                }
            }
        }));
        drop(inner);
        notices.into_iter().for_each(|notice| self.shared.shell.wake(Some(notice)));
        if let Err(panic) = added {
            resume_unwind(panic);
        }
        arm
    }

    /// Reads the clocks whose time is used. The other times stay at their default. Call this
    /// before anything changes: it may panic.
    #[inline]
    fn prepare(&self, may_wait: bool) -> (Option<&Registration>, Time) {
        let registration = may_wait.then(|| self.shared.registration());
        let now = if may_wait { self.shared.clock.now() } else { Moment::default() };
        (registration, Time { now, stamp: self.shared.shell.now() })
    }

    /// Ends a hold, and adds the key again in the same step.
    fn requeue_with(&self, taken: Taken<K>, mode: RequeueMode) -> Limited {
        let token = taken.token;
        // If the limiter panics, dropping `hold` ends the hold.
        let (hold, key) = Hold::of(self, taken);
        let (registration, time) = self.prepare(true);
        let (mut key, stale) = (Some(key), &mut Vec::new());
        let mut inner = self.shared.shell.lock();
        inner.state.forget_stale(time.now, stale);
        let (outcome, finished) = inner.state.finish_and_requeue(token, &mut key, mode, time);
        self.shared.shell.finished(inner, finished);
        hold.disarm();
        arm_at(registration, outcome.arm);
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
        self.shared.forget_key(key);
    }

    /// Returns how often `key` has failed since it was last forgotten. Returns 0 if the limiter
    /// does not [count](RateLimiter::counts) failures, unless a worker with a maximum number of
    /// attempts counts them.
    pub fn num_requeues<B>(&self, key: &B) -> u32
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        self.shared.failures_of_key(key)
    }

    /// Returns the number of keys to run: ready keys, and held keys that were added again.
    /// Waiting keys do not count; see [`waiting`](Self::waiting).
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Returns `true` if [`len`](Self::len) is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of keys that wait for their due time.
    pub fn waiting(&self) -> usize {
        self.shared.waiting()
    }

    /// Removes `key` if it waits or is ready. If `key` is held, its holder is not interrupted,
    /// but the key does not run again afterwards. The failure count of the key is kept.
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

    /// Refuses adds, waits for the remaining work and returns the keys that were left. See
    /// [`DelayingQueue::drain`](crate::DelayingQueue::drain).
    pub fn drain(&self, limit: Duration) -> Drain<'_, Self> {
        Drain::new(self, &self.shared.clock, limit)
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
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| _ = self.shared.registration())) {
            self.requeue(taken);
            resume_unwind(panic);
        }
        self.requeue_with(taken, RequeueMode::After(delay)).added
    }

    fn retry(&self, taken: Taken<K>) -> Limited {
        self.requeue_with(taken, RequeueMode::Limited)
    }

    fn fail_held(&self, token: u64, key: &K) -> Duration {
        self.shared.fail_held(token, key)
    }

    fn forget_held(&self, token: u64, _: &K) {
        self.shared.forget(|state| state.held_slot(token));
    }

    fn num_requeues_held(&self, token: u64, _: &K) -> u32 {
        self.shared.failures(|state| state.held_slot(token))
    }

    fn count_failures(&self) {
        self.shared.shell.lock().state.count_failures();
    }

    fn clock(&self) -> &Clock {
        &self.shared.clock
    }
}

/// Arms the clock, unless `at` is the end.
#[inline]
fn arm_at(registration: Option<&Registration>, at: Moment) {
    if let Some(registration) = registration
        && at < Moment::END
    {
        registration.arm(at);
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

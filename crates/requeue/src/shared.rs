//! What the queues of this crate have in common: rules behind a lock, a hasher, a clock and a
//! name. [`BuiltIn`] queues are handles to it.

use crate::clock::{Clock, Fire, Moment, Registration};
use crate::guarded::guarded;
use crate::keys::Hasher;
use crate::metrics::{Name, QueueMetrics, Report};
use crate::shell::{Rules, Shell, wake_all};
use crate::snapshot::{Added, Cancelled, KeyStatus, Remains, Snapshot};
use crate::timers::TimedRules;
use crate::waiters::{Notice, Waiter};
use crate::work_queue::{Key, StopMode, Taken, Wakeups, WorkQueue};
use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

pub(crate) struct Shared<S> {
    pub(crate) shell: Shell<S>,
    pub(crate) hasher: Hasher,
    pub(crate) clock: Clock,
    /// Created for the first delayed key: a queue that never delays needs no timer.
    registration: OnceLock<Registration>,
    name: Option<Name>,
}

impl<S: Rules> Shared<S> {
    /// `ages`: whether the rules need a stamp even if the queue has no name.
    pub(crate) fn new(state: S, clock: Clock, name: Option<Name>, ages: bool) -> Arc<Self> {
        let stopwatch = (ages || name.is_some()).then(|| clock.stopwatch());
        let shared = Arc::new(Shared {
            shell: Shell::new(state, stopwatch),
            hasher: Hasher::default(),
            clock,
            registration: OnceLock::new(),
            name,
        });
        if let Some(name) = &shared.name {
            let reporter: Weak<Self> = Arc::downgrade(&shared);
            name.reporter(reporter);
        }
        shared
    }

    pub(crate) fn has_name(&self) -> bool {
        self.name.is_some()
    }

    pub(crate) fn metrics(&self) -> Option<QueueMetrics> {
        self.has_name().then(|| self.report())
    }

    pub(crate) fn len(&self) -> usize {
        self.shell.lock().state.len()
    }

    pub(crate) fn shutting_down(&self) -> bool {
        !self.shell.lock().state.ending().is_open()
    }

    pub(crate) fn cancel<B>(&self, key: &B) -> Cancelled
    where
        S::Key: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let hash = self.hasher.hash(key);
        let mut inner = self.shell.lock();
        let (cancelled, key) = inner.state.cancel(hash, key);
        self.shell.settle(inner);
        drop(key);
        cancelled
    }

    pub(crate) fn status<B>(&self, key: &B) -> KeyStatus
    where
        S::Key: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let hash = self.hasher.hash(key);
        let now = self.clock.now();
        let stale = &mut Vec::new(); // dropped after the lock, also in a panic
        let mut inner = self.shell.lock();
        inner.state.forget_stale(now, stale);
        inner.state.status(hash, key, now)
    }

    pub(crate) fn snapshot(&self) -> Snapshot<S::Key> {
        let (now, stamp) = (self.clock.now(), self.shell.now());
        self.shell.lock().state.snapshot(now, stamp)
    }
}

impl<S: Rules> Report for Shared<S> {
    fn report(&self) -> QueueMetrics {
        let stamp = self.shell.now();
        let mut metrics = self.shell.lock().state.metrics(stamp).unwrap_or_default();
        if let Some(name) = &self.name {
            metrics.name = name.as_str().to_owned();
        }
        metrics
    }
}

/// A queue with timers and failure counts.
impl<S: TimedRules> Shared<S> {
    /// Creates the registration on first use. Call this before anything changes: it may panic.
    #[inline]
    pub(crate) fn registration(self: &Arc<Self>) -> &Registration {
        self.registration_of(|| {
            let queue: Weak<Self> = Arc::downgrade(self);
            queue
        })
    }

    /// Does the same for an adapter, which handles due keys itself.
    #[inline]
    pub(crate) fn registration_of<F: Fire + 'static>(
        &self,
        target: impl FnOnce() -> Weak<F>,
    ) -> &Registration {
        self.registration.get_or_init(|| self.clock.register(target()))
    }

    pub(crate) fn waiting(&self) -> usize {
        self.shell.lock().state.waiting()
    }

    /// Resets the failures of the key that `find` finds.
    #[inline]
    pub(crate) fn forget(&self, find: impl FnOnce(&S) -> Option<u32>) {
        let mut inner = self.shell.lock();
        let forgotten = find(&inner.state).and_then(|slot| inner.state.forget(slot));
        drop(inner);
        drop(forgotten);
    }

    pub(crate) fn forget_key<B>(&self, key: &B)
    where
        S::Key: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let hash = self.hasher.hash(key);
        self.forget(|state| state.find(hash, key));
    }

    /// Returns how often the key that `find` finds has failed.
    #[inline]
    pub(crate) fn failures(&self, find: impl FnOnce(&S) -> Option<u32>) -> u32 {
        let stale = &mut Vec::new(); // dropped after the lock, also in a panic
        let mut inner = self.shell.lock();
        if inner.state.forgets_by_time() {
            inner.state.forget_stale(self.clock.now(), stale);
        }
        find(&inner.state).map_or(0, |slot| inner.state.failures(slot))
    }

    pub(crate) fn failures_of_key<B>(&self, key: &B) -> u32
    where
        S::Key: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let hash = self.hasher.hash(key);
        self.failures(|state| state.find(hash, key))
    }

    /// Counts a failure of a held key and returns the limiter's delay.
    pub(crate) fn fail_held(&self, token: u64, key: &S::Key) -> Duration {
        let now = self.clock.now();
        let stale = &mut Vec::new(); // dropped after the lock, also in a panic
        let mut inner = self.shell.lock();
        inner.state.forget_stale(now, stale);
        let slot = inner.state.held_slot(token);
        slot.map_or(Duration::ZERO, |slot| inner.state.fail(slot, key, now))
    }
}

impl<S: TimedRules> Fire for Shared<S> {
    fn fire(&self, now: Moment) -> Option<Moment> {
        let stamp = self.shell.now();
        let mut inner = self.shell.lock();
        let fired = inner.state.fire(now, stamp);
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

/// The key type of a queue of this crate. It is public because [`WorkQueue::Key`] is.
pub trait Keyed {
    type Key: Key;
}

/// A queue of this crate, which hands out its own keys.
pub(crate) trait BuiltIn: Keyed + Send + Sync + 'static {
    type Rules: Rules<Key = Self::Key>;

    fn shared(&self) -> &Arc<Shared<Self::Rules>>;
}

impl<Q: BuiltIn> WorkQueue for Q {
    type Key = <Q as Keyed>::Key;

    #[inline]
    fn add(&self, key: Q::Key) -> Added {
        let Shared { shell, hasher, .. } = &**self.shared();
        shell.add(hasher.hash(&key), key)
    }

    #[inline]
    fn poll_take(&self, waiter: &mut Waiter, waker: Option<&Waker>) -> Poll<Option<Taken<Q::Key>>> {
        self.shared().shell.poll_take(waiter, waker)
    }

    fn leave(&self, waiter: &mut Waiter) {
        self.shared().shell.leave(waiter);
    }

    #[inline(always)]
    fn done(&self, token: u64) {
        self.shared().shell.done(token);
    }

    fn len(&self) -> usize {
        self.shared().len()
    }

    fn stop(&self, mode: StopMode) {
        let mut inner = self.shared().shell.lock();
        let dropped = inner.state.stop_waiting(mode);
        let notices = inner.shut_down(mode);
        drop(inner);
        drop(dropped);
        wake_all(notices);
    }

    fn poll_drained(&self, mode: StopMode, waiter: &mut Waiter, waker: &Waker) -> Poll<()> {
        self.shared().shell.poll_drained(mode, waiter, waker)
    }

    fn shutting_down(&self) -> bool {
        self.shared().shutting_down()
    }

    #[inline]
    fn requeue(&self, taken: Taken<Q::Key>) -> Added {
        self.shared().shell.requeue(taken)
    }

    fn take_ready(&self, max: usize, taken: &mut Vec<Taken<Q::Key>>) {
        self.shared().shell.take_ready(max, taken);
    }

    #[inline(always)]
    fn take_now<R>(&self, make: impl FnOnce(Taken<Q::Key>) -> R) -> Option<R> {
        self.shared().shell.take_now(make)
    }

    #[inline(always)]
    fn next_now<R>(&self, token: u64, make: impl FnOnce(Taken<Q::Key>) -> R) -> Option<R> {
        self.shared().shell.next_now(token, make)
    }

    fn add_due(&self, keys: &mut dyn Iterator<Item = Q::Key>) -> Wakeups {
        let shared = Arc::clone(self.shared());
        let (mut unused, mut notices) = (Vec::new(), Vec::new());
        let now = shared.shell.now();
        let mut inner = shared.shell.lock();
        loop {
            // A key whose `Eq` or `Clone` panics is lost. The other keys due with it are not.
            let added = guarded(|| {
                keys.next().map(|key| inner.state.add(shared.hasher.hash(&key), key, now))
            });
            let Ok(added) = added else { continue };
            let Some((added, key)) = added else { break };
            unused.extend(key);
            if added == Added::Queued {
                notices.extend(inner.notify());
            }
        }
        drop(inner);
        Wakeups(Some(Box::new(move || {
            notices.into_iter().for_each(|notice| shared.shell.wake(Some(notice)));
            drop(unused);
        })))
    }

    fn take_remaining(&self) -> Remains<Q::Key> {
        let Shared { shell, clock, .. } = &**self.shared();
        let now = clock.now();
        let mut inner = shell.lock();
        let (remains, dropped) = inner.state.take_remaining(now);
        // Under the same lock: otherwise a key that a guard requeues in between would be lost.
        let notices = inner.shut_down(StopMode::Now);
        drop(inner);
        drop(dropped);
        wake_all(notices);
        remains
    }
}

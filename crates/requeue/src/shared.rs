//! What the queues of this crate have in common: rules behind a lock, a hasher, a clock and a
//! name. The queues are handles to it.

use crate::clock::{Clock, Fire, Moment, Registration};
use crate::keys::Hasher;
use crate::metrics::{Name, QueueMetrics, Report};
use crate::shell::{Rules, Shell};
use crate::snapshot::{Cancelled, KeyStatus, Snapshot};
use crate::timers::TimedRules;
use crate::waiters::Notice;
use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::{Arc, OnceLock, Weak};
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

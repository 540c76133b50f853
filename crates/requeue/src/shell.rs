//! The lock around a queue's rules, and its waiters.
//!
//! [`Rules`] decide what happens. The shell wakes the waiters concerned after the lock is
//! released.

use crate::clock::{Moment, Stopwatch};
use crate::ending::{Ending, Load, Stop};
use crate::guarded::guarded;
use crate::metrics::QueueMetrics;
use crate::snapshot::{Added, Cancelled, KeyStatus, Remains, Snapshot};
use crate::sync::{Mutex, MutexGuard};
use crate::waiters::{Notice, Waiter, WaiterKind, Waiters};
use crate::work_queue::{Key, StopMode, Taken};
use std::borrow::Borrow;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Poll, Waker};

/// What a queue reports about its keys.
pub(crate) trait View {
    type Key: Key;

    fn status<B>(&self, hash: u32, key: &B, now: Moment) -> KeyStatus
    where
        Self::Key: Borrow<B>,
        B: ?Sized + Hash + Eq;

    fn snapshot(&self, now: Moment, stamp: Moment) -> Snapshot<Self::Key>;

    /// Returns `None` if the queue has no name.
    fn metrics(&self, stamp: Moment) -> Option<QueueMetrics>;
}

/// The rules of a queue, without lock, clock or waiters.
pub(crate) trait Rules: View + Send + 'static {
    fn load(&self) -> Load;

    fn ending(&self) -> &Ending;

    fn ending_mut(&mut self) -> &mut Ending;

    /// Returns the number of keys that `len` of the queue reports.
    fn len(&self) -> usize {
        self.load().ready
    }

    /// Adds a key, without priority or delay. If the key was not needed, returns it, to be
    /// dropped once the lock is released. `stamp` is the time for metrics and ageing.
    fn add(&mut self, hash: u32, key: Self::Key, stamp: Moment) -> (Added, Option<Self::Key>);

    /// Hands out the next key.
    fn take(&mut self, stamp: Moment) -> Option<Taken<Self::Key>>;

    /// Ends the hold that `token` identifies, if there is one.
    fn finish(&mut self, token: u64, stamp: Moment) -> Finished<Self::Key>;

    /// Ends a hold as if the key had been added just before. A drain keeps the key; otherwise it
    /// stays with the caller.
    fn finish_and_add(
        &mut self,
        token: u64,
        key: &mut Option<Self::Key>,
        stamp: Moment,
    ) -> Finished<Self::Key>;

    /// Called before the queue stops. Returns the keys that no longer wait, to be dropped once
    /// the lock is released. Keys that a drain will return stay.
    fn stop_waiting(&mut self, _: StopMode) -> Vec<Self::Key> {
        Vec::new()
    }

    /// Removes and returns the keys that are left at the end of a drain. Held keys stay, but do
    /// not run again. If cloning a key panics, nothing has changed. Also returns keys to be
    /// dropped once the lock is released.
    fn take_remaining(&mut self, now: Moment) -> (Remains<Self::Key>, Vec<Self::Key>);

    /// Forgets failures that are too old or too many. Appends removed keys to `dropped`.
    #[inline(always)]
    fn forget_stale(&mut self, _now: Moment, _dropped: &mut Vec<Self::Key>) {}

    /// Removes a key that waits or is ready. A held key no longer runs again.
    fn cancel<B>(&mut self, hash: u32, key: &B) -> (Cancelled, Option<Self::Key>)
    where
        Self::Key: Borrow<B>,
        B: ?Sized + Hash + Eq;
}

/// How a hold ended.
pub(crate) struct Finished<K> {
    /// The result of the holder's request to run the key again.
    pub(crate) added: Added,
    /// The key is ready again.
    pub(crate) came_back: bool,
    /// To be dropped once the lock is released.
    pub(crate) key: Option<K>,
}

#[cfg(test)]
thread_local! {
    /// How often this thread locked a queue. Tests count it.
    pub(crate) static LOCKS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

pub(crate) struct Shell<S> {
    inner: Mutex<Inner<S>>,
    /// Present if the queue records times. Other queues read no clock for them.
    stopwatch: Option<Stopwatch>,
}

pub(crate) struct Inner<S> {
    pub(crate) state: S,
    pub(crate) getters: Waiters,
    /// Waiters for the moment when no key is held.
    drains: Waiters,
    /// Waiters for the moment when no key is ready or held.
    work_offs: Waiters,
}

impl<S: Rules> Inner<S> {
    /// Returns the getter to wake because a key is ready.
    pub(crate) fn notify(&mut self) -> Option<Notice> {
        let ready = self.state.load().ready;
        self.getters.notify(ready)
    }

    /// Returns the waiters to wake because the queue stops.
    pub(crate) fn shut_down(&mut self, mode: StopMode) -> Vec<Notice> {
        let load = self.state.load();
        self.state.ending_mut().shut_down(mode, load);
        self.settle()
    }

    /// Returns the waiters to wake after a key left a queue that is shut down or draining.
    fn settle(&mut self) -> Vec<Notice> {
        let load = self.state.load();
        self.state.ending_mut().settle(load);
        let ending = self.state.ending();
        let mut notices = Vec::new();
        if ending.is_drained(StopMode::WithDrain, load) {
            notices.append(&mut self.drains.notify_all());
        }
        if ending.is_drained(StopMode::WorkOff, load) {
            notices.append(&mut self.work_offs.notify_all());
        }
        if ending.stop() == Stop::Down {
            notices.append(&mut self.getters.notify_all());
        }
        notices
    }

    fn waiters(&mut self, mode: StopMode) -> &mut Waiters {
        match mode {
            StopMode::Now | StopMode::WithDrain => &mut self.drains,
            StopMode::WorkOff => &mut self.work_offs,
        }
    }
}

/// Wakes. Returns `false` if the waker panicked. The panic hook has reported the panic; it does
/// not concern the caller of `add` or `done`.
fn wake(waker: Waker) -> bool {
    guarded(|| waker.wake()).is_ok()
}

pub(crate) fn wake_all(notices: Vec<Notice>) {
    for notice in notices {
        wake(notice.waker);
    }
}

impl<S> Shell<S> {
    pub(crate) fn new(state: S, stopwatch: Option<Stopwatch>) -> Self {
        let inner = Inner {
            state,
            getters: Waiters::new(WaiterKind::Getters),
            drains: Waiters::new(WaiterKind::Drains),
            work_offs: Waiters::new(WaiterKind::WorkOffs),
        };
        Shell { inner: Mutex::new(inner), stopwatch }
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner<S>> {
        #[cfg(test)]
        LOCKS.set(LOCKS.get() + 1);
        self.inner.lock()
    }

    /// Returns the time if the queue records times, otherwise the default.
    #[inline(always)]
    pub(crate) fn now(&self) -> Moment {
        self.stopwatch.as_ref().map_or(Moment::default(), Stopwatch::now)
    }
}

impl<S: Rules> Shell<S> {
    /// Wakes a getter. If its waker panics, wakes the next one instead.
    #[inline]
    pub(crate) fn wake(&self, notice: Option<Notice>) {
        if let Some(notice) = notice {
            self.wake_getter(notice);
        }
    }

    #[cold]
    fn wake_getter(&self, notice: Notice) {
        let mut next = Some(notice);
        while let Some(Notice { id, waker }) = next.take() {
            if wake(waker) {
                return;
            }
            let mut inner = self.lock();
            let waker = inner.getters.leave_id(id);
            next = inner.notify();
            drop(inner);
            drop(waker);
        }
    }

    /// Releases the lock and wakes a getter if enough keys are ready.
    #[cold]
    pub(crate) fn unlock_and_wake(&self, mut inner: MutexGuard<'_, Inner<S>>) {
        let notice = inner.notify();
        self.settle(inner);
        self.wake(notice);
    }

    /// Releases the lock after a key may have left the queue.
    #[inline]
    pub(crate) fn settle(&self, inner: MutexGuard<'_, Inner<S>>) {
        if !inner.state.ending().is_open() {
            self.settle_stopped(inner);
        }
    }

    /// Wakes the waiters for the end of the queue.
    #[cold]
    fn settle_stopped(&self, mut inner: MutexGuard<'_, Inner<S>>) {
        let notices = inner.settle();
        drop(inner);
        wake_all(notices);
    }

    #[inline(always)]
    pub(crate) fn done(&self, token: u64) {
        let now = self.now();
        let mut inner = self.lock();
        let finished = inner.state.finish(token, now);
        self.finished(inner, finished);
    }

    /// Releases the lock after a hold ended.
    #[inline(always)]
    pub(crate) fn finished(
        &self,
        inner: MutexGuard<'_, Inner<S>>,
        finished: Finished<S::Key>,
    ) -> Added {
        let Finished { added, came_back, key } = finished;
        if came_back && inner.getters.any_waiting() {
            self.unlock_and_wake(inner);
        } else {
            self.settle(inner);
        }
        drop(key);
        added
    }

    #[inline]
    pub(crate) fn poll_take(
        &self,
        waiter: &mut Waiter,
        waker: Option<&Waker>,
    ) -> Poll<Option<Taken<S::Key>>> {
        let now = self.now();
        let mut inner = self.lock();
        let Some(taken) = inner.state.take(now) else {
            return self.poll_nothing(inner, waiter, waker);
        };
        let result = Poll::Ready(Some(taken));
        if waiter.id() != 0 || inner.getters.any_waiting() {
            self.leave_with_key(inner, waiter);
        }
        result
    }

    /// Releases the lock after `waiter` got a key.
    #[cold]
    fn leave_with_key(&self, mut inner: MutexGuard<'_, Inner<S>>, waiter: &mut Waiter) {
        let waker = inner.getters.leave(waiter);
        self.unlock_and_wake(inner);
        drop(waker);
    }

    /// No key is ready: registers the waiter, or removes it if the queue is shut down.
    #[cold]
    fn poll_nothing(
        &self,
        mut inner: MutexGuard<'_, Inner<S>>,
        waiter: &mut Waiter,
        waker: Option<&Waker>,
    ) -> Poll<Option<Taken<S::Key>>> {
        let down = inner.state.ending().stop() == Stop::Down;
        let old = match waker {
            _ if down => inner.getters.leave(waiter),
            Some(waker) => inner.getters.register(waiter, waker),
            None => None,
        };
        drop(inner);
        drop(old);
        if down { Poll::Ready(None) } else { Poll::Pending }
    }

    pub(crate) fn leave(&self, waiter: &mut Waiter) {
        let mut inner = self.lock();
        let Inner { getters, drains, work_offs, .. } = &mut *inner;
        let old = [drains, work_offs, getters].map(|line| line.leave(waiter));
        let notice = inner.notify();
        drop(inner);
        drop(old);
        self.wake(notice);
    }

    pub(crate) fn poll_drained(
        &self,
        mode: StopMode,
        waiter: &mut Waiter,
        waker: &Waker,
    ) -> Poll<()> {
        let mut inner = self.lock();
        let drained = inner.state.ending().is_drained(mode, inner.state.load());
        let waiters = inner.waiters(mode);
        // A notified waiter stays notified: a key handed out since then does not prolong its
        // wait.
        let (old, result) = if drained || waiters.is_notified(waiter) {
            (waiters.leave(waiter), Poll::Ready(()))
        } else {
            (waiters.register(waiter, waker), Poll::Pending)
        };
        drop(inner);
        drop(old);
        result
    }

    pub(crate) fn take_ready(&self, max: usize, out: &mut Vec<Taken<S::Key>>) {
        let now = self.now();
        let mut inner = self.lock();
        let before = out.len();
        while out.len() - before < max {
            match catch_unwind(AssertUnwindSafe(|| inner.state.take(now))) {
                Ok(Some(taken)) => out.push(taken),
                Ok(None) => break,
                // Keys taken before the panic are not lost. The next caller gets the panic.
                Err(_) if out.len() > before => break,
                Err(panic) => {
                    drop(inner);
                    resume_unwind(panic);
                }
            }
        }
        self.unlock_and_wake(inner);
    }

    #[inline(always)]
    pub(crate) fn take_now<R>(&self, make: impl FnOnce(Taken<S::Key>) -> R) -> Option<R> {
        let now = self.now();
        let mut inner = self.lock();
        let made = make(inner.state.take(now)?);
        if inner.getters.any_waiting() {
            self.unlock_and_wake(inner);
        }
        Some(made)
    }

    #[inline(always)]
    pub(crate) fn next_now<R>(
        &self,
        token: u64,
        make: impl FnOnce(Taken<S::Key>) -> R,
    ) -> Option<R> {
        let now = self.now();
        // Declared before the lock, so that it is dropped after it, also in a panic.
        let done;
        let mut inner = self.lock();
        let Finished { came_back, key, .. } = inner.state.finish(token, now);
        done = key;
        if came_back || !inner.state.ending().is_open() {
            // Behaves like two calls: a drain may end between them, and if taking a key panics
            // here, another getter can take the key that came back.
            self.unlock_and_wake(inner);
            return self.take_now(make);
        }
        let made = inner.state.take(now).map(make);
        if made.is_some() && inner.getters.any_waiting() {
            self.unlock_and_wake(inner);
        } else {
            drop(inner);
        }
        drop(done);
        made
    }

    #[inline(always)]
    pub(crate) fn add(&self, hash: u32, key: S::Key) -> Added {
        let now = self.now();
        let mut inner = self.lock();
        let (added, unused) = inner.state.add(hash, key, now);
        if added == Added::Queued && inner.getters.any_waiting() {
            self.unlock_and_wake(inner);
        } else {
            drop(inner);
        }
        drop(unused);
        added
    }

    #[inline]
    pub(crate) fn requeue(&self, taken: Taken<S::Key>) -> Added {
        let Taken { key, token, .. } = taken;
        let mut key = Some(key); // dropped after the lock
        let now = self.now();
        let mut inner = self.lock();
        let finished = inner.state.finish_and_add(token, &mut key, now);
        self.finished(inner, finished)
    }
}

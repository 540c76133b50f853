//! The lock around a queue's rules, and those who wait.
//!
//! [`Rules`] decide; the shell wakes whom it concerns, after the lock is released.

use crate::clock::{Moment, Stopwatch};
use crate::ending::{Ending, Load, Stop};
use crate::guarded::guarded;
use crate::snapshot::Added;
use crate::sync::{Mutex, MutexGuard};
use crate::waiters::{Notice, Waiter, WaiterKind, Waiters};
use crate::work_queue::{Key, StopMode, Taken};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Poll, Waker};

/// What a queue does with its keys, without lock, clock or waiters.
pub(crate) trait Rules: Send + 'static {
    type Key: Key;

    fn load(&self) -> Load;

    fn ending(&self) -> &Ending;

    fn ending_mut(&mut self) -> &mut Ending;

    /// Hands out the next key.
    fn take(&mut self, now: Moment) -> Option<Taken<Self::Key>>;

    /// Ends the hold that `token` stands for, if it stands for one.
    fn finish(&mut self, token: u64, now: Moment) -> Finished<Self::Key>;
}

/// How a hold ended.
pub(crate) struct Finished<K> {
    /// What became of the holder's wish to see the key again.
    pub(crate) added: Added,
    /// The key can be handed out once more.
    pub(crate) came_back: bool,
    /// To be dropped once the lock is released.
    pub(crate) key: Option<K>,
}

pub(crate) struct Shell<S> {
    inner: Mutex<Inner<S>>,
    /// Of a queue that notes times. No other reads a clock for them.
    stopwatch: Option<Stopwatch>,
}

pub(crate) struct Inner<S> {
    pub(crate) state: S,
    pub(crate) getters: Waiters,
    /// Those who wait until no key is held.
    drains: Waiters,
    /// Those who wait until nothing is ready or held.
    work_offs: Waiters,
}

impl<S: Rules> Inner<S> {
    /// Whom to tell that a key can be handed out.
    pub(crate) fn notify(&mut self) -> Option<Notice> {
        let ready = self.state.load().ready;
        self.getters.notify(ready)
    }

    /// Whom to tell that the queue stops.
    pub(crate) fn shut_down(&mut self, mode: StopMode) -> Vec<Notice> {
        let load = self.state.load();
        self.state.ending_mut().shut_down(mode, load);
        self.settle()
    }

    /// Whom to tell that something left a queue which is shut down or being
    /// worked off.
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

/// Wakes, and answers whether the waker kept from panicking. The panic hook has
/// reported it by then; the caller of `add` or `done` has nothing to do with it.
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
        self.inner.lock()
    }

    /// Whether the queue notes times.
    pub(crate) fn keeps_time(&self) -> bool {
        self.stopwatch.is_some()
    }

    /// The time, if anybody wants to know.
    #[inline(always)]
    pub(crate) fn now(&self) -> Moment {
        self.stopwatch.as_ref().map_or(Moment::default(), Stopwatch::now)
    }
}

impl<S: Rules> Shell<S> {
    /// Wakes a getter. Should its waker panic, the wake-up goes to the next one.
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

    /// Lets go of the lock, and wakes a getter if what is ready calls for one.
    #[cold]
    pub(crate) fn pass_on(&self, mut inner: MutexGuard<'_, Inner<S>>) {
        let notice = inner.notify();
        self.settle(inner);
        self.wake(notice);
    }

    /// Lets go of the lock after something may have left the queue.
    #[inline]
    pub(crate) fn settle(&self, inner: MutexGuard<'_, Inner<S>>) {
        if !inner.state.ending().is_open() {
            self.settle_stopped(inner);
        }
    }

    /// Tells those who wait for the queue to end.
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

    /// Lets go of the lock after a hold ended.
    #[inline(always)]
    pub(crate) fn finished(
        &self,
        inner: MutexGuard<'_, Inner<S>>,
        finished: Finished<S::Key>,
    ) -> Added {
        let Finished { added, came_back, key } = finished;
        if came_back && inner.getters.any_waiting() {
            self.pass_on(inner);
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
        let answer = Poll::Ready(Some(taken));
        if waiter.id() != 0 || inner.getters.any_waiting() {
            self.leave_with_key(inner, waiter);
        }
        answer
    }

    /// Lets go of the lock after `waiter` got what it came for.
    #[cold]
    fn leave_with_key(&self, mut inner: MutexGuard<'_, Inner<S>>, waiter: &mut Waiter) {
        let waker = inner.getters.leave(waiter);
        self.pass_on(inner);
        drop(waker);
    }

    /// Nothing is ready: stands in line, or leaves if the queue is shut down.
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
        // Once told, it stays told: a key handed out since does not prolong the wait.
        let (old, answer) = if drained || waiters.is_notified(waiter) {
            (waiters.leave(waiter), Poll::Ready(()))
        } else {
            (waiters.register(waiter, waker), Poll::Pending)
        };
        drop(inner);
        drop(old);
        answer
    }

    pub(crate) fn take_ready(&self, max: usize, out: &mut Vec<Taken<S::Key>>) {
        let now = self.now();
        let mut inner = self.lock();
        let before = out.len();
        while out.len() - before < max {
            match catch_unwind(AssertUnwindSafe(|| inner.state.take(now))) {
                Ok(Some(taken)) => out.push(taken),
                Ok(None) => break,
                // What was taken before is not to be lost; who comes next meets the panic.
                Err(_) if out.len() > before => break,
                Err(panic) => {
                    drop(inner);
                    resume_unwind(panic);
                }
            }
        }
        self.pass_on(inner);
    }

    #[inline(always)]
    pub(crate) fn take_now<R>(&self, make: impl FnOnce(Taken<S::Key>) -> R) -> Option<R> {
        let now = self.now();
        let mut inner = self.lock();
        let made = make(inner.state.take(now)?);
        if inner.getters.any_waiting() {
            self.pass_on(inner);
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
        // Before the lock, so that it is dropped after it, also in a panic.
        let done;
        let mut inner = self.lock();
        let Finished { came_back, key, .. } = inner.state.finish(token, now);
        done = key;
        if came_back || !inner.state.ending().is_open() {
            // As if they were two calls: a drain may end between them, and what came
            // back may be for another, should taking it panic here.
            self.pass_on(inner);
            return self.take_now(make);
        }
        let made = inner.state.take(now).map(make);
        if made.is_some() && inner.getters.any_waiting() {
            self.pass_on(inner);
        } else {
            drop(inner);
        }
        drop(done);
        made
    }
}

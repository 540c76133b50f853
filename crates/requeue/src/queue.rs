//! A key is held by at most one worker at a time.
//!
//! ```text
//!           add            get                done
//!   absent ------> ready ------> held -------------------> absent
//!                    ^            | add
//!                    |   done     v
//!                    +------ held, to run again
//! ```
//!
//! [`State`] has the rules. This file has the lock around it and those who wait;
//! it wakes them after the lock is released.

#[cfg(all(test, not(requeue_loom)))]
mod model;
mod state;

use crate::clock::{Clock, Moment, Stopwatch};
use crate::get::{Drain, Get, GetMany, ShutDownWithDrain, TryGetError, try_get};
use crate::held::Held;
use crate::keys::Hasher;
use crate::metrics::{Name, QueueMetrics, Recorder, Report};
use crate::options::Options;
use crate::order::{Order, Ready};
use crate::snapshot::{Added, Cancelled, KeyStatus, Remains, Snapshot};
use crate::sync::{Mutex, MutexGuard};
use crate::waiters::{Line, Notice, Waiter, Waiters};
use crate::work_queue::{Key, StopMode, Taken, Wakeups, WorkQueue};
use state::{Finished, State};
use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

/// A queue that deduplicates and never hands a key to two workers at once.
///
/// A key that is added while it is ready is not added twice; one that is added
/// while a worker holds it runs once more afterwards. First in, first out.
///
/// This is a handle: clones share one queue. It lives as long as a handle or an
/// owned guard does; dropping the last handle is not a shutdown, since whoever
/// waits in `get` has a handle too.
///
/// ```
/// use requeue::Queue;
///
/// let queue = Queue::new();
/// queue.add("a");
/// queue.add("a"); // ready already
/// let held = queue.try_get()?;
/// queue.add("a"); // held: to run once more
/// assert!(queue.try_get().is_err()); // nobody else gets it meanwhile
/// held.done();
/// assert_eq!(*queue.try_get()?.key(), "a");
/// # Ok::<(), requeue::TryGetError>(())
/// ```
pub struct Queue<K: Key> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    inner: Mutex<Inner<K>>,
    hasher: Hasher,
    clock: Clock,
    /// Of a queue that notes times. No other reads a clock.
    stopwatch: Option<Stopwatch>,
    name: Option<Name>,
}

struct Inner<K> {
    state: State<K>,
    getters: Waiters,
    /// Those who wait until no key is held.
    drains: Waiters,
    /// Those who wait until nothing is ready or held.
    work_offs: Waiters,
}

impl<K: 'static> Inner<K> {
    /// Whom to tell that something left a queue which is shut down or being
    /// worked off.
    fn settle(&mut self) -> Vec<Notice> {
        let mut notices = Vec::new();
        self.state.end_work_off();
        if self.state.is_drained(StopMode::WithDrain) {
            notices.append(&mut self.drains.notify_all());
        }
        if self.state.is_drained(StopMode::WorkOff) {
            notices.append(&mut self.work_offs.notify_all());
        }
        if self.state.is_down() {
            notices.append(&mut self.getters.notify_all());
        }
        notices
    }

    /// Whom to tell that the queue stops.
    fn shut_down(&mut self, mode: StopMode) -> Vec<Notice> {
        self.state.shut_down(mode);
        self.settle()
    }

    fn waiters(&mut self, mode: StopMode) -> &mut Waiters {
        match mode {
            StopMode::Now | StopMode::WithDrain => &mut self.drains,
            StopMode::WorkOff => &mut self.work_offs,
        }
    }
}

impl<K: 'static> Shared<K> {
    /// Wakes a getter. Should its waker panic, the wake-up goes to the next one.
    #[inline]
    fn wake(&self, notice: Option<Notice>) {
        if let Some(notice) = notice {
            self.wake_getter(notice);
        }
    }

    #[cold]
    fn wake_getter(&self, notice: Notice) {
        let mut next = Some(notice);
        while let Some(Notice { place, waker }) = next.take() {
            if wake(waker) {
                return;
            }
            let mut inner = self.inner.lock();
            let waker = inner.getters.leave_place(place);
            let ready = inner.state.ready();
            next = inner.getters.notify(ready);
            drop(inner);
            drop(waker);
        }
    }

    /// The time, if anybody wants to know.
    #[inline(always)]
    fn now(&self) -> Moment {
        self.stopwatch.as_ref().map_or(Moment::default(), Stopwatch::now)
    }

    #[inline(always)]
    fn done(&self, token: u64, again: bool) -> Added {
        let now = self.now();
        let mut inner = self.inner.lock();
        let Finished { added, came_back, key } = inner.state.finish(token, again, now);
        if came_back && inner.getters.anyone() {
            self.pass_on(inner);
        } else {
            self.settle(inner);
        }
        drop(key);
        added
    }

    /// Lets go of the lock, and wakes a getter if what is ready calls for one.
    #[cold]
    fn pass_on(&self, mut inner: MutexGuard<'_, Inner<K>>) {
        let ready = inner.state.ready();
        let notice = inner.getters.notify(ready);
        self.settle(inner);
        self.wake(notice);
    }

    /// Lets go of the lock after something may have left the queue.
    #[inline]
    fn settle(&self, inner: MutexGuard<'_, Inner<K>>) {
        if !inner.state.is_open() {
            settle_stopped(inner);
        }
    }
}

/// Wakes, and answers whether the waker kept from panicking. The panic hook has
/// reported it by then; the caller of `add` or `done` has nothing to do with it.
fn wake(waker: Waker) -> bool {
    catch_unwind(AssertUnwindSafe(|| waker.wake())).is_ok()
}

/// Tells those who wait for a queue to end.
#[cold]
fn settle_stopped<K: 'static>(mut inner: MutexGuard<'_, Inner<K>>) {
    let notices = inner.settle();
    drop(inner);
    wake_all(notices);
}

fn wake_all(notices: Vec<Notice>) {
    for notice in notices {
        wake(notice.waker);
    }
}

impl<K: Key> Shared<K> {
    #[inline(always)]
    fn add(&self, hash: u32, key: K) -> Added {
        let now = self.now();
        let mut inner = self.inner.lock();
        let (added, unused) = inner.state.add(hash, key, now);
        if added == Added::Queued && inner.getters.anyone() {
            self.pass_on(inner);
        } else {
            drop(inner);
        }
        drop(unused);
        added
    }

    /// Lets go of the lock after `waiter` got what it came for.
    #[cold]
    fn leave_with_key(&self, mut inner: MutexGuard<'_, Inner<K>>, waiter: &mut Waiter) {
        let waker = inner.getters.leave(waiter);
        self.pass_on(inner);
        drop(waker);
    }

    /// Nothing is ready: stands in line, or leaves if the queue is shut down.
    #[cold]
    fn poll_nothing(
        &self,
        mut inner: MutexGuard<'_, Inner<K>>,
        waiter: &mut Waiter,
        waker: Option<&Waker>,
    ) -> Poll<Option<Taken<K>>> {
        let down = inner.state.is_down();
        let old = match waker {
            _ if down => inner.getters.leave(waiter),
            Some(waker) => inner.getters.register(waiter, waker),
            None => None,
        };
        drop(inner);
        drop(old);
        if down { Poll::Ready(None) } else { Poll::Pending }
    }
}

impl<K: Key> Queue<K> {
    /// An empty queue, first in first out, on the system clock.
    pub fn new() -> Self {
        Queue::with(Options::new())
    }

    /// An empty queue with these settings.
    pub fn with(options: Options) -> Self {
        Queue::build(Ready::Fifo(VecDeque::new()), options)
    }

    /// An empty queue whose ready keys are handed out in an order of your own.
    pub fn with_order(order: impl Order<K>, options: Options) -> Self {
        Queue::build(Ready::Given(Box::new(order)), options)
    }

    fn build(order: Ready<K>, options: Options) -> Self {
        let Options { clock, name, .. } = options;
        let queue = Queue::assemble(order, clock, name.is_some(), name);
        if let Some(name) = &queue.shared.name {
            let shared: Weak<Shared<K>> = Arc::downgrade(&queue.shared);
            name.reporter(shared);
        }
        queue
    }

    /// For a layer above, which does the reporting.
    pub(crate) fn beneath(clock: Clock, records: bool) -> Self {
        Queue::assemble(Ready::Fifo(VecDeque::new()), clock, records, None)
    }

    fn assemble(order: Ready<K>, clock: Clock, records: bool, name: Option<Name>) -> Self {
        let inner = Inner {
            state: State::new(order, records.then(Box::<Recorder>::default)),
            getters: Waiters::new(Line::Getters),
            drains: Waiters::new(Line::Drains),
            work_offs: Waiters::new(Line::WorkOffs),
        };
        let hasher = Hasher::default();
        let stopwatch = records.then(|| clock.stopwatch());
        let shared = Shared { inner: Mutex::new(inner), hasher, clock, stopwatch, name };
        Queue { shared: Arc::new(shared) }
    }

    /// Adds `key`, and wakes a getter if there is need.
    ///
    /// After a shutdown, and while draining, the answer is [`Added::Refused`].
    #[inline(always)]
    pub fn add(&self, key: K) -> Added {
        let hash = self.shared.hasher.hash(&key);
        self.shared.add(hash, key)
    }

    /// Waits for a key: `.await` it, or `.wait()` on a thread. `None`: shut down.
    ///
    /// See [`Get`] for timeouts and cancellation. After a shutdown, what is still
    /// ready is handed out.
    #[inline(always)]
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

    /// How many keys are ready. Held keys do not count, nor their re-runs.
    pub fn len(&self) -> usize {
        self.shared.inner.lock().state.ready()
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes `key` if it is ready; if it is held, it will not run again after its holder.
    pub fn cancel<B>(&self, key: &B) -> Cancelled
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let hash = self.shared.hasher.hash(key);
        let mut inner = self.shared.inner.lock();
        let (cancelled, key) = inner.state.cancel(hash, key);
        self.shared.settle(inner);
        drop(key);
        cancelled
    }

    /// What is known of `key`.
    pub fn status<B>(&self, key: &B) -> KeyStatus
    where
        K: Borrow<B>,
        B: ?Sized + Hash + Eq,
    {
        let hash = self.shared.hasher.hash(key);
        self.shared.inner.lock().state.status(hash, key)
    }

    /// All keys at one instant. Clones every key under the lock: for people and
    /// tests, not for a loop.
    pub fn snapshot(&self) -> Snapshot<K> {
        let now = self.shared.now();
        self.shared.inner.lock().state.snapshot(now)
    }

    /// What the queue reports. `None`: it has no name.
    pub fn metrics(&self) -> Option<QueueMetrics> {
        self.shared.stopwatch.is_some().then(|| self.shared.report())
    }

    /// Refuses adds from now on, and tells waiting getters and drains. What is
    /// ready is still handed out. Calling it again does no harm.
    pub fn shut_down(&self) {
        WorkQueue::shut_down(self, StopMode::Now);
    }

    /// client-go's drain: shuts down now, and waits until no key is held.
    ///
    /// It does not wait for keys that are ready; for that see [`drain`](Self::drain).
    /// A [`shut_down`](Self::shut_down) ends the wait.
    pub fn shut_down_with_drain(&self) -> ShutDownWithDrain<'_, Self> {
        ShutDownWithDrain::new(self)
    }

    /// Whether adds are refused: the queue is shut down or draining.
    pub fn shutting_down(&self) -> bool {
        !self.shared.inner.lock().state.is_open()
    }

    /// Refuses adds from now on, and waits until all that is ready or held is
    /// worked off, or `limit` has passed; then shuts down and answers what was left.
    ///
    /// A key that was added while it was held still runs again. One that its guard
    /// [`requeue`](Held::requeue)s does not: it is kept for the answer.
    ///
    /// The answer panics where it is awaited if the limit needs the process's timer
    /// thread and the system refuses to start it.
    ///
    /// ```
    /// use requeue::Queue;
    /// use std::time::Duration;
    ///
    /// let queue = Queue::new();
    /// queue.add("a");
    /// let drain = queue.drain(Duration::from_secs(20));
    /// let held = queue.get().wait().expect("what was ready is worked off");
    /// held.requeue();
    /// assert_eq!(drain.wait().ready, ["a"]);
    /// ```
    pub fn drain(&self, limit: Duration) -> Drain<'_, Self> {
        Drain::new(self, &self.shared.clock, limit)
    }

    pub(crate) fn hasher(&self) -> Hasher {
        self.shared.hasher.clone()
    }

    /// As [`WorkQueue::add_due`], with the hashes that this queue's hasher gave.
    pub(crate) fn add_due_hashed(&self, mut keys: impl Iterator<Item = (u32, K)>) -> Wakeups {
        let (mut unused, mut notices) = (Vec::new(), Vec::new());
        let now = self.shared.now();
        let mut inner = self.shared.inner.lock();
        let Inner { state, getters, .. } = &mut *inner;
        loop {
            // A key whose `Eq` or `Clone` panics is lost; those that fell due with it are not.
            let added = catch_unwind(AssertUnwindSafe(|| {
                keys.next().map(|(hash, key)| state.add(hash, key, now))
            }));
            let Ok(added) = added else { continue };
            let Some((added, key)) = added else { break };
            unused.extend(key);
            if added == Added::Queued {
                notices.extend(getters.notify(state.ready()));
            }
        }
        drop(inner);
        if notices.is_empty() && unused.is_empty() {
            return Wakeups::default();
        }
        let shared = Arc::clone(&self.shared);
        Wakeups(Some(Box::new(move || {
            notices.into_iter().for_each(|notice| shared.wake_getter(notice));
            drop(unused);
        })))
    }
}

impl<K: Key> WorkQueue for Queue<K> {
    type Key = K;

    fn add(&self, key: K) -> Added {
        Queue::add(self, key)
    }

    #[inline]
    fn poll_take(&self, waiter: &mut Waiter, waker: Option<&Waker>) -> Poll<Option<Taken<K>>> {
        let now = self.shared.now();
        let mut inner = self.shared.inner.lock();
        let Some(taken) = inner.state.take(now) else {
            return self.shared.poll_nothing(inner, waiter, waker);
        };
        let answer = Poll::Ready(Some(taken));
        if waiter.place() != 0 || inner.getters.anyone() {
            self.shared.leave_with_key(inner, waiter);
        }
        answer
    }

    fn leave(&self, waiter: &mut Waiter) {
        let mut inner = self.shared.inner.lock();
        let Inner { state, getters, drains, work_offs } = &mut *inner;
        let old = [drains, work_offs, &mut *getters].map(|line| line.leave(waiter));
        let notice = getters.notify(state.ready());
        drop(inner);
        drop(old);
        self.shared.wake(notice);
    }

    #[inline(always)]
    fn done(&self, token: u64) {
        self.shared.done(token, false);
    }

    fn len(&self) -> usize {
        Queue::len(self)
    }

    fn shut_down(&self, mode: StopMode) {
        let mut inner = self.shared.inner.lock();
        let notices = inner.shut_down(mode);
        drop(inner);
        wake_all(notices);
    }

    fn poll_drained(&self, mode: StopMode, waiter: &mut Waiter, waker: &Waker) -> Poll<()> {
        let mut inner = self.shared.inner.lock();
        let drained = inner.state.is_drained(mode);
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

    fn shutting_down(&self) -> bool {
        Queue::shutting_down(self)
    }

    #[inline]
    fn requeue(&self, taken: Taken<K>) -> Added {
        self.shared.done(taken.token, true)
    }

    fn take_ready(&self, max: usize, out: &mut Vec<Taken<K>>) {
        let now = self.shared.now();
        let mut inner = self.shared.inner.lock();
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
        self.shared.pass_on(inner);
    }

    #[inline(always)]
    fn take_now<R>(&self, make: impl FnOnce(Taken<K>) -> R) -> Option<R> {
        let now = self.shared.now();
        let mut inner = self.shared.inner.lock();
        let made = make(inner.state.take(now)?);
        if inner.getters.anyone() {
            self.shared.pass_on(inner);
        }
        Some(made)
    }

    #[inline(always)]
    fn next_now<R>(&self, token: u64, make: impl FnOnce(Taken<K>) -> R) -> Option<R> {
        let now = self.shared.now();
        // Before the lock, so that it is dropped after it, also in a panic.
        let done;
        let mut inner = self.shared.inner.lock();
        let Finished { came_back, key, .. } = inner.state.finish(token, false, now);
        done = key;
        if came_back || !inner.state.is_open() {
            // As if they were two calls: a drain may end between them, and what came
            // back may be for another, should taking it panic here.
            self.shared.pass_on(inner);
            return self.take_now(make);
        }
        let made = inner.state.take(now).map(make);
        if made.is_some() && inner.getters.anyone() {
            self.shared.pass_on(inner);
        } else {
            drop(inner);
        }
        drop(done);
        made
    }

    fn add_due(&self, keys: &mut dyn Iterator<Item = K>) -> Wakeups {
        let hasher = &self.shared.hasher;
        self.add_due_hashed(keys.map(|key| (hasher.hash(&key), key)))
    }

    fn take_remaining(&self) -> Remains<K> {
        let mut inner = self.shared.inner.lock();
        // Cloned before anything changes: that may panic.
        let (held, mut reruns) = inner.state.held_keys();
        // Under one lock: what a guard requeues in between would be in nobody's hands.
        let notices = inner.shut_down(StopMode::Now);
        let mut ready = inner.state.take_ready();
        drop(inner);
        wake_all(notices);
        ready.append(&mut reruns);
        Remains { ready, waiting: Vec::new(), held }
    }
}

impl<K: Key> Report for Shared<K> {
    fn report(&self) -> QueueMetrics {
        let now = self.now();
        let mut metrics = self.inner.lock().state.metrics(now).unwrap_or_default();
        if let Some(name) = &self.name {
            metrics.name = name.as_str().to_owned();
        }
        metrics
    }
}

impl<K: Key> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Queue { shared: Arc::clone(&self.shared) }
    }
}

impl<K: Key> Default for Queue<K> {
    fn default() -> Self {
        Queue::new()
    }
}

impl<K: Key> fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shutting_down = self.shutting_down();
        f.debug_struct("Queue")
            .field("len", &self.len())
            .field("shutting_down", &shutting_down)
            .finish_non_exhaustive()
    }
}

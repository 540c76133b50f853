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
//! [`State`] has the rules, [`Shell`] the lock around them and those who wait.

#[cfg(all(test, not(requeue_loom)))]
mod model;
mod state;

use crate::clock::Clock;
use crate::get::{Drain, Get, GetMany, ShutDownWithDrain, TryGetError, try_get};
use crate::guarded::guarded;
use crate::held::Held;
use crate::keys::Hasher;
use crate::metrics::{Name, QueueMetrics, Recorder, Report};
use crate::options::Options;
use crate::order::{Order, Ready};
use crate::shell::{Rules, Shell, wake_all};
use crate::snapshot::{Added, Cancelled, KeyStatus, Remains, Snapshot};
use crate::waiters::Waiter;
use crate::work_queue::{Key, StopMode, Taken, Wakeups, WorkQueue};
use state::State;
use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt;
use std::hash::Hash;
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

struct Shared<K: Key> {
    shell: Shell<State<K>>,
    hasher: Hasher,
    clock: Clock,
    name: Option<Name>,
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
        let state = State::new(order, records.then(Box::<Recorder>::default));
        let shell = Shell::new(state, records.then(|| clock.stopwatch()));
        let shared = Shared { shell, hasher: Hasher::default(), clock, name };
        Queue { shared: Arc::new(shared) }
    }

    /// Adds `key`, and wakes a getter if there is need.
    ///
    /// After a shutdown, and while draining, the answer is [`Added::Refused`].
    #[inline(always)]
    pub fn add(&self, key: K) -> Added {
        let Shared { shell, hasher, .. } = &*self.shared;
        let hash = hasher.hash(&key);
        let now = shell.now();
        let mut inner = shell.lock();
        let (added, unused) = inner.state.add(hash, key, now);
        if added == Added::Queued && inner.getters.anyone() {
            shell.pass_on(inner);
        } else {
            drop(inner);
        }
        drop(unused);
        added
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
        self.shared.shell.lock().state.load().ready
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
        let mut inner = self.shared.shell.lock();
        let (cancelled, key) = inner.state.cancel(hash, key);
        self.shared.shell.settle(inner);
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
        self.shared.shell.lock().state.status(hash, key)
    }

    /// All keys at one instant. Clones every key under the lock: for people and
    /// tests, not for a loop.
    pub fn snapshot(&self) -> Snapshot<K> {
        let now = self.shared.shell.now();
        self.shared.shell.lock().state.snapshot(now)
    }

    /// What the queue reports. `None`: it has no name.
    pub fn metrics(&self) -> Option<QueueMetrics> {
        self.shared.shell.keeps_time().then(|| self.shared.report())
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
        !self.shared.shell.lock().state.ending().is_open()
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
        let shell = &self.shared.shell;
        let now = shell.now();
        let mut inner = shell.lock();
        loop {
            // A key whose `Eq` or `Clone` panics is lost; those that fell due with it are not.
            let added = guarded(|| keys.next().map(|(hash, key)| inner.state.add(hash, key, now)));
            let Ok(added) = added else { continue };
            let Some((added, key)) = added else { break };
            unused.extend(key);
            if added == Added::Queued {
                notices.extend(inner.notify());
            }
        }
        drop(inner);
        if notices.is_empty() && unused.is_empty() {
            return Wakeups::default();
        }
        let shared = Arc::clone(&self.shared);
        Wakeups(Some(Box::new(move || {
            notices.into_iter().for_each(|notice| shared.shell.wake(Some(notice)));
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
        self.shared.shell.poll_take(waiter, waker)
    }

    fn leave(&self, waiter: &mut Waiter) {
        self.shared.shell.leave(waiter);
    }

    #[inline(always)]
    fn done(&self, token: u64) {
        self.shared.shell.done(token);
    }

    fn len(&self) -> usize {
        Queue::len(self)
    }

    fn shut_down(&self, mode: StopMode) {
        let notices = self.shared.shell.lock().shut_down(mode);
        wake_all(notices);
    }

    fn poll_drained(&self, mode: StopMode, waiter: &mut Waiter, waker: &Waker) -> Poll<()> {
        self.shared.shell.poll_drained(mode, waiter, waker)
    }

    fn shutting_down(&self) -> bool {
        Queue::shutting_down(self)
    }

    #[inline]
    fn requeue(&self, taken: Taken<K>) -> Added {
        let shell = &self.shared.shell;
        let now = shell.now();
        let mut inner = shell.lock();
        let finished = inner.state.finish_and_add(taken.token, now);
        shell.finished(inner, finished)
    }

    fn take_ready(&self, max: usize, out: &mut Vec<Taken<K>>) {
        self.shared.shell.take_ready(max, out);
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
        self.add_due_hashed(keys.map(|key| (hasher.hash(&key), key)))
    }

    fn take_remaining(&self) -> Remains<K> {
        let mut inner = self.shared.shell.lock();
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
        let now = self.shell.now();
        let mut metrics = self.shell.lock().state.metrics(now).unwrap_or_default();
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

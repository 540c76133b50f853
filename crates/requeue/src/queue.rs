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
//! [`State`] contains the rules; [`Shell`](crate::shell::Shell) the lock and the waiters.

pub(crate) mod holds;
#[cfg(all(test, not(requeue_loom)))]
pub(crate) mod model;
pub(crate) mod state;
mod view;

use crate::built_in::{BuiltIn, Keyed};
use crate::get::{Drain, Get, GetMany, ShutDownWithDrain, TryGetError, try_get};
use crate::held::Held;
use crate::metrics::{QueueMetrics, Recorder};
use crate::options::Options;
use crate::order::{Order, Ready};
use crate::shared::Shared;
use crate::snapshot::{Added, Cancelled, KeyStatus, Snapshot};
use crate::work_queue::{Key, StopMode, WorkQueue};
use state::State;
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

/// A FIFO queue that stores each key once and never gives a key to two workers.
///
/// If a key is added while it is ready, nothing changes. If a key is added while a worker holds
/// it, it runs once more after that worker is done.
///
/// `Queue` is a handle: clones share one queue. The queue lives as long as a handle or an owned
/// guard exists. Dropping the last handle does not shut the queue down, because every caller
/// that waits in `get` has a handle too.
///
/// ```
/// use requeue::Queue;
///
/// let queue = Queue::new();
/// queue.add("a");
/// queue.add("a"); // already ready: nothing changes
/// let held = queue.try_get()?;
/// queue.add("a"); // held: it runs once more
/// assert!(queue.try_get().is_err()); // no other worker gets it meanwhile
/// held.done();
/// assert_eq!(*queue.try_get()?.key(), "a");
/// # Ok::<(), requeue::TryGetError>(())
/// ```
pub struct Queue<K: Key> {
    shared: Arc<Shared<State<K>>>,
}

impl<K: Key> Keyed for Queue<K> {
    type Key = K;
}

impl<K: Key> BuiltIn for Queue<K> {
    type Rules = State<K>;

    #[inline(always)]
    fn shared(&self) -> &Arc<Shared<State<K>>> {
        &self.shared
    }
}

impl<K: Key> Queue<K> {
    /// Creates an empty FIFO queue on the system clock.
    pub fn new() -> Self {
        Queue::with(Options::new())
    }

    /// Creates an empty FIFO queue with the given options.
    pub fn with(options: Options) -> Self {
        Queue::build(Ready::fifo(), options)
    }

    /// Creates an empty queue that hands out ready keys in the given [`Order`].
    pub fn with_order(order: impl Order<K>, options: Options) -> Self {
        Queue::build(Ready::Given(Box::new(order)), options)
    }

    fn build(order: Ready<K>, options: Options) -> Self {
        let Options { clock, name, .. } = options;
        let state = State::new(order, name.is_some().then(Box::<Recorder>::default));
        Queue { shared: Shared::new(state, clock, name, false) }
    }

    /// Adds `key` and wakes a waiting getter if one is needed.
    ///
    /// Returns [`Added::Refused`] after a shutdown and during a drain.
    #[inline(always)]
    pub fn add(&self, key: K) -> Added {
        let Shared { shell, hasher, .. } = &*self.shared;
        shell.add(hasher.hash(&key), key)
    }

    /// Waits for a key: `.await` it, or call `.wait()` on a thread. Resolves to `None` once the
    /// queue is shut down and no key is ready.
    ///
    /// After a shutdown, keys that are still ready are handed out first. See [`Get`] for
    /// timeouts and cancellation.
    #[inline(always)]
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

    /// Returns the number of ready keys. Held keys do not count, even if they run again.
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Returns `true` if no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes `key` if it is ready. If `key` is held, its holder is not interrupted, but the
    /// key does not run again afterwards.
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
    /// woken. Keys that are ready are still handed out. This method is idempotent.
    pub fn shut_down(&self) {
        self.stop(StopMode::Now);
    }

    /// Shuts the queue down and waits until no key is held, like client-go's
    /// `ShutDownWithDrain`.
    ///
    /// This does not wait for ready keys; [`drain`](Self::drain) does. A
    /// [`shut_down`](Self::shut_down) ends the wait.
    pub fn shut_down_with_drain(&self) -> ShutDownWithDrain<'_, Self> {
        ShutDownWithDrain::new(self)
    }

    /// Returns `true` if adds are refused because the queue is shut down or draining.
    pub fn shutting_down(&self) -> bool {
        self.shared.shutting_down()
    }

    /// Refuses adds from now on and waits until no key is ready or held, or until `limit` has
    /// passed. Then shuts the queue down and returns the keys that were left.
    ///
    /// A key that was added while it was held still runs again. A key whose guard calls
    /// [`requeue`](Held::requeue) does not run again; it is returned with the remaining keys.
    ///
    /// # Panics
    ///
    /// Awaiting the drain panics if `limit` needs the process's timer thread and the operating
    /// system refuses to start it.
    ///
    /// ```
    /// use requeue::Queue;
    /// use std::time::Duration;
    ///
    /// let queue = Queue::new();
    /// queue.add("a");
    /// let drain = queue.drain(Duration::from_secs(20));
    /// let held = queue.get().wait().expect("a ready key is still handed out");
    /// held.requeue();
    /// assert_eq!(drain.wait().ready, ["a"]);
    /// ```
    pub fn drain(&self, limit: Duration) -> Drain<'_, Self> {
        Drain::new(self, &self.shared.clock, limit)
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

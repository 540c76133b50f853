//! The interface between a queue and its layers, guards and getters.

use crate::snapshot::{Added, Remains};
use crate::waiters::Waiter;
use std::hash::Hash;
use std::task::{Poll, Waker};

/// The bounds on a key. Implemented for every type that satisfies them.
///
/// A key must be `Clone`, because a guard owns its key while the queue still compares against
/// it. Use `Arc<str>` if cloning a `String` shows up in a profile. A key need not be `Sync`: a
/// queue never shares a key between threads.
///
/// The queue calls `Hash`, `Eq` and `Clone` of a key under its lock, so they must not use the
/// queue. If one of them panics, the call that needed it panics, and no key is lost.
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<K: Clone + Eq + Hash + Send + 'static> Key for K {}

/// A queue that can be the inner queue of a [`QueueAdapter`](crate::QueueAdapter).
///
/// All queues of this crate implement it. You need not import it to use them: they have inherent
/// methods. Methods that are added to this trait in future versions will have default
/// implementations.
pub trait WorkQueue: Send + Sync + 'static {
    /// The type of the keys.
    type Key: Key;

    /// Adds `key`. The timer calls this under the adapter's lock, so it must neither block nor
    /// call the adapter.
    fn add(&self, key: Self::Key) -> Added;

    /// Takes a ready key. If none is ready, registers `waker` under `waiter`; if `waker` is
    /// `None`, only tries. Returns `Ready(None)` if the queue is shut down. Checking and
    /// registering are one atomic step.
    fn poll_take(
        &self,
        waiter: &mut Waiter,
        waker: Option<&Waker>,
    ) -> Poll<Option<Taken<Self::Key>>>;

    /// Removes a waiter that got no key, or that did not see the drain end. If the waiter was
    /// already woken, the queue must wake another one instead.
    fn leave(&self, waiter: &mut Waiter);

    /// Ends the hold that `token` identifies. The token of each [`Taken`] is passed back
    /// exactly once, here or to [`requeue`](Self::requeue). The queues of this crate ignore a
    /// token that identifies no hold.
    fn done(&self, token: u64);

    /// Returns the number of ready keys.
    fn len(&self) -> usize;

    /// Refuses adds from now on. May be called again, with any mode.
    fn stop(&self, mode: StopMode);

    /// Returns `Ready` once the condition that `mode` waits for holds, or once a later
    /// `stop(StopMode::Now)` has ended the wait.
    fn poll_drained(&self, mode: StopMode, waiter: &mut Waiter, waker: &Waker) -> Poll<()>;

    /// Returns `true` if adds are refused.
    fn shutting_down(&self) -> bool;

    /// Returns `true` if no key is ready.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls [`add`](Self::add), then [`done`](Self::done), for a key that its holder wants to
    /// run again. During a drain ([`StopMode::WorkOff`]), the key is kept for
    /// [`take_remaining`](Self::take_remaining) instead.
    fn requeue(&self, taken: Taken<Self::Key>) -> Added {
        let added = self.add(taken.key);
        self.done(taken.token);
        added
    }

    /// Takes up to `max` ready keys without waiting.
    fn take_ready(&self, max: usize, taken: &mut Vec<Taken<Self::Key>>) {
        let mut waiter = Waiter::for_task();
        for _ in 0..max {
            match self.poll_take(&mut waiter, None) {
                Poll::Ready(Some(key)) => taken.push(key),
                Poll::Ready(None) | Poll::Pending => return,
            }
        }
    }

    /// Takes a ready key without waiting and passes it to `make`, which builds the getter's
    /// result. The queues of this crate call `make` before they unlock: unlocking then waits
    /// for the stores themselves instead of the copies after them. Those copies took a seventh
    /// of the time of an add/get/done cycle.
    #[doc(hidden)]
    fn take_now<R>(&self, make: impl FnOnce(Taken<Self::Key>) -> R) -> Option<R>
    where
        Self: Sized,
    {
        match self.poll_take(&mut Waiter::for_task(), None) {
            Poll::Ready(taken) => taken.map(make),
            Poll::Pending => None,
        }
    }

    /// Calls [`done`](Self::done), then [`take_now`](Self::take_now). The queues of this crate
    /// do both under one lock.
    #[doc(hidden)]
    fn next_now<R>(&self, token: u64, make: impl FnOnce(Taken<Self::Key>) -> R) -> Option<R>
    where
        Self: Sized,
    {
        self.done(token);
        self.take_now(make)
    }

    /// Adds keys that fell due. Returns the waiters to wake: the caller holds a lock that a
    /// woken waiter may need, so it wakes them later.
    fn add_due(&self, keys: &mut dyn Iterator<Item = Self::Key>) -> Wakeups {
        for key in keys {
            self.add(key);
        }
        Wakeups::default()
    }

    /// Ends a drain: shuts down with [`StopMode::Now`] and, in the same step, removes and
    /// returns the remaining keys. Held keys are listed and stay held.
    fn take_remaining(&self) -> Remains<Self::Key> {
        self.stop(StopMode::Now);
        Remains::default()
    }
}

/// How a queue stops, and what the caller waits for.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Stops immediately and ends the waits of running drains.
    Now,
    /// Like client-go's `ShutDownWithDrain`: waits until no key is held, and ignores ready
    /// keys.
    WithDrain,
    /// Waits until no key is ready or held. Until then, `get` keeps waiting for keys, and a key
    /// that its holder requeues is kept instead of run.
    WorkOff,
}

/// A key that a queue hands out, with the token that identifies the hold. In the queues of this
/// crate the token contains the slot and a hold number, so that `done` needs no hash.
#[derive(Debug)]
pub struct Taken<K> {
    pub(crate) key: K,
    pub(crate) token: u64,
    pub(crate) priority: i32,
}

impl<K> Taken<K> {
    /// Creates the value for a [`WorkQueue`] of your own.
    pub fn new(key: K, token: u64) -> Self {
        Taken { key, token, priority: 0 }
    }

    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns the priority with which the key was handed out, or 0 if the queue has no
    /// priorities.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// Returns the token by which the queue identifies the hold.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Returns the key and discards the token. This does not end the hold.
    pub fn into_key(self) -> K {
        self.key
    }
}

/// Tasks and threads to wake after the caller has released its locks.
///
/// Dropping this value wakes them.
#[must_use = "dropping it wakes the waiters: drop it after unlocking"]
#[derive(Default)]
pub struct Wakeups(pub(crate) Option<Box<dyn FnOnce() + Send>>);

impl Drop for Wakeups {
    fn drop(&mut self) {
        if let Some(wake) = self.0.take() {
            wake();
        }
    }
}

impl std::fmt::Debug for Wakeups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Wakeups").field(&self.0.is_some()).finish()
    }
}

//! What the layers above, the guard and the getters need of a queue.

use crate::snapshot::{Added, Remains};
use crate::waiters::Waiter;
use std::hash::Hash;
use std::task::{Poll, Waker};

/// What a key must be: an alias, implemented for everything that qualifies.
///
/// `Clone`, because a guard owns its key while the queue still compares against
/// it; use `Arc<str>` where cloning a `String` shows up in a profile. Not
/// `Sync`: a queue never shares a key between threads.
///
/// `Hash`, `Eq` and `Clone` of a key are called under the queue's lock and must
/// not use the queue. Should one panic, the call that needed it panics, and no key
/// is lost.
pub trait Key: Clone + Eq + Hash + Send + 'static {}

impl<K: Clone + Eq + Hash + Send + 'static> Key for K {}

/// A queue that can be put under a [`DelayingQueue`](crate::DelayingQueue::over).
///
/// To use a queue you need not import it: each has these as methods of its own.
/// New methods will have defaults.
pub trait WorkQueue: Send + Sync + 'static {
    /// What is queued.
    type Key: Key;

    /// Adds `key`. The timer calls this under the delaying layer's lock: it must
    /// neither wait nor call the layer above.
    fn add(&self, key: Self::Key) -> Added;

    /// Takes a ready key, or registers `waker` under `waiter` (`None`: only tries).
    /// `Ready(None)`: shut down. Looking and registering are one step.
    fn poll_take(
        &self,
        waiter: &mut Waiter,
        waker: Option<&Waker>,
    ) -> Poll<Option<Taken<Self::Key>>>;

    /// A waiter goes without a key, or without having seen the drain end; a
    /// wake-up spent on it must reach another.
    fn leave(&self, waiter: &mut Waiter);

    /// Ends the hold that `token` stands for. The token of each [`Taken`] comes back
    /// exactly once, here or through [`requeue`](Self::requeue). Ours ignore one that
    /// stands for no hold.
    fn done(&self, token: u64);

    /// How many keys are ready.
    fn len(&self) -> usize;

    /// Refuses adds from now on. May be called again, in any mode.
    fn shut_down(&self, mode: StopMode);

    /// Ready once what `mode` waits for has come about, or a later
    /// `shut_down(StopMode::Now)` gave up on it.
    fn poll_drained(&self, mode: StopMode, waiter: &mut Waiter, waker: &Waker) -> Poll<()>;

    /// Whether adds are refused.
    fn shutting_down(&self) -> bool;

    /// Whether no key is ready.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// [`add`](Self::add), then [`done`](Self::done), for a key that its holder wants
    /// to see again. While the queue works off what it has
    /// ([`StopMode::WorkOff`]) the key is kept for [`take_remaining`](Self::take_remaining).
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

    /// Takes a ready key without waiting, and makes of it what the getter answers. Ours
    /// do so before they unlock: the lock then waits for the stores, instead of the
    /// copies that follow them. That was a seventh of a cycle's time.
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

    /// [`done`](Self::done), and [`take_now`](Self::take_now), ours under one lock.
    #[doc(hidden)]
    fn next_now<R>(&self, token: u64, make: impl FnOnce(Taken<Self::Key>) -> R) -> Option<R>
    where
        Self: Sized,
    {
        self.done(token);
        self.take_now(make)
    }

    /// Adds keys that fell due, and answers whom to wake: the caller holds a lock
    /// that whoever is woken may want.
    fn add_due(&self, keys: &mut dyn Iterator<Item = Self::Key>) -> Wakeups {
        for key in keys {
            self.add(key);
        }
        Wakeups::default()
    }

    /// Ends a drain: shuts down as [`StopMode::Now`] does and, in the same step, takes
    /// out what is left. What is held is listed, and stays held.
    fn take_remaining(&self) -> Remains<Self::Key> {
        self.shut_down(StopMode::Now);
        Remains::default()
    }
}

/// How a queue stops.
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// At once: drains that wait are let go.
    Now,
    /// client-go's drain: waits until no key is held, whatever is ready.
    WithDrain,
    /// Waits until nothing is ready or held; until then `get` does not answer
    /// "shut down", and what a holder requeues is kept instead of run.
    WorkOff,
}

/// A key on its way out of a queue, with the queue's own token for the hold (ours:
/// slot and hold number, so that `done` needs no hash).
#[derive(Debug)]
pub struct Taken<K> {
    pub(crate) key: K,
    pub(crate) token: u64,
    /// The key's hash by the hasher of the queue that made this, if it is one of ours.
    pub(crate) hash: u32,
    pub(crate) priority: i32,
}

impl<K> Taken<K> {
    /// For queues of your own.
    pub fn new(key: K, token: u64) -> Self {
        Taken { key, token, hash: 0, priority: 0 }
    }

    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The priority with which it was handed out; 0 where there are none.
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// What the queue that made this knows the hold by.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The key, without the hold.
    pub fn into_key(self) -> K {
        self.key
    }
}

/// Tasks and threads to wake, once the caller has let go of its locks.
///
/// Dropping it wakes them.
#[must_use = "dropping it wakes those it names: do so after unlocking"]
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

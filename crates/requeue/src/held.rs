//! The guard that `get` answers.

use crate::delaying::DelayingQueue;
use crate::get::Get;
use crate::priority::PriorityQueue;
use crate::retry::Retry;
use crate::snapshot::{Added, Limited};
use crate::work_queue::{Key, Taken, WorkQueue};
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

/// A key that this worker holds. Dropping it, also in a panic, is `done`.
///
/// While it lives nobody else is handed the key. It borrows its queue, since a
/// handle of its own would cost two atomic operations per key; for a task that
/// outlives the borrow there is [`into_owned`](Self::into_owned).
///
/// What client-go leaves to discipline does not compile here. A key cannot be
/// done twice, or used after it is done:
///
/// ```compile_fail,E0382
/// let queue = requeue::Queue::new();
/// queue.add("a");
/// let held = queue.get().wait().unwrap();
/// held.done();
/// held.done();
/// ```
///
/// Nor can a key that nobody holds be done, nor a guard outlive its queue:
///
/// ```compile_fail,E0505
/// let queue = requeue::Queue::new();
/// queue.add("a");
/// let held = queue.get().wait().unwrap();
/// drop(queue);
/// held.done();
/// ```
#[must_use = "dropping a held key marks it done"]
pub struct Held<'q, Q: WorkQueue> {
    // Dropped in this order: the hold ends before the key goes.
    hold: Hold<'q, Q>,
    key: Q::Key,
}

/// A hold, which ends when this is dropped.
///
/// Apart from the key, so that a guard can be taken apart without moving what it
/// consists of more than once: copies of it were a quarter of a cycle's time.
pub(crate) struct Hold<'q, Q: WorkQueue> {
    /// `None` once ended.
    queue: Option<Handle<'q, Q>>,
    token: u64,
    /// As in [`Taken`].
    hash: u32,
    priority: i32,
}

pub(crate) enum Handle<'q, Q> {
    Borrowed(&'q Q),
    Owned(Q),
}

impl<Q> Deref for Handle<'_, Q> {
    type Target = Q;

    #[inline(always)]
    fn deref(&self) -> &Q {
        match self {
            Handle::Borrowed(queue) => queue,
            Handle::Owned(queue) => queue,
        }
    }
}

impl<'q, Q: WorkQueue> Hold<'q, Q> {
    /// Takes over the hold, and gives back the key.
    #[inline(always)]
    pub(crate) fn of(queue: &'q Q, taken: Taken<Q::Key>) -> (Self, Q::Key) {
        let Taken { key, token, hash, priority } = taken;
        (Hold { queue: Some(Handle::Borrowed(queue)), token, hash, priority }, key)
    }

    /// Gives up the hold without ending it.
    #[inline(always)]
    pub(crate) fn into_parts(mut self) -> (Handle<'q, Q>, u64) {
        (self.queue.take().expect(ENDED), self.token)
    }

    /// It has been ended by other means.
    pub(crate) fn disarm(mut self) {
        self.queue = None;
    }

    #[inline(always)]
    fn queue(&self) -> &Q {
        self.queue.as_ref().expect(ENDED)
    }

    /// Ends it as [`WorkQueue::requeue`] does.
    #[inline(always)]
    pub(crate) fn requeue(self, key: Q::Key) -> Added {
        let Hold { hash, priority, .. } = self;
        let (queue, token) = self.into_parts();
        queue.requeue(Taken { key, token, hash, priority })
    }
}

impl<Q: WorkQueue> Drop for Hold<'_, Q> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(queue) = &self.queue {
            queue.done(self.token);
        }
    }
}

const ENDED: &str = "a hold that has ended is gone";

impl<'q, Q: WorkQueue> Held<'q, Q> {
    #[inline(always)]
    pub(crate) fn new(queue: Handle<'q, Q>, taken: Taken<Q::Key>) -> Self {
        let Taken { key, token, hash, priority } = taken;
        Held { hold: Hold { queue: Some(queue), token, hash, priority }, key }
    }

    /// Gives up the hold without ending it.
    #[inline(always)]
    fn into_parts(self) -> (Handle<'q, Q>, Taken<Q::Key>) {
        let Held { hold, key } = self;
        let Hold { hash, priority, .. } = hold;
        let (queue, token) = hold.into_parts();
        (queue, Taken { key, token, hash, priority })
    }

    /// The key.
    #[inline(always)]
    pub fn key(&self) -> &Q::Key {
        &self.key
    }

    /// The same as dropping it, but reads like what it does.
    #[inline(always)]
    pub fn done(self) {
        drop(self);
    }

    /// Done, and the key is yours.
    #[inline(always)]
    pub fn done_into_key(self) -> Q::Key {
        self.key
    }

    /// Done, and ready again at once, behind what is ready already: `add` and `done`
    /// in one, without hashing.
    ///
    /// While the queue drains the key is not run again but kept for the drain's
    /// answer ([`Added::Kept`]); after a shutdown it is [`Added::Refused`].
    #[inline]
    pub fn requeue(self) -> Added {
        let (queue, taken) = self.into_parts();
        queue.requeue(taken)
    }

    /// Done, and the next key, under one lock instead of two.
    ///
    /// The hold ends when what this answers is awaited, waited for or dropped.
    ///
    /// ```
    /// let queue = requeue::Queue::new();
    /// (0..100).for_each(|key| drop(queue.add(key)));
    /// queue.shut_down();
    /// let mut held = queue.get().wait();
    /// let mut sum = 0;
    /// while let Some(key) = held {
    ///     sum += key.key();
    ///     held = key.next().wait();
    /// }
    /// assert_eq!(sum, 4950);
    /// ```
    #[inline(always)]
    #[must_use = "await it, or call wait()"]
    pub fn next(self) -> Get<'q, Q> {
        let (queue, token) = self.hold.into_parts();
        Get::after(queue, token)
    }

    /// A guard with a queue handle of its own, for `spawn`.
    pub fn into_owned(self) -> Held<'static, Q>
    where
        Q: Clone,
    {
        let (queue, taken) = self.into_parts();
        let queue = match queue {
            Handle::Borrowed(queue) => queue.clone(),
            Handle::Owned(queue) => queue,
        };
        Held::new(Handle::Owned(queue), taken)
    }
}

impl<K: Key> Held<'_, DelayingQueue<K>> {
    /// Done, and ready again once `delay` has passed: `add_after` and `done` in one.
    ///
    /// If the key waits already, the sooner time wins. While the queue drains the
    /// key is kept for the drain's answer ([`Added::Kept`]), unless it is to run again
    /// anyway ([`Added::Coalesced`]); after a shutdown it is [`Added::Refused`].
    ///
    /// # Panics
    ///
    /// If `Eq` of a key does, or the process's timer thread cannot be started. The key is
    /// then ready at once.
    pub fn requeue_after(self, delay: Duration) -> Added {
        let (queue, taken) = self.into_parts();
        queue.requeue_after(taken, delay)
    }
}

impl<K: Key> Held<'_, PriorityQueue<K>> {
    /// The priority with which the key was handed out.
    pub fn priority(&self) -> i32 {
        self.hold.priority
    }
}

/// Of a [`RateLimitingQueue`](crate::RateLimitingQueue) and a [`PriorityQueue`], which keeps the key's priority.
impl<Q: Retry> Held<'_, Q> {
    /// Done, and ready again once `delay` has passed. Does not forget its failures.
    ///
    /// Otherwise as `requeue_after` of a [`DelayingQueue`]'s guard.
    pub fn requeue_after(self, delay: Duration) -> Added {
        let (queue, taken) = self.into_parts();
        queue.requeue_after(taken, delay)
    }

    /// Done, and ready again after the delay that the limiter answers:
    /// `add_rate_limited` and `done` in one, without hashing.
    ///
    /// While the queue drains the key is kept for the drain's answer ([`Added::Kept`]),
    /// unless it is to run again anyway ([`Added::Coalesced`]); after a shutdown it is
    /// [`Added::Refused`].
    pub fn retry(self) -> Limited {
        let (queue, taken) = self.into_parts();
        queue.retry(taken)
    }

    /// Counts a failure, and answers how long the limiter wants the key to stay away. Still
    /// held.
    pub(crate) fn fail(&self) -> Duration {
        self.hold.queue().fail_held(self.hold.hash, &self.key)
    }

    /// The next `retry` of this key counts from zero. Still held.
    pub fn forget(&self) {
        self.hold.queue().forget_held(self.hold.hash, &self.key);
    }

    /// How often this key has failed since it was last forgotten.
    pub fn num_requeues(&self) -> u32 {
        self.hold.queue().num_requeues_held(self.hold.hash, &self.key)
    }
}

impl<Q: WorkQueue<Key: fmt::Debug>> fmt::Debug for Held<'_, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(self.key()).finish()
    }
}

//! The guard that `get` returns.

use crate::delaying::DelayingQueue;
use crate::get::Get;
use crate::priority::PriorityQueue;
use crate::retry::Retry;
use crate::snapshot::{Added, Limited};
use crate::work_queue::{Key, Taken, WorkQueue};
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

/// A key that the caller holds. Dropping it marks the key done, also during a panic.
///
/// While the guard exists, no other worker gets the key. The guard borrows its queue, because a
/// handle of its own would cost two atomic operations per key. Use
/// [`into_owned`](Self::into_owned) for a task that outlives the borrow.
///
/// Mistakes that client-go finds at run time or not at all do not compile here. A key cannot be
/// marked done twice, or used after it is done:
///
/// ```compile_fail,E0382
/// let queue = requeue::Queue::new();
/// queue.add("a");
/// let held = queue.get().wait().unwrap();
/// held.done();
/// held.done();
/// ```
///
/// A key that nobody holds cannot be marked done, and a guard cannot outlive its queue:
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
    // Fields drop in this order: the hold ends before the key is dropped.
    hold: Hold<'q, Q>,
    key: Q::Key,
}

/// A hold. Dropping it ends the hold.
///
/// It is separate from the key, so that a guard can be taken apart without copying its parts
/// more than once. Those copies took a quarter of the time of an add/get/done cycle.
pub(crate) struct Hold<'q, Q: WorkQueue> {
    /// `None` after the hold has ended.
    queue: Option<Handle<'q, Q>>,
    token: u64,
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
    /// Splits `taken` into its hold and its key.
    #[inline(always)]
    pub(crate) fn of(queue: &'q Q, taken: Taken<Q::Key>) -> (Self, Q::Key) {
        let Taken { key, token, priority } = taken;
        (Hold { queue: Some(Handle::Borrowed(queue)), token, priority }, key)
    }

    /// Returns the queue and the token without ending the hold.
    #[inline(always)]
    pub(crate) fn into_parts(mut self) -> (Handle<'q, Q>, u64) {
        (self.queue.take().expect(ENDED), self.token)
    }

    /// Forgets the hold, which has already been ended by other means.
    pub(crate) fn disarm(mut self) {
        self.queue = None;
    }

    #[inline(always)]
    fn queue(&self) -> &Q {
        self.queue.as_ref().expect(ENDED)
    }

    /// Ends the hold with [`WorkQueue::requeue`].
    #[inline(always)]
    pub(crate) fn requeue(self, key: Q::Key) -> Added {
        let priority = self.priority;
        let (queue, token) = self.into_parts();
        queue.requeue(Taken { key, token, priority })
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
        let Taken { key, token, priority } = taken;
        Held { hold: Hold { queue: Some(queue), token, priority }, key }
    }

    /// Returns the parts without ending the hold.
    #[inline(always)]
    fn into_parts(self) -> (Handle<'q, Q>, Taken<Q::Key>) {
        let Held { hold, key } = self;
        let priority = hold.priority;
        let (queue, token) = hold.into_parts();
        (queue, Taken { key, token, priority })
    }

    /// Returns the key.
    #[inline(always)]
    pub fn key(&self) -> &Q::Key {
        &self.key
    }

    /// Marks the key done. This is the same as dropping the guard.
    #[inline(always)]
    pub fn done(self) {
        drop(self);
    }

    /// Marks the key done and returns it.
    #[inline(always)]
    pub fn done_into_key(self) -> Q::Key {
        self.key
    }

    /// Marks the key done and makes it ready again immediately, behind the keys that are
    /// already ready. This does `add` and `done` under one lock, without hashing.
    ///
    /// During a drain, the key does not run again; the drain returns it ([`Added::Kept`]).
    /// After a shutdown the result is [`Added::Refused`].
    #[inline]
    pub fn requeue(self) -> Added {
        let (queue, taken) = self.into_parts();
        queue.requeue(taken)
    }

    /// Marks the key done and waits for the next key. This takes one lock instead of two.
    ///
    /// The hold ends when the returned [`Get`] is awaited, waited for or dropped.
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

    /// Converts the guard into one that owns a queue handle, for example to move it into a
    /// spawned task.
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
    /// Marks the key done and makes it ready again once `delay` has passed. This does
    /// `add_after` and `done` in one step.
    ///
    /// If the key already waits, the earlier time wins. During a drain, the drain returns the
    /// key ([`Added::Kept`]), unless the key runs again anyway ([`Added::Coalesced`]). After a
    /// shutdown the result is [`Added::Refused`].
    ///
    /// # Panics
    ///
    /// Panics if `Eq` of a key panics or the process's timer thread cannot be started. The key
    /// is then ready immediately.
    pub fn requeue_after(self, delay: Duration) -> Added {
        let (queue, taken) = self.into_parts();
        queue.requeue_after(taken, delay)
    }
}

impl<K: Key> Held<'_, PriorityQueue<K>> {
    /// Returns the priority with which the key was handed out.
    pub fn priority(&self) -> i32 {
        self.hold.priority
    }
}

/// These methods exist for guards of a [`RateLimitingQueue`](crate::RateLimitingQueue), of a
/// [`PriorityQueue`] and of a [`QueueAdapter`](crate::QueueAdapter). A `PriorityQueue` keeps the key's priority.
impl<Q: Retry> Held<'_, Q> {
    /// Marks the key done and makes it ready again once `delay` has passed. The failure count
    /// of the key is kept.
    ///
    /// Otherwise this behaves like `requeue_after` of a [`DelayingQueue`]'s guard.
    pub fn requeue_after(self, delay: Duration) -> Added {
        let (queue, taken) = self.into_parts();
        queue.requeue_after(taken, delay)
    }

    /// Counts a failure, marks the key done and makes it ready again after the delay that the
    /// limiter returns. This does `add_rate_limited` and `done` in one step, without hashing.
    ///
    /// During a drain, the drain returns the key ([`Added::Kept`]), unless the key runs again
    /// anyway ([`Added::Coalesced`]). After a shutdown the result is [`Added::Refused`].
    pub fn retry(self) -> Limited {
        let (queue, taken) = self.into_parts();
        queue.retry(taken)
    }

    /// Counts a failure and returns the delay that the limiter computes. The key is still held.
    pub(crate) fn fail(&self) -> Duration {
        self.hold.queue().fail_held(self.hold.token, &self.key)
    }

    /// Resets the failure count of this key. The key is still held.
    pub fn forget(&self) {
        self.hold.queue().forget_held(self.hold.token, &self.key);
    }

    /// Returns how often this key has failed since it was last forgotten.
    pub fn num_requeues(&self) -> u32 {
        self.hold.queue().num_requeues_held(self.hold.token, &self.key)
    }
}

impl<Q: WorkQueue<Key: fmt::Debug>> fmt::Debug for Held<'_, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(self.key()).finish()
    }
}

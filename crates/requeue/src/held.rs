//! The guard that `get` answers.

use crate::delaying::DelayingQueue;
use crate::get::Get;
use crate::rate_limiting::RateLimitingQueue;
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
    /// `None` only while being finished.
    hold: Option<Hold<'q, Q>>,
}

pub(crate) struct Hold<'q, Q: WorkQueue> {
    pub(crate) queue: Handle<'q, Q>,
    pub(crate) taken: Taken<Q::Key>,
}

pub(crate) enum Handle<'q, Q> {
    Borrowed(&'q Q),
    Owned(Q),
}

impl<Q> Deref for Handle<'_, Q> {
    type Target = Q;

    #[inline]
    fn deref(&self) -> &Q {
        match self {
            Handle::Borrowed(queue) => queue,
            Handle::Owned(queue) => queue,
        }
    }
}

const FINISHED: &str = "a guard that is finished is gone";

impl<'q, Q: WorkQueue> Held<'q, Q> {
    #[inline]
    pub(crate) fn new(queue: Handle<'q, Q>, taken: Taken<Q::Key>) -> Self {
        Held { hold: Some(Hold { queue, taken }) }
    }

    #[inline]
    fn finish(mut self) -> Hold<'q, Q> {
        self.hold.take().expect(FINISHED)
    }

    #[inline]
    fn queue(&self) -> &Q {
        &self.hold.as_ref().expect(FINISHED).queue
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &Q::Key {
        &self.hold.as_ref().expect(FINISHED).taken.key
    }

    /// The same as dropping it, but reads like what it does.
    #[inline]
    pub fn done(self) {
        drop(self);
    }

    /// Done, and the key is yours.
    #[inline]
    pub fn done_into_key(self) -> Q::Key {
        let Hold { queue, taken } = self.finish();
        queue.done_into_key(taken)
    }

    /// Done, and ready again at once, behind what is ready already: `add` and `done`
    /// in one, without hashing.
    ///
    /// While the queue drains the key is not run again but kept for the drain's
    /// answer ([`Added::Kept`]); after a shutdown it is [`Added::Refused`].
    #[inline]
    pub fn requeue(self) -> Added {
        let Hold { queue, taken } = self.finish();
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
    #[inline]
    #[must_use = "await it, or call wait()"]
    pub fn next(self) -> Get<'q, Q> {
        let Hold { queue, taken } = self.finish();
        Get::after(queue, taken)
    }

    /// A guard with a queue handle of its own, for `spawn`.
    pub fn into_owned(self) -> Held<'static, Q>
    where
        Q: Clone,
    {
        let Hold { queue, taken } = self.finish();
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
    /// key is kept for the drain's answer ([`Added::Kept`]); after a shutdown it is
    /// [`Added::Refused`].
    pub fn requeue_after(self, delay: Duration) -> Added {
        let Hold { queue, taken } = self.finish();
        queue.requeue_after(taken, delay)
    }
}

impl<K: Key> Held<'_, RateLimitingQueue<K>> {
    /// Done, and ready again once `delay` has passed. Does not forget its failures.
    ///
    /// Otherwise as `requeue_after` of a [`DelayingQueue`]'s guard.
    pub fn requeue_after(self, delay: Duration) -> Added {
        let Hold { queue, taken } = self.finish();
        queue.delaying().requeue_after(taken, delay)
    }

    /// Done, and ready again after the delay that the limiter answers:
    /// `add_rate_limited` and `done` in one, without hashing.
    ///
    /// While the queue drains the key is kept for the drain's answer ([`Added::Kept`]);
    /// after a shutdown it is [`Added::Refused`].
    pub fn retry(self) -> Limited {
        let Hold { queue, taken } = self.finish();
        queue.delaying().retry(taken)
    }

    /// The next `retry` of this key counts from zero. Still held.
    pub fn forget(&self) {
        self.queue().forget(self.key());
    }

    /// How often this key has failed since it was last forgotten.
    pub fn num_requeues(&self) -> u32 {
        self.queue().num_requeues(self.key())
    }
}

impl<Q: WorkQueue> Drop for Held<'_, Q> {
    #[inline]
    fn drop(&mut self) {
        if let Some(Hold { queue, taken }) = self.hold.take() {
            queue.done(taken);
        }
    }
}

impl<Q: WorkQueue<Key: fmt::Debug>> fmt::Debug for Held<'_, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(self.key()).finish()
    }
}

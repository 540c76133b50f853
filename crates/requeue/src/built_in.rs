//! The queues of this crate, as [`WorkQueue`]s: all are handles to a [`Shared`] state.

use crate::guarded::guarded;
use crate::shared::Shared;
use crate::shell::{Rules, wake_all};
use crate::snapshot::{Added, Remains};
use crate::waiters::Waiter;
use crate::work_queue::{Key, StopMode, Taken, Wakeups, WorkQueue};
use std::sync::Arc;
use std::task::{Poll, Waker};

/// The key type of a queue of this crate. It is public because [`WorkQueue::Key`] is.
pub trait Keyed {
    type Key: Key;
}

/// A queue of this crate, which hands out its own keys.
pub(crate) trait BuiltIn: Keyed + Send + Sync + 'static {
    type Rules: Rules<Key = Self::Key>;

    fn shared(&self) -> &Arc<Shared<Self::Rules>>;
}

impl<Q: BuiltIn> WorkQueue for Q {
    type Key = <Q as Keyed>::Key;

    #[inline]
    fn add(&self, key: Q::Key) -> Added {
        let Shared { shell, hasher, .. } = &**self.shared();
        shell.add(hasher.hash(&key), key)
    }

    #[inline]
    fn poll_take(&self, waiter: &mut Waiter, waker: Option<&Waker>) -> Poll<Option<Taken<Q::Key>>> {
        self.shared().shell.poll_take(waiter, waker)
    }

    fn leave(&self, waiter: &mut Waiter) {
        self.shared().shell.leave(waiter);
    }

    #[inline(always)]
    fn done(&self, token: u64) {
        self.shared().shell.done(token);
    }

    fn len(&self) -> usize {
        self.shared().len()
    }

    fn stop(&self, mode: StopMode) {
        let mut inner = self.shared().shell.lock();
        let dropped = inner.state.stop_waiting(mode);
        let notices = inner.shut_down(mode);
        drop(inner);
        drop(dropped);
        wake_all(notices);
    }

    fn poll_drained(&self, mode: StopMode, waiter: &mut Waiter, waker: &Waker) -> Poll<()> {
        self.shared().shell.poll_drained(mode, waiter, waker)
    }

    fn shutting_down(&self) -> bool {
        self.shared().shutting_down()
    }

    #[inline]
    fn requeue(&self, taken: Taken<Q::Key>) -> Added {
        self.shared().shell.requeue(taken)
    }

    fn take_ready(&self, max: usize, taken: &mut Vec<Taken<Q::Key>>) {
        self.shared().shell.take_ready(max, taken);
    }

    #[inline(always)]
    fn take_now<R>(&self, make: impl FnOnce(Taken<Q::Key>) -> R) -> Option<R> {
        self.shared().shell.take_now(make)
    }

    #[inline(always)]
    fn next_now<R>(&self, token: u64, make: impl FnOnce(Taken<Q::Key>) -> R) -> Option<R> {
        self.shared().shell.next_now(token, make)
    }

    fn add_due(&self, keys: &mut dyn Iterator<Item = Q::Key>) -> Wakeups {
        let shared = Arc::clone(self.shared());
        let (mut unused, mut notices) = (Vec::new(), Vec::new());
        let now = shared.shell.now();
        let mut inner = shared.shell.lock();
        loop {
            // A key whose `Eq` or `Clone` panics is lost. The other keys due with it are not.
            let added = guarded(|| {
                keys.next().map(|key| inner.state.add(shared.hasher.hash(&key), key, now))
            });
            let Ok(added) = added else { continue };
            let Some((added, key)) = added else { break };
            unused.extend(key);
            if added == Added::Queued {
                notices.extend(inner.notify());
            }
        }
        drop(inner);
        Wakeups(Some(Box::new(move || {
            notices.into_iter().for_each(|notice| shared.shell.wake(Some(notice)));
            drop(unused);
        })))
    }

    fn take_remaining(&self) -> Remains<Q::Key> {
        let Shared { shell, clock, .. } = &**self.shared();
        let now = clock.now();
        let mut inner = shell.lock();
        let (remains, dropped) = inner.state.take_remaining(now);
        // Under the same lock: otherwise a key that a guard requeues in between would be lost.
        let notices = inner.shut_down(StopMode::Now);
        drop(inner);
        drop(dropped);
        wake_all(notices);
        remains
    }
}

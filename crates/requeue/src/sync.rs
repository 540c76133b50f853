//! The lock and the thread parking that queues use: `parking_lot` and std, or loom's when the
//! loom models run (`--cfg requeue_loom`).

#[cfg(not(requeue_loom))]
mod imp {
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread;

    /// Parks the thread that created it.
    pub(crate) struct Parker(thread::Thread);

    impl Parker {
        pub(crate) fn new() -> Self {
            Parker(thread::current())
        }

        pub(crate) fn unpark(&self) {
            self.0.unpark();
        }

        pub(crate) fn park(&self) {
            thread::park();
        }

        /// Parks until unparked or until `limit` has passed.
        pub(crate) fn park_timeout(&self, limit: std::time::Duration) {
            thread::park_timeout(limit);
        }
    }
}

#[cfg(requeue_loom)]
mod imp {
    pub(crate) use loom::sync::atomic;
    pub(crate) use loom::thread;

    pub(crate) type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

    /// loom's mutex with `parking_lot`'s interface: no poisoning.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
        }
    }

    /// A flag and a condition variable. loom's own `unpark` is lost if the thread is about to
    /// lock something, and the thread then parks forever.
    pub(crate) struct Parker {
        unparked: Mutex<bool>,
        changed: loom::sync::Condvar,
    }

    impl Parker {
        pub(crate) fn new() -> Self {
            Parker { unparked: Mutex::new(false), changed: loom::sync::Condvar::new() }
        }

        pub(crate) fn unpark(&self) {
            *self.unparked.lock() = true;
            self.changed.notify_one();
        }

        pub(crate) fn park(&self) {
            let mut unparked = self.unparked.lock();
            while !*unparked {
                let woken = self.changed.wait(unparked);
                unparked = woken.unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            *unparked = false;
        }

        /// A model has no time: the limit passes immediately.
        pub(crate) fn park_timeout(&self, _limit: std::time::Duration) {
            thread::yield_now();
        }
    }
}

pub(crate) use imp::*;

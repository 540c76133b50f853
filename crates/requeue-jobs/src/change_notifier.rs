//! Wakes tasks when something has changed.

use crate::panics::guarded;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Wakes all waiting tasks when something has changed.
///
/// A store calls [`notify`](Self::notify) after every change that a waiting claim may be
/// interested in, and passes the notifier to [`wait`](super::rules::wait).
#[derive(Default)]
pub struct ChangeNotifier {
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    wakers: BTreeMap<u64, Waker>,
    numbered: u64,
}

impl ChangeNotifier {
    /// Wakes all listeners.
    pub fn notify(&self) {
        let wakers = mem::take(&mut self.lock().wakers);
        for waker in wakers.into_values() {
            drop(guarded(|| waker.wake()));
        }
    }

    /// Waits until `check` returns a value. It is called now and after every notification. Dropping
    /// the future only stops waiting.
    pub(crate) async fn until<T>(&self, mut check: impl FnMut() -> Option<T>) -> T {
        let mut listener = self.listener();
        poll_fn(|cx| {
            // Registered before the check, so that a change in between wakes the task.
            listener.listen(cx.waker());
            check().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Returns a listener, for a future that waits for something else as well.
    pub(crate) fn listener(&self) -> Listener<'_> {
        Listener { notifier: self, number: None }
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A task that waits for a notification. Dropping it unregisters the task.
pub(crate) struct Listener<'a> {
    notifier: &'a ChangeNotifier,
    number: Option<u64>,
}

impl Listener<'_> {
    /// Registers `waker` for the next notification.
    pub(crate) fn listen(&mut self, waker: &Waker) {
        let mut listeners = self.notifier.lock();
        let number = *self.number.get_or_insert_with(|| {
            listeners.numbered += 1;
            listeners.numbered
        });
        let old = listeners.wakers.insert(number, waker.clone());
        drop(listeners);
        drop(old);
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.notifier.lock().wakers.remove(&number);
            drop(waker);
        }
    }
}

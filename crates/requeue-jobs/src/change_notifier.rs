//! Tells tasks to look again.

use crate::panics::guarded;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Rung whenever something has changed that others may wait for.
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
    /// Tells all who listen to look again.
    pub fn notify(&self) {
        let wakers = mem::take(&mut self.lock().wakers);
        for waker in wakers.into_values() {
            drop(guarded(|| waker.wake()));
        }
    }

    /// Waits until `look` answers something: it is asked now, and whenever the changes was rung.
    /// Dropping it only stops waiting.
    pub(crate) async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        let mut place = self.place();
        poll_fn(|cx| {
            // Before it looks: what changes in between rings.
            place.listen(cx.waker());
            look().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// For a future that waits for more than the changes.
    pub(crate) fn place(&self) -> Place<'_> {
        Place { changes: self, number: None }
    }

    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the listeners, given up when dropped.
pub(crate) struct Place<'a> {
    changes: &'a ChangeNotifier,
    number: Option<u64>,
}

impl Place<'_> {
    /// Wakes this one when the changes is rung next.
    pub(crate) fn listen(&mut self, waker: &Waker) {
        let mut listeners = self.changes.lock();
        let number = *self.number.get_or_insert_with(|| {
            listeners.numbered += 1;
            listeners.numbered
        });
        let old = listeners.wakers.insert(number, waker.clone());
        drop(listeners);
        drop(old);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.changes.lock().wakers.remove(&number);
            drop(waker);
        }
    }
}

//! A one-shot channel that carries a result from a thread of the store to a task.

use requeue_jobs::StoreError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The sending end. If it is dropped without a result, the receiver gets
/// [`StoreError::Unknown`].
pub(crate) struct Reply<T>(Option<Arc<Mutex<Slot<T>>>>);

/// The receiving end: a future of the result. If it is dropped, the result is discarded; the
/// operation happens all the same.
pub(crate) struct Waiting<T>(Arc<Mutex<Slot<T>>>);

struct Slot<T> {
    result: Option<Result<T, StoreError>>,
    waker: Option<Waker>,
}

pub(crate) fn reply<T>() -> (Reply<T>, Waiting<T>) {
    let slot = Arc::new(Mutex::new(Slot { result: None, waker: None }));
    (Reply(Some(slot.clone())), Waiting(slot))
}

fn lock<T>(slot: &Mutex<Slot<T>>) -> MutexGuard<'_, Slot<T>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Reply<T> {
    pub(crate) fn send(mut self, result: Result<T, StoreError>) {
        self.set(|| result);
    }

    fn set(&mut self, result: impl FnOnce() -> Result<T, StoreError>) {
        let Some(slot) = self.0.take() else { return };
        let mut slot = lock(&slot);
        slot.result = Some(result());
        let waker = slot.waker.take();
        drop(slot);
        if let Some(waker) = waker {
            // The waker is foreign code. If it panics, this thread must still serve the others.
            drop(catch_unwind(AssertUnwindSafe(|| waker.wake())));
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        self.set(|| Err(StoreError::Unknown { reason: "the store was closed".to_owned() }));
    }
}

impl<T> Future for Waiting<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = lock(&self.0);
        match slot.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                let old = slot.waker.replace(cx.waker().clone());
                drop(slot);
                drop(old);
                Poll::Pending
            }
        }
    }
}

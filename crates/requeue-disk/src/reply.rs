//! An answer on its way from a thread to a task.

use requeue_jobs::StoreError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// For the one who answers. Dropped without an answer, the outcome is unknown.
pub(crate) struct Reply<T>(Option<Arc<Mutex<Slot<T>>>>);

/// For the one who waits. Dropped, the answer is not heard; what was asked is done all the same.
pub(crate) struct Waiting<T>(Arc<Mutex<Slot<T>>>);

struct Slot<T> {
    answer: Option<Result<T, StoreError>>,
    waker: Option<Waker>,
}

pub(crate) fn reply<T>() -> (Reply<T>, Waiting<T>) {
    let slot = Arc::new(Mutex::new(Slot { answer: None, waker: None }));
    (Reply(Some(slot.clone())), Waiting(slot))
}

fn lock<T>(slot: &Mutex<Slot<T>>) -> MutexGuard<'_, Slot<T>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Reply<T> {
    pub(crate) fn send(mut self, answer: Result<T, StoreError>) {
        self.set(|| answer);
    }

    fn set(&mut self, answer: impl FnOnce() -> Result<T, StoreError>) {
        let Some(slot) = self.0.take() else { return };
        let mut slot = lock(&slot);
        slot.answer = Some(answer());
        let waker = slot.waker.take();
        drop(slot);
        if let Some(waker) = waker {
            // It is foreign: should it panic, the thread that answers must go on with the others.
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
        match slot.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                let old = slot.waker.replace(cx.waker().clone());
                drop(slot);
                drop(old);
                Poll::Pending
            }
        }
    }
}

//! A store that closes and reopens its disk store while it is used.
//!
//! A call completes when it is first polled, so that none is in progress when the store is closed.
//! Only `wait` takes several polls: when the store is closed, all waits return, which a wait may do
//! at any time.

use requeue_disk::DiskStore;
use requeue_jobs::{Kind, Layered, Store, StoreError, StoreFuture, StoreMethod};
use requeue_testkit::block_on;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Closes the store that is given, if any, and opens the next one.
type Reopen = Box<dyn Fn(Option<DiskStore>) -> DiskStore + Send + Sync>;

type Wait = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

pub(crate) struct ReopeningStore {
    reopen: Reopen,
    /// The store is reopened after this many calls.
    after: usize,
    open: Mutex<Open>,
}

struct Open {
    store: Option<DiskStore>,
    calls: usize,
    /// The waits in progress by number, each with the waker of its task.
    waits: BTreeMap<u64, (Wait, Waker)>,
    next: u64,
}

impl ReopeningStore {
    pub(crate) fn new(reopen: Reopen, after: usize) -> Self {
        let store = Some(reopen(None));
        let open = Mutex::new(Open { store, calls: 0, waits: BTreeMap::new(), next: 0 });
        ReopeningStore { reopen, after, open }
    }

    /// Returns the store that is open now.
    pub(crate) fn now(&self) -> DiskStore {
        self.open
            .lock()
            .expect("the lock is not poisoned")
            .store
            .clone()
            .expect("there always is one")
    }

    /// Returns the store for the next call, after reopening it if it is time.
    fn turn(&self) -> DiskStore {
        let mut open = self.open.lock().expect("the lock is not poisoned");
        open.calls += 1;
        if open.calls > self.after {
            open.calls = 0;
            let waits = std::mem::take(&mut open.waits);
            waits.into_values().for_each(|(_, waker)| waker.wake());
            open.store = Some((self.reopen)(open.store.take()));
        }
        open.store.clone().expect("there always is one")
    }

    /// Returns a number for a new wait.
    fn next(&self) -> u64 {
        let mut open = self.open.lock().expect("the lock is not poisoned");
        open.next += 1;
        open.next
    }
}

/// Removes a wait when its future is dropped.
struct Forget<'a>(&'a ReopeningStore, u64);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        // The wait is dropped after the lock is released.
        let _wait = self.0.open.lock().expect("the lock is not poisoned").waits.remove(&self.1);
    }
}

impl Layered for ReopeningStore {
    fn inner(&self) -> &dyn Store {
        unreachable!("`around` makes all calls, on the store that is open at the time")
    }

    fn around<'a, T: Send + 'a>(
        &'a self,
        _: StoreMethod,
        call: impl for<'s> FnOnce(&'s dyn Store) -> StoreFuture<'s, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move { block_on(call(&self.turn())) })
    }

    fn needs_reaping(&self) -> bool {
        true
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let store = self.turn();
            let mut wait: Option<Wait> =
                Some(Box::pin(async move { store.wait(kinds, limit).await }));
            let forget = Forget(self, self.next());
            poll_fn(|cx| {
                let number = forget.1;
                let kept =
                    self.open.lock().expect("the lock is not poisoned").waits.remove(&number);
                let Some(mut wait) = wait.take().or(kept.map(|(wait, _)| wait)) else {
                    return Poll::Ready(Ok(()));
                };
                if let Poll::Ready(result) = wait.as_mut().poll(cx) {
                    return Poll::Ready(result);
                }
                let waits = &mut self.open.lock().expect("the lock is not poisoned").waits;
                waits.insert(number, (wait, cx.waker().clone()));
                Poll::Pending
            })
            .await
        })
    }
}

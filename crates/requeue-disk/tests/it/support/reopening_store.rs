//! A store that is closed and opened again while it is used.
//!
//! A call returns when it is first polled, so that none is in flight between two calls. Only `wait`
//! takes several polls: it ends when the store is closed, as the contract allows.

use requeue_disk::DiskStore;
use requeue_jobs::{
    BatchResults, Change, ChangeError, Changed, Claim, Claimed, JobId, JobView, Kind, KindView,
    Page, Placed, Put, PutError, Query, Reaped, Restore, Restored, Schedule, Settings, Settle,
    SettleError, Settled, Spans, Store, StoreError, StoreFuture, Tick, Ticked,
};
use requeue_testkit::block_on;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Closes a store, in its own way, and opens it again.
type Reopen = Box<dyn Fn(Option<DiskStore>) -> DiskStore + Send + Sync>;

type Wait = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

pub(crate) struct ReopeningStore {
    reopen: Reopen,
    /// The number of calls after which the store is reopened.
    after: usize,
    open: Mutex<Open>,
}

struct Open {
    store: Option<DiskStore>,
    calls: usize,
    /// The waits in flight by number, and their wakers.
    waits: BTreeMap<u64, (Wait, Waker)>,
    next: u64,
}

impl ReopeningStore {
    pub(crate) fn new(reopen: Reopen, after: usize) -> Self {
        let store = Some(reopen(None));
        let open = Mutex::new(Open { store, calls: 0, waits: BTreeMap::new(), next: 0 });
        ReopeningStore { reopen, after, open }
    }

    /// The store as it is now.
    pub(crate) fn now(&self) -> DiskStore {
        self.open
            .lock()
            .expect("the lock is not poisoned")
            .store
            .clone()
            .expect("there always is one")
    }

    /// The store for the next call.
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

    /// A number for another wait.
    fn next(&self) -> u64 {
        let mut open = self.open.lock().expect("the lock is not poisoned");
        open.next += 1;
        open.next
    }

    /// A call that returns when it is first polled.
    fn call<'a, T: Send + 'a>(
        &'a self,
        call: impl FnOnce(&DiskStore) -> Result<T, StoreError> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move { call(&self.turn()) })
    }
}

/// Removes a wait when dropped.
struct Forget<'a>(&'a ReopeningStore, u64);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        // Dropped after the lock is released.
        let _wait = self.0.open.lock().expect("the lock is not poisoned").waits.remove(&self.1);
    }
}

impl Store for ReopeningStore {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        self.call(move |store| block_on(store.put(puts)))
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        self.call(move |store| block_on(store.claim(claim)))
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        self.call(move |store| block_on(store.settle(settlements)))
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        self.call(move |store| block_on(store.change(changes)))
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
                if let Poll::Ready(answer) = wait.as_mut().poll(cx) {
                    return Poll::Ready(answer);
                }
                let waits = &mut self.open.lock().expect("the lock is not poisoned").waits;
                waits.insert(number, (wait, cx.waker().clone()));
                Poll::Pending
            })
            .await
        })
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        self.call(move |store| block_on(store.restore(restore)))
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        self.call(move |store| block_on(store.reap(max)))
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        self.call(move |store| block_on(store.get(kind, id)))
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        self.call(move |store| block_on(store.list(query)))
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        self.call(move |store| block_on(store.kinds()))
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        self.call(move |store| block_on(store.upcoming(kind, spans)))
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        self.call(move |store| block_on(store.settings(kind)))
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        self.call(move |store| block_on(store.set(kind, settings)))
    }

    fn set_schedule(&self, kind: Kind, schedule: Schedule) -> StoreFuture<'_, ()> {
        self.call(move |store| block_on(store.set_schedule(kind, schedule)))
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        self.call(move |store| block_on(store.remove_schedule(kind, id)))
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        self.call(move |store| block_on(store.schedules(kind)))
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        self.call(move |store| block_on(store.tick(tick)))
    }
}

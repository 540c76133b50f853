//! A memory store with expensive calls, like those of a remote store.

use requeue_jobs::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The additional cost of a put, for any number of jobs. One call is served at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Price {
    Nothing,
    /// Time of a thread that serves requests, one after the other.
    Work(Duration),
    /// Waiting time, like a disk that syncs.
    Wait(Duration),
}

pub(super) struct DearStore {
    inner: MemoryStore,
    price: Price,
    /// Requests to the thread that serves them.
    requests: mpsc::Sender<oneshot::Sender<()>>,
    disk: tokio::sync::Mutex<()>,
    calls: AtomicU64,
}

impl DearStore {
    pub(super) fn new(price: Price) -> Self {
        let (requests, served) = mpsc::channel::<oneshot::Sender<()>>();
        if let Price::Work(time) = price {
            thread::spawn(move || {
                for reply in served {
                    let started = Instant::now();
                    while started.elapsed() < time {
                        std::hint::spin_loop();
                    }
                    // The caller may have stopped waiting.
                    let _ = reply.send(());
                }
            });
        }
        let (inner, disk, calls) = (MemoryStore::new(), Default::default(), AtomicU64::new(0));
        DearStore { inner, price, requests, disk, calls }
    }

    /// Returns the number of put calls, each of any number of jobs.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    async fn pay(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match self.price {
            Price::Nothing => {}
            Price::Work(_) => {
                let (reply, served) = oneshot::channel();
                self.requests.send(reply).expect("the thread runs as long as the store");
                served.await.expect("the thread responds to each request");
            }
            Price::Wait(time) => {
                let _turn = self.disk.lock().await;
                tokio::time::sleep(time).await;
            }
        }
    }
}

impl Store for DearStore {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        Box::pin(async move {
            self.pay().await;
            self.inner.put(puts).await
        })
    }
    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        self.inner.claim(claim)
    }
    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        self.inner.settle(settlements)
    }
    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        self.inner.change(changes)
    }
    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        self.inner.restore(restore)
    }
    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        self.inner.wait(kinds, limit)
    }
    fn reap(&self, max: usize) -> StoreFuture<'_, usize> {
        self.inner.reap(max)
    }
    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        self.inner.get(kind, id)
    }
    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        self.inner.list(query)
    }
    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        self.inner.kinds()
    }
    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        self.inner.upcoming(kind, spans)
    }
    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        self.inner.settings(kind)
    }
    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        self.inner.set(kind, settings)
    }
    fn set_schedule(&self, kind: Kind, schedule: Schedule) -> StoreFuture<'_, ()> {
        self.inner.set_schedule(kind, schedule)
    }
    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        self.inner.remove_schedule(kind, id)
    }
    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        self.inner.schedules(kind)
    }
    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        self.inner.tick(tick)
    }
}

//! A memory store with expensive calls, like those of a remote store.

use requeue_jobs::{BatchResults, Layered, MemoryStore, Placed, Put, PutError, Store, StoreFuture};
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

pub(super) struct ExpensiveStore {
    inner: MemoryStore,
    price: Price,
    /// Requests to the thread that serves them.
    requests: mpsc::Sender<oneshot::Sender<()>>,
    disk: tokio::sync::Mutex<()>,
    calls: AtomicU64,
}

impl ExpensiveStore {
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
        ExpensiveStore { inner, price, requests, disk, calls }
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

impl Layered for ExpensiveStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        Box::pin(async move {
            self.pay().await;
            self.inner.put(puts).await
        })
    }
}

//! Reads of all kinds, which concurrent requests share.
//!
//! With thousands of kinds such a read takes long. At most one runs at a time, however many requests ask:
//!
//! ```text
//!   request a ──▶ read 1 ──────────▶ returned to a
//!   request b      │ waits ──▶ read 2 ──────────▶ returned to b and c: it began after both
//!   request c      └─ waits ──┘
//! ```
//!
//! So nobody gets what was read before the request.

use requeue_jobs::{KindView, Store, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

/// The latest read of all kinds. Its lock is held while they are read.
#[derive(Default)]
pub(crate) struct KindViews {
    /// How many reads have begun.
    begun: AtomicU64,
    latest: Mutex<Latest>,
}

#[derive(Default)]
struct Latest {
    /// Which of the reads it is, from 1.
    number: u64,
    kinds: Arc<Vec<KindView>>,
}

impl KindViews {
    /// Returns the kinds as they are now or later.
    pub(crate) async fn get(&self, store: &dyn Store) -> Result<Arc<Vec<KindView>>, StoreError> {
        let begun = self.begun.load(Ordering::SeqCst);
        let mut latest = self.latest.lock().await;
        if latest.number <= begun {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            let kinds = Arc::new(store.kinds().await?);
            *latest = Latest { number, kinds };
        }
        Ok(Arc::clone(&latest.kinds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use requeue_jobs::{Body, JobId, Kind, Layered, MemoryStore, Put, StoreFuture};
    use requeue_testkit::block_on;
    use tokio::sync::Semaphore;

    /// A store whose reads of all kinds wait for permits.
    struct SlowKinds {
        store: MemoryStore,
        permits: Semaphore,
        begun: AtomicU64,
    }

    impl Layered for SlowKinds {
        fn inner(&self) -> &dyn Store {
            &self.store
        }

        fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
            self.begun.fetch_add(1, Ordering::SeqCst);
            Box::pin(async {
                self.permits.acquire().await.expect("it is never closed").forget();
                self.store.kinds().await
            })
        }
    }

    fn put(store: &SlowKinds, kind: &str) {
        let (kind, id) = (Kind::new(kind).unwrap(), JobId::new("a").unwrap());
        block_on(store.store.put(vec![Put::new(kind, id, Body::default())])).unwrap();
    }

    #[test]
    fn concurrent_requests_share_a_read_that_began_after_them() {
        let store = SlowKinds {
            store: MemoryStore::new(),
            permits: Semaphore::new(0),
            begun: AtomicU64::new(0),
        };
        let views = KindViews::default();
        let mut first = Box::pin(views.get(&store));
        assert!(first.as_mut().now_or_never().is_none());
        put(&store, "mail");
        let mut others = Box::pin(join_all((0..9).map(|_| views.get(&store))));
        assert!(others.as_mut().now_or_never().is_none());
        assert_eq!(store.begun.load(Ordering::SeqCst), 1);
        store.permits.add_permits(9);
        block_on(first).unwrap();
        for kinds in block_on(others) {
            assert_eq!(kinds.unwrap().len(), 1, "of the put before the request");
        }
        assert_eq!(store.begun.load(Ordering::SeqCst), 2);
        // What was read before is not used again.
        put(&store, "report");
        assert_eq!(block_on(views.get(&store)).unwrap().len(), 2);
    }
}

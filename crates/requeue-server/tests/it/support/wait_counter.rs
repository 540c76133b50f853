//! A store that counts who begins to wait.

use requeue_jobs::{Kind, Layered, Store, StoreFuture};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts who waits, once they do: whatever the time is from then on, it counts for them.
pub(crate) struct WaitCounter {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) waits: Arc<AtomicU64>,
}

impl Layered for WaitCounter {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        let mut wait = self.store.wait(kinds, limit);
        Box::pin(async move {
            let mut begun = false;
            poll_fn(|cx| {
                let answer = wait.as_mut().poll(cx);
                if !std::mem::replace(&mut begun, true) {
                    self.waits.fetch_add(1, Ordering::SeqCst);
                }
                answer
            })
            .await
        })
    }
}

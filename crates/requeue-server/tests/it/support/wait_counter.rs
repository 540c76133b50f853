//! A store that counts waits.

use requeue_jobs::{Kind, Layered, Store, StoreFuture};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts waits once they have begun: from then on they observe changes of the clock.
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
                let result = wait.as_mut().poll(cx);
                if !std::mem::replace(&mut begun, true) {
                    self.waits.fetch_add(1, Ordering::SeqCst);
                }
                result
            })
            .await
        })
    }
}

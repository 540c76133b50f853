//! The store contract, on an instrumented store.

use requeue_jobs::{Store, Timestamp, WallClock};
use requeue_server::{EventListener, InstrumentedStore};
use requeue_testkit::{Fixture, MemoryFixture};
use std::sync::Arc;
use std::time::Duration;

struct InstrumentedMemory {
    inner: MemoryFixture,
    store: Arc<InstrumentedStore>,
    _listener: EventListener,
}

impl InstrumentedMemory {
    fn new() -> Self {
        let inner = MemoryFixture::new();
        let store = Arc::new(InstrumentedStore::new(inner.store(), WallClock::system()));
        let _listener = store.events().listen(vec![]).expect("there is no other listener");
        InstrumentedMemory { inner, store, _listener }
    }
}

impl Fixture for InstrumentedMemory {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn advance(&self, by: Duration) {
        self.inner.advance(by);
    }

    fn check(&self) {
        self.inner.check();
    }
}

requeue_testkit::conformance!(InstrumentedMemory::new);

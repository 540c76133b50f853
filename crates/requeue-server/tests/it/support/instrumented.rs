//! An instrumented store on a manual clock.

use requeue::ManualClock;
use requeue_jobs::{
    Body, Change, ChangeKind, Claim, ClaimedJob, JobId, Kind, MemoryStore, Placed, Put, PutError,
    Settle, SettleError, Settled, Settlement, Store, Timestamp, WallClock, WorkerName,
};
use requeue_server::InstrumentedStore;
use requeue_testkit::block_on;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct InstrumentedFixture {
    pub(crate) clock: ManualClock,
    pub(crate) store: InstrumentedStore,
}

/// The time at which a test begins.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// For `expect`.
pub(crate) const WELL: &str = "the store works";

impl InstrumentedFixture {
    /// Changes a job of kind `mail`.
    pub(crate) fn change(&self, name: &str, action: ChangeKind) {
        let change = Change { kind: kind("mail"), id: id(name), action };
        let each = block_on(self.store.change(vec![change])).expect(WELL);
        assert!(each.iter().all(Result::is_ok), "{each:?}");
    }

    pub(crate) fn new() -> Self {
        InstrumentedFixture::around(|store| Arc::new(store))
    }

    /// Wraps the store in another one below the instrumented store.
    pub(crate) fn around(wrap: impl FnOnce(MemoryStore) -> Arc<dyn Store>) -> Self {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, START);
        let store = InstrumentedStore::new(wrap(MemoryStore::with(wall_clock.clone())), wall_clock);
        InstrumentedFixture { clock, store }
    }

    pub(crate) fn put(&self, put: Put) -> Result<Placed, PutError> {
        block_on(self.store.put(vec![put])).expect(WELL).remove(0)
    }

    pub(crate) fn claim(
        &self,
        kind_name: &str,
        worker: &str,
        lease: Option<Duration>,
    ) -> Vec<ClaimedJob> {
        let claim = Claim {
            kinds: vec![kind(kind_name)],
            max: 10,
            lease,
            worker: WorkerName::new(worker).expect("a valid name"),
            nonce: 7,
        };
        block_on(self.store.claim(claim)).expect(WELL).jobs
    }

    pub(crate) fn settle(
        &self,
        job: &ClaimedJob,
        action: Settlement,
    ) -> Result<Settled, SettleError> {
        let settle = Settle { receipt: job.receipt.clone(), action };
        block_on(self.store.settle(vec![settle])).expect(WELL).remove(0)
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    pub(crate) fn text(&self) -> String {
        block_on(self.store.metrics().render(&self.store))
    }
}

pub(crate) fn kind(kind: &str) -> Kind {
    Kind::new(kind).expect("a valid kind")
}

pub(crate) fn id(id: &str) -> JobId {
    JobId::new(id).expect("a valid id")
}

pub(crate) fn job(kind_name: &str, name: &str) -> Put {
    Put::new(kind(kind_name), id(name), Body::default())
}

pub(crate) fn retry() -> Settlement {
    Settlement::Retry { delay: None, error: "no luck".into() }
}

/// Asserts that the text contains these lines.
#[track_caller]
pub(crate) fn has_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "{line} in:\n{text}");
    }
}

//! What a store was asked, and what it answered, in the order in which it did it.
//!
//! The recorder stands between the faults and the store: whatever callers are told, it knows.

use super::event::{Event, Happened};
use crate::fixture::{Fixture, block_on};
use requeue_jobs::{
    BatchResults, Change, ChangeError, ChangeKind, Changed, Claim, Claimed, JobId, JobState,
    JobView, Kind, Layered, Placed, Put, PutError, Query, Settings, Settle, SettleError, Settled,
    Settlement, Store, StoreFuture, Tick, Ticked,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) struct Recorder {
    fixture: Arc<dyn Fixture>,
    store: Arc<dyn Store>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    events: Vec<Event>,
    /// What those who wait wait for.
    waiting: Vec<Vec<Kind>>,
}

impl Recorder {
    pub(super) fn new(fixture: Arc<dyn Fixture>) -> Self {
        let store = fixture.store();
        Recorder { fixture, store, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, what: Happened) {
        let at = self.fixture.now();
        self.seen().events.push(Event { at, what });
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.seen().events.clone()
    }

    fn view(&self, kind: &Kind, id: &JobId) -> Option<JobView> {
        block_on(self.store.get(kind.clone(), id.clone())).ok().flatten()
    }

    /// Some calls are done twice, which must be the same as once.
    fn again(&self, kind: &Kind, id: &JobId, call: String, again: impl FnOnce()) {
        if !self.seen().events.len().is_multiple_of(3) {
            return;
        }
        let before = self.view(kind, id);
        again();
        let after = self.view(kind, id);
        self.note(Happened::Again { call, before, after });
    }

    /// All jobs of a kind, on one page.
    fn listed(&self, kind: &Kind) -> Vec<JobView> {
        let query = Query { limit: 1000, ..Query::new(kind.clone()) };
        block_on(self.store.list(query)).unwrap_or_default().jobs
    }

    /// Turns the pages of a kind, one by one; `pause` passes in between.
    pub(super) async fn page<F: Future<Output = ()>>(&self, kind: &Kind, pause: impl Fn() -> F) {
        let before = self.listed(kind);
        let mut paged = Vec::new();
        let mut query = Query { limit: 1, ..Query::new(kind.clone()) };
        loop {
            let page = block_on(self.store.list(query.clone())).unwrap_or_default();
            paged.extend(page.jobs);
            let Some(cursor) = page.cursor else { break };
            query.after = Some(cursor);
            pause().await;
        }
        let after = self.listed(kind);
        self.note(Happened::Pages { before, paged, after });
    }

    /// Looks at everything: all jobs, twice, counts, and who waits.
    pub(super) fn audit(&self, kinds: &[Kind]) {
        let listed = kinds.iter().flat_map(|kind| self.listed(kind)).collect();
        let mut paged = Vec::new();
        for kind in kinds {
            let mut query = Query { limit: 2, ..Query::new(kind.clone()) };
            loop {
                let page = block_on(self.store.list(query.clone())).unwrap_or_default();
                paged.extend(page.jobs);
                let Some(cursor) = page.cursor else { break };
                query.after = Some(cursor);
            }
        }
        let counted = block_on(self.store.kinds()).unwrap_or_default();
        let waiting = self.seen().waiting.iter().flatten().cloned().collect();
        self.note(Happened::Audit { listed, paged, counted, waiting });
    }

    fn put_one(&self, put: Put) -> Result<Placed, PutError> {
        let before = self.view(&put.kind, &put.id);
        let do_it = || only(block_on(self.store.put(vec![put.clone()])));
        let placed = do_it();
        let after = self.view(&put.kind, &put.id);
        let call = format!("{put:?}");
        self.note(Happened::Put { put: put.clone(), placed: placed.clone(), before, after });
        if put.condition.is_some() {
            self.again(&put.kind, &put.id, call, || drop(do_it()));
        }
        placed
    }

    fn settle_one(&self, settle: Settle) -> Result<Settled, SettleError> {
        let (kind, id) = (settle.receipt.kind().clone(), settle.receipt.id().clone());
        let before = self.view(&kind, &id);
        let do_it = || only(block_on(self.store.settle(vec![settle.clone()])));
        let settled = do_it();
        let after = self.view(&kind, &id);
        let call = format!("{settle:?}");
        let again = settle.action != Settlement::Release;
        let event =
            Happened::Settle { settle: settle.clone(), settled: settled.clone(), before, after };
        self.note(event);
        if again {
            self.again(&kind, &id, call, || drop(do_it()));
        }
        settled
    }

    fn change_one(&self, change: Change) -> Result<Changed, ChangeError> {
        let do_it = || only(block_on(self.store.change(vec![change.clone()])));
        let changed = do_it();
        self.note(Happened::Change { change: change.clone(), changed: changed.clone() });
        if change.action == ChangeKind::Cancel {
            let call = format!("{change:?}");
            self.again(&change.kind, &change.id, call, || drop(do_it()));
        }
        changed
    }

    /// What a claim could get.
    fn claimable(&self, kinds: &[Kind]) -> Vec<JobView> {
        let now = self.fixture.now();
        let claimable = |job: &JobView| {
            let expired = job.lease.as_ref().is_some_and(|lease| lease.ends_at <= now);
            job.state == JobState::Ready || expired
        };
        kinds.iter().flat_map(|kind| self.listed(kind)).filter(claimable).collect()
    }
}

/// The answer to a batch of one.
fn only<T, E: From<requeue_jobs::StoreError>>(
    answer: Result<BatchResults<T, E>, requeue_jobs::StoreError>,
) -> Result<T, E> {
    answer?.pop().expect("there is one answer per entry")
}

/// A call that is recorded completes in one poll, together with the reads before and after it:
/// no other task runs in between, whatever the store.
impl Layered for Recorder {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        Box::pin(async move { Ok(puts.into_iter().map(|put| self.put_one(put)).collect()) })
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        Box::pin(async move {
            let before = self.claimable(&claim.kinds);
            let claimed = block_on(self.store.claim(claim))?;
            self.note(Happened::Claim { jobs: claimed.jobs.clone(), before });
            Ok(claimed)
        })
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        Box::pin(async move {
            Ok(settlements.into_iter().map(|settle| self.settle_one(settle)).collect())
        })
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        Box::pin(
            async move { Ok(changes.into_iter().map(|change| self.change_one(change)).collect()) },
        )
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.seen().waiting.push(kinds.clone());
            let _gone = Gone { recorder: self, kinds: kinds.clone() };
            self.store.wait(kinds, limit).await
        })
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, usize> {
        Box::pin(async move {
            let reaped = block_on(self.store.reap(max))?;
            self.note(Happened::Reap);
            Ok(reaped)
        })
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            block_on(self.store.set(kind.clone(), settings.clone()))?;
            self.note(Happened::Set { kind, settings });
            Ok(())
        })
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        Box::pin(async move {
            let ticked = block_on(self.store.tick(tick.clone()))?;
            self.note(Happened::Tick { tick, ticked });
            Ok(ticked)
        })
    }
}

/// Waits no more, also if it was killed.
struct Gone<'a> {
    recorder: &'a Recorder,
    kinds: Vec<Kind>,
}

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        let waiting = &mut self.recorder.seen().waiting;
        if let Some(at) = waiting.iter().position(|kinds| *kinds == self.kinds) {
            waiting.swap_remove(at);
        }
    }
}

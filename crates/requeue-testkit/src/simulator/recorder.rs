//! Records all calls of a store, with their results, in the order of their execution.
//!
//! The recorder is between the faults and the store: it knows the result of calls whose replies are
//! lost.

use super::event::{Action, Event};
use crate::fixture::{Fixture, block_on};
use requeue_jobs::{
    BatchResults, Change, ChangeError, ChangeKind, Changed, Claim, Claimed, Due, JobId, JobState,
    JobView, Kind, Layered, Placed, Put, PutError, Query, Reaped, Reschedule, Settings, Settle,
    SettleError, Settled, Settlement, Store, StoreError, StoreFuture, Tick, Ticked,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) struct Recorder {
    fixture: Arc<dyn Fixture>,
    store: Arc<dyn Store>,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    events: Vec<Event>,
    /// The kinds of each wait in progress.
    waiting: Vec<Vec<Kind>>,
}

impl Recorder {
    pub(super) fn new(fixture: Arc<dyn Fixture>) -> Self {
        let store = fixture.store();
        Recorder { fixture, store, log: Mutex::default() }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, action: Action) {
        let at = self.fixture.now();
        self.log().events.push(Event { at, action });
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.log().events.clone()
    }

    fn view(&self, kind: &Kind, id: &JobId) -> Option<JobView> {
        block_on(self.store.get(kind.clone(), id.clone())).ok().flatten()
    }

    /// Repeats some of the calls that are idempotent.
    fn repeat(&self, kind: &Kind, id: &JobId, call: String, repeat: impl FnOnce()) {
        if !self.log().events.len().is_multiple_of(3) {
            return;
        }
        let before = self.view(kind, id);
        repeat();
        let after = self.view(kind, id);
        self.record(Action::Repeat { call, before, after });
    }

    /// Returns all jobs of a kind, read in one page.
    fn listed(&self, kind: &Kind) -> Vec<JobView> {
        let query = Query { limit: 1000, ..Query::new(kind.clone()) };
        block_on(self.store.list(query)).unwrap_or_default().jobs
    }

    /// Reads all jobs of a kind page by page, with a `pause` in between.
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
        self.record(Action::Pages { before, paged, after });
    }

    /// Records everything: all jobs, read in large and in small pages, counts and waits.
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
        let waiting = self.log().waiting.iter().flatten().cloned().collect();
        self.record(Action::Audit { listed, paged, counted, waiting });
    }

    fn put_one(&self, put: Put) -> Result<Placed, PutError> {
        let before = self.view(&put.kind, &put.id);
        let call_store = || only(block_on(self.store.put(vec![put.clone()])));
        let placed = call_store();
        let after = self.view(&put.kind, &put.id);
        let call = format!("{put:?}");
        self.record(Action::Put { put: put.clone(), placed: placed.clone(), before, after });
        if put.condition.is_some() {
            self.repeat(&put.kind, &put.id, call, || drop(call_store()));
        }
        placed
    }

    fn settle_one(&self, settle: Settle) -> Result<Settled, SettleError> {
        let (kind, id) = (settle.receipt.kind().clone(), settle.receipt.id().clone());
        let before = self.view(&kind, &id);
        let call_store = || only(block_on(self.store.settle(vec![settle.clone()])));
        let settled = call_store();
        let after = self.view(&kind, &id);
        let call = format!("{settle:?}");
        let is_idempotent = settle.action != Settlement::Release;
        let event =
            Action::Settle { settle: settle.clone(), settled: settled.clone(), before, after };
        self.record(event);
        if is_idempotent {
            self.repeat(&kind, &id, call, || drop(call_store()));
        }
        settled
    }

    fn change_one(&self, change: Change) -> Result<Changed, ChangeError> {
        let before = self.view(&change.kind, &change.id);
        let call_store = || only(block_on(self.store.change(vec![change.clone()])));
        let changed = call_store();
        self.record(match (&change.action, &changed, &before) {
            (ChangeKind::Reschedule(set), Ok(Changed::Rescheduled(placed)), Some(before)) => {
                let (put, placed) = (self.same_put(before, set), Ok(*placed));
                let after = self.view(&change.kind, &change.id);
                Action::Put { put, placed, before: Some(before.clone()), after }
            }
            _ => Action::Change { change: change.clone(), changed: changed.clone() },
        });
        let is_idempotent = match &change.action {
            ChangeKind::Cancel => true,
            ChangeKind::Reschedule(set) => set.if_generation.is_some(),
            ChangeKind::RunNow | ChangeKind::Revive => false,
        };
        if is_idempotent {
            let call = format!("{change:?}");
            self.repeat(&change.kind, &change.id, call, || drop(call_store()));
        }
        changed
    }

    /// Returns the put that does the same as a reschedule of this job.
    fn same_put(&self, job: &JobView, set: &Reschedule) -> Put {
        let (content, due, priority) = match (&job.next, job.state) {
            (Some(next), _) => (&next.content, next.due, next.priority),
            (None, JobState::Leased) => {
                (&job.version.content, self.fixture.now(), job.version.priority)
            }
            (None, _) => (&job.version.content, job.version.due, job.version.priority),
        };
        let mut content = content.clone();
        if let Some(body) = &set.body {
            content = content.with_body(body.clone());
        }
        let mut put = Put::new(job.kind.clone(), job.id.clone(), content);
        put.due = set.due.unwrap_or(Due::At(due));
        put.priority = set.priority.unwrap_or(priority);
        put
    }

    /// Returns all jobs that a claim of these kinds could return.
    fn claimable(&self, kinds: &[Kind]) -> Vec<JobView> {
        let now = self.fixture.now();
        let claimable = |job: &JobView| {
            let expired = job.lease.as_ref().is_some_and(|lease| lease.ends_at <= now);
            job.state == JobState::Ready || expired
        };
        kinds.iter().flat_map(|kind| self.listed(kind)).filter(claimable).collect()
    }
}

/// Returns the result of a batch with one entry.
fn only<T, E: From<StoreError>>(results: Result<BatchResults<T, E>, StoreError>) -> Result<T, E> {
    results?.pop().expect("there is one result per entry")
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
            self.record(Action::Claim { jobs: claimed.jobs.clone(), before });
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
            self.log().waiting.push(kinds.clone());
            let _waiting = WaitGuard { recorder: self, kinds: kinds.clone() };
            self.store.wait(kinds, limit).await
        })
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        Box::pin(async move {
            let reaped = block_on(self.store.reap(max))?;
            self.record(Action::Reap);
            Ok(reaped)
        })
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            block_on(self.store.set(kind.clone(), settings.clone()))?;
            self.record(Action::Set { kind, settings });
            Ok(())
        })
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        Box::pin(async move {
            let ticked = block_on(self.store.tick(tick.clone()))?;
            self.record(Action::Tick { tick, ticked });
            Ok(ticked)
        })
    }
}

/// Removes a wait when it ends, or when its task is killed.
struct WaitGuard<'a> {
    recorder: &'a Recorder,
    kinds: Vec<Kind>,
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let waiting = &mut self.recorder.log().waiting;
        if let Some(at) = waiting.iter().position(|kinds| *kinds == self.kinds) {
            waiting.swap_remove(at);
        }
    }
}

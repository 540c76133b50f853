//! Everything that the server does passes here, once, and is counted here.

mod seen;
pub(crate) mod words;

use crate::events::Events;
use crate::metrics::{Counted, Metrics, Verb};
use crate::workers::{Waiting, Workers};
use requeue_jobs::{
    BatchResults, Change, ChangeError, Changed, Claim, Claimed, JobId, JobView, Kind, KindView,
    Page, Placed, Put, PutError, Query, Reaped, Receipt, Restore, Restored, Schedule, Settings,
    Settle, SettleError, Settled, Spans, Store, StoreError, StoreFuture, Tick, Ticked, WallClock,
    WorkerName,
};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use words::Wish;

/// A store that is watched: it does what the store inside does, and tells [`Metrics`], [`Events`]
/// and [`Workers`] what was answered.
///
/// What was asked and not answered, for whoever asked went away, is not known to have happened,
/// and is counted as an abandoned call only.
pub struct InstrumentedStore {
    store: Arc<dyn Store>,
    wall_clock: WallClock,
    metrics: Arc<Metrics>,
    events: Arc<Events>,
    workers: Arc<Workers>,
}

impl InstrumentedStore {
    /// Watches `store`. The wall_clock is this node's; where a store says what time it is, that is
    /// taken instead.
    pub fn new(store: Arc<dyn Store>, wall_clock: WallClock) -> Self {
        let metrics = Arc::new(Metrics::new(wall_clock.clone()));
        let events = Arc::new(Events::new(metrics.clone()));
        let workers = Arc::new(Workers::new(wall_clock.clone()));
        InstrumentedStore { store, wall_clock, metrics, events, workers }
    }

    /// What was counted.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// What happens.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// Who has claimed.
    pub fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// A claim waits, until the answer is dropped: for who waits for jobs over several calls.
    pub fn waiting(&self, worker: &WorkerName, kinds: &[Kind]) -> WaitingClaim {
        let _workers = self.workers.waiting(worker, kinds);
        WaitingClaim { _workers, _metrics: self.metrics.waiting_claim() }
    }

    /// Asks the store, and counts how that went.
    async fn asked<T>(&self, verb: Verb, answer: StoreFuture<'_, T>) -> Result<T, StoreError> {
        let call = self.metrics.call(verb);
        let answer = answer.await;
        call.answered(answer.as_ref().err());
        answer
    }
}

/// A claim that waits, until it is dropped.
#[derive(Debug)]
#[must_use = "the claim is said to wait until it is dropped"]
pub struct WaitingClaim {
    _workers: Waiting,
    _metrics: Counted,
}

impl Store for InstrumentedStore {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        Box::pin(async move {
            let name = |put: &Put| (put.kind.clone(), put.id.clone());
            let names: Vec<(Kind, JobId)> = puts.iter().map(name).collect();
            let each = self.asked(Verb::Put, self.store.put(puts)).await?;
            self.seen_puts(&names, &each);
            Ok(each)
        })
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        Box::pin(async move {
            let (worker, kinds, lease) = (claim.worker.clone(), claim.kinds.clone(), claim.lease);
            let claimed = self.asked(Verb::Claim, self.store.claim(claim)).await?;
            self.seen_claim(&worker, &kinds, lease, &claimed);
            Ok(claimed)
        })
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        Box::pin(async move {
            let wish = |settle: &Settle| (settle.receipt.clone(), Wish::from(&settle.action));
            let wishes: Vec<(Receipt, Wish)> = settlements.iter().map(wish).collect();
            let each = self.asked(Verb::Settle, self.store.settle(settlements)).await?;
            self.seen_settlements(&wishes, &each);
            Ok(each)
        })
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        Box::pin(async move {
            let asked = changes.clone();
            let each = self.asked(Verb::Change, self.store.change(changes)).await?;
            self.seen_changes(&asked, &each);
            Ok(each)
        })
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        Box::pin(async move {
            let kind = restore.kind.clone();
            let names: Vec<_> =
                restore.jobs.iter().map(|job| (job.id.clone(), job.generation)).collect();
            let each = self.asked(Verb::Restore, self.store.restore(restore)).await?;
            self.seen_restored(&kind, &names, &each);
            Ok(each)
        })
    }

    /// Waiting is not counted as a call: it lasts as long as there is nothing to do.
    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let answer = self.store.wait(kinds, limit).await;
            answer.inspect_err(|error| self.metrics.failed(Verb::Wait, error))
        })
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        Box::pin(async move {
            let reaped = self.asked(Verb::Reap, self.store.reap(max)).await?;
            self.metrics.reaped(reaped.count);
            Ok(reaped)
        })
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        Box::pin(self.asked(Verb::Get, self.store.get(kind, id)))
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        Box::pin(self.asked(Verb::List, self.store.list(query)))
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        Box::pin(self.asked(Verb::Kinds, self.store.kinds()))
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        Box::pin(self.asked(Verb::Upcoming, self.store.upcoming(kind, spans)))
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        Box::pin(self.asked(Verb::Settings, self.store.settings(kind)))
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (paused, is_default) = (settings.paused, settings == Settings::default());
            self.asked(Verb::Set, self.store.set(kind.clone(), settings)).await?;
            self.seen_settings(&kind, paused, is_default);
            Ok(())
        })
    }

    fn set_schedule(&self, kind: Kind, schedule: Schedule) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let id = schedule.id.clone();
            let answer = self.store.set_schedule(kind.clone(), schedule);
            self.asked(Verb::SetSchedule, answer).await?;
            self.seen_schedule(&kind, &id, "set");
            Ok(())
        })
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let answer = self.store.remove_schedule(kind.clone(), id.clone());
            let removed = self.asked(Verb::RemoveSchedule, answer).await?;
            if removed {
                self.seen_schedule(&kind, &id, "removed");
            }
            Ok(removed)
        })
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        Box::pin(self.asked(Verb::Schedules, self.store.schedules(kind)))
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        Box::pin(async move {
            let (kind, id) = (tick.kind.clone(), tick.id.clone());
            let ticked = self.asked(Verb::Tick, self.store.tick(tick)).await?;
            if let Ticked::Put(placed) = ticked {
                self.seen_put(&mut self.metrics.by_kind(), &kind, &id, placed);
            }
            Ok(ticked)
        })
    }
}

impl fmt::Debug for InstrumentedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstrumentedStore").finish_non_exhaustive()
    }
}

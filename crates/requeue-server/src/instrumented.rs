//! The store wrapper that feeds metrics, events and the list of workers. Every store call of the
//! server passes through it.

pub(crate) mod outcomes;
mod record;

use crate::events::Events;
use crate::metrics::{GaugeGuard, ServerMetrics};
use crate::workers::{WaitingWorker, Workers};
use outcomes::SettleAction;
use requeue_jobs::{
    BatchResults, Change, ChangeError, Changed, Claim, Claimed, JobId, Kind, Layered, Placed, Put,
    PutError, Reaped, Receipt, Restore, Restored, Schedule, ScheduleCondition, Settings, Settle,
    SettleError, Settled, Store, StoreError, StoreFuture, StoreMethod, Tick, Ticked, WallClock,
    WorkerName,
};
use std::fmt;
use std::sync::Arc;

/// A store that forwards to another store and records each result in [`ServerMetrics`],
/// [`Events`] and [`Workers`].
///
/// If a call is dropped before the store has returned, its outcome is unknown. Such a call is
/// counted as abandoned and recorded nowhere else.
pub struct InstrumentedStore {
    store: Arc<dyn Store>,
    wall_clock: WallClock,
    metrics: Arc<ServerMetrics>,
    events: Arc<Events>,
    workers: Arc<Workers>,
}

impl InstrumentedStore {
    /// Wraps `store`. `wall_clock` is the clock of this node; where a result of the store implies
    /// the store's time, that time is used instead.
    pub fn new(store: Arc<dyn Store>, wall_clock: WallClock) -> Self {
        let metrics = Arc::new(ServerMetrics::new(wall_clock.clone()));
        let events = Arc::new(Events::new(metrics.clone()));
        let workers = Arc::new(Workers::new(wall_clock.clone()));
        InstrumentedStore { store, wall_clock, metrics, events, workers }
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Arc<ServerMetrics> {
        &self.metrics
    }

    /// Returns the source of events.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// Returns the workers that claimed through this store.
    pub fn workers(&self) -> &Arc<Workers> {
        &self.workers
    }

    /// Counts a waiting claim of this worker until the returned guard is dropped. For callers that
    /// wait for jobs over several calls of the store.
    pub fn waiting(&self, worker: &WorkerName, kinds: &[Kind]) -> WaitingClaim {
        let _workers = self.workers.waiting(worker, kinds);
        WaitingClaim { _workers, _metrics: self.metrics.waiting_claim() }
    }

    /// Runs a call of the store, and records its duration and its error.
    async fn timed<T>(
        &self,
        method: StoreMethod,
        call: StoreFuture<'_, T>,
    ) -> Result<T, StoreError> {
        // How long a wait takes depends on when work arrives, not on the store.
        if method == StoreMethod::Wait {
            return call.await.inspect_err(|error| self.metrics.failed(method, error));
        }
        let timer = self.metrics.call(method);
        let result = call.await;
        timer.finished(result.as_ref().err());
        if let Err(error) = &result {
            self.metrics.log_failure(method, error);
        }
        result
    }
}

/// A guard that counts a waiting claim until it is dropped.
#[derive(Debug)]
#[must_use = "the claim counts as waiting until this is dropped"]
pub struct WaitingClaim {
    _workers: WaitingWorker,
    _metrics: GaugeGuard,
}

impl Layered for InstrumentedStore {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn around<'a, T: Send + 'a>(
        &'a self,
        method: StoreMethod,
        call: impl for<'s> FnOnce(&'s dyn Store) -> StoreFuture<'s, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(self.timed(method, call(&*self.store)))
    }

    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        Box::pin(async move {
            let name = |put: &Put| (put.kind.clone(), put.id.clone());
            let names: Vec<(Kind, JobId)> = puts.iter().map(name).collect();
            let results = self.timed(StoreMethod::Put, self.store.put(puts)).await?;
            self.record_puts(&names, &results);
            Ok(results)
        })
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        Box::pin(async move {
            let (worker, kinds, lease) = (claim.worker.clone(), claim.kinds.clone(), claim.lease);
            let claimed = self.timed(StoreMethod::Claim, self.store.claim(claim)).await?;
            self.record_claim(&worker, &kinds, lease, &claimed);
            Ok(claimed)
        })
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        Box::pin(async move {
            let action = |one: &Settle| (one.receipt.clone(), SettleAction::from(&one.action));
            let actions: Vec<(Receipt, SettleAction)> = settlements.iter().map(action).collect();
            let results = self.timed(StoreMethod::Settle, self.store.settle(settlements)).await?;
            self.record_settlements(&actions, &results);
            Ok(results)
        })
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        Box::pin(async move {
            let requested = changes.clone();
            let results = self.timed(StoreMethod::Change, self.store.change(changes)).await?;
            self.record_changes(&requested, &results);
            Ok(results)
        })
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        Box::pin(async move {
            let kind = restore.kind.clone();
            let jobs: Vec<_> =
                restore.jobs.iter().map(|job| (job.id.clone(), job.version.generation)).collect();
            let results = self.timed(StoreMethod::Restore, self.store.restore(restore)).await?;
            self.record_restored(&kind, &jobs, &results);
            Ok(results)
        })
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        Box::pin(async move {
            let reaped = self.timed(StoreMethod::Reap, self.store.reap(max)).await?;
            self.metrics.reaped(reaped.count);
            self.record_expired(&reaped.expired);
            Ok(reaped)
        })
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (paused, is_default) = (settings.paused, settings == Settings::default());
            self.timed(StoreMethod::Set, self.store.set(kind.clone(), settings)).await?;
            self.record_settings(&kind, paused, is_default);
            Ok(())
        })
    }

    fn set_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
        condition: ScheduleCondition,
    ) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let id = schedule.id.clone();
            let call = self.store.set_schedule(kind.clone(), schedule, condition);
            let is_set = self.timed(StoreMethod::SetSchedule, call).await?;
            if is_set {
                self.record_schedule(&kind, &id, "set");
            }
            Ok(is_set)
        })
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            let call = self.store.remove_schedule(kind.clone(), id.clone());
            let removed = self.timed(StoreMethod::RemoveSchedule, call).await?;
            if removed {
                self.record_schedule(&kind, &id, "removed");
            }
            Ok(removed)
        })
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        Box::pin(async move {
            let (kind, expected) = (tick.kind.clone(), tick.expected);
            let job = tick.put.as_ref().map(|job| job.id.clone());
            let ticked = self.timed(StoreMethod::Tick, self.store.tick(tick)).await?;
            if let (Ticked::Put(placed), Some(id)) = (ticked, job) {
                self.record_run(&kind, &id, placed, expected);
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

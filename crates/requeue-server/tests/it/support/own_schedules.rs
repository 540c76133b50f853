//! The store of a client whose schedules are those of the store behind the server.

use requeue_jobs::{
    BatchResults, Change, ChangeError, Changed, Claim, Claimed, JobId, Kind, Layered, Placed, Put,
    PutError, Schedule, ScheduleCondition, Settle, SettleError, Settled, Store, StoreFuture, Tick,
    Ticked,
};
use std::sync::Arc;

/// Forwards all calls to the client, except those about schedules.
///
/// The service sets the times of schedules and starts their runs itself. A client can neither choose
/// the next time nor tick, which the contract of stores requires, nor change the timers. So these calls go
/// to the store behind the server, and the rest of the contract sees what they change.
pub(crate) struct OwnSchedules {
    pub(crate) client: Arc<dyn Store>,
    pub(crate) store: Arc<dyn Store>,
}

impl Layered for OwnSchedules {
    fn inner(&self) -> &dyn Store {
        &*self.client
    }

    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        let reserved = puts.iter().any(|put| put.kind.is_reserved());
        if reserved { self.store.put(puts) } else { self.client.put(puts) }
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        let reserved = claim.kinds.iter().any(Kind::is_reserved);
        if reserved { self.store.claim(claim) } else { self.client.claim(claim) }
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        let reserved = settlements.iter().any(|settle| settle.receipt.kind().is_reserved());
        if reserved { self.store.settle(settlements) } else { self.client.settle(settlements) }
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        let reserved = changes.iter().any(|change| change.kind.is_reserved());
        if reserved { self.store.change(changes) } else { self.client.change(changes) }
    }

    fn set_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
        condition: ScheduleCondition,
    ) -> StoreFuture<'_, bool> {
        self.store.set_schedule(kind, schedule, condition)
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        self.store.remove_schedule(kind, id)
    }

    fn schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<Schedule>> {
        self.store.schedule(kind, id)
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        self.store.schedules(kind)
    }

    /// Then those who set a schedule set its timer, too: the service behind the client does not know it.
    fn needs_reaping(&self) -> bool {
        true
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        self.store.tick(tick)
    }
}

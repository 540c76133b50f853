//! The store of a client whose schedules are those of the store behind the server.

use requeue_jobs::{
    JobId, Kind, Layered, Schedule, ScheduleCondition, Store, StoreFuture, Tick, Ticked,
};
use std::sync::Arc;

/// Forwards all calls to the client, except those about schedules.
///
/// The service sets the times of schedules and starts their runs itself. A client can neither choose
/// the next time nor tick, which the contract of stores requires. So these calls go to the store behind
/// the server, and the rest of the contract sees what they change.
pub(crate) struct OwnSchedules {
    pub(crate) client: Arc<dyn Store>,
    pub(crate) store: Arc<dyn Store>,
}

impl Layered for OwnSchedules {
    fn inner(&self) -> &dyn Store {
        &*self.client
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

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        self.store.tick(tick)
    }
}

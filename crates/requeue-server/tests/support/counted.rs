//! A store that counts who begins to wait.

use requeue_jobs::{
    Answer, Change, ChangeError, Changed, Claim, Claimed, Each, JobId, JobView, Kind, KindView,
    Page, Placed, Put, PutError, Query, Restore, Restored, Schedule, Settings, Settle, SettleError,
    Settled, Spans, Store, StoreError, Tick, Ticked,
};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts who waits, once they do: whatever the time is from then on, it counts for them.
pub(crate) struct Counted {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) waits: Arc<AtomicU64>,
}

impl Store for Counted {
    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> Answer<'_, ()> {
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

    fn put(&self, puts: Vec<Put>) -> Answer<'_, Each<Placed, PutError>> {
        self.store.put(puts)
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claimed> {
        self.store.claim(claim)
    }

    fn settle(&self, settlements: Vec<Settle>) -> Answer<'_, Each<Settled, SettleError>> {
        self.store.settle(settlements)
    }

    fn change(&self, changes: Vec<Change>) -> Answer<'_, Each<Changed, ChangeError>> {
        self.store.change(changes)
    }

    fn restore(&self, restore: Restore) -> Answer<'_, Each<Restored, StoreError>> {
        self.store.restore(restore)
    }

    fn reap(&self, max: usize) -> Answer<'_, usize> {
        self.store.reap(max)
    }

    fn get(&self, kind: Kind, id: JobId) -> Answer<'_, Option<JobView>> {
        self.store.get(kind, id)
    }

    fn list(&self, query: Query) -> Answer<'_, Page> {
        self.store.list(query)
    }

    fn kinds(&self) -> Answer<'_, Vec<KindView>> {
        self.store.kinds()
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> Answer<'_, Vec<u64>> {
        self.store.upcoming(kind, spans)
    }

    fn settings(&self, kind: Kind) -> Answer<'_, Settings> {
        self.store.settings(kind)
    }

    fn set(&self, kind: Kind, settings: Settings) -> Answer<'_, ()> {
        self.store.set(kind, settings)
    }

    fn set_schedule(&self, kind: Kind, schedule: Schedule) -> Answer<'_, ()> {
        self.store.set_schedule(kind, schedule)
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> Answer<'_, bool> {
        self.store.remove_schedule(kind, id)
    }

    fn schedules(&self, kind: Kind) -> Answer<'_, Vec<Schedule>> {
        self.store.schedules(kind)
    }

    fn tick(&self, tick: Tick) -> Answer<'_, Ticked> {
        self.store.tick(tick)
    }
}

//! A right store with one thing done wrong.

use crate::fixture::block_on;
use requeue_jobs::limits::MAX_BATCH;
use requeue_jobs::{
    BatchResults, Change, ChangeError, ChangeKind, Changed, Claim, Claimed, JobId, JobView, Kind,
    KindView, MemoryStore, Page, Placed, Put, PutError, Query, Reaped, Receipt, Restore, Restored,
    Schedule, Settings, Settle, SettleError, Settled, Settlement, Spans, Store, StoreError,
    StoreFuture, Tick, Ticked, Timestamp, WallClock, check_batch,
};
use std::future::{Future, ready};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Which job: what most flaws remember things by.
pub(super) type Name = (Kind, JobId);

pub(super) type Restoring = Result<BatchResults<Restored, StoreError>, StoreError>;

/// What a store can do wrong. Whatever a flaw does not say is done right.
pub(super) trait Wrong: Send + 'static {
    fn put(&mut self, right: &Right, put: Put) -> Result<Placed, PutError> {
        right.put(put)
    }

    fn claim(&mut self, right: &Right, claim: Claim) -> Result<Claimed, StoreError> {
        right.claim(claim)
    }

    fn settle(&mut self, right: &Right, settle: Settle) -> Result<Settled, SettleError> {
        right.settle(settle.receipt, settle.action)
    }

    fn change(&mut self, right: &Right, change: Change) -> Result<Changed, ChangeError> {
        right.change(&(change.kind, change.id), change.action)
    }

    fn restore(&mut self, right: &Right, restore: Restore) -> Restoring {
        right.restore(restore)
    }

    fn wait<'a>(
        &mut self,
        right: &'a Right,
        kinds: Vec<Kind>,
        limit: Duration,
    ) -> StoreFuture<'a, ()> {
        right.store.wait(kinds, limit)
    }

    fn reap(&mut self, right: &Right, max: usize) -> Reaped {
        right.reap(max)
    }

    /// Changes a job as it is told, by `get` and by `list`.
    fn tell(&mut self, _right: &Right, _view: &mut JobView) {}

    fn list(&mut self, right: &Right, query: Query) -> Page {
        right.list(query)
    }

    fn kinds(&mut self, right: &Right) -> Vec<KindView> {
        right.kinds()
    }

    /// Changes settings as they are enforced.
    fn enforce(&mut self, _settings: &mut Settings) {}

    fn tick(&mut self, right: &Right, tick: Tick) -> Ticked {
        right.tick(tick)
    }
}

/// The memory store, asked one thing at a time.
pub(super) struct Right {
    pub(super) store: MemoryStore,
    pub(super) wall_clock: WallClock,
}

/// It is in memory: it answers at once, and has no reason to fail.
fn now<T>(answer: impl Future<Output = Result<T, StoreError>>) -> T {
    block_on(answer).expect("a store in memory answers")
}

impl Right {
    pub(super) fn now(&self) -> Timestamp {
        self.wall_clock.now()
    }

    pub(super) fn put(&self, put: Put) -> Result<Placed, PutError> {
        now(self.store.put(vec![put])).remove(0)
    }

    pub(super) fn claim(&self, claim: Claim) -> Result<Claimed, StoreError> {
        block_on(self.store.claim(claim))
    }

    pub(super) fn settle(
        &self,
        receipt: Receipt,
        action: Settlement,
    ) -> Result<Settled, SettleError> {
        now(self.store.settle(vec![Settle { receipt, action }])).remove(0)
    }

    pub(super) fn change(&self, name: &Name, action: ChangeKind) -> Result<Changed, ChangeError> {
        let (kind, id) = name.clone();
        now(self.store.change(vec![Change { kind, id, action }])).remove(0)
    }

    pub(super) fn restore(&self, restore: Restore) -> Restoring {
        block_on(self.store.restore(restore))
    }

    pub(super) fn reap(&self, max: usize) -> Reaped {
        now(self.store.reap(max))
    }

    pub(super) fn get(&self, (kind, id): &Name) -> Option<JobView> {
        now(self.store.get(kind.clone(), id.clone()))
    }

    pub(super) fn list(&self, query: Query) -> Page {
        now(self.store.list(query))
    }

    pub(super) fn kinds(&self) -> Vec<KindView> {
        now(self.store.kinds())
    }

    pub(super) fn tick(&self, tick: Tick) -> Ticked {
        now(self.store.tick(tick))
    }

    pub(super) fn schedules(&self, kind: &Kind) -> Vec<Schedule> {
        now(self.store.schedules(kind.clone()))
    }
}

pub(super) struct WrongStore {
    right: Right,
    wrong: Mutex<Box<dyn Wrong>>,
    /// As they were set, to be told as such.
    settings: Mutex<Vec<(Kind, Settings)>>,
}

impl WrongStore {
    pub(super) fn new(right: Right, wrong: Box<dyn Wrong>) -> Self {
        WrongStore { right, wrong: Mutex::new(wrong), settings: Mutex::default() }
    }

    fn wrong(&self) -> MutexGuard<'_, Box<dyn Wrong>> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn told(&self, mut view: JobView) -> JobView {
        self.wrong().tell(&self.right, &mut view);
        view
    }
}

fn at_once<'a, T: Send + 'a>(answer: T) -> StoreFuture<'a, T> {
    Box::pin(ready(Ok(answer)))
}

impl Store for WrongStore {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        if check_batch(&puts).is_err() {
            return self.right.store.put(puts);
        }
        at_once(puts.into_iter().map(|put| self.wrong().put(&self.right, put)).collect())
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        Box::pin(ready(self.wrong().claim(&self.right, claim)))
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        if settlements.len() > MAX_BATCH {
            return self.right.store.settle(settlements);
        }
        let settle = |settle| self.wrong().settle(&self.right, settle);
        at_once(settlements.into_iter().map(settle).collect())
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        if changes.len() > MAX_BATCH {
            return self.right.store.change(changes);
        }
        let change = |change| self.wrong().change(&self.right, change);
        at_once(changes.into_iter().map(change).collect())
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        Box::pin(ready(self.wrong().restore(&self.right, restore)))
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        self.wrong().wait(&self.right, kinds, limit)
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        at_once(self.wrong().reap(&self.right, max))
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        at_once(self.right.get(&(kind, id)).map(|view| self.told(view)))
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        let Page { jobs, cursor } = self.wrong().list(&self.right, query);
        at_once(Page { jobs: jobs.into_iter().map(|view| self.told(view)).collect(), cursor })
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        at_once(self.wrong().kinds(&self.right))
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        self.right.store.upcoming(kind, spans)
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        match settings.iter().rfind(|(of, _)| *of == kind) {
            Some((_, settings)) => at_once(settings.clone()),
            None => self.right.store.settings(kind),
        }
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        let mut enforced = settings.clone();
        self.wrong().enforce(&mut enforced);
        let answer = block_on(self.right.store.set(kind.clone(), enforced));
        if answer.is_ok() {
            let mut told = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
            told.push((kind, settings));
        }
        Box::pin(ready(answer))
    }

    fn set_schedule(&self, kind: Kind, schedule: Schedule) -> StoreFuture<'_, ()> {
        self.right.store.set_schedule(kind, schedule)
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        self.right.store.remove_schedule(kind, id)
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        self.right.store.schedules(kind)
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        at_once(self.wrong().tick(&self.right, tick))
    }
}

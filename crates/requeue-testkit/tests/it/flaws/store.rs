//! A correct store, and a store that deviates from it in one way.

use requeue_jobs::rules::check_settlements;
use requeue_jobs::{
    BatchResults, Change, ChangeError, ChangeKind, Changed, Claim, Claimed, Invalid, JobId,
    JobView, Kind, KindView, Layered, MemoryStore, Page, Placed, Put, PutError, Query, Reaped,
    Receipt, Restore, Restored, Schedule, ScheduleCondition, Settings, Settle, SettleError,
    Settled, Settlement, Store, StoreError, StoreFuture, Tick, Ticked, TimePage, TimeQuery,
    Timestamp, WallClock, check_batch, check_changes,
};
use requeue_testkit::block_on;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Identifies a job.
pub(super) type JobName = (Kind, JobId);

pub(super) type RestoreResult = Result<BatchResults<Restored, StoreError>, StoreError>;

/// One way to deviate from a correct store. Methods that are not overridden are correct.
pub(super) trait Deviation: Send + 'static {
    fn put(&mut self, correct: &CorrectStore, put: Put) -> Result<Placed, PutError> {
        correct.put(put)
    }

    fn claim(&mut self, correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
        correct.claim(claim)
    }

    fn settle(&mut self, correct: &CorrectStore, settle: Settle) -> Result<Settled, SettleError> {
        correct.settle(settle.receipt, settle.action)
    }

    fn change(&mut self, correct: &CorrectStore, change: Change) -> Result<Changed, ChangeError> {
        correct.change(&(change.kind, change.id), change.action)
    }

    /// Checks a batch of changes before any of them is performed.
    fn check_changes(&self, changes: &[Change]) -> Result<(), Invalid> {
        check_changes(changes)
    }

    fn restore(&mut self, correct: &CorrectStore, restore: Restore) -> RestoreResult {
        correct.restore(restore)
    }

    fn wait<'a>(
        &mut self,
        correct: &'a CorrectStore,
        kinds: Vec<Kind>,
        limit: Duration,
    ) -> StoreFuture<'a, ()> {
        correct.store.wait(kinds, limit)
    }

    fn reap(&mut self, correct: &CorrectStore, max: usize) -> Reaped {
        correct.reap(max)
    }

    /// Alters a job that `get` or `list` returns.
    fn alter_view(&mut self, _correct: &CorrectStore, _view: &mut JobView) {}

    fn list(&mut self, correct: &CorrectStore, query: Query) -> Page {
        correct.list(query)
    }

    fn list_by_time(
        &mut self,
        correct: &CorrectStore,
        query: TimeQuery,
    ) -> Result<TimePage, StoreError> {
        correct.list_by_time(query)
    }

    fn kinds(&mut self, correct: &CorrectStore) -> Vec<KindView> {
        correct.kinds()
    }

    fn kind(&mut self, correct: &CorrectStore, kind: Kind) -> KindView {
        correct.kind(kind)
    }

    /// Alters settings before they are set. `settings` still returns what the caller set.
    fn alter_settings(&mut self, _settings: &mut Settings) {}

    fn tick(&mut self, correct: &CorrectStore, tick: Tick) -> Result<Ticked, StoreError> {
        correct.tick(tick)
    }

    /// Alters the condition of a schedule that is set.
    fn alter_condition(&mut self, _condition: &mut ScheduleCondition) {}
}

/// A deviation of one method that needs no state.
pub(super) enum Hook {
    Put(fn(&CorrectStore, Put) -> Result<Placed, PutError>),
    Claim(fn(&CorrectStore, Claim) -> Result<Claimed, StoreError>),
    Settle(fn(&CorrectStore, Settle) -> Result<Settled, SettleError>),
    Change(fn(&CorrectStore, Change) -> Result<Changed, ChangeError>),
    Restore(fn(&CorrectStore, Restore) -> RestoreResult),
    View(fn(&CorrectStore, &mut JobView)),
    List(fn(&CorrectStore, Query) -> Page),
    ListByTime(fn(&CorrectStore, TimeQuery) -> Result<TimePage, StoreError>),
}

impl Deviation for Hook {
    fn put(&mut self, correct: &CorrectStore, put: Put) -> Result<Placed, PutError> {
        if let Hook::Put(hook) = self { hook(correct, put) } else { correct.put(put) }
    }

    fn claim(&mut self, correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
        if let Hook::Claim(hook) = self { hook(correct, claim) } else { correct.claim(claim) }
    }

    fn settle(&mut self, correct: &CorrectStore, settle: Settle) -> Result<Settled, SettleError> {
        match self {
            Hook::Settle(hook) => hook(correct, settle),
            _ => correct.settle(settle.receipt, settle.action),
        }
    }

    fn change(&mut self, correct: &CorrectStore, change: Change) -> Result<Changed, ChangeError> {
        match self {
            Hook::Change(hook) => hook(correct, change),
            _ => correct.change(&(change.kind, change.id), change.action),
        }
    }

    fn restore(&mut self, correct: &CorrectStore, restore: Restore) -> RestoreResult {
        if let Hook::Restore(hook) = self {
            hook(correct, restore)
        } else {
            correct.restore(restore)
        }
    }

    fn alter_view(&mut self, correct: &CorrectStore, view: &mut JobView) {
        if let Hook::View(hook) = self {
            hook(correct, view);
        }
    }

    fn list(&mut self, correct: &CorrectStore, query: Query) -> Page {
        if let Hook::List(hook) = self { hook(correct, query) } else { correct.list(query) }
    }

    fn list_by_time(
        &mut self,
        correct: &CorrectStore,
        query: TimeQuery,
    ) -> Result<TimePage, StoreError> {
        match self {
            Hook::ListByTime(hook) => hook(correct, query),
            _ => correct.list_by_time(query),
        }
    }
}

/// A memory store with methods that return immediately.
pub(super) struct CorrectStore {
    pub(super) store: MemoryStore,
    pub(super) wall_clock: WallClock,
}

fn now<T>(call: impl Future<Output = Result<T, StoreError>>) -> T {
    block_on(call).expect("a store in memory does not fail")
}

impl CorrectStore {
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

    pub(super) fn change(
        &self,
        name: &JobName,
        action: ChangeKind,
    ) -> Result<Changed, ChangeError> {
        let (kind, id) = name.clone();
        now(self.store.change(vec![Change { kind, id, action }])).remove(0)
    }

    pub(super) fn restore(&self, restore: Restore) -> RestoreResult {
        block_on(self.store.restore(restore))
    }

    pub(super) fn reap(&self, max: usize) -> Reaped {
        now(self.store.reap(max))
    }

    pub(super) fn get(&self, (kind, id): &JobName) -> Option<JobView> {
        now(self.store.get(kind.clone(), id.clone()))
    }

    pub(super) fn list(&self, query: Query) -> Page {
        now(self.store.list(query))
    }

    pub(super) fn list_by_time(&self, query: TimeQuery) -> Result<TimePage, StoreError> {
        block_on(self.store.list_by_time(query))
    }

    pub(super) fn kinds(&self) -> Vec<KindView> {
        now(self.store.kinds())
    }

    pub(super) fn kind(&self, kind: Kind) -> KindView {
        now(self.store.kind(kind))
    }

    pub(super) fn tick(&self, tick: Tick) -> Result<Ticked, StoreError> {
        block_on(self.store.tick(tick))
    }

    pub(super) fn schedules(&self, kind: &Kind) -> Vec<Schedule> {
        now(self.store.schedules(kind.clone()))
    }
}

/// A store with one [`Deviation`].
pub(super) struct FlawedStore {
    correct: CorrectStore,
    deviation: Mutex<Box<dyn Deviation>>,
    /// The settings that callers set.
    settings: Mutex<Vec<(Kind, Settings)>>,
}

impl FlawedStore {
    pub(super) fn create(wall_clock: WallClock, deviation: impl Deviation) -> Arc<dyn Store> {
        let store = MemoryStore::with(wall_clock.clone());
        let correct = CorrectStore { store, wall_clock };
        let deviation: Mutex<Box<dyn Deviation>> = Mutex::new(Box::new(deviation));
        Arc::new(FlawedStore { correct, deviation, settings: Mutex::default() })
    }

    fn deviation(&self) -> MutexGuard<'_, Box<dyn Deviation>> {
        self.deviation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn altered(&self, mut view: JobView) -> JobView {
        self.deviation().alter_view(&self.correct, &mut view);
        view
    }
}

fn done<'a, T: Send + 'a>(result: T) -> StoreFuture<'a, T> {
    Box::pin(ready(Ok(result)))
}

impl Layered for FlawedStore {
    fn inner(&self) -> &dyn Store {
        &self.correct.store
    }

    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        if check_batch(&puts).is_err() {
            return self.correct.store.put(puts);
        }
        done(puts.into_iter().map(|put| self.deviation().put(&self.correct, put)).collect())
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        Box::pin(ready(self.deviation().claim(&self.correct, claim)))
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        if check_settlements(&settlements).is_err() {
            return self.correct.store.settle(settlements);
        }
        let settle = |settle| self.deviation().settle(&self.correct, settle);
        done(settlements.into_iter().map(settle).collect())
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        if let Err(invalid) = self.deviation().check_changes(&changes) {
            return Box::pin(ready(Err(invalid.into())));
        }
        let change = |change| self.deviation().change(&self.correct, change);
        done(changes.into_iter().map(change).collect())
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        Box::pin(ready(self.deviation().restore(&self.correct, restore)))
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        self.deviation().wait(&self.correct, kinds, limit)
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        done(self.deviation().reap(&self.correct, max))
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        done(self.correct.get(&(kind, id)).map(|view| self.altered(view)))
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        let Page { jobs, cursor } = self.deviation().list(&self.correct, query);
        done(Page { jobs: jobs.into_iter().map(|view| self.altered(view)).collect(), cursor })
    }

    fn list_by_time(&self, query: TimeQuery) -> StoreFuture<'_, TimePage> {
        let page = self.deviation().list_by_time(&self.correct, query);
        let altered = |TimePage { jobs, cursor }| {
            let jobs = jobs.into_iter().map(|view| self.altered(view)).collect();
            TimePage { jobs, cursor }
        };
        Box::pin(ready(page.map(altered)))
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        done(self.deviation().kinds(&self.correct))
    }

    fn kind(&self, kind: Kind) -> StoreFuture<'_, KindView> {
        done(self.deviation().kind(&self.correct, kind))
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        match settings.iter().rfind(|(of, _)| *of == kind) {
            Some((_, settings)) => done(settings.clone()),
            None => self.correct.store.settings(kind),
        }
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        let mut altered = settings.clone();
        self.deviation().alter_settings(&mut altered);
        let result = block_on(self.correct.store.set(kind.clone(), altered));
        if result.is_ok() {
            let mut all = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
            all.push((kind, settings));
        }
        Box::pin(ready(result))
    }

    fn set_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
        mut condition: ScheduleCondition,
    ) -> StoreFuture<'_, bool> {
        self.deviation().alter_condition(&mut condition);
        self.correct.store.set_schedule(kind, schedule, condition)
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        Box::pin(ready(self.deviation().tick(&self.correct, tick)))
    }
}

//! Stores that wrap another store.

use crate::claim::{Change, Changed, Claim, Claimed, Reaped, Settle, Settled};
use crate::cron::{Schedule, ScheduleCondition, Tick, Ticked};
use crate::error::{ChangeError, PutError, SettleError, StoreError};
use crate::job::JobView;
use crate::names::{JobId, Kind};
use crate::put::{Placed, Put};
use crate::query::{KindView, Page, Query, Spans, TimePage, TimeQuery};
use crate::restore::{Restore, Restored};
use crate::settings::Settings;
use crate::status::StoreStatus;
use crate::store::{BatchResults, Store, StoreFuture};
use std::time::Duration;

/// A method of [`Store`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum StoreMethod {
    /// [`Store::put`].
    Put,
    /// [`Store::claim`].
    Claim,
    /// [`Store::settle`].
    Settle,
    /// [`Store::change`].
    Change,
    /// [`Store::restore`].
    Restore,
    /// [`Store::wait`].
    Wait,
    /// [`Store::reap`].
    Reap,
    /// [`Store::get`].
    Get,
    /// [`Store::list`].
    List,
    /// [`Store::list_by_time`].
    ListByTime,
    /// [`Store::kinds`].
    Kinds,
    /// [`Store::kind`].
    Kind,
    /// [`Store::upcoming`].
    Upcoming,
    /// [`Store::settings`].
    Settings,
    /// [`Store::set`].
    Set,
    /// [`Store::set_schedule`].
    SetSchedule,
    /// [`Store::remove_schedule`].
    RemoveSchedule,
    /// [`Store::schedule`].
    Schedule,
    /// [`Store::schedules`].
    Schedules,
    /// [`Store::tick`].
    Tick,
}

impl StoreMethod {
    /// All methods, in the order of their declaration.
    pub const ALL: [StoreMethod; 20] = [
        StoreMethod::Put,
        StoreMethod::Claim,
        StoreMethod::Settle,
        StoreMethod::Change,
        StoreMethod::Restore,
        StoreMethod::Wait,
        StoreMethod::Reap,
        StoreMethod::Get,
        StoreMethod::List,
        StoreMethod::ListByTime,
        StoreMethod::Kinds,
        StoreMethod::Kind,
        StoreMethod::Upcoming,
        StoreMethod::Settings,
        StoreMethod::Set,
        StoreMethod::SetSchedule,
        StoreMethod::RemoveSchedule,
        StoreMethod::Schedule,
        StoreMethod::Schedules,
        StoreMethod::Tick,
    ];

    /// The name of the method, such as `remove_schedule`.
    pub const fn name(self) -> &'static str {
        match self {
            StoreMethod::Put => "put",
            StoreMethod::Claim => "claim",
            StoreMethod::Settle => "settle",
            StoreMethod::Change => "change",
            StoreMethod::Restore => "restore",
            StoreMethod::Wait => "wait",
            StoreMethod::Reap => "reap",
            StoreMethod::Get => "get",
            StoreMethod::List => "list",
            StoreMethod::ListByTime => "list_by_time",
            StoreMethod::Kinds => "kinds",
            StoreMethod::Kind => "kind",
            StoreMethod::Upcoming => "upcoming",
            StoreMethod::Settings => "settings",
            StoreMethod::Set => "set",
            StoreMethod::SetSchedule => "set_schedule",
            StoreMethod::RemoveSchedule => "remove_schedule",
            StoreMethod::Schedule => "schedule",
            StoreMethod::Schedules => "schedules",
            StoreMethod::Tick => "tick",
        }
    }
}

/// A [`Store`] that wraps another store and changes some of its methods.
///
/// Every method that is not overridden passes through [`around`](Self::around) (except `status`), which by default
/// forwards the call to [`inner`](Self::inner). Each `Layered` type implements [`Store`].
///
/// ```
/// use requeue_jobs::{Jobs, Layered, MemoryStore, Store, StoreFuture, StoreMethod};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// /// Counts the calls of all methods.
/// struct CountingStore {
///     store: MemoryStore,
///     calls: AtomicUsize,
/// }
///
/// impl Layered for CountingStore {
///     fn inner(&self) -> &dyn Store {
///         &self.store
///     }
///
///     fn around<'a, T: Send + 'a>(
///         &'a self,
///         _method: StoreMethod,
///         call: impl for<'s> FnOnce(&'s dyn Store) -> StoreFuture<'s, T> + Send + 'a,
///     ) -> StoreFuture<'a, T> {
///         self.calls.fetch_add(1, Ordering::Relaxed);
///         call(&self.store)
///     }
/// }
///
/// # requeue_testkit::block_on(async {
/// let store = Arc::new(CountingStore { store: MemoryStore::new(), calls: AtomicUsize::new(0) });
/// let jobs = Jobs::new(store.clone());
/// jobs.put("order.close", "order-42", "unpaid").await?;
/// assert_eq!(store.calls.load(Ordering::Relaxed), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub trait Layered: Send + Sync + 'static {
    /// Returns the wrapped store.
    fn inner(&self) -> &dyn Store;

    /// Makes every call that is not overridden. By default it is made on [`inner`](Self::inner).
    ///
    /// `call` makes the call on a store. Nothing has happened before it is called, so `around` can
    /// run code before the call, make it later or on another store, or not make it at all.
    fn around<'a, T: Send + 'a>(
        &'a self,
        method: StoreMethod,
        call: impl for<'s> FnOnce(&'s dyn Store) -> StoreFuture<'s, T> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        let _ = method;
        call(self.inner())
    }

    /// Forwards [`Store::put`].
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        self.around(StoreMethod::Put, move |store| store.put(puts))
    }

    /// Forwards [`Store::claim`].
    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        self.around(StoreMethod::Claim, move |store| store.claim(claim))
    }

    /// Forwards [`Store::settle`].
    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        self.around(StoreMethod::Settle, move |store| store.settle(settlements))
    }

    /// Forwards [`Store::change`].
    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        self.around(StoreMethod::Change, move |store| store.change(changes))
    }

    /// Forwards [`Store::restore`].
    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        self.around(StoreMethod::Restore, move |store| store.restore(restore))
    }

    /// Forwards [`Store::wait`].
    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        self.around(StoreMethod::Wait, move |store| store.wait(kinds, limit))
    }

    /// Forwards [`Store::reap`].
    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        self.around(StoreMethod::Reap, move |store| store.reap(max))
    }

    /// Forwards [`Store::get`].
    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        self.around(StoreMethod::Get, move |store| store.get(kind, id))
    }

    /// Forwards [`Store::list`].
    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        self.around(StoreMethod::List, move |store| store.list(query))
    }

    /// Forwards [`Store::list_by_time`].
    fn list_by_time(&self, query: TimeQuery) -> StoreFuture<'_, TimePage> {
        self.around(StoreMethod::ListByTime, move |store| store.list_by_time(query))
    }

    /// Forwards [`Store::kinds`].
    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        self.around(StoreMethod::Kinds, move |store| store.kinds())
    }

    /// Forwards [`Store::kind`].
    fn kind(&self, kind: Kind) -> StoreFuture<'_, KindView> {
        self.around(StoreMethod::Kind, move |store| store.kind(kind))
    }

    /// Forwards [`Store::upcoming`].
    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        self.around(StoreMethod::Upcoming, move |store| store.upcoming(kind, spans))
    }

    /// Forwards [`Store::settings`].
    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        self.around(StoreMethod::Settings, move |store| store.settings(kind))
    }

    /// Forwards [`Store::set`].
    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        self.around(StoreMethod::Set, move |store| store.set(kind, settings))
    }

    /// Forwards [`Store::set_schedule`].
    fn set_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
        condition: ScheduleCondition,
    ) -> StoreFuture<'_, bool> {
        self.around(StoreMethod::SetSchedule, move |store| {
            store.set_schedule(kind, schedule, condition)
        })
    }

    /// Forwards [`Store::remove_schedule`].
    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        self.around(StoreMethod::RemoveSchedule, move |store| store.remove_schedule(kind, id))
    }

    /// Forwards [`Store::schedule`].
    fn schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<Schedule>> {
        self.around(StoreMethod::Schedule, move |store| store.schedule(kind, id))
    }

    /// Forwards [`Store::schedules`].
    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        self.around(StoreMethod::Schedules, move |store| store.schedules(kind))
    }

    /// Forwards [`Store::tick`].
    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        self.around(StoreMethod::Tick, move |store| store.tick(tick))
    }

    /// Forwards [`Store::needs_reaping`]. It does not pass through [`around`](Self::around).
    fn needs_reaping(&self) -> bool {
        self.inner().needs_reaping()
    }

    /// Forwards [`Store::status`]. It does not pass through [`around`](Self::around).
    fn status(&self) -> StoreStatus {
        self.inner().status()
    }
}

impl<L: Layered> Store for L {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        Layered::put(self, puts)
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        Layered::claim(self, claim)
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        Layered::settle(self, settlements)
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        Layered::change(self, changes)
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        Layered::restore(self, restore)
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        Layered::wait(self, kinds, limit)
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        Layered::reap(self, max)
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        Layered::get(self, kind, id)
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        Layered::list(self, query)
    }

    fn list_by_time(&self, query: TimeQuery) -> StoreFuture<'_, TimePage> {
        Layered::list_by_time(self, query)
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        Layered::kinds(self)
    }

    fn kind(&self, kind: Kind) -> StoreFuture<'_, KindView> {
        Layered::kind(self, kind)
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        Layered::upcoming(self, kind, spans)
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        Layered::settings(self, kind)
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        Layered::set(self, kind, settings)
    }

    fn set_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
        condition: ScheduleCondition,
    ) -> StoreFuture<'_, bool> {
        Layered::set_schedule(self, kind, schedule, condition)
    }

    fn schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<Schedule>> {
        Layered::schedule(self, kind, id)
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        Layered::remove_schedule(self, kind, id)
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        Layered::schedules(self, kind)
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        Layered::tick(self, tick)
    }

    fn needs_reaping(&self) -> bool {
        Layered::needs_reaping(self)
    }

    fn status(&self) -> StoreStatus {
        Layered::status(self)
    }
}

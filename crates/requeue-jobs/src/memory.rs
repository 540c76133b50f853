//! The store in memory. It keeps the whole contract except durability.
//!
//! [`rules`](crate::rules) decides. This module adds the table of jobs, a lock, a clock and a
//! notifier for waiting claims.

mod job_table;
#[cfg(test)]
mod tests;

use crate::claim::{Change, Changed, Claim, Claimed, Reaped, Settle, Settled, check_changes};
use crate::cron::{Schedule, ScheduleCondition, Tick, Ticked};
use crate::error::{ChangeError, Invalid, PutError, SettleError, StoreError};
use crate::job::JobView;
use crate::limits::MAX_SPANS;
use crate::names::{JobId, Kind};
use crate::put::{Placed, Put, check_batch};
use crate::query::{KindView, Page, Query, Spans, TimePage, TimeQuery};
use crate::restore::{Restore, Restored};
use crate::rules::{ChangeNotifier, Kinds, TimeRange, check_settlements, wait};
use crate::settings::Settings;
use crate::store::{BatchResults, Store, StoreFuture};
use crate::time::{Timestamp, WallClock};
pub(crate) use job_table::MemoryTable;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A store in memory, for tests and for jobs that may be lost when the process ends.
///
/// It keeps the whole contract except durability. Clones share one store.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Wakes waiting claims after every change.
    changes: ChangeNotifier,
    wall_clock: WallClock,
}

type State = Kinds<MemoryTable>;

impl MemoryStore {
    /// Returns an empty store on the system's clock.
    pub fn new() -> Self {
        MemoryStore::with(WallClock::system())
    }

    /// Returns an empty store on this clock.
    ///
    /// ```
    /// use requeue_jobs::{ManualClock, MemoryStore, Timestamp, WallClock};
    ///
    /// let clock = ManualClock::new();
    /// let store = MemoryStore::with(WallClock::manual(&clock, Timestamp::from_millis(0)));
    /// ```
    pub fn with(wall_clock: WallClock) -> Self {
        let state = Mutex::new(Kinds::new(|_| MemoryTable::default()));
        let changes = ChangeNotifier::default();
        MemoryStore { shared: Arc::new(Shared { state, changes, wall_clock }) }
    }

    /// Checks the invariants of the state. For tests.
    ///
    /// # Panics
    ///
    /// Panics if an invariant does not hold.
    pub fn check(&self) {
        self.read(|state, _| state.iter().for_each(|kind| kind.table.check()));
    }

    /// Calls `read` under the lock, with the current time.
    fn read<T>(&self, read: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let now = self.shared.wall_clock.now();
        read(&mut lock(&self.shared.state), now)
    }

    /// Calls `change` under the lock, with the current time, and wakes waiting claims.
    fn change_state<T>(&self, change: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let result = self.read(change);
        self.shared.changes.notify();
        result
    }
}

/// A panic under the lock leaves no half-made change: ids and bodies are plain data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for MemoryStore {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        Box::pin(async move {
            check_batch(&puts)?;
            Ok(self.change_state(|state, now| {
                puts.into_iter().map(|put| state.put(put, now)).collect()
            }))
        })
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        Box::pin(async move { Ok(self.change_state(|state, now| state.claim(&claim, now))?) })
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        Box::pin(async move {
            check_settlements(&settlements)?;
            Ok(self.change_state(|state, now| {
                settlements.into_iter().map(|settle| state.settle(settle, now)).collect()
            }))
        })
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        Box::pin(async move {
            check_changes(&changes)?;
            Ok(self.change_state(|state, now| {
                changes.into_iter().map(|change| state.change(change, now)).collect()
            }))
        })
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        Box::pin(async move { Ok(self.change_state(|state, now| state.restore(restore, now))?) })
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let look = || self.read(|state, now| state.next_claimable(&kinds, now));
            wait(self.shared.wall_clock.clock(), &self.shared.changes, limit, look).await
        })
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        Box::pin(async move { self.change_state(|state, now| state.reap(max, now)) })
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        Box::pin(async move { self.read(|state, now| state.get(&kind, &id, now)) })
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            Ok(self.read(|state, now| {
                let kind = state.kind(&query.kind);
                kind.map_or_else(Page::default, |kind| kind.table.list(kind.name(), &query, now))
            }))
        })
    }

    fn list_by_time(&self, query: TimeQuery) -> StoreFuture<'_, TimePage> {
        Box::pin(async move {
            self.read(|state, now| {
                let range = TimeRange::of(&query, now)?;
                Ok(match (state.kind(&query.kind), range) {
                    (Some(kind), Some(range)) => kind.table.list_by_time(&query, &range, now),
                    _ => TimePage::default(),
                })
            })
        })
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        Box::pin(async move {
            self.read(|state, now| {
                let shown = state.shown().into_iter();
                shown.map(|kind| kind.view(kind.table.ready(now), now)).collect()
            })
        })
    }

    fn kind(&self, kind: Kind) -> StoreFuture<'_, KindView> {
        Box::pin(async move {
            self.read(|state, now| match state.kind_mut(&kind) {
                Some(kind) => kind.view(kind.table.ready(now), now),
                None => Ok(KindView::new(kind)),
            })
        })
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        Box::pin(async move {
            let Spans { from, length, count } = spans;
            if count > MAX_SPANS {
                return Err(Invalid::TooMany { what: "spans", count, limit: MAX_SPANS }.into());
            }
            Ok(self.read(|state, _| match state.kind(&kind) {
                Some(kind) => kind.table.upcoming(from, length, count),
                None => vec![0; count],
            }))
        })
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        Box::pin(async move { Ok(self.read(|state, _| state.settings(&kind))) })
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(self.change_state(|state, _| state.set(&kind, settings))?) })
    }

    fn set_schedule(
        &self,
        kind: Kind,
        schedule: Schedule,
        condition: ScheduleCondition,
    ) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            Ok(self.change_state(|state, _| state.set_schedule(&kind, schedule, condition))?)
        })
    }

    fn schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<Schedule>> {
        Box::pin(async move { Ok(self.read(|state, _| state.schedule(&kind, &id).cloned())) })
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        Box::pin(async move { Ok(self.change_state(|state, _| state.remove_schedule(&kind, &id))) })
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        Box::pin(async move { Ok(self.read(|state, _| state.schedules(&kind))) })
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        Box::pin(async move { self.change_state(|state, now| state.tick(tick, now)) })
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.read(|state, _| state.len());
        f.debug_struct("MemoryStore").field("kinds", &kinds).finish_non_exhaustive()
    }
}

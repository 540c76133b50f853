//! Jobs in memory: the whole contract but for durability.
//!
//! [`rules`](crate::rules) has the rules. Here are the jobs, the lock around them, the clock,
//! and those who wait for work.

mod job_table;
#[cfg(test)]
mod tests;

use crate::claim::{Change, Changed, Claim, Claimed, Reaped, Settle, Settled};
use crate::cron::{Schedule, Ticked};
use crate::error::{ChangeError, Invalid, PutError, SettleError, StoreError};
use crate::job::JobView;
use crate::limits::MAX_SPANS;
use crate::names::{JobId, Kind};
use crate::put::{Placed, Put, check_batch};
use crate::query::{KindView, Page, Query, Spans};
use crate::restore::{Restore, Restored};
use crate::rules::{ChangeNotifier, Kinds, check_count, wait};
use crate::settings::Settings;
use crate::store::{BatchResults, Store, StoreFuture, Tick};
use crate::time::{Timestamp, WallClock};
pub(crate) use job_table::MemoryShelf;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Jobs in memory: for tests, and for work that may end with the process.
///
/// It keeps the whole contract but for durability. Clones share one store.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Rung at every change, for those who wait for work.
    changes: ChangeNotifier,
    wall_clock: WallClock,
}

type State = Kinds<MemoryShelf>;

impl MemoryStore {
    /// An empty store on the system's clock.
    pub fn new() -> Self {
        MemoryStore::with(WallClock::system())
    }

    /// An empty store on this clock.
    ///
    /// ```
    /// use requeue::ManualClock;
    /// use requeue_jobs::{WallClock, MemoryStore, Timestamp};
    ///
    /// let clock = ManualClock::new();
    /// let store = MemoryStore::with(WallClock::manual(&clock, Timestamp::from_millis(0)));
    /// ```
    pub fn with(wall_clock: WallClock) -> Self {
        let state = Mutex::new(Kinds::new(|_| MemoryShelf::default()));
        let changes = ChangeNotifier::default();
        MemoryStore { shared: Arc::new(Shared { state, changes, wall_clock }) }
    }

    /// Checks everything that the state promises of itself; for tests.
    ///
    /// # Panics
    ///
    /// If anything does not hold.
    pub fn check(&self) {
        self.look(|state, _| state.iter().for_each(|kind| kind.table.check()));
    }

    /// Looks, under the lock.
    fn look<T>(&self, look: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let now = self.shared.wall_clock.now();
        look(&mut lock(&self.shared.state), now)
    }

    /// Changes something, under the lock, and tells those who wait.
    fn act<T>(&self, act: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let answer = self.look(act);
        self.shared.changes.notify();
        answer
    }
}

/// What panicked under the lock has changed nothing by halves: keys and bodies are plain data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for MemoryStore {
    fn put(&self, puts: Vec<Put>) -> StoreFuture<'_, BatchResults<Placed, PutError>> {
        Box::pin(async move {
            check_batch(&puts)?;
            Ok(self.act(|state, now| puts.into_iter().map(|put| state.put(put, now)).collect()))
        })
    }

    fn claim(&self, claim: Claim) -> StoreFuture<'_, Claimed> {
        Box::pin(async move { Ok(self.act(|state, now| state.claim(&claim, now))?) })
    }

    fn settle(
        &self,
        settlements: Vec<Settle>,
    ) -> StoreFuture<'_, BatchResults<Settled, SettleError>> {
        Box::pin(async move {
            check_count("entries in a batch", settlements.len())?;
            Ok(self.act(|state, now| {
                settlements.into_iter().map(|settle| state.settle(settle, now)).collect()
            }))
        })
    }

    fn change(&self, changes: Vec<Change>) -> StoreFuture<'_, BatchResults<Changed, ChangeError>> {
        Box::pin(async move {
            check_count("entries in a batch", changes.len())?;
            Ok(self.act(|state, now| {
                changes.into_iter().map(|change| state.change(change, now)).collect()
            }))
        })
    }

    fn restore(&self, restore: Restore) -> StoreFuture<'_, BatchResults<Restored, StoreError>> {
        Box::pin(async move { Ok(self.act(|state, now| state.restore(restore, now))?) })
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let look = || self.look(|state, now| state.next_claimable(&kinds, now));
            wait(self.shared.wall_clock.clock(), &self.shared.changes, limit, look).await
        })
    }

    fn reap(&self, max: usize) -> StoreFuture<'_, Reaped> {
        Box::pin(async move { self.act(|state, now| state.reap(max, now)) })
    }

    fn get(&self, kind: Kind, id: JobId) -> StoreFuture<'_, Option<JobView>> {
        Box::pin(async move { self.look(|state, now| state.get(&kind, &id, now)) })
    }

    fn list(&self, query: Query) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            Ok(self.look(|state, now| {
                let kind = state.kind(&query.kind);
                kind.map_or_else(Page::default, |kind| kind.table.list(kind.name(), &query, now))
            }))
        })
    }

    fn kinds(&self) -> StoreFuture<'_, Vec<KindView>> {
        Box::pin(async move {
            self.look(|state, now| {
                let shown = state.shown().into_iter();
                shown.map(|kind| kind.view(kind.table.ready(now), now)).collect()
            })
        })
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> StoreFuture<'_, Vec<u64>> {
        Box::pin(async move {
            let Spans { from, length, count } = spans;
            if count > MAX_SPANS {
                return Err(Invalid::TooMany { what: "spans", count, limit: MAX_SPANS }.into());
            }
            Ok(self.look(|state, _| match state.kind(&kind) {
                Some(kind) => kind.table.upcoming(from, length, count),
                None => vec![0; count],
            }))
        })
    }

    fn settings(&self, kind: Kind) -> StoreFuture<'_, Settings> {
        Box::pin(async move { Ok(self.look(|state, _| state.settings(&kind))) })
    }

    fn set(&self, kind: Kind, settings: Settings) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(self.act(|state, _| state.set(&kind, settings))?) })
    }

    fn set_schedule(&self, kind: Kind, schedule: Schedule) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(self.act(|state, _| state.set_schedule(&kind, schedule))?) })
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> StoreFuture<'_, bool> {
        Box::pin(async move { Ok(self.act(|state, _| state.remove_schedule(&kind, &id))) })
    }

    fn schedules(&self, kind: Kind) -> StoreFuture<'_, Vec<Schedule>> {
        Box::pin(async move { Ok(self.look(|state, _| state.schedules(&kind))) })
    }

    fn tick(&self, tick: Tick) -> StoreFuture<'_, Ticked> {
        Box::pin(async move { self.act(|state, now| state.tick(tick, now)) })
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.look(|state, _| state.len());
        f.debug_struct("MemoryStore").field("kinds", &kinds).finish_non_exhaustive()
    }
}

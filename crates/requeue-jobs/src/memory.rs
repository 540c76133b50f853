//! Jobs in memory: the whole contract but for durability.
//!
//! [`rules`](crate::rules) has the rules. Here are the jobs, the lock around them, the clock,
//! and those who wait for work.

mod shelf;
#[cfg(test)]
mod tests;

use crate::claim::{Change, Changed, Claim, Claimed, Settle, Settled};
use crate::cron::{Schedule, Ticked};
use crate::error::{ChangeError, Invalid, PutError, SettleError, StoreError};
use crate::job::JobView;
use crate::limits::MAX_SPANS;
use crate::names::{JobId, Kind};
use crate::put::{Placed, Put, check_batch};
use crate::query::{KindView, Page, Query, Spans};
use crate::restore::{Restore, Restored};
use crate::rules::{Bell, Kinds, check_count, wait};
use crate::settings::Settings;
use crate::store::{Answer, Each, Store, Tick};
use crate::time::{Calendar, Timestamp};
pub(crate) use shelf::MemoryShelf;
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
    bell: Bell,
    calendar: Calendar,
}

type State = Kinds<MemoryShelf>;

impl MemoryStore {
    /// An empty store on the system's clock.
    pub fn new() -> Self {
        MemoryStore::with(Calendar::system())
    }

    /// An empty store on this clock.
    ///
    /// ```
    /// use requeue::ManualClock;
    /// use requeue_jobs::{Calendar, MemoryStore, Timestamp};
    ///
    /// let clock = ManualClock::new();
    /// let store = MemoryStore::with(Calendar::manual(&clock, Timestamp::from_millis(0)));
    /// ```
    pub fn with(calendar: Calendar) -> Self {
        let state = Mutex::new(Kinds::new(|_| MemoryShelf::default()));
        let bell = Bell::default();
        MemoryStore { shared: Arc::new(Shared { state, bell, calendar }) }
    }

    /// Checks everything that the state promises of itself; for tests.
    ///
    /// # Panics
    ///
    /// If anything does not hold.
    pub fn check(&self) {
        self.look(|state, _| state.iter().for_each(|kind| kind.shelf.check()));
    }

    /// Looks, under the lock.
    fn look<T>(&self, look: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let now = self.shared.calendar.now();
        look(&mut lock(&self.shared.state), now)
    }

    /// Changes something, under the lock, and tells those who wait.
    fn act<T>(&self, act: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let answer = self.look(act);
        self.shared.bell.ring();
        answer
    }
}

/// What panicked under the lock has changed nothing by halves: keys and bodies are plain data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for MemoryStore {
    fn put(&self, puts: Vec<Put>) -> Answer<'_, Each<Placed, PutError>> {
        Box::pin(async move {
            check_batch(&puts)?;
            Ok(self.act(|state, now| puts.into_iter().map(|put| state.put(put, now)).collect()))
        })
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claimed> {
        Box::pin(async move { Ok(self.act(|state, now| state.claim(&claim, now))?) })
    }

    fn settle(&self, settlements: Vec<Settle>) -> Answer<'_, Each<Settled, SettleError>> {
        Box::pin(async move {
            check_count("entries in a batch", settlements.len())?;
            Ok(self.act(|state, now| {
                settlements.into_iter().map(|settle| state.settle(settle, now)).collect()
            }))
        })
    }

    fn change(&self, changes: Vec<Change>) -> Answer<'_, Each<Changed, ChangeError>> {
        Box::pin(async move {
            check_count("entries in a batch", changes.len())?;
            Ok(self.act(|state, now| {
                changes.into_iter().map(|change| state.change(change, now)).collect()
            }))
        })
    }

    fn restore(&self, restore: Restore) -> Answer<'_, Each<Restored, StoreError>> {
        Box::pin(async move { Ok(self.act(|state, now| state.restore(restore, now))?) })
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> Answer<'_, ()> {
        Box::pin(async move {
            let look = || self.look(|state, now| state.next_claimable(&kinds, now));
            wait(self.shared.calendar.clock(), &self.shared.bell, limit, look).await
        })
    }

    fn reap(&self, max: usize) -> Answer<'_, usize> {
        Box::pin(async move { self.act(|state, now| state.reap(max, now)) })
    }

    fn get(&self, kind: Kind, id: JobId) -> Answer<'_, Option<JobView>> {
        Box::pin(async move { self.look(|state, now| state.get(&kind, &id, now)) })
    }

    fn list(&self, query: Query) -> Answer<'_, Page> {
        Box::pin(async move {
            Ok(self.look(|state, now| {
                let kind = state.kind(&query.kind);
                kind.map_or_else(Page::default, |kind| kind.shelf.list(kind.name(), &query, now))
            }))
        })
    }

    fn kinds(&self) -> Answer<'_, Vec<KindView>> {
        Box::pin(async move {
            self.look(|state, now| {
                let shown = state.shown().into_iter();
                shown.map(|kind| kind.view(kind.shelf.ready(now), now)).collect()
            })
        })
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> Answer<'_, Vec<u64>> {
        Box::pin(async move {
            let Spans { from, length, count } = spans;
            if count > MAX_SPANS {
                return Err(Invalid::TooMany { what: "spans", count, limit: MAX_SPANS }.into());
            }
            Ok(self.look(|state, _| match state.kind(&kind) {
                Some(kind) => kind.shelf.upcoming(from, length, count),
                None => vec![0; count],
            }))
        })
    }

    fn settings(&self, kind: Kind) -> Answer<'_, Settings> {
        Box::pin(async move { Ok(self.look(|state, _| state.settings(&kind))) })
    }

    fn set(&self, kind: Kind, settings: Settings) -> Answer<'_, ()> {
        Box::pin(async move { Ok(self.act(|state, _| state.set(&kind, settings))?) })
    }

    fn set_schedule(&self, kind: Kind, schedule: Schedule) -> Answer<'_, ()> {
        Box::pin(async move { Ok(self.act(|state, _| state.set_schedule(&kind, schedule))?) })
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> Answer<'_, bool> {
        Box::pin(async move { Ok(self.act(|state, _| state.remove_schedule(&kind, &id))) })
    }

    fn schedules(&self, kind: Kind) -> Answer<'_, Vec<Schedule>> {
        Box::pin(async move { Ok(self.look(|state, _| state.schedules(&kind))) })
    }

    fn tick(&self, tick: Tick) -> Answer<'_, Ticked> {
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

//! Jobs in memory: the whole contract but for durability.
//!
//! [`KindState`] has the rules. Here are the lock around them, the clock, and those who
//! wait for work.

mod kind;
mod record;
#[cfg(test)]
mod tests;

use crate::bell::Bell;
use crate::claim::{Change, Changed, Claim, Claimed, Settle, Settled};
use crate::cron::{Schedule, Ticked};
use crate::error::{ChangeError, Invalid, PutError, SettleError};
use crate::job::JobView;
use crate::limits::{MAX_BATCH, MAX_KINDS, MAX_SCHEDULES, MAX_SPANS, WAIT_SLICE};
use crate::names::{JobId, Kind};
use crate::put::{Condition, Placed, Put, check_batch};
use crate::query::{KindView, Page, Query, Spans};
use crate::settings::Settings;
use crate::store::{Answer, Each, Store, Tick};
use crate::time::{Calendar, Due, Timestamp};
use kind::KindState;
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
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

#[derive(Default)]
struct State {
    kinds: BTreeMap<Kind, KindState>,
    /// How many claims there were.
    turn: u64,
}

impl State {
    /// For a change: the kind is made where there is none.
    fn kind(&mut self, kind: &Kind) -> Result<&mut KindState, Invalid> {
        let count = self.kinds.len();
        if count >= MAX_KINDS && !self.kinds.contains_key(kind) {
            let count = count + 1;
            return Err(Invalid::TooMany { what: "kinds", count, limit: MAX_KINDS });
        }
        Ok(self.kinds.entry(kind.clone()).or_insert_with(|| KindState::new(kind.clone())))
    }

    fn claim(&mut self, claim: &Claim, now: Timestamp) -> Result<Claimed, Invalid> {
        check_count("kinds in a claim", claim.kinds.len())?;
        check_count("jobs in a claim", claim.max)?;
        let mut claimed = Claimed::default();
        let first = self.first_kind(&claim.kinds);
        let kinds = claim.kinds.iter().cycle().skip(first).take(claim.kinds.len());
        for name in kinds {
            let Some(kind) = self.kinds.get_mut(name) else { continue };
            let room = claim.max - claimed.jobs.len();
            if let Err(invalid) = kind.claim(claim, room, now, &mut claimed.jobs) {
                claimed.errors.push((name.clone(), invalid.into()));
            }
        }
        Ok(claimed)
    }

    /// Which of these is first: the one for which that is longest ago. A mere count of claims
    /// would meet the same kind again and again, where claims of several sets take turns.
    fn first_kind(&mut self, kinds: &[Kind]) -> usize {
        self.turn += 1;
        let last_first = |at: &usize| match self.kinds.get(&kinds[*at]) {
            Some(kind) => kind.last_first,
            None => u64::MAX,
        };
        let first = (0..kinds.len()).min_by_key(last_first).unwrap_or(0);
        if let Some(kind) = kinds.get(first).and_then(|first| self.kinds.get_mut(first)) {
            kind.last_first = self.turn;
        }
        first
    }

    fn tick(&mut self, tick: Tick, now: Timestamp) -> Result<Ticked, PutError> {
        let Some(kind) = self.kinds.get_mut(&tick.kind) else {
            return Ok(Ticked::Absent);
        };
        let Some(schedule) = kind.schedules.get(&tick.id) else {
            return Ok(Ticked::Absent);
        };
        if schedule.next != tick.expected {
            return Ok(Ticked::Moved(schedule.next));
        }
        let mut ticked = Ticked::Skipped;
        if tick.put {
            let mut put = Put::new(tick.kind, tick.id.clone(), schedule.body.clone());
            put.due = Due::At(tick.expected);
            // Before the schedule moves: where the put is refused, nothing happens.
            ticked = Ticked::Put(kind.put(put, now)?);
        }
        if let Some(schedule) = kind.schedules.get_mut(&tick.id) {
            schedule.next = tick.next;
        }
        Ok(ticked)
    }
}

fn check_count(what: &'static str, count: usize) -> Result<(), Invalid> {
    let limit = MAX_BATCH;
    if count > limit { Err(Invalid::TooMany { what, count, limit }) } else { Ok(()) }
}

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
        let (state, bell) = (Mutex::default(), Bell::default());
        MemoryStore { shared: Arc::new(Shared { state, bell, calendar }) }
    }

    /// Checks everything that the state promises of itself; for tests.
    ///
    /// # Panics
    ///
    /// If anything does not hold.
    pub fn check(&self) {
        self.look(|state, _| state.kinds.values().for_each(KindState::check));
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

    /// When a claim of these kinds may get something: in so long.
    fn next_claimable(&self, kinds: &[Kind]) -> Option<Duration> {
        self.look(|state, now| {
            let kinds = kinds.iter().filter_map(|kind| state.kinds.get(kind));
            let next = kinds.filter_map(|kind| kind.next_claimable(now)).min()?;
            Some(next.saturating_since(now))
        })
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
            Ok(self.act(|state, now| {
                let put = |put: Put| {
                    // A kind that only a condition asks for is not made.
                    if let (Some(Condition::IfGeneration(expected)), false) =
                        (put.condition, state.kinds.contains_key(&put.kind))
                    {
                        let (kind, id) = (put.kind, put.id);
                        return Err(PutError::Generation { kind, id, expected, found: None });
                    }
                    // Nor is one for a put that is refused: kinds are counted, and stay.
                    put.due.at(now)?;
                    state.kind(&put.kind)?.put(put, now)
                };
                puts.into_iter().map(put).collect()
            }))
        })
    }

    fn claim(&self, claim: Claim) -> Answer<'_, Claimed> {
        Box::pin(async move { Ok(self.act(|state, now| state.claim(&claim, now))?) })
    }

    fn settle(&self, settlements: Vec<Settle>) -> Answer<'_, Each<Settled, SettleError>> {
        Box::pin(async move {
            check_count("entries in a batch", settlements.len())?;
            Ok(self.act(|state, now| {
                let settle = |settle: Settle| match state.kinds.get_mut(settle.receipt.kind()) {
                    Some(kind) => kind.settle(settle, now),
                    None => Err(SettleError::LeaseLost { receipt: settle.receipt }),
                };
                settlements.into_iter().map(settle).collect()
            }))
        })
    }

    fn change(&self, changes: Vec<Change>) -> Answer<'_, Each<Changed, ChangeError>> {
        Box::pin(async move {
            check_count("entries in a batch", changes.len())?;
            Ok(self.act(|state, now| {
                let change = |change: Change| match state.kinds.get_mut(&change.kind) {
                    Some(kind) => kind.change(change, now),
                    None => Err(ChangeError::Absent { kind: change.kind, id: change.id }),
                };
                changes.into_iter().map(change).collect()
            }))
        })
    }

    fn wait(&self, kinds: Vec<Kind>, limit: Duration) -> Answer<'_, ()> {
        Box::pin(async move {
            let clock = self.shared.calendar.clock();
            let mut end = pin!(clock.sleep(limit.min(WAIT_SLICE)));
            let mut place = self.shared.bell.place();
            let mut due = None;
            poll_fn(|cx| {
                // Before it looks: what changes in between wakes it.
                place.listen(cx.waker());
                let next = self.next_claimable(&kinds);
                if next.is_some_and(|next| next.is_zero()) || end.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                due = next.map(|next| Box::pin(clock.sleep(next)));
                match due
                    .as_mut()
                    .map(|due| due.as_mut().poll(&mut Context::from_waker(cx.waker())))
                {
                    Some(Poll::Ready(())) => Poll::Ready(()),
                    Some(Poll::Pending) | None => Poll::Pending,
                }
            })
            .await;
            Ok(())
        })
    }

    fn reap(&self, max: usize) -> Answer<'_, usize> {
        Box::pin(async move {
            Ok(self
                .act(|state, now| state.kinds.values_mut().map(|kind| kind.reap(max, now)).sum()))
        })
    }

    fn get(&self, kind: Kind, id: JobId) -> Answer<'_, Option<JobView>> {
        Box::pin(async move { Ok(self.look(|state, now| state.kinds.get(&kind)?.get(&id, now))) })
    }

    fn list(&self, query: Query) -> Answer<'_, Page> {
        Box::pin(async move {
            Ok(self.look(|state, now| {
                state
                    .kinds
                    .get(&query.kind)
                    .map_or_else(Page::default, |kind| kind.list(&query, now))
            }))
        })
    }

    fn kinds(&self) -> Answer<'_, Vec<KindView>> {
        Box::pin(async move {
            Ok(self.look(|state, now| {
                let kinds = state.kinds.iter().filter(|(_, kind)| !kind.is_idle());
                let view = |(name, kind): (&Kind, &KindState)| KindView {
                    kind: name.clone(),
                    counts: kind.counts(now),
                    oldest_ready: kind.oldest_ready(now),
                    paused: kind.settings.paused,
                };
                kinds.map(view).collect()
            }))
        })
    }

    fn upcoming(&self, kind: Kind, spans: Spans) -> Answer<'_, Vec<u64>> {
        Box::pin(async move {
            let Spans { from, length, count } = spans;
            if count > MAX_SPANS {
                return Err(Invalid::TooMany { what: "spans", count, limit: MAX_SPANS }.into());
            }
            Ok(self.look(|state, _| match state.kinds.get(&kind) {
                Some(kind) => kind.upcoming(from, length, count),
                None => vec![0; count],
            }))
        })
    }

    fn settings(&self, kind: Kind) -> Answer<'_, Settings> {
        Box::pin(async move {
            Ok(self.look(|state, _| {
                state.kinds.get(&kind).map_or_else(Settings::default, |kind| kind.settings.clone())
            }))
        })
    }

    fn set(&self, kind: Kind, settings: Settings) -> Answer<'_, ()> {
        Box::pin(async move {
            settings.check()?;
            Ok(self.act(|state, _| state.kind(&kind).map(|kind| kind.settings = settings))?)
        })
    }

    fn set_schedule(&self, kind: Kind, schedule: Schedule) -> Answer<'_, ()> {
        Box::pin(async move {
            schedule.check()?;
            self.act(|state, _| {
                let schedules = &mut state.kind(&kind)?.schedules;
                let count = schedules.len() + 1;
                if count > MAX_SCHEDULES && !schedules.contains_key(&schedule.id) {
                    let (what, limit) = ("schedules of a kind", MAX_SCHEDULES);
                    return Err(Invalid::TooMany { what, count, limit }.into());
                }
                schedules.insert(schedule.id.clone(), schedule);
                Ok(())
            })
        })
    }

    fn remove_schedule(&self, kind: Kind, id: JobId) -> Answer<'_, bool> {
        Box::pin(async move {
            Ok(self.act(|state, _| {
                let kind = state.kinds.get_mut(&kind);
                kind.is_some_and(|kind| kind.schedules.remove(&id).is_some())
            }))
        })
    }

    fn schedules(&self, kind: Kind) -> Answer<'_, Vec<Schedule>> {
        Box::pin(async move {
            Ok(self.look(|state, _| {
                let kind = state.kinds.get(&kind);
                kind.map_or_else(Vec::new, |kind| kind.schedules.values().cloned().collect())
            }))
        })
    }

    fn tick(&self, tick: Tick) -> Answer<'_, Ticked> {
        Box::pin(async move {
            self.act(|state, now| state.tick(tick, now)).map_err(|error| match error {
                PutError::Store(error) => error,
                PutError::Exists { .. } | PutError::Generation { .. } => {
                    unreachable!("a tick puts without a condition")
                }
            })
        })
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.look(|state, _| state.kinds.len());
        f.debug_struct("MemoryStore").field("kinds", &kinds).finish_non_exhaustive()
    }
}

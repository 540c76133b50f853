//! All kinds of a store.

use super::check_count;
use super::claim::ClaimRoom;
use super::job_table::JobTable;
use super::kind::KindState;
use super::numbers::Counters;
use super::rate::RateUse;
use super::turns::Turns;
use crate::claim::{Change, Changed, Claim, Claimed, Reaped, Settle, Settled};
use crate::cron::{Schedule, ScheduleCondition, Tick, Ticked};
use crate::error::{ChangeError, Invalid, PutError, SettleError, StoreError};
use crate::job::JobView;
use crate::limits::{MAX_KINDS, MAX_RESULT_BYTES};
use crate::names::{JobId, Kind};
use crate::put::{Condition, Placed, Put};
use crate::restore::{Restore, Restored};
use crate::settings::Settings;
use crate::store::BatchResults;
use crate::time::Timestamp;
use foldhash::HashMap;
use std::collections::BTreeSet;
use std::time::Duration;

/// All kinds of a store, and the order in which claims read them.
///
/// Each method performs one call of a [`Store`](crate::Store), or one entry of its batch. The store
/// checks the size of a batch before, with [`check_batch`](crate::check_batch) or [`check_count`].
///
/// A kind without jobs, settings and schedules keeps its numbers until there are [`MAX_KINDS`]. From then on, a new kind takes
/// the place of such an [idle](KindState::is_idle) kind. Its numbers begin above those of all kinds that there were, so that
/// the idle kind gets higher ones than before if it is created again. The numbers of the kinds that are there are enough to know
/// that: there is no other counter to store.
pub struct Kinds<S> {
    kinds: HashMap<Kind, KindState<S>>,
    turns: Turns,
    /// Kinds that may be idle. `None`: any of them. It is only kept once a kind had to look for one, because there are
    /// [`MAX_KINDS`]: then looking at all of them for each new kind would take a millisecond.
    /// Invariant: all idle kinds are in it.
    maybe_idle: Option<BTreeSet<Kind>>,
    /// At least the highest numbers of all kinds whose places were taken. `None`: no place was taken since the store was opened.
    highest: Option<Counters>,
    /// The kinds whose places were taken, with their successors, since the store has asked.
    replaced: Vec<(Kind, Kind)>,
    /// Makes the table of a new kind.
    table: Box<dyn FnMut(&Kind) -> S + Send>,
}

impl<S: JobTable> Kinds<S> {
    /// Returns a store's kinds, with none yet. `table` creates the table of a new kind.
    pub fn new(table: impl FnMut(&Kind) -> S + Send + 'static) -> Self {
        Kinds {
            kinds: HashMap::default(),
            turns: Turns::default(),
            maybe_idle: None,
            highest: None,
            replaced: Vec::new(),
            table: Box::new(table),
        }
    }

    /// Adds a kind that was loaded when the store was opened.
    pub fn insert(&mut self, kind: KindState<S>) {
        note(&mut self.maybe_idle, &kind.name);
        self.kinds.insert(kind.name.clone(), kind);
    }

    /// Restores the order in which claims read the kinds, from their latest fences. Call it when a
    /// store is opened: turns are not stored, and otherwise the same kind would be first after each
    /// restart.
    pub fn resume_turns(&mut self) {
        let mut kinds: Vec<_> = self.kinds.values().collect();
        kinds
            .sort_unstable_by(|a, b| (a.counters.fence, &a.name).cmp(&(b.counters.fence, &b.name)));
        kinds.into_iter().for_each(|kind| self.turns.took(&kind.name));
    }

    /// Returns the number of kinds, including [idle](KindState::is_idle) ones.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Returns `true` if there is no kind.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns a kind.
    pub fn kind(&self, kind: &Kind) -> Option<&KindState<S>> {
        self.kinds.get(kind)
    }

    /// Returns a kind, for changes.
    pub fn kind_mut(&mut self, kind: &Kind) -> Option<&mut KindState<S>> {
        let state = self.kinds.get_mut(kind)?;
        // The caller may remove its last job.
        note(&mut self.maybe_idle, kind);
        Some(state)
    }

    /// Iterates over all kinds, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &KindState<S>> {
        self.kinds.values()
    }

    /// Iterates over all kinds, in no particular order, for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut KindState<S>> {
        self.maybe_idle = None;
        self.kinds.values_mut()
    }

    /// Returns the kinds that [`Store::kinds`](crate::Store::kinds) lists, ordered by name.
    pub fn shown(&mut self) -> Vec<&mut KindState<S>> {
        let mut shown: Vec<_> = self.kinds.values_mut().filter(|kind| !kind.is_idle()).collect();
        shown.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        shown
    }

    /// Returns a kind, and creates it if there is none. Fails if there are too many kinds.
    fn made(&mut self, kind: &Kind) -> Result<&mut KindState<S>, Invalid> {
        if self.kinds.len() >= MAX_KINDS && !self.kinds.contains_key(kind) {
            self.take_place(kind)?;
        }
        // If what follows fails, it stays without jobs.
        note(&mut self.maybe_idle, kind);
        let table = &mut self.table;
        let make = || KindState::new(kind.clone(), table(kind));
        Ok(self.kinds.entry(kind.clone()).or_insert_with(make))
    }

    /// Lets a new kind take the place of an idle one.
    fn take_place(&mut self, kind: &Kind) -> Result<(), Invalid> {
        let count = self.kinds.len() + 1;
        let none = Invalid::TooMany { what: "kinds", count, limit: MAX_KINDS };
        let old = self.idle_kind().ok_or(none)?;
        let highest = self.highest.unwrap_or_else(|| {
            // Any of them may be the successor of a kind that was replaced before.
            let all = self.kinds.values().map(|kind| kind.counters);
            all.fold(Counters::default(), Counters::max)
        });
        if let Some(state) = self.kinds.get(&old) {
            let highest = highest.max(state.counters);
            self.highest = Some(highest);
            self.rename(&old, kind);
            if let Some(state) = self.kinds.get_mut(kind) {
                (state.counters.generation, state.counters.fence) =
                    (highest.generation, highest.fence);
                state.rate_use = RateUse::default();
            }
            self.replaced.push((old, kind.clone()));
        }
        Ok(())
    }

    fn idle_kind(&mut self) -> Option<Kind> {
        let kinds = &self.kinds;
        let maybe_idle = self.maybe_idle.get_or_insert_with(|| kinds.keys().cloned().collect());
        while let Some(kind) = maybe_idle.pop_first() {
            if kinds.get(&kind).is_some_and(KindState::is_idle) {
                return Some(kind);
            }
        }
        None
    }

    /// Gives another name to a kind. No kind has that name.
    pub fn rename(&mut self, from: &Kind, to: &Kind) {
        if let Some(mut kind) = self.kinds.remove(from) {
            kind.name = to.clone();
            self.insert(kind);
        }
    }

    /// Returns the kinds that were replaced since the last call, each with the kind that has taken its place, in this order.
    /// The new kind has the table of the old one.
    pub fn take_replaced(&mut self) -> Vec<(Kind, Kind)> {
        std::mem::take(&mut self.replaced)
    }

    /// Puts a job.
    pub fn put(&mut self, put: Put, now: Timestamp) -> Result<Placed, PutError> {
        if let Some(kind) = self.kinds.get_mut(&put.kind) {
            // A put removes no job.
            return kind.put(put, now);
        }
        // A put whose condition fails does not create a kind.
        if let Some(Condition::IfGeneration(expected)) = put.condition {
            let (kind, id) = (put.kind, put.id);
            return Err(PutError::Generation { kind, id, expected, found: None });
        }
        // Nor does an invalid put: kinds count towards a limit.
        put.due.at(now)?;
        put.content.check()?;
        self.made(&put.kind)?.put(put, now)
    }

    /// Leases jobs that are due, and those whose lease expired.
    pub fn claim(&mut self, claim: &Claim, now: Timestamp) -> Result<Claimed, Invalid> {
        check_count("kinds in a claim", claim.kinds.len())?;
        check_count("jobs in a claim", claim.max)?;
        let mut claimed = Claimed::default();
        let mut room = ClaimRoom::new(claim.max);
        // Absent kinds get no turn: the kind after them would get two.
        let there = |(_, kind): &(usize, &Kind)| self.kinds.contains_key(*kind);
        let first = self.turns.first(claim.kinds.iter().enumerate().filter(there));
        let kinds = claim.kinds.iter().cycle().skip(first).take(claim.kinds.len());
        for name in kinds {
            let Some(kind) = self.kind_mut(name) else { continue };
            if let Err(error) = kind.claim(claim, now, &mut room, &mut claimed) {
                claimed.errors.push((name.clone(), error));
            }
        }
        Ok(claimed)
    }

    /// Settles a lease.
    pub fn settle(&mut self, settle: Settle, now: Timestamp) -> Result<Settled, SettleError> {
        match self.kind_mut(settle.receipt.kind()) {
            Some(kind) => kind.settle(settle, now),
            None => Err(SettleError::LeaseLost { receipt: settle.receipt }),
        }
    }

    /// Changes a job.
    pub fn change(&mut self, change: Change, now: Timestamp) -> Result<Changed, ChangeError> {
        match self.kind_mut(&change.kind) {
            Some(kind) => kind.change(change, now),
            None => Err(ChangeError::Absent { kind: change.kind, id: change.id }),
        }
    }

    /// Imports jobs of another store, except those that already exist.
    pub fn restore(
        &mut self,
        restore: Restore,
        now: Timestamp,
    ) -> Result<BatchResults<Restored, StoreError>, Invalid> {
        restore.check()?;
        let Restore { kind, generation, fence, jobs } = restore;
        let kind = self.made(&kind)?;
        kind.raise(generation, fence);
        Ok(jobs.into_iter().map(|job| kind.restore(job, now)).collect())
    }

    /// Returns in how long a claim of these kinds may return a job if nothing changes. `None` means
    /// never.
    pub fn next_claimable(
        &mut self,
        kinds: &[Kind],
        now: Timestamp,
    ) -> Result<Option<Duration>, StoreError> {
        let mut next: Option<Timestamp> = None;
        for kind in kinds {
            if let Some(kind) = self.kinds.get_mut(kind)
                && let Some(at) = kind.next_claimable(now)?
            {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        Ok(next.map(|next| next.saturating_since(now)))
    }

    /// Ends expired leases and deletes dead jobs beyond their retention, at most `max` of each kind,
    /// and leases of jobs with [`MAX_RESULT_BYTES`] of bodies. If a kind cannot be read, the others
    /// are handled nevertheless, and the error is returned.
    pub fn reap(&mut self, max: usize, now: Timestamp) -> Result<Reaped, StoreError> {
        let maybe_idle = &mut self.maybe_idle;
        let reap = |kind: &mut KindState<S>| {
            let reaped = kind.reap(max, &mut { MAX_RESULT_BYTES }, now);
            if reaped.as_ref().map_or(true, |reaped| reaped.count > 0) {
                note(maybe_idle, &kind.name);
            }
            reaped
        };
        let reaped: Vec<_> = self.kinds.values_mut().map(reap).collect();
        Reaped::sum(reaped)
    }

    /// Returns a job, or `None` if there is no such job.
    pub fn get(
        &mut self,
        kind: &Kind,
        id: &JobId,
        now: Timestamp,
    ) -> Result<Option<JobView>, StoreError> {
        self.kinds.get_mut(kind).map_or(Ok(None), |kind| kind.get(id, now))
    }

    /// Returns the settings of a kind.
    pub fn settings(&self, kind: &Kind) -> Settings {
        self.kinds.get(kind).map_or_else(Settings::default, |kind| kind.settings.clone())
    }

    /// Replaces the settings of a kind.
    pub fn set(&mut self, kind: &Kind, settings: Settings) -> Result<(), Invalid> {
        // Checked first, so that invalid settings do not create a kind.
        settings.check()?;
        self.made(kind)?.set(settings);
        Ok(())
    }

    /// Stores a schedule. It replaces the schedule of the same id. Returns `false`, and changes
    /// nothing, if the condition does not hold.
    pub fn set_schedule(
        &mut self,
        kind: &Kind,
        schedule: Schedule,
        condition: ScheduleCondition,
    ) -> Result<bool, Invalid> {
        schedule.check()?;
        if !condition.holds(self.schedule(kind, &schedule.id).map(|schedule| schedule.next)) {
            return Ok(false);
        }
        self.made(kind)?.set_schedule(schedule)
    }

    /// Returns a schedule.
    pub fn schedule(&self, kind: &Kind, id: &JobId) -> Option<&Schedule> {
        self.kinds.get(kind)?.schedules.get(id)
    }

    /// Removes a schedule. Returns `false` if there is no such schedule.
    pub fn remove_schedule(&mut self, kind: &Kind, id: &JobId) -> bool {
        let kind = self.kind_mut(kind);
        kind.is_some_and(|kind| kind.schedules.remove(id).is_some())
    }

    /// Returns the schedules of a kind, ordered by id.
    pub fn schedules(&self, kind: &Kind) -> Vec<Schedule> {
        let kind = self.kinds.get(kind);
        kind.map_or_else(Vec::new, |kind| kind.schedules.values().cloned().collect())
    }

    /// Performs one step of a schedule.
    pub fn tick(&mut self, tick: Tick, now: Timestamp) -> Result<Ticked, StoreError> {
        self.kind_mut(&tick.kind).map_or(Ok(Ticked::Absent), |kind| kind.tick(tick, now))
    }
}

/// Notes that this kind may be idle.
fn note(maybe_idle: &mut Option<BTreeSet<Kind>>, kind: &Kind) {
    if let Some(maybe_idle) = maybe_idle
        && !maybe_idle.contains(kind)
    {
        maybe_idle.insert(kind.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::ChangeKind;
    use crate::job::Body;
    use crate::memory::MemoryTable;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn name(n: usize) -> Kind {
        Kind::new(format!("kind-{n}")).expect("a valid name")
    }

    fn id() -> JobId {
        JobId::new("a").expect("a valid id")
    }

    fn put(kinds: &mut Kinds<MemoryTable>, n: usize) -> Result<Placed, PutError> {
        kinds.put(Put::new(name(n), id(), Body::default()), NOW)
    }

    #[test]
    fn a_new_kind_looks_only_at_kinds_that_were_touched_since_none_was_idle() {
        let mut kinds = Kinds::new(|_| MemoryTable::default());
        for n in 0..MAX_KINDS {
            put(&mut kinds, n).expect("there is room");
        }
        assert_eq!(kinds.maybe_idle, None, "nothing is kept before");
        let touched = |kinds: &Kinds<MemoryTable>| kinds.maybe_idle.as_ref().map(BTreeSet::len);
        for _ in 0..3 {
            put(&mut kinds, MAX_KINDS).expect_err("no kind is idle");
            assert_eq!(touched(&kinds), Some(0));
        }
        for n in 0..10 {
            put(&mut kinds, n).expect("it exists");
        }
        assert_eq!(touched(&kinds), Some(0), "a put makes no kind idle");
        for n in [7, 8] {
            let action = ChangeKind::RunNow;
            kinds.change(Change { kind: name(n), id: id(), action }, NOW).expect("it exists");
        }
        assert_eq!(touched(&kinds), Some(2));
        let action = ChangeKind::Cancel;
        kinds.change(Change { kind: name(8), id: id(), action }, NOW).expect("it exists");
        put(&mut kinds, MAX_KINDS).expect("it takes the place of the idle one");
        assert!(kinds.kind(&name(8)).is_none() && kinds.kind(&name(7)).is_some());
        assert_eq!(kinds.len(), MAX_KINDS);
        put(&mut kinds, MAX_KINDS + 1).expect_err("no kind is idle");
    }
}

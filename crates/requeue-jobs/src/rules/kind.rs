//! The rules of one kind, without lock or clock: puts and changes.
//!
//! [Claims](super::claim) and [settlements](super::settle) are in modules of their own.

use super::job_table::{JobTable, List};
use super::merge::NewVersion;
use super::rate::RateUse;
use super::record::{Record, Status, Successor};
use crate::claim::{Change, ChangeKind, Changed, Reschedule};
use crate::cron::{Schedule, Tick, TickJob, Ticked};
use crate::error::{ChangeError, Invalid, PutError, StoreError};
use crate::job::JobView;
use crate::limits::{MAX_COUNTER, MAX_SCHEDULES, MAX_SCHEDULES_BYTES};
use crate::names::{JobId, Kind};
use crate::put::{Condition, Mode, Placed, Put, PutOutcome};
use crate::query::{Counts, KindView};
use crate::receipt::{Fence, Generation};
use crate::restore::check_counter;
use crate::settings::Settings;
use crate::time::{Due, Timestamp};
use crate::version::{Content, Version};
use std::collections::{BTreeMap, VecDeque};

/// A schedule with a shorter body is stored without adding up those of all others.
const COUNTED_SCHEDULE_LEN: usize = 1024;

/// One kind: its jobs, in a [`JobTable`], its settings, schedules and counters.
///
/// If reading the table fails, a method returns that error and has not changed the current job.
pub struct KindState<S> {
    pub(super) name: Kind,
    /// The settings of the kind.
    pub settings: Settings,
    /// Its schedules, by id.
    pub schedules: BTreeMap<JobId, Schedule>,
    /// The numbers that were assigned last.
    pub counters: Counters,
    /// How much of its rate limit is used.
    pub rate_use: RateUse,
    /// Its jobs.
    pub table: S,
    reserved: Option<ReservedNumbers>,
}

/// Numbers that something else has assigned, for a store that shares its counters with other
/// processes. Used with [`KindState::use_numbers`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedNumbers {
    /// Distinct numbers, ascending. No other process uses them.
    pub numbers: VecDeque<u64>,
    /// Is added to a number to make a generation. `None`: generations are counted.
    pub generation_offset: Option<i64>,
    /// Is added to a number to make a fence. `None`: fences are counted.
    pub fence_offset: Option<i64>,
}

impl ReservedNumbers {
    /// How many numbers suffice for rules about this many jobs. Each put, settlement, change and import
    /// uses up to two, for its generation and its [`seq`](Record::seq); and each claimed job and each
    /// expired lease up to three, with its fence. A few more are for dead and done jobs that have to go.
    pub fn enough_for(jobs: usize) -> usize {
        3 * jobs + 4
    }
}

/// The latest number of each sort. They outlive the jobs: no number is assigned twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// The latest [`Generation`].
    pub generation: u64,
    /// The latest [`Fence`].
    pub fence: u64,
    /// The latest [`seq`](Record::seq).
    pub seq: u64,
}

impl Counters {
    /// The higher ones of both.
    pub(super) fn max(self, other: Counters) -> Counters {
        Counters {
            generation: self.generation.max(other.generation),
            fence: self.fence.max(other.fence),
            seq: self.seq.max(other.seq),
        }
    }
}

impl<S> KindState<S> {
    /// Returns a kind with these jobs, default settings and no schedules.
    pub fn new(name: Kind, table: S) -> Self {
        KindState {
            name,
            settings: Settings::default(),
            schedules: BTreeMap::new(),
            counters: Counters::default(),
            rate_use: RateUse::default(),
            table,
            reserved: None,
        }
    }

    /// Assigns these numbers as generations, fences and [`seq`](Record::seq) from now on, instead of
    /// counting. They must [suffice](ReservedNumbers::enough_for).
    pub fn use_numbers(&mut self, numbers: ReservedNumbers) {
        self.reserved = Some(numbers);
    }

    /// Returns the name of the kind.
    pub fn name(&self) -> &Kind {
        &self.name
    }

    /// Fails if the kind has assigned its last generation. Call it before anything changes.
    pub(super) fn check_generation(&self) -> Result<(), Invalid> {
        check_counter("the kind's generation", self.coming_generation())
    }

    /// Returns the next reserved number plus an offset, unless there is no offset.
    fn reserved(&self, offset: impl Fn(&ReservedNumbers) -> Option<i64>) -> Option<u64> {
        let reserved = self.reserved.as_ref()?;
        let number = reserved.numbers.front().copied();
        debug_assert!(number.is_some(), "too few numbers were reserved");
        Some(number?.saturating_add_signed(offset(reserved)?))
    }

    /// Removes the reserved number if it was used, and otherwise returns `counted`.
    fn used(&mut self, reserved: Option<u64>, counted: u64) -> u64 {
        if let (Some(number), Some(numbers)) = (reserved, &mut self.reserved) {
            numbers.numbers.pop_front();
            return number;
        }
        counted
    }

    fn coming_generation(&self) -> u64 {
        let reserved = self.reserved(|numbers| numbers.generation_offset);
        reserved.unwrap_or(self.counters.generation.saturating_add(1))
    }

    /// Returns the next generation. Call [`check_generation`](KindState::check_generation) before.
    pub(super) fn next_generation(&mut self) -> Generation {
        let reserved = self.reserved(|numbers| numbers.generation_offset);
        self.counters.generation = self.used(reserved, self.coming_generation());
        Generation(self.counters.generation)
    }

    pub(super) fn next_seq(&mut self) -> u64 {
        let reserved = self.reserved(|_| Some(0));
        self.counters.seq = self.used(reserved, self.counters.seq + 1);
        self.counters.seq
    }

    /// Returns the next fence. Fences rise strictly, also across restarts, unless the clock goes
    /// back by more microseconds than jobs were claimed since.
    pub(super) fn next_fence(&mut self, now: Timestamp) -> Fence {
        let reserved = self.reserved(|numbers| numbers.fence_offset);
        self.counters.fence = self.used(reserved, self.coming_fence(now));
        Fence(self.counters.fence)
    }

    fn coming_fence(&self, now: Timestamp) -> u64 {
        if let Some(fence) = self.reserved(|numbers| numbers.fence_offset) {
            return fence;
        }
        // A clock that is far ahead, after the year 2112, must leave higher numbers.
        let clock = now.as_millis().saturating_mul(1000).min(MAX_COUNTER / 2);
        self.counters.fence.saturating_add(1).max(clock)
    }

    /// Returns how many fences are left. Fails if there are none.
    pub(super) fn fences_left(&self, now: Timestamp) -> Result<usize, Invalid> {
        let next = self.coming_fence(now);
        check_counter("the kind's fence", next)?;
        Ok(usize::try_from(MAX_COUNTER - next + 1).unwrap_or(usize::MAX))
    }

    /// Replaces the version of a pending job. A ready job that is put due now keeps its position.
    pub(super) fn replace(&mut self, record: &mut Record, version: Version, now: Timestamp) {
        let (old, mut due) = (record.version.due, version.due.max(record.floor));
        if due == old || (due <= now && old <= now) {
            due = old;
        } else {
            (due, record.seq) = (due.max(now), self.next_seq());
        }
        record.version = Version { due, ..version };
    }

    /// Sets the settings. A new rate begins with a full bucket.
    pub(super) fn set(&mut self, settings: Settings) {
        if settings.rate != self.settings.rate {
            self.rate_use = RateUse::default();
        }
        self.settings = settings;
    }

    /// Returns how many jobs the rate limit allows to lease now.
    pub(super) fn tokens(&self, now: Timestamp) -> usize {
        self.settings.rate.map_or(usize::MAX, |rate| self.rate_use.tokens(&rate, now))
    }

    /// Returns until when the rate limit allows no job to be leased. `None`: it does now.
    pub fn throttled_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.settings.rate.and_then(|rate| self.rate_use.throttled_until(&rate, now))
    }

    pub(super) fn set_schedule(&mut self, schedule: Schedule) -> Result<bool, Invalid> {
        let count = self.schedules.len() + 1;
        if count > MAX_SCHEDULES && !self.schedules.contains_key(&schedule.id) {
            let (what, limit) = ("schedules of a kind", MAX_SCHEDULES);
            return Err(Invalid::TooMany { what, count, limit });
        }
        if schedule.body.len() > COUNTED_SCHEDULE_LEN {
            let others = self.schedules.values().filter(|other| other.id != schedule.id);
            let len = others.map(|other| other.body.len()).sum::<usize>() + schedule.body.len();
            let (field, limit) = ("the bodies of the kind's schedules", MAX_SCHEDULES_BYTES);
            if len > limit {
                return Err(Invalid::TooLong { field, len, limit });
            }
        }
        self.schedules.insert(schedule.id.clone(), schedule);
        Ok(true)
    }
}

impl<S: JobTable> KindState<S> {
    /// Puts a job.
    pub fn put(&mut self, put: Put, now: Timestamp) -> Result<Placed, PutError> {
        let due = put.due.at(now)?;
        self.check_generation()?;
        let Put { kind, id, body, priority, mode, condition, .. } = put;
        let there = match condition {
            None => self.table.take(&id)?,
            Some(condition) => {
                let there = self.table.peek(&id)?;
                let done = there.filter(|record| record.is_done()).is_some();
                let found = there.map(Record::newest_generation);
                match condition {
                    Condition::IfAbsent | Condition::IfNew => {
                        if let Some(generation) = found
                            && !(done && condition == Condition::IfAbsent)
                        {
                            return Err(PutError::Exists { kind, id, generation });
                        }
                    }
                    Condition::IfGeneration(expected) => {
                        let found = found.filter(|_| !done);
                        if found != Some(expected) {
                            return Err(PutError::Generation { kind, id, expected, found });
                        }
                    }
                }
                if found.is_some() { self.table.take(&id)? } else { None }
            }
        };
        // A done job that was taken out is not stored again: the new one replaces it.
        let put = NewVersion { content: body.into(), due, priority };
        Ok(match there.filter(|record| !record.is_done()) {
            None => self.create(id, put, mode, now),
            Some(record) => self.merge(id, record, put, mode, now),
        })
    }

    fn create(&mut self, id: JobId, put: NewVersion, mode: Mode, now: Timestamp) -> Placed {
        let generation = self.next_generation();
        let version = put.merged(generation, mode, None, now, now);
        let record = Record::new(version, self.next_seq(), now);
        self.table.keep(id, Box::new(record));
        Placed { outcome: PutOutcome::Created, generation }
    }

    /// Applies a put to a job that was taken out of the table.
    fn merge(
        &mut self,
        id: JobId,
        mut record: Box<Record>,
        put: NewVersion,
        mode: Mode,
        now: Timestamp,
    ) -> Placed {
        let has_no_successor =
            matches!(&record.status, Status::Leased(lease) if lease.next.is_none());
        if mode == Mode::Keep && !has_no_successor {
            let generation = record.newest_generation();
            self.table.put_back(id, record);
            return Placed { outcome: PutOutcome::Kept, generation };
        }
        let generation = self.next_generation();
        let outcome = match &mut record.status {
            Status::Pending => {
                let base = *record.first_put_at.get_or_insert(now);
                let version = put.merged(generation, mode, Some(&record.version), base, now);
                self.replace(&mut record, version, now);
                PutOutcome::Updated
            }
            Status::Leased(lease) => {
                let put_at = lease.next.as_ref().map_or(now, |next| next.put_at);
                // A put after a cancel is a new job, with its own debounce count.
                let base = match lease.cancelled {
                    true => put_at,
                    false => *record.first_put_at.get_or_insert(now),
                };
                let old = lease.next.as_ref().map(|next| &next.version);
                let version = put.merged(generation, mode, old, base, now);
                lease.next = Some(Successor { version, put_at });
                PutOutcome::Coalesced
            }
            // `Done` does not occur: it counts as absent.
            Status::Dead { .. } | Status::Done(_) => {
                record.status = Status::Pending;
                record.reset();
                record.first_put_at = Some(now);
                record.version = put.merged(generation, mode, None, now, now);
                record.seq = self.next_seq();
                PutOutcome::Revived
            }
        };
        record.updated_at = now;
        self.table.keep(id, record);
        Placed { outcome, generation }
    }

    /// Performs one step of a schedule.
    pub fn tick(&mut self, tick: Tick, now: Timestamp) -> Result<Ticked, StoreError> {
        let move_on = |schedules: &mut BTreeMap<JobId, Schedule>| {
            if let Some(schedule) = schedules.get_mut(&tick.id) {
                schedule.next = tick.next;
            }
        };
        let Some(schedule) = self.schedules.get(&tick.id) else {
            return Ok(Ticked::Absent);
        };
        if schedule.next != tick.expected {
            return Ok(Ticked::Moved(schedule.next));
        }
        let Some(job) = tick.put else {
            move_on(&mut self.schedules);
            return Ok(Ticked::Skipped);
        };
        // Before the schedule moves on: if the put is invalid, nothing changes.
        let due = Due::At(tick.expected).at(now)?;
        self.check_generation()?;
        let there = self.table.take(&job.id)?.filter(|record| !record.is_done());
        move_on(&mut self.schedules);
        let TickJob { id, body, priority } = job;
        let (put, mode) = (NewVersion { content: body.into(), due, priority }, Mode::Replace);
        Ok(Ticked::Put(match there {
            None => self.create(id, put, mode, now),
            Some(record) => self.merge(id, record, put, mode, now),
        }))
    }

    /// Cancels a job, runs it now, revives or reschedules it.
    pub fn change(&mut self, change: Change, now: Timestamp) -> Result<Changed, ChangeError> {
        let Change { kind, id, action } = change;
        let Some(mut record) = self.table.take(&id)? else {
            return Err(ChangeError::Absent { kind, id });
        };
        let changed = match (action, &mut record.status) {
            (ChangeKind::Reschedule(set), _) => {
                let placed = self.reschedule((kind, id), record, set, now)?;
                return Ok(Changed::Rescheduled(placed));
            }
            (ChangeKind::Cancel, Status::Pending | Status::Dead { .. } | Status::Done(_)) => {
                return Ok(Changed::Removed);
            }
            (ChangeKind::Cancel, Status::Leased(lease)) => {
                (lease.cancelled, lease.next) = (true, None);
                Changed::Ending
            }
            (ChangeKind::RunNow, Status::Pending) => {
                record.floor = Timestamp::default();
                if record.version.due > now {
                    (record.version.due, record.seq) = (now, self.next_seq());
                }
                Changed::Ready
            }
            (ChangeKind::RunNow, Status::Leased(lease)) => {
                let Some(next) = &mut lease.next else {
                    self.table.put_back(id.clone(), record);
                    return Err(ChangeError::Leased { kind, id });
                };
                next.version.due = next.version.due.min(now);
                Changed::Ready
            }
            (ChangeKind::RunNow | ChangeKind::Revive, Status::Dead { .. }) => {
                record.status = Status::Pending;
                record.reset();
                (record.version.due, record.seq) = (now, self.next_seq());
                Changed::Revived
            }
            (ChangeKind::RunNow, Status::Done(_)) => {
                self.table.put_back(id.clone(), record);
                return Err(ChangeError::Done { kind, id });
            }
            (ChangeKind::Revive, Status::Pending | Status::Leased(_) | Status::Done(_)) => {
                self.table.put_back(id.clone(), record);
                return Err(ChangeError::NotDead { kind, id });
            }
        };
        record.updated_at = now;
        self.table.keep(id, record);
        Ok(changed)
    }

    /// Reschedules a job that was taken out of the table: a put of what it contains, with what is set.
    fn reschedule(
        &mut self,
        (kind, id): (Kind, JobId),
        mut record: Box<Record>,
        set: Reschedule,
        now: Timestamp,
    ) -> Result<Placed, ChangeError> {
        if let Err(error) = self.check_reschedule(&kind, &id, &record, &set, now) {
            self.table.put_back(id, record);
            return Err(error);
        }
        let stays_dead = set.due.is_none() && matches!(record.status, Status::Dead { .. });
        let Version { content, mut due, priority, generation: _ } = record.newest().clone();
        if matches!(&record.status, Status::Leased(lease) if lease.next.is_none()) {
            due = now;
        }
        let put = NewVersion {
            content: set.body.map_or(content, Content::from),
            due: set.due.map_or(Ok(due), |due| due.at(now))?,
            priority: set.priority.unwrap_or(priority),
        };
        if !stays_dead {
            return Ok(self.merge(id, record, put, Mode::Replace, now));
        }
        let generation = self.next_generation();
        record.version = put.merged(generation, Mode::Replace, None, now, now);
        record.updated_at = now;
        self.table.keep(id, record);
        Ok(Placed { outcome: PutOutcome::Updated, generation })
    }

    /// Fails if the job cannot be rescheduled in this way.
    fn check_reschedule(
        &self,
        kind: &Kind,
        id: &JobId,
        record: &Record,
        set: &Reschedule,
        now: Timestamp,
    ) -> Result<(), ChangeError> {
        let (kind, id) = (kind.clone(), id.clone());
        match &record.status {
            Status::Done(_) => return Err(ChangeError::Done { kind, id }),
            // The job ends with its lease.
            Status::Leased(lease) if lease.cancelled && lease.next.is_none() => {
                return Err(ChangeError::Absent { kind, id });
            }
            _ => {}
        }
        set.due.map_or(Ok(now), |due| due.at(now))?;
        self.check_generation()?;
        let found = record.newest_generation();
        match set.if_generation {
            Some(expected) if expected != found => {
                Err(ChangeError::Generation { kind, id, expected, found })
            }
            _ => Ok(()),
        }
    }

    /// Returns a job, or `None` if there is no such job.
    pub fn get(&mut self, id: &JobId, now: Timestamp) -> Result<Option<JobView>, StoreError> {
        Ok(self.table.peek(id)?.map(|record| record.view(&self.name, id, now)))
    }

    /// Returns the view of the kind. The store counts the `ready` jobs.
    pub fn view(&mut self, ready: u64, now: Timestamp) -> Result<KindView, StoreError> {
        let mut oldest: Option<Timestamp> = None;
        let (mut pending, mut leased) = (0, 0);
        for priority in self.table.priorities().iter() {
            let first = self.table.first(List::Pending(priority))?.map(|position| position.at);
            oldest = first.into_iter().chain(oldest).min();
            pending += self.table.count(List::Pending(priority));
            leased += self.table.count(List::Leased(priority));
        }
        let [dead, done] = [List::Dead, List::Done].map(|list| self.table.count(list));
        Ok(KindView {
            kind: self.name.clone(),
            counts: Counts { pending, leased, dead, done, ready },
            oldest_ready: oldest.filter(|due| *due <= now),
            paused: self.settings.paused,
            push: self.settings.push.is_some(),
            throttled_until: self.throttled_until(now),
            generation: Generation(self.counters.generation),
            fence: Fence(self.counters.fence),
        })
    }

    /// Returns `true` if the kind has no jobs, no schedules and default settings, so that
    /// [`Store::kinds`](crate::Store::kinds) does not list it.
    pub fn is_idle(&self) -> bool {
        List::all().all(|list| self.table.count(list) == 0)
            && self.schedules.is_empty()
            && self.settings == Settings::default()
    }
}

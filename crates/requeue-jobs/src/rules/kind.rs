//! The rules of one kind, without lock or clock: puts and changes.
//!
//! [Claims](super::claim) and [settlements](super::settle) are in modules of their own.

use super::job_table::{JobTable, List};
use super::merge::NewVersion;
use super::numbers::{Counters, ReservedNumbers};
use super::rate::RateUse;
use super::record::{Record, Status, Successor};
use crate::claim::{Change, ChangeKind, Changed, Reschedule};
use crate::cron::{Schedule, Tick, TickJob, Ticked};
use crate::error::{ChangeError, Invalid, PutError, StoreError};
use crate::job::JobView;
use crate::limits::{MAX_SCHEDULES, MAX_SCHEDULES_BYTES};
use crate::names::{JobId, Kind};
use crate::put::{Condition, Mode, Placed, Put, PutOutcome};
use crate::query::{Counts, KindView};
use crate::receipt::{Fence, Generation};
use crate::settings::Settings;
use crate::time::{Due, Timestamp};
use crate::version::Version;
use std::collections::BTreeMap;

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
    pub(super) reserved: Option<ReservedNumbers>,
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

    /// Returns the name of the kind.
    pub fn name(&self) -> &Kind {
        &self.name
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
        if schedule.content.len() > COUNTED_SCHEDULE_LEN {
            let others = self.schedules.values().filter(|other| other.id != schedule.id);
            let len =
                others.map(|other| other.content.len()).sum::<usize>() + schedule.content.len();
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
        put.content.check()?;
        self.check_generation()?;
        let Put { kind, id, content, due: _, priority, mode, condition } = put;
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
        let put = NewVersion { content, due, priority };
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
        job.content.check()?;
        self.check_generation()?;
        let there = self.table.take(&job.id)?.filter(|record| !record.is_done());
        move_on(&mut self.schedules);
        let TickJob { id, content, priority } = job;
        let (put, mode) = (NewVersion { content, due, priority }, Mode::Replace);
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
            content: match set.body {
                Some(body) => content.with_body(body),
                None => content,
            },
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

//! The rules of one kind, without lock or clock: the contract, in code.
//!
//! Here are puts and changes. [Claims](super::claim) and [settlements](super::settle) are
//! beside.

use super::job_table::{JobTable, List};
use super::record::{Next, Record, Status};
use crate::claim::{Change, ChangeKind, Changed};
use crate::cron::{Schedule, Ticked};
use crate::error::{ChangeError, Invalid, PutError, StoreError};
use crate::job::{Body, JobView};
use crate::limits::MAX_SCHEDULES;
use crate::names::{JobId, Kind};
use crate::put::{Condition, Mode, Placed, Put, PutOutcome};
use crate::query::{Counts, KindView};
use crate::receipt::{Fence, Generation};
use crate::settings::Settings;
use crate::store::Tick;
use crate::time::{Due, Timestamp};
use std::collections::BTreeMap;

/// One kind: its jobs, on a [`JobTable`], and what is known of it.
///
/// Where reading fails, a call answers that error, and has changed nothing of the job it was at.
pub struct KindState<S> {
    pub(super) name: Kind,
    /// What is set for it.
    pub settings: Settings,
    /// Its schedules, by id.
    pub schedules: BTreeMap<JobId, Schedule>,
    /// What was given out last.
    pub counters: Counters,
    /// Its jobs.
    pub table: S,
}

/// The latest of each. They outlive the jobs: nothing that was given out is given out again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// The latest [`Generation`].
    pub generation: u64,
    /// The latest [`Fence`].
    pub fence: u64,
    /// The latest [`seq`](Record::seq).
    pub seq: u64,
}

impl<S> KindState<S> {
    /// A kind of which only these jobs are known.
    pub fn new(name: Kind, table: S) -> Self {
        KindState {
            name,
            settings: Settings::default(),
            schedules: BTreeMap::new(),
            counters: Counters::default(),
            table,
        }
    }

    /// What it is called.
    pub fn name(&self) -> &Kind {
        &self.name
    }

    pub(super) fn next_generation(&mut self) -> Generation {
        self.counters.generation += 1;
        Generation(self.counters.generation)
    }

    pub(super) fn next_seq(&mut self) -> u64 {
        self.counters.seq += 1;
        self.counters.seq
    }

    /// Rises strictly, and over restarts too unless the clock went back by more than was
    /// claimed since.
    pub(super) fn next_fence(&mut self, now: Timestamp) -> Fence {
        // A clock that is far off must leave room to rise.
        let clock = now.as_millis().saturating_mul(1000).min(u64::MAX / 2);
        self.counters.fence = (self.counters.fence + 1).max(clock);
        Fence(self.counters.fence)
    }

    /// Gives a pending job another body and time. Due now and due before, it keeps its place.
    pub(super) fn replace(
        &mut self,
        record: &mut Record,
        body: Body,
        asked: Timestamp,
        now: Timestamp,
    ) {
        let due = asked.max(record.floor);
        let stays = due == record.due || (due <= now && record.due <= now);
        if !stays {
            (record.due, record.seq) = (due.max(now), self.next_seq());
        }
        record.body = body;
    }

    pub(super) fn set_schedule(&mut self, schedule: Schedule) -> Result<(), Invalid> {
        let count = self.schedules.len() + 1;
        if count > MAX_SCHEDULES && !self.schedules.contains_key(&schedule.id) {
            let (what, limit) = ("schedules of a kind", MAX_SCHEDULES);
            return Err(Invalid::TooMany { what, count, limit });
        }
        self.schedules.insert(schedule.id.clone(), schedule);
        Ok(())
    }
}

impl<S: JobTable> KindState<S> {
    /// Puts a job.
    pub fn put(&mut self, put: Put, now: Timestamp) -> Result<Placed, PutError> {
        let due = put.due.at(now)?;
        let Put { kind, id, body, mode, condition, .. } = put;
        let there = match condition {
            None => self.table.take(&id)?,
            Some(condition) => {
                let found = self.table.peek(&id)?.map(Record::newest_generation);
                match (condition, found) {
                    (Condition::IfAbsent, Some(generation)) => {
                        return Err(PutError::Exists { kind, id, generation });
                    }
                    (Condition::IfGeneration(expected), found) if found != Some(expected) => {
                        return Err(PutError::Generation { kind, id, expected, found });
                    }
                    (Condition::IfAbsent, None) => None,
                    (Condition::IfGeneration(_), _) => self.table.take(&id)?,
                }
            }
        };
        Ok(match there {
            None => self.create(id, body, mode, due, now),
            Some(record) => self.merge(id, record, (body, mode, due), now),
        })
    }

    fn create(
        &mut self,
        id: JobId,
        body: Body,
        mode: Mode,
        due: Timestamp,
        now: Timestamp,
    ) -> Placed {
        let due = merged(mode, due, None, now, now);
        let (generation, seq) = (self.next_generation(), self.next_seq());
        self.table.keep(id, Box::new(Record::new(body, due, generation, seq, now)));
        Placed { outcome: PutOutcome::Created, generation }
    }

    /// A put on a job that was taken out.
    fn merge(
        &mut self,
        id: JobId,
        mut record: Box<Record>,
        (body, mode, due): (Body, Mode, Timestamp),
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
                let asked = merged(mode, due, Some(record.due), base, now);
                self.replace(&mut record, body, asked, now);
                record.generation = generation;
                PutOutcome::Updated
            }
            Status::Leased(lease) => {
                let (put_at, old) = match &lease.next {
                    Some(next) => (next.put_at, Some(next.due)),
                    None => (now, None),
                };
                // What is put after a cancel is another job, and counts for itself.
                let base = match lease.cancelled {
                    true => put_at,
                    false => *record.first_put_at.get_or_insert(now),
                };
                let asked = merged(mode, due, old, base, now);
                lease.next = Some(Next { body, due: asked, generation, put_at });
                PutOutcome::Coalesced
            }
            Status::Dead { .. } => {
                record.status = Status::Pending;
                record.reset();
                record.first_put_at = Some(now);
                record.due = merged(mode, due, None, now, now);
                (record.seq, record.body, record.generation) = (self.next_seq(), body, generation);
                PutOutcome::Revived
            }
        };
        record.updated_at = now;
        self.table.keep(id, record);
        Placed { outcome, generation }
    }

    /// A step of a schedule.
    pub fn tick(&mut self, tick: Tick, now: Timestamp) -> Result<Ticked, StoreError> {
        let Some(schedule) = self.schedules.get_mut(&tick.id) else {
            return Ok(Ticked::Absent);
        };
        if schedule.next != tick.expected {
            return Ok(Ticked::Moved(schedule.next));
        }
        if !tick.put {
            schedule.next = tick.next;
            return Ok(Ticked::Skipped);
        }
        // Before the schedule moves: where the put is refused, nothing happens.
        let due = Due::At(tick.expected).at(now)?;
        let there = self.table.take(&tick.id)?;
        schedule.next = tick.next;
        let (body, mode) = (schedule.body.clone(), Mode::Replace);
        Ok(Ticked::Put(match there {
            None => self.create(tick.id, body, mode, due, now),
            Some(record) => self.merge(tick.id, record, (body, mode, due), now),
        }))
    }

    /// Cancels a job, runs it now, or revives it.
    pub fn change(&mut self, change: Change, now: Timestamp) -> Result<Changed, ChangeError> {
        let Change { kind, id, action } = change;
        let Some(mut record) = self.table.take(&id)? else {
            return Err(ChangeError::Absent { kind, id });
        };
        let changed = match (action, &mut record.status) {
            (ChangeKind::Cancel, Status::Pending | Status::Dead { .. }) => {
                return Ok(Changed::Removed);
            }
            (ChangeKind::Cancel, Status::Leased(lease)) => {
                (lease.cancelled, lease.next) = (true, None);
                Changed::Ending
            }
            (ChangeKind::RunNow, Status::Pending) => {
                record.floor = Timestamp::default();
                if record.due > now {
                    (record.due, record.seq) = (now, self.next_seq());
                }
                Changed::Ready
            }
            (ChangeKind::RunNow, Status::Leased(lease)) => {
                let Some(next) = &mut lease.next else {
                    self.table.put_back(id.clone(), record);
                    return Err(ChangeError::Leased { kind, id });
                };
                next.due = next.due.min(now);
                Changed::Ready
            }
            (ChangeKind::RunNow | ChangeKind::Revive, Status::Dead { .. }) => {
                record.status = Status::Pending;
                record.reset();
                (record.due, record.seq) = (now, self.next_seq());
                Changed::Revived
            }
            (ChangeKind::Revive, Status::Pending | Status::Leased(_)) => {
                self.table.put_back(id.clone(), record);
                return Err(ChangeError::NotDead { kind, id });
            }
        };
        record.updated_at = now;
        self.table.keep(id, record);
        Ok(changed)
    }

    /// What is known of a job.
    pub fn get(&mut self, id: &JobId, now: Timestamp) -> Result<Option<JobView>, StoreError> {
        Ok(self.table.peek(id)?.map(|record| record.view(&self.name, id, now)))
    }

    /// What is known of the kind, where so many of its jobs are ready: that is for the store to
    /// count.
    pub fn view(&mut self, ready: u64, now: Timestamp) -> Result<KindView, StoreError> {
        let oldest = self.table.first(List::Pending)?.map(|place| place.at);
        let [pending, leased, dead] = List::ALL.map(|list| self.table.count(list));
        Ok(KindView {
            kind: self.name.clone(),
            counts: Counts { pending, leased, dead, ready },
            oldest_ready: oldest.filter(|due| *due <= now),
            paused: self.settings.paused,
            generation: Generation(self.counters.generation),
            fence: Fence(self.counters.fence),
        })
    }

    /// Whether there is nothing that a list of kinds would show: no job, schedule or setting.
    pub fn is_idle(&self) -> bool {
        List::ALL.iter().all(|list| self.table.count(*list) == 0)
            && self.schedules.is_empty()
            && self.settings == Settings::default()
    }
}

/// The time that a put asks for, given that of what is there already.
fn merged(
    mode: Mode,
    due: Timestamp,
    old: Option<Timestamp>,
    first_put_at: Timestamp,
    now: Timestamp,
) -> Timestamp {
    match mode {
        Mode::Replace | Mode::Keep => due,
        Mode::Earliest => old.map_or(due, |old| old.min(due)),
        // Not before now: it would overtake what has been ready for longer.
        Mode::Debounce { max_wait } => due.min(first_put_at.saturating_add(max_wait).max(now)),
    }
}

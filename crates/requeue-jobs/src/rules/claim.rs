//! Claims, and leases that expire.

use super::job_table::{JobTable, List, Position};
use super::kind::KindState;
use super::record::{Lease, Record, Status, Successor};
use super::result_size::ResultSize;
use crate::claim::{Claim, Claimed, ClaimedJob, ExpiredLease, Reaped};
use crate::error::StoreError;
use crate::limits::{MAX_BATCH, MAX_RESULT_BYTES};
use crate::names::JobId;
use crate::priority::Priority;
use crate::receipt::Receipt;
use crate::settings::{Retention, check_lease};
use crate::time::Timestamp;
use std::cmp::Reverse;
use std::mem;
use std::time::Duration;

/// The retention of done jobs of a kind that keeps none.
const KEEP_NONE: Retention = Retention { age: Duration::ZERO, count: 0 };

/// What a claim over one or several kinds may still return and change.
#[derive(Debug, Clone)]
pub struct ClaimRoom {
    /// How many more jobs it may lease.
    pub jobs: usize,
    /// The bodies of the jobs that it has leased.
    pub size: ResultSize,
    /// How many more expired leases it may end that leave nothing to claim, because their jobs
    /// died or were cancelled. This bounds the size of the change; the next claim continues.
    pub ends: usize,
    /// How many more bytes of their bodies it may read.
    pub end_bytes: usize,
}

impl ClaimRoom {
    /// Returns the room of a claim for up to `max` jobs.
    pub fn new(max: usize) -> Self {
        let (size, end_bytes) = (ResultSize::default(), MAX_RESULT_BYTES);
        ClaimRoom { jobs: max, size, ends: MAX_BATCH, end_bytes }
    }

    /// Returns `true` if the claim can take no more jobs.
    pub fn is_used_up(&self) -> bool {
        self.jobs == 0 || self.ends == 0 || self.end_bytes == 0 || self.size.is_full()
    }
}

impl<S: JobTable> KindState<S> {
    /// Leases as many jobs as `room` allows, and subtracts them. After an error, those that were
    /// leased before are in `out`.
    ///
    /// A job whose body no longer fits is left as it is. If its lease has expired, that lease is
    /// not ended, and no attempt is counted.
    pub fn claim(
        &mut self,
        claim: &Claim,
        now: Timestamp,
        room: &mut ClaimRoom,
        out: &mut Claimed,
    ) -> Result<(), StoreError> {
        let lease = claim.lease.unwrap_or(self.settings.lease);
        check_lease(lease)?;
        if room.is_used_up() || self.settings.paused {
            return Ok(());
        }
        let mut free = self.free_leases(now)?.min(self.fences_left(now)?).min(self.tokens(now));
        let ends_at = now.saturating_add(lease);
        while free > 0
            && !room.is_used_up()
            && let Some((id, record)) = self.take_claimable(now)?
        {
            let (bytes, all_bytes) = (record.newest().content.len(), record.content_bytes());
            if !room.size.fits(bytes) {
                self.table.put_back(id, record);
                break;
            }
            match self.end_expired(id, record, now, &mut out.expired) {
                Some((id, record)) => {
                    debug_assert_eq!(record.version.content.len(), bytes);
                    room.size.add(bytes);
                    out.jobs.push(self.lease(id, record, claim, ends_at, now));
                    (free, room.jobs) = (free - 1, room.jobs - 1);
                }
                None => {
                    room.ends -= 1;
                    room.end_bytes = room.end_bytes.saturating_sub(all_bytes);
                }
            }
        }
        Ok(())
    }

    /// Returns how many more jobs may be leased. Expired leases do not count.
    fn free_leases(&mut self, now: Timestamp) -> Result<usize, StoreError> {
        let Some(limit) = self.settings.concurrency else { return Ok(usize::MAX) };
        let limit = limit as usize;
        let mut free = limit;
        for priority in self.table.priorities().iter() {
            free -= self.table.unexpired(priority, now, free)?;
        }
        Ok(free)
    }

    /// Returns the level of a job that has been ready since `at`: its priority, and one more for each
    /// span of the ageing.
    fn level(&self, priority: Priority, at: Timestamp, now: Timestamp) -> u64 {
        let ageing = self.settings.ageing.map_or(0, |ageing| ageing.as_millis());
        let age = u128::from(now.as_millis().saturating_sub(at.as_millis()));
        let gained = age.checked_div(ageing).unwrap_or(0);
        u64::from(priority.get()).saturating_add(u64::try_from(gained).unwrap_or(u64::MAX))
    }

    /// Returns `true` if the first job, with this priority and position, is claimed before the second.
    fn is_before(
        &self,
        first: (Priority, Position),
        second: (Priority, Position),
        now: Timestamp,
    ) -> bool {
        // Most kinds use one priority: no level is computed for them.
        if first.0 == second.0 {
            return first.1 < second.1;
        }
        let rank = |(priority, position): (Priority, Position)| {
            (Reverse(self.level(priority, position.at, now)), position)
        };
        rank(first) < rank(second)
    }

    /// Takes out the first job that is due or whose lease has expired: of the highest level, and of
    /// those the one that has been ready for the longest time.
    ///
    /// Only the first jobs of the lists are compared: no job of a list has a higher level.
    fn take_claimable(
        &mut self,
        now: Timestamp,
    ) -> Result<Option<(JobId, Box<Record>)>, StoreError> {
        let mut best: Option<(Priority, Position, List)> = None;
        for priority in self.table.priorities().iter() {
            for list in [List::Pending(priority), List::Leased(priority)] {
                if let Some(position) = self.table.first(list)?
                    && position.at <= now
                    && best.is_none_or(|(other, best, _)| {
                        self.is_before((priority, position), (other, best), now)
                    })
                {
                    best = Some((priority, position, list));
                }
            }
        }
        best.map_or(Ok(None), |(_, _, list)| self.table.take_first(list))
    }

    fn lease(
        &mut self,
        id: JobId,
        mut record: Box<Record>,
        claim: &Claim,
        ends_at: Timestamp,
        now: Timestamp,
    ) -> ClaimedJob {
        let fence = self.next_fence(now);
        if let Some(rate) = &self.settings.rate {
            self.rate_use.take(rate, now);
        }
        record.status = Status::Leased(Box::new(Lease {
            fence,
            nonce: claim.nonce,
            worker: claim.worker.clone(),
            claimed_at: now,
            ends_at,
            cancelled: false,
            next: None,
        }));
        record.updated_at = now;
        let receipt = Receipt::new(self.name.clone(), id.clone(), fence, claim.nonce);
        let mut job = ClaimedJob::new(receipt, record.version.clone());
        job.attempt = record.attempts.saturating_add(1);
        job.lease_ends_at = ends_at;
        job.created_at = record.created_at;
        self.table.keep(id, record);
        job
    }

    /// Ends the expired lease of a job that was taken out, if it has one, as a failed attempt, and
    /// adds the lease to `expired`. Returns the job if it can be claimed now. Otherwise it stores or
    /// removes the job.
    fn end_expired(
        &mut self,
        id: JobId,
        mut record: Box<Record>,
        now: Timestamp,
        expired: &mut Vec<ExpiredLease>,
    ) -> Option<(JobId, Box<Record>)> {
        let Status::Leased(lease) = mem::replace(&mut record.status, Status::Pending) else {
            return Some((id, record));
        };
        record.updated_at = now;
        let attempt = record.attempts.saturating_add(1);
        let (kind, worker) = (self.name.clone(), lease.worker.clone());
        let mut report = ExpiredLease::new(kind, id.clone(), worker, attempt);
        report.died = !lease.cancelled && attempt >= self.settings.max_attempts;
        expired.push(report);
        if lease.cancelled {
            self.start_afresh(id, record, lease.next, now);
            return None;
        }
        record.fail(&lease, lease.ends_at, None);
        // With another priority, other jobs may come first.
        let (mut moved, is_later) = (false, lease.next.is_some());
        if let Some(next) = lease.next {
            moved = record.version.priority != next.version.priority;
            record.version = next.version;
        }
        if is_later && record.version.due > now {
            record.seq = self.next_seq();
        } else {
            // The lease was the delay: no backoff is needed.
            record.version.due = lease.ends_at;
        }
        if record.attempts >= self.settings.max_attempts {
            self.bury(id, record, now);
            return None;
        }
        if moved || record.version.due > now {
            self.table.keep(id, record);
            return None;
        }
        Some((id, record))
    }

    /// Ends a cancelled job: its successor becomes a new job.
    pub(super) fn start_afresh(
        &mut self,
        id: JobId,
        mut record: Box<Record>,
        next: Option<Successor>,
        now: Timestamp,
    ) {
        if let Some(next) = next {
            *record = self.fresh(next, now);
            self.table.keep(id, record);
        }
    }

    /// Returns a successor as a new job.
    pub(super) fn fresh(&mut self, next: Successor, now: Timestamp) -> Record {
        let Successor { version, put_at } = next;
        Record { updated_at: now, ..Record::new(version, self.next_seq(), put_at) }
    }

    /// Makes a job that was taken out dead.
    pub(super) fn bury(&mut self, id: JobId, mut record: Box<Record>, now: Timestamp) {
        record.status = Status::Dead { died_at: now };
        record.deaths = record.deaths.saturating_add(1);
        record.seq = self.next_seq();
        self.table.keep(id, record);
        // If deleting the oldest dead job fails, the next call tries again.
        drop(self.drop_old(List::Dead, now, 1));
    }

    /// Ends up to `max` expired leases and deletes up to `max` dead and `max` done jobs, each at most
    /// [`MAX_BATCH`]. Stops after the lease of the job whose bodies use up `bytes`, and subtracts
    /// them. Changes before an error stay.
    pub fn reap(
        &mut self,
        max: usize,
        bytes: &mut usize,
        now: Timestamp,
    ) -> Result<Reaped, StoreError> {
        let (max, mut reaped) = (max.min(MAX_BATCH), Reaped::default());
        for priority in self.table.priorities().iter() {
            let list = List::Leased(priority);
            while reaped.count < max
                && *bytes > 0
                && let Some(position) = self.table.first(list)?
                && position.at <= now
                && let Some((id, record)) = self.table.take_first(list)?
            {
                *bytes = bytes.saturating_sub(record.content_bytes());
                if let Some((id, record)) = self.end_expired(id, record, now, &mut reaped.expired) {
                    self.table.keep(id, record);
                }
                reaped.count += 1;
            }
        }
        for list in [List::Dead, List::Done] {
            reaped.count += self.drop_old(list, now, max)?;
        }
        Ok(reaped)
    }

    /// Deletes up to `max` dead or done jobs that are too old or too many.
    pub(super) fn drop_old(
        &mut self,
        list: List,
        now: Timestamp,
        max: usize,
    ) -> Result<usize, StoreError> {
        let retention = match list {
            List::Done => self.settings.keep_done.unwrap_or(KEEP_NONE),
            _ => self.settings.retention,
        };
        let oldest = retention.oldest(now);
        let mut dropped = 0;
        while dropped < max
            && let Some(position) = self.table.first(list)?
            && (position.at < oldest || self.table.count(list) > retention.count as u64)
        {
            self.table.take_first(list)?;
            dropped += 1;
        }
        Ok(dropped)
    }

    /// Returns when a claim may next return a job if nothing changes. `None` means never.
    pub fn next_claimable(&mut self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        if self.settings.paused {
            return Ok(None);
        }
        let all_leased = self.free_leases(now)? == 0;
        let mut first: Option<Timestamp> = None;
        for priority in self.table.priorities().iter() {
            let times = if all_leased {
                [self.table.first_to_end(priority, now)?, None]
            } else {
                let due = self.table.first(List::Pending(priority))?;
                let expired = self.table.first(List::Leased(priority))?;
                [due, expired].map(|position| position.map(|position| position.at))
            };
            first = times.into_iter().flatten().chain(first).min();
        }
        Ok(first.map(|at| self.throttled_until(now).map_or(at, |until| at.max(until))))
    }
}

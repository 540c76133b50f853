//! Claims, and leases that expire.

use super::job_table::{JobTable, List};
use super::kind::KindState;
use super::record::{Lease, Record, Status, Successor};
use super::result_size::ResultSize;
use crate::claim::{Claim, Claimed, ClaimedJob, ExpiredLease, Reaped};
use crate::error::StoreError;
use crate::limits::{MAX_BATCH, MAX_RESULT_BYTES};
use crate::names::JobId;
use crate::receipt::Receipt;
use crate::settings::check_lease;
use crate::time::Timestamp;
use std::mem;

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
        let mut free = self.free_leases(now)?.min(self.fences_left(now)?);
        let ends_at = now.saturating_add(lease);
        while free > 0
            && !room.is_used_up()
            && let Some((id, record)) = self.take_claimable(now)?
        {
            let (bytes, all_bytes) = (record.claim_bytes(), record.body_bytes());
            if !room.size.fits(bytes) {
                self.table.put_back(id, record);
                break;
            }
            match self.end_expired(id, record, now, &mut out.expired) {
                Some((id, record)) => {
                    debug_assert_eq!(record.body.len(), bytes);
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
        Ok(limit.saturating_sub(self.table.unexpired(now, limit)?))
    }

    /// Takes out the first job that is due or whose lease has expired.
    fn take_claimable(
        &mut self,
        now: Timestamp,
    ) -> Result<Option<(JobId, Box<Record>)>, StoreError> {
        let due = self.table.first(List::Pending)?.filter(|position| position.at <= now);
        let expired = self.table.first(List::Leased)?.filter(|position| position.at <= now);
        self.table.take_first(match (due, expired) {
            (None, None) => return Ok(None),
            (Some(due), Some(expired)) if expired < due => List::Leased,
            (Some(_), _) => List::Pending,
            (None, Some(_)) => List::Leased,
        })
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
        let mut job = ClaimedJob::new(receipt, record.body.clone(), record.generation);
        job.due = record.due;
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
        // The lease was the delay: no backoff is needed.
        record.due = lease.ends_at;
        if let Some(next) = lease.next {
            (record.body, record.generation) = (next.body, next.generation);
            if next.due > now {
                (record.due, record.seq) = (next.due, self.next_seq());
            }
        }
        if record.attempts >= self.settings.max_attempts {
            self.bury(id, record, now);
            return None;
        }
        if record.due > now {
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
        let Successor { body, due, generation, put_at } = next;
        let mut record = Record::new(body, due, generation, self.next_seq(), put_at);
        record.updated_at = now;
        record
    }

    /// Makes a job that was taken out dead.
    pub(super) fn bury(&mut self, id: JobId, mut record: Box<Record>, now: Timestamp) {
        record.status = Status::Dead { died_at: now };
        record.deaths = record.deaths.saturating_add(1);
        record.seq = self.next_seq();
        self.table.keep(id, record);
        // If deleting the oldest dead job fails, the next call tries again.
        drop(self.drop_dead(now, 1));
    }

    /// Ends up to `max` expired leases and deletes up to `max` dead jobs, each at most
    /// [`MAX_BATCH`]. Stops after the lease of the job whose bodies use up `bytes`, and subtracts
    /// them. Changes before an error stay.
    pub fn reap(
        &mut self,
        max: usize,
        bytes: &mut usize,
        now: Timestamp,
    ) -> Result<Reaped, StoreError> {
        let (max, mut reaped) = (max.min(MAX_BATCH), Reaped::default());
        while reaped.count < max
            && *bytes > 0
            && let Some(position) = self.table.first(List::Leased)?
            && position.at <= now
            && let Some((id, record)) = self.table.take_first(List::Leased)?
        {
            *bytes = bytes.saturating_sub(record.body_bytes());
            if let Some((id, record)) = self.end_expired(id, record, now, &mut reaped.expired) {
                self.table.keep(id, record);
            }
            reaped.count += 1;
        }
        reaped.count += self.drop_dead(now, max)?;
        Ok(reaped)
    }

    fn drop_dead(&mut self, now: Timestamp, max: usize) -> Result<usize, StoreError> {
        let retention = self.settings.retention;
        let oldest = retention.oldest(now);
        let mut dropped = 0;
        while dropped < max
            && let Some(position) = self.table.first(List::Dead)?
            && (position.at < oldest || self.table.count(List::Dead) > retention.count as u64)
        {
            self.table.take_first(List::Dead)?;
            dropped += 1;
        }
        Ok(dropped)
    }

    /// Returns when a claim may next return a job if nothing changes. `None` means never.
    pub fn next_claimable(&mut self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        if self.settings.paused {
            return Ok(None);
        }
        if self.free_leases(now)? == 0 {
            return self.table.first_to_end(now);
        }
        let due = self.table.first(List::Pending)?;
        let expired = self.table.first(List::Leased)?;
        Ok(due.into_iter().chain(expired).min().map(|position| position.at))
    }
}

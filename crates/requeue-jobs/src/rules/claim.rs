//! Claims, and what becomes of leases that nobody settles.

use super::job_table::{JobTable, List};
use super::kind::KindState;
use super::record::{Lease, Next, Record, Status};
use crate::claim::{Claim, Claimed, ClaimedJob, ExpiredLease, Reaped};
use crate::error::StoreError;
use crate::limits::MAX_BATCH;
use crate::names::JobId;
use crate::receipt::Receipt;
use crate::settings::check_lease;
use crate::time::Timestamp;
use std::mem;

impl<S: JobTable> KindState<S> {
    /// Leases up to `max` jobs. After an error, those that were leased before are in `out`.
    ///
    /// Of the leases that expired, it ends up to `ends` that leave nothing to claim, for their jobs
    /// died or were cancelled, and takes those off `ends`: however many there are, a claim is a
    /// small change. The next one goes on with them.
    pub fn claim(
        &mut self,
        claim: &Claim,
        max: usize,
        now: Timestamp,
        ends: &mut usize,
        out: &mut Claimed,
    ) -> Result<(), StoreError> {
        let lease = claim.lease.unwrap_or(self.settings.lease);
        check_lease(lease)?;
        if max == 0 || self.settings.paused {
            return Ok(());
        }
        let enough = out.jobs.len() + max.min(self.room(now)?);
        let ends_at = now.saturating_add(lease);
        while out.jobs.len() < enough
            && *ends > 0
            && let Some((id, record)) = self.take_claimable(now)?
        {
            match self.end_expired(id, record, now, &mut out.expired) {
                Some((id, record)) => out.jobs.push(self.lease(id, record, claim, ends_at, now)),
                None => *ends -= 1,
            }
        }
        Ok(())
    }

    /// How many more may be leased; expired leases do not count.
    fn room(&mut self, now: Timestamp) -> Result<usize, StoreError> {
        let Some(limit) = self.settings.concurrency else { return Ok(usize::MAX) };
        let limit = limit as usize;
        Ok(limit.saturating_sub(self.table.unexpired(now, limit)?))
    }

    /// Takes out the first that is due, or whose lease expired.
    fn take_claimable(
        &mut self,
        now: Timestamp,
    ) -> Result<Option<(JobId, Box<Record>)>, StoreError> {
        let due = self.table.first(List::Pending)?.filter(|place| place.at <= now);
        let expired = self.table.first(List::Leased)?.filter(|place| place.at <= now);
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

    /// Ends the lease of a job that was taken out, where it has one: it expired, and that is a
    /// failed attempt. Answers the job if it can be claimed now; otherwise it is seen to. Adds the
    /// lease to `expired`.
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
        // The lease was the wait: it needs no further backoff.
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

    /// What was put after a leased job was cancelled is a new one.
    pub(super) fn start_afresh(
        &mut self,
        id: JobId,
        mut record: Box<Record>,
        next: Option<Next>,
        now: Timestamp,
    ) {
        if let Some(next) = next {
            *record = self.fresh(next, now);
            self.table.keep(id, record);
        }
    }

    /// A successor, as a job of its own.
    pub(super) fn fresh(&mut self, next: Next, now: Timestamp) -> Record {
        let Next { body, due, generation, put_at } = next;
        let mut record = Record::new(body, due, generation, self.next_seq(), put_at);
        record.updated_at = now;
        record
    }

    /// Lets a job that was taken out be dead.
    pub(super) fn bury(&mut self, id: JobId, mut record: Box<Record>, now: Timestamp) {
        record.status = Status::Dead { died_at: now };
        record.deaths = record.deaths.saturating_add(1);
        record.seq = self.next_seq();
        self.table.keep(id, record);
        // It is buried, whatever becomes of the oldest: that one is met again by the next.
        drop(self.drop_dead(now, 1));
    }

    /// Ends up to `max` leases that expired, and drops up to `max` dead jobs, and at most
    /// [`MAX_BATCH`]. What was done before an error stays done.
    pub fn reap(&mut self, max: usize, now: Timestamp) -> Result<Reaped, StoreError> {
        let (max, mut reaped) = (max.min(MAX_BATCH), Reaped::default());
        while reaped.count < max
            && let Some(place) = self.table.first(List::Leased)?
            && place.at <= now
            && let Some((id, record)) = self.table.take_first(List::Leased)?
        {
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
            && let Some(place) = self.table.first(List::Dead)?
            && (place.at < oldest || self.table.count(List::Dead) > retention.count as u64)
        {
            self.table.take_first(List::Dead)?;
            dropped += 1;
        }
        Ok(dropped)
    }

    /// When a claim may next get something, if nobody changes anything.
    pub fn next_claimable(&mut self, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        if self.settings.paused {
            return Ok(None);
        }
        if self.room(now)? == 0 {
            return self.table.first_to_end(now);
        }
        let due = self.table.first(List::Pending)?;
        let expired = self.table.first(List::Leased)?;
        Ok(due.into_iter().chain(expired).min().map(|place| place.at))
    }
}

//! Settlements: how a worker ends or extends a lease.

use super::check_count;
use super::job_table::{JobTable, List};
use super::kind::KindState;
use super::record::{Lease, Record, Status, Successor};
use crate::claim::{Settle, Settled, Settlement};
use crate::content::Content;
use crate::error::{Invalid, SettleError};
use crate::job::{Body, DoneView, kept_error};
use crate::limits::{MAX_ACK_RESULT_LEN, MAX_BATCH_BYTES};
use crate::names::JobId;
use crate::settings::check_lease;
use crate::time::{Due, Timestamp};
use crate::version::Version;
use std::mem;

impl<S: JobTable> KindState<S> {
    /// Settles a lease.
    pub fn settle(&mut self, settle: Settle, now: Timestamp) -> Result<Settled, SettleError> {
        let Settle { receipt, action } = settle;
        if let Settlement::Extend(Some(lease)) = &action {
            check_lease(*lease)?;
        }
        if let Settlement::AckWith(result) = &action {
            check_result(result)?;
        }
        let delay = match &action {
            Settlement::Retry { delay: Some(delay), .. } | Settlement::RequeueAfter(delay) => {
                Some(Due::After(*delay).at(now)?)
            }
            _ => None,
        };
        // Taken out and put back if necessary, so that an ack needs one lookup.
        let Some(mut record) = self.table.take(receipt.id())? else {
            return Err(SettleError::LeaseLost { receipt });
        };
        let mut lease = match mem::replace(&mut record.status, Status::Pending) {
            Status::Leased(lease) if lease.is_of(&receipt) => lease,
            other => {
                record.status = other;
                self.table.put_back(receipt.id().clone(), record);
                return Err(SettleError::LeaseLost { receipt });
            }
        };
        let id = receipt.into_id();
        if let (Settlement::Release, Some(rate)) = (&action, &self.settings.rate) {
            self.rate_use.give_back(rate, now);
        }
        if lease.cancelled {
            match action {
                Settlement::Extend(_) => {
                    record.status = Status::Leased(lease);
                    self.table.put_back(id, record);
                }
                _ => self.start_afresh(id, record, lease.next, now),
            }
            return Ok(Settled::Cancelled);
        }
        if matches!(action, Settlement::RequeueAfter(_))
            && lease.next.is_none()
            && let Err(exhausted) = self.check_generation()
        {
            record.status = Status::Leased(lease);
            self.table.put_back(id, record);
            return Err(exhausted.into());
        }
        record.updated_at = now;
        Ok(match action {
            Settlement::Extend(length) => {
                let ends_at = now.saturating_add(length.unwrap_or(self.settings.lease));
                lease.ends_at = lease.ends_at.max(ends_at);
                let ends_at = lease.ends_at;
                record.status = Status::Leased(lease);
                self.table.keep(id, record);
                Settled::Extended(ends_at)
            }
            Settlement::Ack | Settlement::AckWith(_) | Settlement::RequeueAfter(_) => {
                let next = match (lease.next.take(), delay) {
                    (None, Some(due)) => {
                        let generation = self.next_generation();
                        let version = Version { due, generation, ..record.version.clone() };
                        Some(Successor { version, put_at: now })
                    }
                    (next, _) => next,
                };
                if let Some(next) = next {
                    *record = self.fresh(next, now);
                    record.first_put_at = None;
                    self.table.keep(id, record);
                } else if self.settings.keep_done.is_some() {
                    let result = match action {
                        Settlement::AckWith(result) => Some(result),
                        _ => None,
                    };
                    self.keep_done(id, record, *lease, result, now);
                }
                Settled::Done
            }
            Settlement::Release => {
                if let Some(next) = lease.next {
                    self.replace(&mut record, next.version, now);
                }
                self.table.keep(id, record);
                Settled::Released
            }
            Settlement::Bury { error } => {
                record.fail(&lease, now, Some(kept_error(&error)));
                self.bury_on_request(id, record, lease.next, now);
                Settled::Dead
            }
            Settlement::Retry { error, .. } => {
                record.fail(&lease, now, Some(kept_error(&error)));
                self.retry(id, record, *lease, delay, now)
            }
        })
    }

    /// Keeps a job that is done, without its body and its failures.
    fn keep_done(
        &mut self,
        id: JobId,
        mut record: Box<Record>,
        lease: Lease,
        result: Option<Body>,
        now: Timestamp,
    ) {
        let (worker, started_at) = (lease.worker, lease.claimed_at);
        record.status =
            Status::Done(Box::new(DoneView { worker, started_at, done_at: now, result }));
        record.seq = self.next_seq();
        (record.version.content, record.failures) = (Content::default(), Vec::new());
        self.table.keep(id, record);
        // If deleting the oldest done job fails, the next call tries again.
        drop(self.drop_old(List::Done, now, 1));
    }

    /// Buries a job on the worker's request. A successor then revives it, as a put does.
    fn bury_on_request(
        &mut self,
        id: JobId,
        mut record: Box<Record>,
        next: Option<Successor>,
        now: Timestamp,
    ) {
        let Some(next) = next else {
            return self.bury(id, record, now);
        };
        (record.version, record.first_put_at) = (next.version, Some(next.put_at));
        record.reset();
        record.deaths = record.deaths.saturating_add(1);
        record.seq = self.next_seq();
        self.table.keep(id, record);
    }

    fn retry(
        &mut self,
        id: JobId,
        mut record: Box<Record>,
        lease: Lease,
        until: Option<Timestamp>,
        now: Timestamp,
    ) -> Settled {
        let backoff = || self.settings.backoff.delay(record.attempts, lease.fence.0 ^ lease.nonce);
        let until = until.unwrap_or_else(|| now.saturating_add(backoff()));
        (record.floor, record.version.due) = (until, until);
        if let Some(next) = lease.next {
            record.version = Version { due: next.version.due.max(until), ..next.version };
        }
        if record.attempts >= self.settings.max_attempts {
            self.bury(id, record, now);
            return Settled::Dead;
        }
        record.seq = self.next_seq();
        let due = record.version.due;
        self.table.keep(id, record);
        Settled::RetryAt(due)
    }
}

/// Fails if a batch has more than [`MAX_BATCH`](crate::limits::MAX_BATCH) settlements, or [`MAX_BATCH_BYTES`] of results. For
/// stores.
pub fn check_settlements(settlements: &[Settle]) -> Result<(), Invalid> {
    check_count("entries in a batch", settlements.len())?;
    let len = settlements.iter().map(|settle| settle.action.result_len()).sum();
    if len > MAX_BATCH_BYTES {
        let (field, limit) = ("the results of a batch", MAX_BATCH_BYTES);
        return Err(Invalid::TooLong { field, len, limit });
    }
    Ok(())
}

/// Fails if the result of an ack is too long. For stores.
pub fn check_result(result: &Body) -> Result<(), Invalid> {
    let (field, len, limit) = ("the result", result.len(), MAX_ACK_RESULT_LEN);
    if len > limit { Err(Invalid::TooLong { field, len, limit }) } else { Ok(()) }
}

//! Flaws of claims, settlements and changes.

use super::store::{CorrectStore, Deviation, JobName};
use requeue_jobs::{
    Body, Change, ChangeError, ChangeKind, Changed, Claim, Claimed, ClaimedJob, ExpiredLease,
    Fence, JobState, JobView, Placed, Put, PutError, PutOutcome, Query, Reaped, Receipt, Settle,
    SettleError, Settled, Settlement, StoreError,
};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

fn name(receipt: &Receipt) -> JobName {
    (receipt.kind().clone(), receipt.id().clone())
}

/// A claim deletes the job before the work is done.
pub(super) struct DeletesBeforeAck;

impl Deviation for DeletesBeforeAck {
    fn claim(&mut self, correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
        let claimed = correct.claim(claim)?;
        for job in &claimed.jobs {
            let _done = correct.settle(job.receipt.clone(), Settlement::Ack);
        }
        Ok(claimed)
    }

    fn settle(&mut self, correct: &CorrectStore, settle: Settle) -> Result<Settled, SettleError> {
        let ack = settle.action == Settlement::Ack;
        correct
            .settle(settle.receipt, settle.action)
            .or_else(|lost| if ack { Ok(Settled::Done) } else { Err(lost) })
    }
}

/// Altered receipts, with the real receipt of each.
#[derive(Default)]
struct Receipts(HashMap<Receipt, Receipt>);

impl Receipts {
    fn alter(&mut self, job: &mut ClaimedJob, fence: Fence, nonce: u64) {
        let altered = Receipt::new(job.kind().clone(), job.id().clone(), fence, nonce);
        self.0.insert(altered.clone(), std::mem::replace(&mut job.receipt, altered));
    }

    fn settle(&self, correct: &CorrectStore, settle: Settle) -> Result<Settled, SettleError> {
        let given = settle.receipt;
        let real = self.0.get(&given).unwrap_or(&given).clone();
        correct.settle(real, settle.action).map_err(|error| match error {
            SettleError::LeaseLost { .. } => SettleError::LeaseLost { receipt: given },
            other => other,
        })
    }
}

/// The due time serves as the receipt.
#[derive(Default)]
pub(super) struct DueTimeAsReceipt(Receipts);

impl Deviation for DueTimeAsReceipt {
    fn claim(&mut self, correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
        let mut claimed = correct.claim(claim)?;
        for job in &mut claimed.jobs {
            let due = Fence(job.version.due.as_millis());
            self.0.alter(job, due, 0);
        }
        Ok(claimed)
    }

    fn settle(&mut self, correct: &CorrectStore, settle: Settle) -> Result<Settled, SettleError> {
        self.0.settle(correct, settle)
    }
}

/// Each job counts its fences from 1, and starts again when it is created again.
#[derive(Default)]
pub(super) struct FencesRepeat {
    receipts: Receipts,
    leases: HashMap<JobName, u64>,
}

impl Deviation for FencesRepeat {
    fn put(&mut self, correct: &CorrectStore, put: Put) -> Result<Placed, PutError> {
        let name = (put.kind.clone(), put.id.clone());
        let placed = correct.put(put)?;
        if placed.outcome == PutOutcome::Created {
            self.leases.remove(&name);
        }
        Ok(placed)
    }

    fn claim(&mut self, correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
        let mut claimed = correct.claim(claim)?;
        for job in &mut claimed.jobs {
            let leases = self.leases.entry(name(&job.receipt)).or_default();
            *leases += 1;
            let nonce = job.receipt.nonce();
            self.receipts.alter(job, Fence(*leases), nonce);
        }
        Ok(claimed)
    }

    fn settle(&mut self, correct: &CorrectStore, settle: Settle) -> Result<Settled, SettleError> {
        self.receipts.settle(correct, settle)
    }
}

/// A release counts as a failed attempt.
pub(super) fn release_counts(
    correct: &CorrectStore,
    settle: Settle,
) -> Result<Settled, SettleError> {
    if settle.action != Settlement::Release {
        return correct.settle(settle.receipt, settle.action);
    }
    let action = Settlement::Retry { delay: Some(Duration::ZERO), error: "released".into() };
    match correct.settle(settle.receipt, action)? {
        Settled::Cancelled => Ok(Settled::Cancelled),
        _ => Ok(Settled::Released),
    }
}

/// Returns all jobs in this state of the kinds of a claim.
fn jobs(correct: &CorrectStore, claim: &Claim, state: JobState) -> Vec<JobView> {
    let query = |kind| Query { state: Some(state), limit: 1000, ..Query::new(kind) };
    claim.kinds.iter().cloned().flat_map(|kind| correct.list(query(kind)).jobs).collect()
}

/// A claim also returns jobs that are due within a second.
pub(super) fn early_delivery(correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
    let soon = correct.now().saturating_add(Duration::from_secs(1));
    for view in jobs(correct, &claim, JobState::Waiting) {
        if view.version.due <= soon {
            let _ready = correct.change(&(view.kind, view.id), ChangeKind::RunNow);
        }
    }
    correct.claim(claim)
}

/// An expired lease is settled like this instead.
pub(super) struct ExpiryIs {
    action: Settlement,
    /// The latest receipt of each job.
    last: HashMap<JobName, Receipt>,
}

impl ExpiryIs {
    /// The expiry counts as no attempt.
    pub(super) fn uncounted() -> Self {
        ExpiryIs { action: Settlement::Release, last: HashMap::new() }
    }

    /// The expiry is followed by a backoff.
    pub(super) fn backed_off() -> Self {
        let action = Settlement::Retry { delay: None, error: "expired".into() };
        ExpiryIs { action, last: HashMap::new() }
    }
}

impl Deviation for ExpiryIs {
    fn claim(&mut self, correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
        for view in jobs(correct, &claim, JobState::Leased) {
            let expired = view.lease.is_some_and(|lease| lease.ends_at <= correct.now());
            if let (true, Some(receipt)) = (expired, self.last.get(&(view.kind, view.id))) {
                let _ended = correct.settle(receipt.clone(), self.action.clone());
            }
        }
        let claimed = correct.claim(claim)?;
        let last = claimed.jobs.iter().map(|job| (name(&job.receipt), job.receipt.clone()));
        self.last.extend(last);
        Ok(claimed)
    }
}

/// An expired lease cannot be settled, even if nobody has claimed the job since.
pub(super) fn expired_is_lost(
    correct: &CorrectStore,
    settle: Settle,
) -> Result<Settled, SettleError> {
    let Settle { receipt, action } = settle;
    let lease = correct.get(&name(&receipt)).and_then(|view| view.lease);
    if lease.is_some_and(|lease| lease.ends_at <= correct.now()) {
        return Err(SettleError::LeaseLost { receipt });
    }
    correct.settle(receipt, action)
}

/// Expired leases are not reported.
pub(super) struct ExpiredNotReported;

impl Deviation for ExpiredNotReported {
    fn claim(&mut self, correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
        Ok(Claimed { expired: Vec::new(), ..correct.claim(claim)? })
    }

    fn reap(&mut self, correct: &CorrectStore, max: usize) -> Reaped {
        Reaped { expired: Vec::new(), ..correct.reap(max) }
    }
}

/// A lease that is settled after its end is reported as expired by the next claim.
#[derive(Default)]
pub(super) struct SettledReported {
    expired: Vec<ExpiredLease>,
}

impl Deviation for SettledReported {
    fn claim(&mut self, correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
        let mut claimed = correct.claim(claim)?;
        claimed.expired.append(&mut self.expired);
        Ok(claimed)
    }

    fn settle(&mut self, correct: &CorrectStore, settle: Settle) -> Result<Settled, SettleError> {
        let (kind, id) = name(&settle.receipt);
        let view = correct.get(&(kind.clone(), id.clone()));
        let settled = correct.settle(settle.receipt, settle.action)?;
        if let Some((lease, attempts)) = view.and_then(|view| Some((view.lease?, view.attempts)))
            && lease.ends_at <= correct.now()
        {
            self.expired.push(ExpiredLease::new(kind, id, lease.worker, attempts + 1));
        }
        Ok(settled)
    }
}

/// The successor of an acked job runs twice.
#[derive(Default)]
pub(super) struct SuccessorTwice {
    successors: HashMap<JobName, Body>,
}

impl Deviation for SuccessorTwice {
    fn settle(&mut self, correct: &CorrectStore, settle: Settle) -> Result<Settled, SettleError> {
        let name = name(&settle.receipt);
        let next = correct.get(&name).and_then(|view| view.next);
        let settled = correct.settle(settle.receipt, settle.action)?;
        match (settled, next) {
            (Settled::Done, Some(next)) => drop(self.successors.insert(name, next.content.body)),
            (Settled::Done, None) => {
                if let Some(body) = self.successors.remove(&name) {
                    let _again = correct.put(Put::new(name.0, name.1, body));
                }
            }
            _ => {}
        }
        Ok(settled)
    }
}

/// An ack deletes the successor together with the job.
pub(super) fn successor_lost(
    correct: &CorrectStore,
    settle: Settle,
) -> Result<Settled, SettleError> {
    let name = name(&settle.receipt);
    let settled = correct.settle(settle.receipt, settle.action)?;
    if settled == Settled::Done {
        let _removed = correct.change(&name, ChangeKind::Cancel);
    }
    Ok(settled)
}

/// An extension makes the receipt invalid.
#[derive(Default)]
pub(super) struct ExtendChangesReceipt {
    changed: HashSet<Receipt>,
}

impl Deviation for ExtendChangesReceipt {
    fn settle(&mut self, correct: &CorrectStore, settle: Settle) -> Result<Settled, SettleError> {
        let Settle { receipt, action } = settle;
        if self.changed.contains(&receipt) {
            return Err(SettleError::LeaseLost { receipt });
        }
        let settled = correct.settle(receipt.clone(), action)?;
        if let Settled::Extended(_) = settled {
            self.changed.insert(receipt);
        }
        Ok(settled)
    }
}

/// An extension can make the lease end earlier.
pub(super) fn extend_shortens(
    correct: &CorrectStore,
    settle: Settle,
) -> Result<Settled, SettleError> {
    let length = match settle.action {
        Settlement::Extend(length) => length,
        _ => None,
    };
    match (correct.settle(settle.receipt, settle.action)?, length) {
        (Settled::Extended(_), Some(length)) => {
            Ok(Settled::Extended(correct.now().saturating_add(length)))
        }
        (settled, _) => Ok(settled),
    }
}

/// A stale receipt settles the current lease of the job.
pub(super) struct StaleReceipt {
    /// Whether the call succeeds.
    succeeds: bool,
    last: HashMap<JobName, Receipt>,
}

impl StaleReceipt {
    /// The call fails with `LeaseLost`, but takes effect.
    pub(super) fn acts() -> Self {
        StaleReceipt { succeeds: false, last: HashMap::new() }
    }

    /// The call succeeds: only kind and id of a receipt are compared.
    pub(super) fn is_valid() -> Self {
        StaleReceipt { succeeds: true, last: HashMap::new() }
    }
}

impl Deviation for StaleReceipt {
    fn claim(&mut self, correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
        let claimed = correct.claim(claim)?;
        let last = claimed.jobs.iter().map(|job| (name(&job.receipt), job.receipt.clone()));
        self.last.extend(last);
        Ok(claimed)
    }

    fn settle(&mut self, correct: &CorrectStore, settle: Settle) -> Result<Settled, SettleError> {
        let Settle { receipt, action } = settle;
        let lost = match correct.settle(receipt.clone(), action.clone()) {
            Err(lost @ SettleError::LeaseLost { .. }) => lost,
            result => return result,
        };
        let last = self.last.get(&name(&receipt)).cloned().unwrap_or(receipt);
        let result = correct.settle(last, action);
        if self.succeeds { result.or(Err(lost)) } else { Err(lost) }
    }
}

/// A claim returns its jobs in reverse order.
pub(super) fn out_of_order(correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
    let mut claimed = correct.claim(claim)?;
    claimed.jobs.reverse();
    Ok(claimed)
}

/// A claim of several kinds always begins with the first one.
pub(super) fn first_kind_first(
    correct: &CorrectStore,
    claim: Claim,
) -> Result<Claimed, StoreError> {
    let mut all = Claimed::default();
    for kind in claim.kinds.clone() {
        let max = claim.max - all.jobs.len();
        let one = correct.claim(Claim { kinds: vec![kind], max, ..claim.clone() })?;
        all.jobs.extend(one.jobs);
        all.errors.extend(one.errors);
        all.expired.extend(one.expired);
    }
    Ok(all)
}

/// Cancelling a leased job deletes it immediately.
#[derive(Default)]
pub(super) struct CancelDeletes {
    last: HashMap<JobName, Receipt>,
}

impl Deviation for CancelDeletes {
    fn claim(&mut self, correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
        let claimed = correct.claim(claim)?;
        let last = claimed.jobs.iter().map(|job| (name(&job.receipt), job.receipt.clone()));
        self.last.extend(last);
        Ok(claimed)
    }

    fn change(&mut self, correct: &CorrectStore, change: Change) -> Result<Changed, ChangeError> {
        let name = (change.kind, change.id);
        let changed = correct.change(&name, change.action)?;
        if let (Changed::Ending, Some(receipt)) = (changed, self.last.get(&name)) {
            let _gone = correct.settle(receipt.clone(), Settlement::Ack);
        }
        Ok(changed)
    }
}

/// A claimed job can be claimed again immediately.
pub(super) fn leased_twice(correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
    let claimed = correct.claim(claim)?;
    for job in &claimed.jobs {
        let _released = correct.settle(job.receipt.clone(), Settlement::Release);
    }
    Ok(claimed)
}

/// Each lease has a lower fence than the one before it.
#[derive(Default)]
pub(super) struct FencesFall(Receipts);

impl Deviation for FencesFall {
    fn claim(&mut self, correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
        let mut claimed = correct.claim(claim)?;
        for job in &mut claimed.jobs {
            let (fence, nonce) = (job.receipt.fence().0, job.receipt.nonce());
            self.0.alter(job, Fence(u64::MAX - fence), nonce);
        }
        Ok(claimed)
    }

    fn settle(&mut self, correct: &CorrectStore, settle: Settle) -> Result<Settled, SettleError> {
        self.0.settle(correct, settle)
    }
}

/// A claimed job has the generation before its own.
pub(super) fn old_generation(correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
    let mut claimed = correct.claim(claim)?;
    claimed.jobs.iter_mut().for_each(|job| job.version.generation.0 -= 1);
    Ok(claimed)
}

/// An ack succeeds even if the lease is lost.
pub(super) fn ack_always_succeeds(
    correct: &CorrectStore,
    settle: Settle,
) -> Result<Settled, SettleError> {
    let ack = settle.action == Settlement::Ack;
    let settled = correct.settle(settle.receipt, settle.action);
    settled.or_else(|lost| if ack { Ok(Settled::Done) } else { Err(lost) })
}

/// An ack succeeds and does nothing.
pub(super) fn ack_lost(correct: &CorrectStore, settle: Settle) -> Result<Settled, SettleError> {
    match settle.action {
        Settlement::Ack => Ok(Settled::Done),
        action => correct.settle(settle.receipt, action),
    }
}

/// A third of all valid receipts is refused.
pub(super) fn receipts_refused(
    correct: &CorrectStore,
    settle: Settle,
) -> Result<Settled, SettleError> {
    let Settle { receipt, action } = settle;
    match receipt.nonce().is_multiple_of(3) {
        true => Err(SettleError::LeaseLost { receipt }),
        false => correct.settle(receipt, action),
    }
}

/// An extension counts from the end of the lease instead of from now.
pub(super) fn extend_from_end(
    correct: &CorrectStore,
    settle: Settle,
) -> Result<Settled, SettleError> {
    let Settle { receipt, mut action } = settle;
    if let Settlement::Extend(length) = &mut action
        && let Some(lease) = correct.get(&name(&receipt)).and_then(|view| view.lease)
    {
        let left = lease.ends_at.saturating_since(correct.now());
        *length = Some(left + Duration::from_secs(1));
    }
    correct.settle(receipt, action)
}

/// A cancel succeeds and does nothing.
pub(super) fn cancel_lost(correct: &CorrectStore, change: Change) -> Result<Changed, ChangeError> {
    match change.action {
        ChangeKind::Cancel => Ok(Changed::Removed),
        action => correct.change(&(change.kind, change.id), action),
    }
}

/// The byte bound applies to each kind of a claim by itself.
pub(super) fn bytes_per_kind(correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
    let mut all = Claimed::default();
    if claim.kinds.len() < 2 {
        return correct.claim(claim);
    }
    for kind in &claim.kinds {
        let max = claim.max.saturating_sub(all.jobs.len());
        let one = correct.claim(Claim { kinds: vec![kind.clone()], max, ..claim.clone() })?;
        all.jobs.extend(one.jobs);
        all.errors.extend(one.errors);
        all.expired.extend(one.expired);
    }
    Ok(all)
}

/// A claim counts the attempt of every lease that has expired, whether or not it returns the job.
pub(super) fn ends_without_room(
    correct: &CorrectStore,
    claim: Claim,
) -> Result<Claimed, StoreError> {
    let max = claim.max;
    let claimed = correct.claim(claim)?;
    if claimed.jobs.len() < max {
        correct.reap(max);
    }
    Ok(claimed)
}

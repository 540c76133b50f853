//! Claims and settlements done wrong.

use super::store::{Name, Right, Wrong};
use requeue_jobs::{
    Body, Change, ChangeError, ChangeKind, Changed, Claim, Claimed, ClaimedJob, ExpiredLease,
    Fence, JobState, JobView, Placed, Put, PutError, PutOutcome, Query, Reaped, Receipt, Settle,
    SettleError, Settled, Settlement, StoreError,
};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

fn name(receipt: &Receipt) -> Name {
    (receipt.kind().clone(), receipt.id().clone())
}

/// Due jobs are taken out of the store, and then done: the usual recipe.
pub(super) struct DeletesBeforeAck;

impl Wrong for DeletesBeforeAck {
    fn claim(&mut self, right: &Right, claim: Claim) -> Result<Claimed, StoreError> {
        let claimed = right.claim(claim)?;
        for job in &claimed.jobs {
            let _done = right.settle(job.receipt.clone(), Settlement::Ack);
        }
        Ok(claimed)
    }

    fn settle(&mut self, right: &Right, settle: Settle) -> Result<Settled, SettleError> {
        let ack = settle.action == Settlement::Ack;
        right
            .settle(settle.receipt, settle.action)
            .or_else(|lost| if ack { Ok(Settled::Done) } else { Err(lost) })
    }
}

/// Receipts of its own, and what they stand for.
#[derive(Default)]
struct Receipts(HashMap<Receipt, Receipt>);

impl Receipts {
    fn give(&mut self, job: &mut ClaimedJob, fence: Fence, nonce: u64) {
        let given = Receipt::new(job.kind().clone(), job.id().clone(), fence, nonce);
        self.0.insert(given.clone(), std::mem::replace(&mut job.receipt, given));
    }

    fn settle(&self, right: &Right, settle: Settle) -> Result<Settled, SettleError> {
        let given = settle.receipt;
        let real = self.0.get(&given).unwrap_or(&given).clone();
        right.settle(real, settle.action).map_err(|error| match error {
            SettleError::LeaseLost { .. } => SettleError::LeaseLost { receipt: given },
            other => other,
        })
    }
}

/// The due time is the receipt: it is in the sorted set anyway.
#[derive(Default)]
pub(super) struct ScoreAsReceipt(Receipts);

impl Wrong for ScoreAsReceipt {
    fn claim(&mut self, right: &Right, claim: Claim) -> Result<Claimed, StoreError> {
        let mut claimed = right.claim(claim)?;
        for job in &mut claimed.jobs {
            let score = Fence(job.due.as_millis());
            self.0.give(job, score, 0);
        }
        Ok(claimed)
    }

    fn settle(&mut self, right: &Right, settle: Settle) -> Result<Settled, SettleError> {
        self.0.settle(right, settle)
    }
}

/// Fences are counted in the job's record, and end with it.
#[derive(Default)]
pub(super) struct FencesRepeat {
    receipts: Receipts,
    leases: HashMap<Name, u64>,
}

impl Wrong for FencesRepeat {
    fn put(&mut self, right: &Right, put: Put) -> Result<Placed, PutError> {
        let name = (put.kind.clone(), put.id.clone());
        let placed = right.put(put)?;
        if placed.outcome == PutOutcome::Created {
            self.leases.remove(&name);
        }
        Ok(placed)
    }

    fn claim(&mut self, right: &Right, claim: Claim) -> Result<Claimed, StoreError> {
        let mut claimed = right.claim(claim)?;
        for job in &mut claimed.jobs {
            let leases = self.leases.entry(name(&job.receipt)).or_default();
            *leases += 1;
            let nonce = job.receipt.nonce();
            self.receipts.give(job, Fence(*leases), nonce);
        }
        Ok(claimed)
    }

    fn settle(&mut self, right: &Right, settle: Settle) -> Result<Settled, SettleError> {
        self.receipts.settle(right, settle)
    }
}

/// Giving a job back is failing.
pub(super) struct ReleaseCounts;

impl Wrong for ReleaseCounts {
    fn settle(&mut self, right: &Right, settle: Settle) -> Result<Settled, SettleError> {
        if settle.action != Settlement::Release {
            return right.settle(settle.receipt, settle.action);
        }
        let action = Settlement::Retry { delay: Some(Duration::ZERO), error: "released".into() };
        match right.settle(settle.receipt, action)? {
            Settled::Cancelled => Ok(Settled::Cancelled),
            _ => Ok(Settled::Released),
        }
    }
}

/// Jobs of a kind in this state.
fn jobs(right: &Right, claim: &Claim, state: JobState) -> Vec<JobView> {
    let query = |kind| Query { state: Some(state), limit: 1000, ..Query::new(kind) };
    claim.kinds.iter().cloned().flat_map(|kind| right.list(query(kind)).jobs).collect()
}

/// What is due within a second is close enough.
pub(super) struct EarlyDelivery;

impl Wrong for EarlyDelivery {
    fn claim(&mut self, right: &Right, claim: Claim) -> Result<Claimed, StoreError> {
        let soon = right.now().saturating_add(Duration::from_secs(1));
        for view in jobs(right, &claim, JobState::Waiting) {
            if view.due <= soon {
                let _ready = right.change(&(view.kind, view.id), ChangeKind::RunNow);
            }
        }
        right.claim(claim)
    }
}

/// What happens to an expired lease, instead of the expiry.
pub(super) struct ExpiryIs {
    action: Settlement,
    /// Under which receipt each job was last claimed.
    last: HashMap<Name, Receipt>,
}

impl ExpiryIs {
    /// The job simply comes back.
    pub(super) fn uncounted() -> Self {
        ExpiryIs { action: Settlement::Release, last: HashMap::new() }
    }

    /// It waits once more.
    pub(super) fn backed_off() -> Self {
        let action = Settlement::Retry { delay: None, error: "expired".into() };
        ExpiryIs { action, last: HashMap::new() }
    }
}

impl Wrong for ExpiryIs {
    fn claim(&mut self, right: &Right, claim: Claim) -> Result<Claimed, StoreError> {
        for view in jobs(right, &claim, JobState::Leased) {
            let expired = view.lease.is_some_and(|lease| lease.ends_at <= right.now());
            if let (true, Some(receipt)) = (expired, self.last.get(&(view.kind, view.id))) {
                let _ended = right.settle(receipt.clone(), self.action.clone());
            }
        }
        let claimed = right.claim(claim)?;
        let last = claimed.jobs.iter().map(|job| (name(&job.receipt), job.receipt.clone()));
        self.last.extend(last);
        Ok(claimed)
    }
}

/// A lease is over the moment it ends, whether or not anybody has taken the job.
pub(super) struct ExpiredIsLost;

impl Wrong for ExpiredIsLost {
    fn settle(&mut self, right: &Right, settle: Settle) -> Result<Settled, SettleError> {
        let Settle { receipt, action } = settle;
        let lease = right.get(&name(&receipt)).and_then(|view| view.lease);
        if lease.is_some_and(|lease| lease.ends_at <= right.now()) {
            return Err(SettleError::LeaseLost { receipt });
        }
        right.settle(receipt, action)
    }
}

/// Nobody learns which leases expired.
pub(super) struct ExpiredNotReported;

impl Wrong for ExpiredNotReported {
    fn claim(&mut self, right: &Right, claim: Claim) -> Result<Claimed, StoreError> {
        Ok(Claimed { expired: Vec::new(), ..right.claim(claim)? })
    }

    fn reap(&mut self, right: &Right, max: usize) -> Reaped {
        Reaped { expired: Vec::new(), ..right.reap(max) }
    }
}

/// A lease whose end has passed when it is settled is reported by the next claim.
#[derive(Default)]
pub(super) struct SettledReported {
    expired: Vec<ExpiredLease>,
}

impl Wrong for SettledReported {
    fn claim(&mut self, right: &Right, claim: Claim) -> Result<Claimed, StoreError> {
        let mut claimed = right.claim(claim)?;
        claimed.expired.append(&mut self.expired);
        Ok(claimed)
    }

    fn settle(&mut self, right: &Right, settle: Settle) -> Result<Settled, SettleError> {
        let (kind, id) = name(&settle.receipt);
        let view = right.get(&(kind.clone(), id.clone()));
        let settled = right.settle(settle.receipt, settle.action)?;
        if let Some((lease, attempts)) = view.and_then(|view| Some((view.lease?, view.attempts)))
            && lease.ends_at <= right.now()
        {
            self.expired.push(ExpiredLease::new(kind, id, lease.worker, attempts + 1));
        }
        Ok(settled)
    }
}

/// Acked, a successor runs, and then once more.
#[derive(Default)]
pub(super) struct SuccessorTwice {
    owed: HashMap<Name, Body>,
}

impl Wrong for SuccessorTwice {
    fn settle(&mut self, right: &Right, settle: Settle) -> Result<Settled, SettleError> {
        let name = name(&settle.receipt);
        let next = right.get(&name).and_then(|view| view.next);
        let settled = right.settle(settle.receipt, settle.action)?;
        match (settled, next) {
            (Settled::Done, Some(next)) => drop(self.owed.insert(name, next.body)),
            (Settled::Done, None) => {
                if let Some(body) = self.owed.remove(&name) {
                    let _again = right.put(Put::new(name.0, name.1, body));
                }
            }
            _ => {}
        }
        Ok(settled)
    }
}

/// An ack deletes the record, and the successor in it.
pub(super) struct SuccessorLost;

impl Wrong for SuccessorLost {
    fn settle(&mut self, right: &Right, settle: Settle) -> Result<Settled, SettleError> {
        let name = name(&settle.receipt);
        let settled = right.settle(settle.receipt, settle.action)?;
        if settled == Settled::Done {
            let _removed = right.change(&name, ChangeKind::Cancel);
        }
        Ok(settled)
    }
}

/// The end of the lease is in the receipt.
#[derive(Default)]
pub(super) struct ExtendChangesReceipt {
    changed: HashSet<Receipt>,
}

impl Wrong for ExtendChangesReceipt {
    fn settle(&mut self, right: &Right, settle: Settle) -> Result<Settled, SettleError> {
        let Settle { receipt, action } = settle;
        if self.changed.contains(&receipt) {
            return Err(SettleError::LeaseLost { receipt });
        }
        let settled = right.settle(receipt.clone(), action)?;
        if let Settled::Extended(_) = settled {
            self.changed.insert(receipt);
        }
        Ok(settled)
    }
}

/// The lease ends so long after now, also if that is sooner than before.
pub(super) struct ExtendShortens;

impl Wrong for ExtendShortens {
    fn settle(&mut self, right: &Right, settle: Settle) -> Result<Settled, SettleError> {
        let asked = match settle.action {
            Settlement::Extend(asked) => asked,
            _ => None,
        };
        match (right.settle(settle.receipt, settle.action)?, asked) {
            (Settled::Extended(_), Some(asked)) => {
                Ok(Settled::Extended(right.now().saturating_add(asked)))
            }
            (settled, _) => Ok(settled),
        }
    }
}

/// What a receipt that is no more does to the lease of another.
pub(super) struct StaleReceipt {
    /// Whether it is answered as if it were the other's.
    answers: bool,
    last: HashMap<Name, Receipt>,
}

impl StaleReceipt {
    /// It is told that it is lost, after the deed.
    pub(super) fn acts() -> Self {
        StaleReceipt { answers: false, last: HashMap::new() }
    }

    /// Kind and id are the receipt.
    pub(super) fn is_valid() -> Self {
        StaleReceipt { answers: true, last: HashMap::new() }
    }
}

impl Wrong for StaleReceipt {
    fn claim(&mut self, right: &Right, claim: Claim) -> Result<Claimed, StoreError> {
        let claimed = right.claim(claim)?;
        let last = claimed.jobs.iter().map(|job| (name(&job.receipt), job.receipt.clone()));
        self.last.extend(last);
        Ok(claimed)
    }

    fn settle(&mut self, right: &Right, settle: Settle) -> Result<Settled, SettleError> {
        let Settle { receipt, action } = settle;
        let lost = match right.settle(receipt.clone(), action.clone()) {
            Err(lost @ SettleError::LeaseLost { .. }) => lost,
            answer => return answer,
        };
        let last = self.last.get(&name(&receipt)).cloned().unwrap_or(receipt);
        let answer = right.settle(last, action);
        if self.answers { answer.or(Err(lost)) } else { Err(lost) }
    }
}

/// The latest first.
pub(super) struct OutOfOrder;

impl Wrong for OutOfOrder {
    fn claim(&mut self, right: &Right, claim: Claim) -> Result<Claimed, StoreError> {
        let mut claimed = right.claim(claim)?;
        claimed.jobs.reverse();
        Ok(claimed)
    }
}

/// The first of several kinds is always the first.
pub(super) struct FirstKindFirst;

impl Wrong for FirstKindFirst {
    fn claim(&mut self, right: &Right, claim: Claim) -> Result<Claimed, StoreError> {
        let mut all = Claimed::default();
        for kind in claim.kinds.clone() {
            let max = claim.max - all.jobs.len();
            let one = right.claim(Claim { kinds: vec![kind], max, ..claim.clone() })?;
            all.jobs.extend(one.jobs);
            all.errors.extend(one.errors);
            all.expired.extend(one.expired);
        }
        Ok(all)
    }
}

/// Cancelling a leased job deletes it under its holder's hands.
#[derive(Default)]
pub(super) struct CancelDeletes {
    last: HashMap<Name, Receipt>,
}

impl Wrong for CancelDeletes {
    fn claim(&mut self, right: &Right, claim: Claim) -> Result<Claimed, StoreError> {
        let claimed = right.claim(claim)?;
        let last = claimed.jobs.iter().map(|job| (name(&job.receipt), job.receipt.clone()));
        self.last.extend(last);
        Ok(claimed)
    }

    fn change(&mut self, right: &Right, change: Change) -> Result<Changed, ChangeError> {
        let name = (change.kind, change.id);
        let changed = right.change(&name, change.action)?;
        if let (Changed::Ending, Some(receipt)) = (changed, self.last.get(&name)) {
            let _gone = right.settle(receipt.clone(), Settlement::Ack);
        }
        Ok(changed)
    }
}

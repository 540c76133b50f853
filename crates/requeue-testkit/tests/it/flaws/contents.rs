//! Flaws of contents: the head is lost, or stays where it does not belong.

use super::store::{CorrectStore, RestoreResult};
use requeue_jobs::{
    Change, ChangeError, ChangeKind, Changed, Claim, Claimed, Content, Head, JobView, Mode, Placed,
    Put, PutError, Reschedule, Restore, Settle, SettleError, Settled, Settlement, StoreError,
};

/// Puts lose the head.
pub(super) fn lost_by_put(correct: &CorrectStore, mut put: Put) -> Result<Placed, PutError> {
    put.content.head = Head::default();
    correct.put(put)
}

/// A claim returns the body without the head.
pub(super) fn not_claimed(correct: &CorrectStore, claim: Claim) -> Result<Claimed, StoreError> {
    let mut claimed = correct.claim(claim)?;
    claimed.jobs.iter_mut().for_each(|job| job.version.content.head = Head::default());
    Ok(claimed)
}

/// `get` and `list` return the head of the leased job for its successor, too.
pub(super) fn shown_for_successors(_correct: &CorrectStore, view: &mut JobView) {
    if let Some(next) = &mut view.next {
        next.content.head = view.version.content.head.clone();
    }
}

/// A put that changes the body of a pending job leaves the head as it was.
pub(super) fn kept_by_put(correct: &CorrectStore, mut put: Put) -> Result<Placed, PutError> {
    let present = correct.get(&(put.kind.clone(), put.id.clone()));
    if let Some(view) = present.filter(|_| put.mode != Mode::Keep && put.condition.is_none()) {
        let Content { head, .. } = view.version.content;
        if !head.is_empty() {
            put.content.head = head;
        }
    }
    correct.put(put)
}

/// A retry writes the body of the job again, and nothing else.
pub(super) fn lost_by_retry(
    correct: &CorrectStore,
    settle: Settle,
) -> Result<Settled, SettleError> {
    let name = (settle.receipt.kind().clone(), settle.receipt.id().clone());
    let retried = matches!(settle.action, Settlement::Retry { .. });
    let settled = correct.settle(settle.receipt, settle.action)?;
    if retried && let Some(view) = correct.get(&name) {
        let body = Some(view.body().clone());
        let _lost = correct
            .change(&name, ChangeKind::Reschedule(Reschedule { body, ..Reschedule::default() }));
    }
    Ok(settled)
}

/// A reschedule without a body removes the envelope, as one with a body does.
pub(super) fn lost_by_reschedule(
    correct: &CorrectStore,
    change: Change,
) -> Result<Changed, ChangeError> {
    let name = (change.kind, change.id);
    let mut action = change.action;
    if let ChangeKind::Reschedule(set) = &mut action
        && let Some(view) = correct.get(&name)
    {
        let newest = view.next.as_ref().unwrap_or(&view.version);
        set.body.get_or_insert_with(|| newest.content.body.clone());
    }
    correct.change(&name, action)
}

/// An import brings bodies only.
pub(super) fn lost_by_restore(correct: &CorrectStore, mut restore: Restore) -> RestoreResult {
    restore.jobs.iter_mut().for_each(|job| job.version.content.head = Head::default());
    correct.restore(restore)
}

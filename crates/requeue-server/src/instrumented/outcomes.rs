//! Names of outcomes. Metrics use them as label values, events as `outcome`.
//!
//! Each function returns an index into the table of names above it.

use requeue_jobs::{Changed, PutOutcome, Restored, Settled, Settlement};

/// Outcomes of a put: see [`put`].
pub(crate) const PUT: [&str; 5] = ["created", "updated", "kept", "coalesced", "revived"];
/// Ways in which a settlement ends a lease, in the order of [`LeaseEnd`].
pub(crate) const LEASE_ENDS: [&str; 6] =
    ["acked", "requeued", "retried", "dead", "released", "cancelled"];
/// Outcomes of a change: see [`changed`].
pub(crate) const CHANGED: [&str; 6] =
    ["removed", "ending", "ready", "revived", "updated", "coalesced"];
/// Outcomes of a restore: see [`restored`].
pub(crate) const RESTORED: [&str; 3] = ["created", "kept", "ended"];

/// Returns the index of the outcome in [`PUT`].
pub(crate) fn put(outcome: PutOutcome) -> usize {
    match outcome {
        PutOutcome::Created => 0,
        PutOutcome::Updated => 1,
        PutOutcome::Kept => 2,
        PutOutcome::Coalesced => 3,
        PutOutcome::Revived => 4,
    }
}

/// The requested settlement, without its data and reduced to what [`lease_end`] needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettleAction {
    Requeue,
    Extend,
    Other,
}

impl From<&Settlement> for SettleAction {
    fn from(action: &Settlement) -> Self {
        match action {
            Settlement::RequeueAfter(_) => SettleAction::Requeue,
            Settlement::Extend(_) => SettleAction::Extend,
            Settlement::Ack
            | Settlement::AckWith(_)
            | Settlement::Retry { .. }
            | Settlement::Bury { .. }
            | Settlement::Release => SettleAction::Other,
        }
    }
}

/// How a settlement ended a lease. As a number it is an index into [`LEASE_ENDS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseEnd {
    Acked,
    Requeued,
    Retried,
    Dead,
    Released,
    Cancelled,
}

/// Returns how the lease ended, or `None` if the settlement did not end it.
pub(crate) fn lease_end(action: SettleAction, settled: Settled) -> Option<LeaseEnd> {
    Some(match settled {
        // Extending the lease of a cancelled job reports the cancellation and does not end the
        // lease.
        Settled::Cancelled if action == SettleAction::Extend => return None,
        Settled::Done if action == SettleAction::Requeue => LeaseEnd::Requeued,
        Settled::Done => LeaseEnd::Acked,
        Settled::RetryAt(_) => LeaseEnd::Retried,
        Settled::Dead => LeaseEnd::Dead,
        Settled::Released => LeaseEnd::Released,
        Settled::Cancelled => LeaseEnd::Cancelled,
        _ => return None,
    })
}

/// Returns the index of the outcome in [`CHANGED`].
pub(crate) fn changed(changed: Changed) -> Option<usize> {
    Some(match changed {
        Changed::Removed => 0,
        Changed::Ending => 1,
        Changed::Ready => 2,
        Changed::Revived => 3,
        Changed::Rescheduled(placed) => match placed.outcome {
            PutOutcome::Revived => 3,
            PutOutcome::Updated => 4,
            PutOutcome::Coalesced => 5,
            PutOutcome::Created | PutOutcome::Kept => return None,
        },
        _ => return None,
    })
}

/// Returns the index of the outcome in [`RESTORED`].
pub(crate) fn restored(restored: Restored) -> usize {
    match restored {
        Restored::Created => 0,
        Restored::Kept => 1,
        Restored::Ended => 2,
    }
}

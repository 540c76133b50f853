//! What became of things, in words: of metrics and of events the same.

use requeue_jobs::{Changed, PutOutcome, Restored, Settled, Settlement};

/// See [`put`].
pub(crate) const PUT: [&str; 5] = ["created", "updated", "kept", "coalesced", "revived"];
/// See [`ended`].
pub(crate) const ENDED: [&str; 6] =
    ["acked", "requeued", "retried", "dead", "released", "cancelled"];
/// See [`changed`].
pub(crate) const CHANGED: [&str; 4] = ["removed", "ending", "ready", "revived"];
/// See [`restored`].
pub(crate) const RESTORED: [&str; 3] = ["created", "kept", "ended"];

/// Which of [`PUT`] it is.
pub(crate) fn put(outcome: PutOutcome) -> usize {
    match outcome {
        PutOutcome::Created => 0,
        PutOutcome::Updated => 1,
        PutOutcome::Kept => 2,
        PutOutcome::Coalesced => 3,
        PutOutcome::Revived => 4,
    }
}

/// How a lease was to be settled, without what that needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Requeue,
    Extend,
    Other,
}

impl From<&Settlement> for Wish {
    fn from(action: &Settlement) -> Self {
        match action {
            Settlement::RequeueAfter(_) => Wish::Requeue,
            Settlement::Extend(_) => Wish::Extend,
            Settlement::Ack
            | Settlement::Retry { .. }
            | Settlement::Bury { .. }
            | Settlement::Release => Wish::Other,
        }
    }
}

/// How a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Acked,
    Requeued,
    Retried,
    Dead,
    Released,
    Cancelled,
}

/// How a lease ended; its number is its place in [`ENDED`]. `None`: it goes on.
pub(crate) fn ended(wish: Wish, settled: Settled) -> Option<Ended> {
    Some(match settled {
        // What was cancelled can only be told so: it is leased all the same.
        Settled::Cancelled if wish == Wish::Extend => return None,
        Settled::Done if wish == Wish::Requeue => Ended::Requeued,
        Settled::Done => Ended::Acked,
        Settled::RetryAt(_) => Ended::Retried,
        Settled::Dead => Ended::Dead,
        Settled::Released => Ended::Released,
        Settled::Cancelled => Ended::Cancelled,
        _ => return None,
    })
}

/// Which of [`CHANGED`] it is.
pub(crate) fn changed(changed: Changed) -> Option<usize> {
    Some(match changed {
        Changed::Removed => 0,
        Changed::Ending => 1,
        Changed::Ready => 2,
        Changed::Revived => 3,
        _ => return None,
    })
}

/// Which of [`RESTORED`] it is.
pub(crate) fn restored(restored: Restored) -> usize {
    match restored {
        Restored::Created => 0,
        Restored::Kept => 1,
        Restored::Ended => 2,
    }
}

//! Flaws of restores.

use super::store::{CorrectStore, RestoreResult};
use requeue_jobs::limits::MAX_RESTORED;
use requeue_jobs::{ChangeKind, Fence, Generation, Invalid, JobState, Restore};

/// A restored job replaces an existing one.
pub(super) fn restore_overwrites(correct: &CorrectStore, restore: Restore) -> RestoreResult {
    for job in &restore.jobs {
        let _removed = correct.change(&(job.kind.clone(), job.id.clone()), ChangeKind::Cancel);
    }
    correct.restore(restore)
}

/// The generation and fence counters of the kind are not restored.
pub(super) fn counters_not_restored(correct: &CorrectStore, restore: Restore) -> RestoreResult {
    correct.restore(Restore { generation: Generation(0), fence: Fence(0), ..restore })
}

/// Restores have a lower limit than the contract.
pub(super) fn low_restore_limit(correct: &CorrectStore, restore: Restore) -> RestoreResult {
    let (field, value, limit) = ("the kind's generation", restore.generation.0, MAX_RESTORED - 1);
    if value > limit {
        return Err(Invalid::TooHigh { field, value, limit }.into());
    }
    correct.restore(restore)
}

/// A leased job is restored as ready, without its lease.
pub(super) fn leases_forgotten(correct: &CorrectStore, mut restore: Restore) -> RestoreResult {
    for job in restore.jobs.iter_mut().filter(|job| job.state == JobState::Leased) {
        (job.state, job.lease, job.next) = (JobState::Ready, None, None);
    }
    correct.restore(restore)
}

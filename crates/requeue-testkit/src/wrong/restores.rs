//! Jobs of another store, taken over wrong.

use super::store::{Restoring, Right, Wrong};
use requeue_jobs::{ChangeKind, Fence, Generation, JobState, Restore};

/// What arrives replaces what is there.
pub(super) struct RestoreOverwrites;

impl Wrong for RestoreOverwrites {
    fn restore(&mut self, right: &Right, restore: Restore) -> Restoring {
        for job in &restore.jobs {
            let _removed = right.change(&(job.kind.clone(), job.id.clone()), ChangeKind::Cancel);
        }
        right.restore(restore)
    }
}

/// Jobs arrive, and the kind's counters begin anew.
pub(super) struct CountersLeftBehind;

impl Wrong for CountersLeftBehind {
    fn restore(&mut self, right: &Right, restore: Restore) -> Restoring {
        right.restore(Restore { generation: Generation(0), fence: Fence(0), ..restore })
    }
}

/// A leased job was due before it was leased, and so it is again.
pub(super) struct LeasesForgotten;

impl Wrong for LeasesForgotten {
    fn restore(&mut self, right: &Right, mut restore: Restore) -> Restoring {
        for job in restore.jobs.iter_mut().filter(|job| job.state == JobState::Leased) {
            (job.state, job.lease, job.next) = (JobState::Ready, None, None);
        }
        right.restore(restore)
    }
}

//! How much memory the jobs of a kind use, about.

use requeue_jobs::rules::{Record, Status};
use requeue_jobs::{Body, JobId};
use std::mem;

/// Memory of a job besides its id and body: record, entry, bucket entry and allocations.
const OVERHEAD: usize = 350;

/// Memory of the entry of a removed job, besides its id.
pub(super) const GONE: usize = 100;

/// The memory use of the active layer.
#[derive(Default)]
pub(super) struct Weight {
    /// In bytes, now and at the last call of [`grown`](Self::grown).
    pub(super) bytes: usize,
    reported: usize,
    /// The size of the jobs in lower layers that the active layer has hidden since it was last asked
    /// for.
    pub(super) hidden: u64,
}

impl Weight {
    /// By how many bytes it has grown since the last call.
    pub(super) fn grown(&mut self) -> isize {
        let before = mem::replace(&mut self.reported, self.bytes);
        self.bytes as isize - before as isize
    }

    /// The next active layer is empty.
    pub(super) fn clear(&mut self) {
        (self.bytes, self.reported) = (0, 0);
    }
}

/// The weight of a job.
pub(super) fn weight(id: &JobId, record: &Record) -> usize {
    let next = match &record.status {
        Status::Leased(lease) => {
            150 + lease.next.as_ref().map_or(0, |next| next.version.content.len())
        }
        Status::Done(done) => 150 + done.result.as_ref().map_or(0, Body::len),
        Status::Pending | Status::Dead { .. } => 0,
    };
    let failures = record.failures.iter();
    let failures = failures.map(|failure| 100 + failure.error.as_ref().map_or(0, |e| e.len()));
    OVERHEAD + id.as_str().len() + record.version.content.len() + next + failures.sum::<usize>()
}

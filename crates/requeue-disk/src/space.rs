//! Leaves the disk some space for what is there already.

use crate::disk::Disk;
use crate::error::unavailable;
use requeue_jobs::StoreError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an answer of the disk holds: long enough to cost nothing, and short enough for a
/// fast disk not to fill up meanwhile.
const HOLDS: Duration = Duration::from_millis(50);

/// Whether there is space for new jobs. What is left is for flushing and merging the others, and
/// for the log that settles them.
pub(crate) struct Space {
    kept: u64,
    free: u64,
    asked: Option<Instant>,
}

impl Space {
    /// So many bytes are kept.
    pub(crate) fn new(kept: u64) -> Self {
        Space { kept, free: u64::MAX, asked: None }
    }

    pub(crate) fn check(&mut self, disk: &Arc<dyn Disk>) -> Result<(), StoreError> {
        let Space { kept, .. } = *self;
        if self.free < kept || self.asked.is_none_or(|asked| asked.elapsed() >= HOLDS) {
            // A disk that does not tell will refuse what is written.
            self.free = disk.free().unwrap_or(u64::MAX);
            self.asked = Some(Instant::now());
        }
        if self.free >= kept {
            return Ok(());
        }
        let free = self.free;
        Err(unavailable(format!(
            "the disk has {free} bytes left, and {kept} are kept for the jobs there are"
        )))
    }
}

//! Keeps some disk space free for the jobs that are stored already.

use crate::disk::Disk;
use crate::error::unavailable;
use requeue_jobs::StoreError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a measurement of the free space is used: long enough to cost nothing, short enough that
/// a fast disk does not fill up meanwhile.
const MAX_AGE: Duration = Duration::from_millis(50);

/// Checks that there is space for new jobs. The rest is kept for flushing and merging the stored
/// jobs, and for the log entries that settle them.
pub(crate) struct Space {
    /// Bytes that new jobs must leave free.
    kept: u64,
    /// The free bytes of the disk, when they were last measured.
    free: u64,
    measured: Option<Instant>,
}

impl Space {
    /// Keeps `kept` bytes free.
    pub(crate) fn new(kept: u64) -> Self {
        Space { kept, free: u64::MAX, measured: None }
    }

    /// Fails with [`StoreError::Unavailable`] if too little space is free.
    pub(crate) fn check(&mut self, disk: &Arc<dyn Disk>) -> Result<(), StoreError> {
        let Space { kept, .. } = *self;
        if self.free < kept || self.measured.is_none_or(|at| at.elapsed() >= MAX_AGE) {
            // If the disk cannot report it, the write itself will fail.
            self.free = disk.free().unwrap_or(u64::MAX);
            self.measured = Some(Instant::now());
        }
        if self.free >= kept {
            return Ok(());
        }
        let free = self.free;
        Err(unavailable(format!(
            "the disk has {free} bytes free, but {kept} are reserved for jobs that are stored already"
        )))
    }
}

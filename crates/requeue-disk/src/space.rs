//! Keeps some disk space free for the jobs that are stored already.

use crate::disk::Disk;
use crate::error::{DiskError, chain, unavailable};
use crate::health::{Health, Problem};
use requeue_jobs::StoreError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a measurement of the free space is used: long enough to cost nothing. It is measured
/// earlier if much is put meanwhile.
const MAX_AGE: Duration = Duration::from_millis(50);

/// If space is short, how long to wait before another flush that frees little.
const FLUSH_AGAIN: Duration = Duration::from_secs(5);

/// Checks that there is space for new jobs. The rest is kept for flushing and merging the stored
/// jobs, and for the log entries that settle them.
pub(crate) struct Space {
    disk: Arc<dyn Disk>,
    /// Bytes that new jobs must leave free.
    kept: u64,
    /// The free bytes of the disk, when they were last measured.
    free: u64,
    measured: Option<Instant>,
    /// Bytes of new jobs since then.
    added: u64,
    /// Whether the log could not get a segment when new jobs were last refused.
    log_is_full: bool,
    /// When memory was last flushed in order to free space.
    flushed: Option<Instant>,
}

impl Space {
    /// Keeps `kept` bytes free.
    pub(crate) fn new(disk: Arc<dyn Disk>, kept: u64) -> Self {
        let (free, measured) = (u64::MAX, None);
        Space { disk, kept, free, measured, added: 0, log_is_full: false, flushed: None }
    }

    /// Measures the free space.
    pub(crate) fn measure(&mut self, health: &Health) {
        self.free = measure(&*self.disk, health);
        health.measured.reserved_bytes.store(self.kept, Ordering::Relaxed);
        (self.measured, self.added) = (Some(Instant::now()), 0);
        if !self.is_short() {
            health.clear(Problem::DiskFull);
        }
    }

    /// Whether too little space was free, or the log could not grow, when that was last checked.
    pub(crate) fn is_short(&self) -> bool {
        self.free < self.kept || self.log_is_full
    }

    /// Whether memory should be flushed, because space is short and that frees some. `gain` is an
    /// estimate of how much.
    pub(crate) fn should_flush(&mut self, gain: u64, health: &Health) -> bool {
        let is_due = self.flushed.is_none_or(|at| at.elapsed() >= FLUSH_AGAIN);
        if !self.is_short() || gain == 0 || !(is_due || gain >= self.kept / 16) {
            return false;
        }
        // There may be enough since the last flush or merge.
        self.measure(health);
        self.is_short()
    }

    pub(crate) fn flushed(&mut self) {
        self.flushed = self.is_short().then(Instant::now);
    }

    /// Something could not be written: perhaps because the disk is full.
    pub(crate) fn write_failed(&mut self, error: &DiskError, health: &Health) {
        self.measure(health);
        if self.is_short() {
            self.report(&chain(error), health);
        }
    }

    /// Checks that new jobs of so many bytes fit: `reserved` is the result of reserving space for
    /// them in the log. Fails with [`StoreError::Unavailable`] if too little space is free.
    pub(crate) fn check(
        &mut self,
        bytes: usize,
        reserved: Result<(), DiskError>,
        health: &Health,
    ) -> Result<(), StoreError> {
        self.log_is_full = matches!(reserved, Err(DiskError::Full { .. }));
        if let Err(error) = reserved {
            if self.log_is_full {
                self.measure(health);
                self.report(&chain(&error), health);
            }
            return Err(unavailable(error));
        }
        let Space { kept, .. } = *self;
        self.added = self.added.saturating_add(bytes as u64);
        let is_old = self.measured.is_none_or(|at| at.elapsed() >= MAX_AGE);
        if self.free < kept || self.added >= kept / 16 || is_old {
            self.measure(health);
        }
        if self.free >= kept {
            health.clear(Problem::DiskFull);
            return Ok(());
        }
        let (free, kept) = (mebibytes(self.free), mebibytes(kept));
        let reason = format!(
            "the disk has {free} free, but {kept} are reserved for jobs that are stored already"
        );
        self.report(&reason, health);
        Err(unavailable(reason))
    }

    fn report(&self, reason: &str, health: &Health) {
        let location = self.disk.location();
        let detail = format!(
            "new jobs are refused in {location}: {reason}. Claiming and settling continue. Settle \
             or delete jobs, or free space"
        );
        health.report(Problem::DiskFull, detail);
    }
}

/// A number of bytes for people.
fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Measures and publishes the free bytes of a disk.
pub(crate) fn measure(disk: &dyn Disk, health: &Health) -> u64 {
    // If the disk cannot report it, the write itself will fail.
    let free = disk.free().unwrap_or(u64::MAX);
    health.measured.free_bytes.store(free, Ordering::Relaxed);
    free
}

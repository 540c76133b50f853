//! Progress of a backup or a verification.

/// Progress of a [backup](crate::DiskStore::backup) or a [verification](crate::verify()).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ByteProgress {
    /// Bytes processed so far.
    pub bytes: u64,
    /// Bytes to process in total, at least `bytes`. The last report has `bytes == total`.
    pub total: u64,
}

/// Bytes between two reports, so that there are at most a few thousand per second.
const STEP: u64 = 1 << 20;

/// Counts bytes, and reports them every [`STEP`].
pub(crate) struct Meter<'a> {
    done: u64,
    total: u64,
    reported: u64,
    report: &'a mut dyn FnMut(ByteProgress),
}

impl<'a> Meter<'a> {
    pub(crate) fn new(total: u64, report: &'a mut dyn FnMut(ByteProgress)) -> Self {
        report(ByteProgress { bytes: 0, total });
        Meter { done: 0, total, reported: 0, report }
    }

    pub(crate) fn add(&mut self, bytes: u64) {
        self.done = self.done.saturating_add(bytes).min(self.total);
        if self.done - self.reported >= STEP {
            self.reported = self.done;
            (self.report)(ByteProgress { bytes: self.done, total: self.total });
        }
    }

    pub(crate) fn end(self) {
        (self.report)(ByteProgress { bytes: self.total, total: self.total });
    }
}

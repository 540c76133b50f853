//! The byte bound of claims and list pages.

use crate::limits::MAX_RESULT_BYTES;

/// Counts the bytes of the bodies in the result of a claim or on a page of a list, up to
/// [`MAX_RESULT_BYTES`].
///
/// ```
/// use requeue_jobs::limits::MAX_RESULT_BYTES;
/// use requeue_jobs::rules::ResultSize;
///
/// let mut size = ResultSize::default();
/// assert!(size.admit(MAX_RESULT_BYTES + 1), "there is always room for one job");
/// assert!(!size.admit(1));
/// assert!(size.is_full());
/// ```
#[derive(Debug, Clone, Default)]
pub struct ResultSize {
    jobs: usize,
    bytes: usize,
    full: bool,
}

impl ResultSize {
    /// Returns `true` if a job with this many bytes of bodies still fits, and counts it. The first
    /// job always fits. After the first job that does not fit, no other one does: the result ends
    /// there.
    pub fn admit(&mut self, bytes: usize) -> bool {
        let fits = self.fits(bytes);
        if fits {
            self.add(bytes);
        }
        fits
    }

    /// Does the same as [`admit`](Self::admit), but does not count the job.
    pub fn fits(&mut self, bytes: usize) -> bool {
        self.full |= self.jobs > 0 && self.bytes.saturating_add(bytes) > MAX_RESULT_BYTES;
        !self.full
    }

    /// Counts a job that [fits](Self::fits).
    pub fn add(&mut self, bytes: usize) {
        self.jobs += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Returns `true` if a job did not fit.
    pub fn is_full(&self) -> bool {
        self.full
    }
}

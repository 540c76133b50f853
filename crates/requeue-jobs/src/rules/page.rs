//! One page of a list.

use super::result_size::ResultSize;
use crate::job::JobView;
use crate::limits::MAX_BATCH;
use crate::query::Page;

/// Collects the jobs of one page of a list, up to its limits of jobs and of bytes.
///
/// ```
/// use requeue_jobs::rules::PageBuilder;
/// use requeue_jobs::{JobId, JobView, Kind, Version};
///
/// let mut page = PageBuilder::new(1);
/// for id in ["a", "b"] {
///     let (kind, id) = (Kind::new("mail")?, JobId::new(id)?);
///     page.add(JobView::new(kind, id, Version::default()));
/// }
/// let page = page.build();
/// assert_eq!(page.jobs.len(), 1);
/// assert_eq!(page.cursor, Some(JobId::new("a")?));
/// # Ok::<(), requeue_jobs::Invalid>(())
/// ```
#[derive(Debug)]
pub struct PageBuilder {
    jobs: Vec<JobView>,
    limit: usize,
    size: ResultSize,
    /// There is a job that did not fit.
    more: bool,
}

impl PageBuilder {
    /// Returns an empty page for up to `limit` jobs, at least 1 and at most [`MAX_BATCH`].
    pub fn new(limit: usize) -> Self {
        let limit = limit.clamp(1, MAX_BATCH);
        PageBuilder { jobs: Vec::new(), limit, size: ResultSize::default(), more: false }
    }

    /// Adds the next job of the list. Returns `false` if it does not fit: then the page is
    /// complete, and the next page begins with this job.
    pub fn add(&mut self, job: JobView) -> bool {
        self.more |= self.jobs.len() >= self.limit || !self.size.admit(job.content_bytes());
        if !self.more {
            self.jobs.push(job);
        }
        !self.more
    }

    /// Returns `true` if a job did not fit.
    pub fn is_full(&self) -> bool {
        self.more
    }

    /// Returns the page. It has a cursor if a job did not fit.
    pub fn build(self) -> Page {
        let cursor = self.jobs.last().filter(|_| self.more).map(|job| job.id.clone());
        Page { jobs: self.jobs, cursor }
    }
}

//! The builder of a list.

use super::Jobs;
use crate::error::{Invalid, StoreError};
use crate::job::JobState;
use crate::names::{JobId, Kind};
use crate::query::{Page, Query};
use std::future::Future;
use std::pin::Pin;

/// A list of jobs that [`Jobs::list`] returns: add options, then `.await` it to get one page.
///
/// ```
/// use requeue_jobs::{Jobs, JobState, MemoryStore};
/// use std::sync::Arc;
///
/// # requeue_testkit::block_on(async {
/// let jobs = Jobs::new(Arc::new(MemoryStore::new()));
/// for order in ["order-1", "order-2", "order-3"] {
///     jobs.put("order.close", order, "unpaid").await?;
/// }
/// let mut page = jobs.list("order.close").state(JobState::Ready).limit(2).await?;
/// assert_eq!(page.jobs.len(), 2);
/// let cursor = page.cursor.expect("there are more");
/// page = jobs.list("order.close").state(JobState::Ready).after(cursor).await?;
/// assert_eq!(page.jobs[0].id.as_str(), "order-3");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[must_use = "await it"]
pub struct ListJobs {
    jobs: Jobs,
    query: Result<Query, Invalid>,
}

impl ListJobs {
    pub(super) fn new(jobs: &Jobs, kind: &str) -> Self {
        ListJobs { jobs: jobs.clone(), query: Kind::with_reserved(kind).map(Query::new) }
    }

    /// Lists only jobs in this state. By default, jobs in all states are listed.
    pub fn state(self, state: JobState) -> Self {
        self.with(|query| query.state = Some(state))
    }

    /// Lists only jobs whose id starts with this.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        self.with(|query| query.prefix = prefix)
    }

    /// Continues after the previous page: this is its [cursor](Page::cursor).
    pub fn after(self, cursor: JobId) -> Self {
        self.with(|query| query.after = Some(cursor))
    }

    /// Sets the largest number of jobs on the page (default 100).
    pub fn limit(self, limit: usize) -> Self {
        self.with(|query| query.limit = limit)
    }

    fn with(mut self, change: impl FnOnce(&mut Query)) -> Self {
        if let Ok(query) = &mut self.query {
            change(query);
        }
        self
    }
}

impl IntoFuture for ListJobs {
    type Output = Result<Page, StoreError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.jobs.store().list(self.query?).await })
    }
}

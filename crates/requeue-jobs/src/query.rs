//! Listing and counting jobs: arguments and results.

use crate::error::Invalid;
use crate::job::{JobState, JobView};
use crate::limits::MAX_CURSOR_LEN;
use crate::names::{JobId, Kind, checked};
use crate::receipt::{Fence, Generation};
use crate::time::Timestamp;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Which jobs to list: the argument of [`Store::list`](crate::Store::list).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Lists jobs of this kind.
    pub kind: Kind,
    /// Lists only jobs in this state. `None` lists all.
    pub state: Option<JobState>,
    /// Lists only jobs whose id starts with this.
    pub prefix: String,
    /// Lists only jobs whose id is greater than this: the [cursor](Page::cursor) of the previous
    /// page.
    pub after: Option<JobId>,
    /// The largest number of jobs on the page, at most
    /// [`MAX_BATCH`](crate::limits::MAX_BATCH).
    pub limit: usize,
}

impl Query {
    /// Returns a query for the first 100 jobs of a kind, in any state.
    pub fn new(kind: Kind) -> Self {
        Query { kind, state: None, prefix: String::new(), after: None, limit: 100 }
    }
}

/// One page of a list, ordered by id. A job that nobody changes while the pages are read is on
/// exactly one of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The jobs.
    pub jobs: Vec<JobView>,
    /// The [`Query::after`] of the next page. `None` if this is the last page.
    pub cursor: Option<JobId>,
}

/// Which jobs to list in the order of time: the argument of
/// [`Store::list_by_time`](crate::Store::list_by_time).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeQuery {
    /// Lists jobs of this kind.
    pub kind: Kind,
    /// Lists jobs in this state. It determines by which time they are ordered: waiting and ready
    /// jobs by their due time, leased jobs by the end of the lease, dead jobs by the time of death,
    /// done jobs by the time of the ack.
    pub state: JobState,
    /// Whether the job with the latest time comes first. By default the one with the earliest does.
    pub newest_first: bool,
    /// Lists only jobs that follow this place: the [cursor](TimePage::cursor) of the previous page.
    pub after: Option<TimeCursor>,
    /// The largest number of jobs on the page, at most
    /// [`MAX_BATCH`](crate::limits::MAX_BATCH).
    pub limit: usize,
}

impl TimeQuery {
    /// Returns a query for the first 100 jobs of a kind in this state, the earliest first.
    pub fn new(kind: Kind, state: JobState) -> Self {
        TimeQuery { kind, state, newest_first: false, after: None, limit: 100 }
    }
}

/// One page of a list in the order of time. A job that does not change while the pages are read is
/// on exactly one of them. A waiting job that becomes ready changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TimePage {
    /// The jobs. Those of the same millisecond are in the same order on every page.
    pub jobs: Vec<JobView>,
    /// The [`TimeQuery::after`] of the next page. `None` if this is the last page.
    pub cursor: Option<TimeCursor>,
}

/// A place in a list by time. Only the store that returned it can interpret it, and only for the same
/// kind, state and order.
///
/// The place stays valid when the job that was there changes or is removed.
///
/// ```
/// use requeue_jobs::TimeCursor;
///
/// assert_eq!(TimeCursor::new("1767225600000-7")?.as_str(), "1767225600000-7");
/// assert!(TimeCursor::new("").is_err());
/// # Ok::<(), requeue_jobs::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TimeCursor(Arc<str>);

impl TimeCursor {
    /// Returns the cursor with this text. Fails if the text is empty or longer than
    /// [`MAX_CURSOR_LEN`] bytes. Whether it is a place in the list is checked by the store.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, Invalid> {
        let text = text.into();
        checked("the cursor", &text, MAX_CURSOR_LEN)?;
        Ok(TimeCursor(text))
    }

    /// Returns the cursor as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the error of a store that cannot interpret this cursor.
    pub fn malformed(&self) -> Invalid {
        Invalid::MalformedCursor { text: self.0.as_ref().to_owned() }
    }
}

impl fmt::Debug for TimeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// The number of jobs of a kind, by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Waiting or ready jobs. Exact.
    pub pending: u64,
    /// Leased jobs, including expired leases. Exact.
    pub leased: u64,
    /// Dead jobs. Exact.
    pub dead: u64,
    /// Done jobs that are kept. Exact.
    pub done: u64,
    /// Pending jobs that are due. Counted only up to
    /// [`READY_COUNT_CAP`](crate::limits::READY_COUNT_CAP).
    pub ready: u64,
}

/// A kind: the counts of its jobs and its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindView {
    /// The name of the kind.
    pub kind: Kind,
    /// The number of its jobs, by state.
    pub counts: Counts,
    /// When the oldest ready job became due. `None` if no job is ready.
    pub oldest_ready: Option<Timestamp>,
    /// Whether the kind is paused: claims return none of its jobs.
    pub paused: bool,
    /// Whether the service delivers the jobs of the kind to a [target](crate::Settings::push).
    pub push: bool,
    /// Until when the [rate limit](crate::Settings::rate) allows no job to be leased. `None` if it
    /// allows one now.
    pub throttled_until: Option<Timestamp>,
    /// The latest generation that the kind has assigned; 0 if none.
    pub generation: Generation,
    /// The latest fence that the kind has assigned; 0 if none.
    pub fence: Fence,
}

impl KindView {
    /// Returns the view of a kind that was never used. For stores, which set the other fields.
    pub fn new(kind: Kind) -> Self {
        let (counts, generation, fence) = Default::default();
        let (oldest_ready, paused, push, throttled_until) = (None, false, false, None);
        KindView { kind, counts, oldest_ready, paused, push, throttled_until, generation, fence }
    }
}

/// Consecutive time spans to count pending jobs by: the argument of
/// [`Store::upcoming`](crate::Store::upcoming).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spans {
    /// The start of the first span.
    pub from: Timestamp,
    /// The length of each span. 0 counts as a millisecond.
    pub length: Duration,
    /// The number of spans, at most [`MAX_SPANS`](crate::limits::MAX_SPANS).
    pub count: usize,
}

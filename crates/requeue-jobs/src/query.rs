//! Listing and counting jobs: arguments and results.

use crate::job::{JobState, JobView};
use crate::names::{JobId, Kind};
use crate::receipt::{Fence, Generation};
use crate::time::Timestamp;
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

//! Asking about jobs.

use crate::job::{JobState, JobView};
use crate::names::{JobId, Kind};
use crate::receipt::{Fence, Generation};
use crate::time::Timestamp;
use std::time::Duration;

/// Which jobs to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Of this kind.
    pub kind: Kind,
    /// In this state. `None`: in any.
    pub state: Option<JobState>,
    /// Whose id begins with this.
    pub prefix: String,
    /// Those behind this one; the cursor of the page before.
    pub after: Option<JobId>,
    /// At most so many, and at most [`MAX_BATCH`](crate::limits::MAX_BATCH).
    pub limit: usize,
}

impl Query {
    /// All of a kind, from the first.
    pub fn new(kind: Kind) -> Self {
        Query { kind, state: None, prefix: String::new(), after: None, limit: 100 }
    }
}

/// Some of the jobs that were asked for, by id. A job that nobody touches meanwhile is on
/// exactly one page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The jobs.
    pub jobs: Vec<JobView>,
    /// Where the next page begins. `None`: there is none.
    pub cursor: Option<JobId>,
}

/// How many jobs a kind has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Waiting or ready: exact.
    pub pending: u64,
    /// Leased: exact, expired leases included.
    pub leased: u64,
    /// Dead: exact.
    pub dead: u64,
    /// Of the pending, those that are due: derived, and no higher than
    /// [`READY_COUNT_CAP`](crate::limits::READY_COUNT_CAP).
    pub ready: u64,
}

/// A kind and its jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindView {
    /// Which.
    pub kind: Kind,
    /// How many.
    pub counts: Counts,
    /// When the oldest ready job fell due.
    pub oldest_ready: Option<Timestamp>,
    /// Whether none is claimed.
    pub paused: bool,
    /// The latest that was given out; 0 if none was.
    pub generation: Generation,
    /// The latest that was given out; 0 if none was.
    pub fence: Fence,
}

/// Spans of time, one after the other, to count pending jobs by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spans {
    /// When the first begins.
    pub from: Timestamp,
    /// How long each is; 0 counts as a millisecond.
    pub length: Duration,
    /// How many there are, at most [`MAX_SPANS`](crate::limits::MAX_SPANS).
    pub count: usize,
}

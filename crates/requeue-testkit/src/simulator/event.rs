//! The log that the invariants are checked against.

use requeue_jobs::{
    Change, ChangeError, Changed, ClaimedJob, JobView, Kind, KindView, Placed, Put, PutError,
    Settings, Settle, SettleError, Settled, Tick, Ticked, Timestamp,
};

/// A call of the store, or an inspection of its contents.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) at: Timestamp,
    pub(super) action: Action,
}

#[derive(Debug, Clone)]
pub(super) enum Action {
    Put {
        put: Put,
        placed: Result<Placed, PutError>,
        before: Option<JobView>,
        after: Option<JobView>,
    },
    Claim {
        jobs: Vec<ClaimedJob>,
        /// All jobs that could be claimed.
        before: Vec<JobView>,
    },
    Settle {
        settle: Settle,
        settled: Result<Settled, SettleError>,
        before: Option<JobView>,
        after: Option<JobView>,
    },
    Change {
        change: Change,
        changed: Result<Changed, ChangeError>,
    },
    Reap,
    Set {
        kind: Kind,
        settings: Settings,
    },
    Tick {
        tick: Tick,
        ticked: Ticked,
    },
    /// A call was repeated immediately.
    Repeat {
        call: String,
        before: Option<JobView>,
        after: Option<JobView>,
    },
    /// Jobs were read page by page while other tasks changed them.
    Pages {
        /// All jobs before.
        before: Vec<JobView>,
        paged: Vec<JobView>,
        /// All jobs after.
        after: Vec<JobView>,
    },
    /// All tasks were waiting, and everything was read.
    Audit {
        /// All jobs, read in one page for each kind.
        listed: Vec<JobView>,
        /// All jobs, read in small pages.
        paged: Vec<JobView>,
        counted: Vec<KindView>,
        /// The kinds that tasks wait for.
        waiting: Vec<Kind>,
    },
}

impl Event {
    /// Returns the event as a line of a report, or `None` if it is of no interest.
    pub(super) fn line(&self) -> Option<String> {
        let text = match &self.action {
            Action::Put { put, placed, .. } => format!("{put:?} -> {placed:?}"),
            Action::Claim { jobs, .. } if jobs.is_empty() => return None,
            Action::Claim { jobs, .. } => format!("claimed {jobs:?}"),
            Action::Settle { settle, settled, .. } => format!("{settle:?} -> {settled:?}"),
            Action::Change { change, changed } => format!("{change:?} -> {changed:?}"),
            Action::Audit { .. } | Action::Pages { .. } => return None,
            other => format!("{other:?}"),
        };
        Some(format!("{} {text}", self.at.as_millis()))
    }
}

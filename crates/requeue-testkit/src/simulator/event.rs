//! One entry of the log that the invariants are checked against.

use requeue_jobs::{
    Change, ChangeError, Changed, ClaimedJob, JobView, Kind, KindView, Placed, Put, PutError,
    Settings, Settle, SettleError, Settled, Tick, Ticked, Timestamp,
};

/// What the store did, and when.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) at: Timestamp,
    pub(super) what: Happened,
}

#[derive(Debug, Clone)]
pub(super) enum Happened {
    Put {
        put: Put,
        placed: Result<Placed, PutError>,
        before: Option<JobView>,
        after: Option<JobView>,
    },
    Claim {
        jobs: Vec<ClaimedJob>,
        /// What it could get.
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
    /// A call was done a second time, right after the first.
    Again {
        call: String,
        before: Option<JobView>,
        after: Option<JobView>,
    },
    /// Somebody turned the pages while others changed jobs.
    Pages {
        /// All jobs before.
        before: Vec<JobView>,
        paged: Vec<JobView>,
        /// All jobs after.
        after: Vec<JobView>,
    },
    /// Nobody could go on, and everything was looked at.
    Audit {
        /// All jobs, on one page for each kind.
        listed: Vec<JobView>,
        /// All jobs, on small pages.
        paged: Vec<JobView>,
        counted: Vec<KindView>,
        /// Kinds that somebody waits for.
        waiting: Vec<Kind>,
    },
}

impl Event {
    /// For people who look for what went wrong; `None` where nothing happened.
    pub(super) fn line(&self) -> Option<String> {
        let text = match &self.what {
            Happened::Put { put, placed, .. } => format!("{put:?} -> {placed:?}"),
            Happened::Claim { jobs, .. } if jobs.is_empty() => return None,
            Happened::Claim { jobs, .. } => format!("claimed {jobs:?}"),
            Happened::Settle { settle, settled, .. } => format!("{settle:?} -> {settled:?}"),
            Happened::Change { change, changed } => format!("{change:?} -> {changed:?}"),
            Happened::Audit { .. } | Happened::Pages { .. } => return None,
            other => format!("{other:?}"),
        };
        Some(format!("{} {text}", self.at.as_millis()))
    }
}

//! Requests and answers, as JSON has them.
//!
//! Each is read in two steps. What is no JSON of this shape, or has a field that is not known, is
//! refused as a whole. What has the shape is then made into the types of `requeue-jobs`, entry by
//! entry, and an error names the field.
//!
//! Times in answers are RFC 3339 in UTC, to the millisecond; durations are like `1h30m`. Both are
//! exact: a client reads the very value that a store answered.

mod body;
mod change;
mod claim;
mod entry;
mod job;
mod kind;
mod put;
mod query;
mod reading;
mod restore;
mod schedule;
mod settle;

pub use body::BodyText;
pub use change::{
    All, AllChanged, ChangeAny, ChangeBatch, ChangeDone, ChangeIds, ChangeResult, ChangeVerb,
};
pub use claim::{ClaimAnswer, ClaimRequest, ClaimedView, KindProblem, WaitRequest};
pub use entry::{BatchErrors, Entry, Results};
pub use job::{Failure, Job, JobPage, Lease, Next, State};
pub use kind::{
    BackoffPatch, BackoffText, KindDeleted, KindStats, Kinds, RetentionPatch, RetentionText,
    SettingsPatch, SettingsText,
};
pub use put::{PutBatch, PutDone, PutMode, PutOutcomeText, PutRequest};
pub use query::{AfterQuery, JobsQuery, Upcoming, UpcomingQuery};
pub use reading::{Object, Reading};
pub use restore::{ReapRequest, Reaped, RestoreDone, RestoreRequest, RestoreResult};
pub use schedule::{MissedText, ScheduleText, Schedules, TickRequest, TickResult, Ticking};
pub use settle::{SettleBatch, SettleDone, SettleLease, SettleResult, SettleVerb};

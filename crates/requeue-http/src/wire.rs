//! The JSON of requests and responses.
//!
//! A request is read in two steps. First, serde checks its shape: if it is not JSON of the expected
//! shape, or has an unknown field, the whole request is rejected. Then each entry is converted to a
//! type of `requeue-jobs`, and an error names the field, such as `jobs[3].delay`.
//!
//! Reading takes memory in proportion to the text: a list ends the first step at its first entry
//! beyond the limit of a batch ([`list_limit`]), and nothing that is unknown or skipped is kept.
//!
//! Times in responses are in RFC 3339, in UTC, with milliseconds. Durations look like `1h30m`. Both
//! are exact, so a client reads the same value that the store returned.

mod change;
mod claim;
mod content;
mod count;
mod entry;
mod event;
mod filter;
#[cfg(test)]
mod fuzz;
mod job;
mod kind;
mod monitoring;
mod parse;
mod push;
mod put;
mod query;
mod reschedule;
mod restore;
mod schedule;
mod settle;
mod text;
mod word;

pub use change::{
    BulkChangeResult, BulkVerb, ChangeBatch, ChangeDone, ChangeEntry, ChangeIds, ChangeResult,
    ChangeVerb,
};
pub use claim::{ClaimRequest, ClaimResponse, ClaimedView, KindProblem, WaitRequest};
pub use content::BodyFields;
pub use count::{ErrorExample, ErrorGroup, ErrorGroups, JobCount};
pub use entry::{BatchErrors, EntryResult, Results};
pub use event::EventJson;
pub use filter::{BulkFilter, JobFilter, last_error};
pub use job::{
    DoneJson, FailureJson, JobJson, JobPage, LeaseJson, ResultJson, StateJson, SuccessorJson,
};
pub use kind::{
    BackoffJson, BackoffPatch, KeepDoneJson, KindDeleted, KindList, KindStats, RateJson,
    RateSetting, RetentionJson, RetentionPatch, SettingsJson, SettingsPatch,
};
pub use monitoring::{
    AccessJson, EXPIRED_IN_A_ROW, Forecast, ForecastQuery, Horizon, LATE_AFTER, NodeProblemJson,
    PushList, PushedKindJson, RecentJson, SchedulePage, SeriesJson, SeriesList, SeriesQuery,
    StatsJson, TroubleJson, WorkerJson, WorkerList,
};
pub use parse::{JsonObject, ParseContext, list_limit};
pub use push::{PushErrorJson, PushJson, PushStateJson};
pub use put::{PutBatch, PutDone, PutMode, PutOutcomeJson, PutRequest};
pub use query::{AfterQuery, CountQuery, JobOrder, JobQuery, JobsQuery, Upcoming, UpcomingQuery};
pub use reschedule::RescheduleRequest;
pub use restore::{ReapRequest, ReapResult, RestoreDone, RestoreRequest, RestoreResult};
pub use schedule::{MissedJson, OverlapJson, ScheduleJson, ScheduleRequest, Schedules};
pub use settle::{AckResult, SettleBatch, SettleDone, SettleLease, SettleResult, SettleVerb};
pub use text::{DurationText, TimeText};
pub use word::Word;

//! What a node reports about itself and its kinds: statistics, workers, time series, the forecast of
//! due jobs, and what the token of a request permits.
//!
//! Missing fields of a response have their default, because the server may be older than the client.

use super::push::{PushJson, PushStateJson};
use super::schedule::ScheduleJson;
use super::text::{DurationText, TimeText};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::time::Duration;

/// The age of the oldest ready job from which on a kind is [in trouble](TroubleJson), unless it is
/// paused.
pub const LATE_AFTER: Duration = Duration::from_secs(5 * 60);

/// The number of leases that have expired since a worker last settled one, from which on the worker
/// is [in trouble](TroubleJson).
pub const EXPIRED_IN_A_ROW: u64 = 3;

/// Statistics of the service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Stats))]
#[serde(default)]
pub struct StatsJson {
    /// Version of the server.
    pub version: String,
    /// Seconds since this node was started.
    pub uptime_seconds: u64,
    /// Number of kinds.
    pub kinds: usize,
    /// Number of waiting and ready jobs.
    pub pending: u64,
    /// Number of ready jobs, counted up to 10,000 per kind.
    pub ready: u64,
    /// Number of leased jobs.
    pub leased: u64,
    /// Number of dead jobs.
    pub dead: u64,
    /// Number of done jobs that are kept.
    pub done: u64,
    /// Number of requests that wait for work at this node. One for more than 16 kinds counts as
    /// several.
    pub waiting_claims: usize,
    /// What is wrong at this node, although it serves requests at least in part. Absent if nothing
    /// is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<NodeProblemJson>,
    /// Kinds and workers that need attention, although this node works: at most 100, the most serious
    /// first. Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 100))]
    pub trouble: Vec<TroubleJson>,
}

/// A kind or a worker that needs attention. A kind is listed once, with the first of these names that
/// applies.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Trouble))]
#[serde(default)]
pub struct TroubleJson {
    /// What is wrong. `not_delivered`: the webhook of the kind cannot be used. `circuit_open`: the
    /// target of the webhook cannot be reached, and jobs wait for it. `leases_expire`: at least three
    /// leases of the worker have expired since it last settled one. `late`: the oldest job of a kind
    /// that is not paused has been ready for at least five minutes.
    pub name: String,
    /// The kind. Absent for `leases_expire`.
    pub kind: Option<String>,
    /// The worker, for `leases_expire`.
    pub worker: Option<String>,
    /// What happens, with its numbers.
    pub detail: String,
    /// When the oldest ready job of the kind was due, in RFC 3339. Absent if no job is ready.
    pub oldest_ready: Option<TimeText>,
}

/// A problem of a node: of its store, or of a background task.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = NodeProblem))]
#[serde(default)]
pub struct NodeProblemJson {
    /// The name of the problem, such as `disk_full`.
    pub name: String,
    /// What happened, and what helps. `/readyz` omits it.
    pub detail: Option<String>,
    /// When it was first seen, in RFC 3339.
    pub since: TimeText,
}

/// The workers that recently claimed through a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerList {
    /// The workers, sorted by name.
    pub workers: Vec<WorkerJson>,
}

/// A worker, as one node has seen it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerJson {
    /// The name that the worker gives in its claims. Workers that share a name appear as one.
    pub name: String,
    /// The kinds of its last claim, at most the first 16.
    pub kinds: Vec<String>,
    /// When it first claimed or began to wait, in RFC 3339.
    pub first_seen: TimeText,
    /// When it last claimed, waited, or settled or extended a lease, in RFC 3339.
    pub last_seen: TimeText,
    /// The number of its claims that wait for jobs now.
    pub waiting: u32,
    /// The number of jobs that it has claimed.
    pub claimed: u64,
    /// The number of jobs that it has acked or requeued.
    pub acked: u64,
    /// The number of jobs that it has retried or buried, including retries that made the job dead.
    pub failed: u64,
    /// The number of leases that it has neither settled nor let expire.
    pub held: u64,
    /// The number of its leases that expired before it settled them, as far as this node has ended
    /// them.
    #[serde(default)]
    pub expired: u64,
    /// How many of those have expired since it last settled a lease.
    #[serde(default)]
    pub expired_in_a_row: u64,
}

/// Which time series to return.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct SeriesQuery {
    /// The span of time: `1h` (default) or `1d`.
    pub last: Option<String>,
    /// The kinds to return besides the total, separated by commas; `*` for all. Default: none.
    pub kinds: Option<String>,
}

/// What a node did in each step of the last hour or day.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct SeriesList {
    /// The start of the first step, in RFC 3339.
    pub from: TimeText,
    /// The length of a step: `1m` for the last hour, `15m` for the last day. The last step is not
    /// over yet.
    pub step: DurationText,
    /// The sums over all kinds.
    pub total: SeriesJson,
    /// The kinds of the request, sorted by name. A kind is missing if this node has not counted
    /// anything of it, or does not count it by itself.
    #[serde(default)]
    pub kinds: Vec<SeriesJson>,
}

/// What a node did with the jobs of one kind, or of all kinds, in each step. All lists have the same
/// length, and the oldest step is the first.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Series))]
#[serde(default)]
pub struct SeriesJson {
    /// The kind; missing in the total.
    pub kind: Option<String>,
    /// Accepted puts.
    pub put: Vec<u64>,
    /// Claimed jobs.
    pub claimed: Vec<u64>,
    /// Jobs that were acked or requeued.
    pub acked: Vec<u64>,
    /// Failed attempts: retries, buries, and leases that expired.
    pub failed: Vec<u64>,
    /// Jobs that became dead.
    pub dead: Vec<u64>,
    /// The median time in milliseconds between due time and claim, approximately; `null` in a step
    /// without claims.
    pub lateness_p50_ms: Vec<Option<u64>>,
    /// The 99th percentile of that time, approximately.
    pub lateness_p99_ms: Vec<Option<u64>>,
    /// The number of pending jobs at the end of the step; `null` if it was not counted.
    pub pending: Vec<Option<u64>>,
    /// The number of ready jobs at the end of the step, counted up to 10,000 per kind; `null` if it
    /// was not counted.
    pub ready: Vec<Option<u64>>,
    /// The last minute.
    pub recent: RecentJson,
}

/// What a node did in the last `seconds` seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RecentActivity))]
#[serde(default)]
pub struct RecentJson {
    /// The length of the span in seconds: divide a count by it to get a rate.
    pub seconds: u64,
    /// Accepted puts.
    pub put: u64,
    /// Claimed jobs.
    pub claimed: u64,
    /// Jobs that were acked or requeued.
    pub acked: u64,
    /// Failed attempts: retries, buries, and leases that expired.
    pub failed: u64,
    /// Jobs that became dead.
    pub dead: u64,
    /// The median time in milliseconds between due time and claim, approximately; `null` if nothing
    /// was claimed.
    pub lateness_p50_ms: Option<u64>,
    /// The 99th percentile of that time, approximately.
    pub lateness_p99_ms: Option<u64>,
}

/// Whose due jobs to count.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct ForecastQuery {
    /// Counts only jobs of this kind. Default: all kinds.
    pub kind: Option<String>,
}

/// How many jobs become due in the next minute, hour, day and week.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Forecast {
    /// The spans of time: `minute`, `hour`, `day` and `week`.
    pub horizons: Vec<Horizon>,
    /// The number of jobs that were due already, counted up to 10,000 per kind.
    pub ready: u64,
    /// The number of jobs that are due later than in a week.
    pub later: u64,
}

/// The number of jobs that become due in consecutive spans of time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct Horizon {
    /// `minute`, `hour`, `day` or `week`.
    pub name: String,
    /// The length of one span, such as `1m`.
    pub span: DurationText,
    /// The number of jobs in each span, the earliest first.
    pub counts: Vec<u64>,
    /// When the jobs were counted, in RFC 3339. The first span starts then.
    pub counted_at: TimeText,
}

/// What the token of a request permits.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Access))]
pub struct AccessJson {
    /// `full`: all requests. `read`: GET and HEAD only.
    pub access: String,
    /// Whether the server requires a token.
    pub restricted: bool,
    /// The name of the token, if the operator has given it one.
    pub name: Option<String>,
}

/// A page of the schedules of all kinds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SchedulePage {
    /// The schedules, sorted by kind and id.
    pub schedules: Vec<ScheduleJson>,
    /// The value to send as `after` to get the next page; `null` on the last page.
    pub cursor: Option<String>,
}

/// The kinds whose jobs the server sends to a URL.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PushList {
    /// The kinds, sorted by name.
    pub kinds: Vec<PushedKindJson>,
    /// The value to send as `after` to get the next page; `null` on the last page.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// A kind whose jobs the server sends to a URL.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PushedKind))]
pub struct PushedKindJson {
    /// The kind.
    pub kind: String,
    /// Number of waiting and ready jobs.
    pub pending: u64,
    /// Number of ready jobs, counted up to 10,000.
    pub ready: u64,
    /// Number of jobs whose delivery is in progress.
    pub leased: u64,
    /// Number of dead jobs.
    pub dead: u64,
    /// Whether the kind is paused.
    pub paused: bool,
    /// The setting, without secrets; `null` if it cannot be shown.
    pub push: Option<PushJson>,
    /// The deliveries by the node that responds.
    pub state: PushStateJson,
}

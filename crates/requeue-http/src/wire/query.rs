//! Query parameters for listing jobs, and the forecast of due jobs.

use super::change::JobFilter;
use super::job::StateJson;
use super::parse::ParseContext;
use crate::problem::{Problem, ProblemType};
use crate::times::{show_duration, show_time};
use requeue_jobs::limits::MAX_SPANS;
use requeue_jobs::{Invalid, Kind, Spans, TimeCursor, TimeQuery};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The order of a list of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum JobOrder {
    /// By id.
    #[default]
    Id,
    /// By time, the earliest first: waiting and ready jobs by their due time, leased jobs by the end
    /// of the lease, dead jobs by the time of death, done jobs by the time of the ack.
    Time,
    /// By the same time, the latest first.
    Newest,
}

/// The jobs to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct JobsQuery {
    /// Lists only jobs in this state. Default: any state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(inline))]
    pub state: Option<StateJson>,
    /// Lists only jobs whose id starts with this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Lists only jobs of exactly this priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(maximum = 9))]
    pub priority: Option<u8>,
    /// Lists only jobs whose last error contains this text. Upper and lower case are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Lists only jobs whose last error belongs to this group: the `error_group` of a group, or any
    /// error of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_group: Option<String>,
    /// If `true`, lists only jobs whose last failed attempt has no error, because its lease expired. If
    /// `false`, lists only other jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<bool>,
    /// Lists only dead jobs that died before this time, such as `2026-12-01T09:00:00Z` or `1h ago`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died_before: Option<String>,
    /// The order: `id` (default), `time` or `newest`. The last two need `state`: waiting and ready jobs
    /// are ordered by their due time, leased jobs by the end of the lease, dead jobs by the time of
    /// death, done jobs by the time of the ack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(inline))]
    pub order: Option<JobOrder>,
    /// Lists jobs after this position: the `cursor` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(min_length = 1, max_length = 544))]
    pub after: Option<String>,
    /// The maximum number of jobs to return, from 1 to 1000. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    pub limit: Option<usize>,
    /// The length of the longest body to return, in bytes, from 0 to 1048576. Longer bodies of jobs and
    /// successors, and longer results, are left out, and `body_bytes` contains their length. Default:
    /// all bodies are returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(maximum = 1048576))]
    pub body_limit: Option<usize>,
}

impl JobsQuery {
    /// Returns the filter without position and limit.
    pub fn filter(&self) -> JobFilter {
        JobFilter {
            state: self.state,
            prefix: self.prefix.clone(),
            priority: self.priority,
            error: self.error.clone(),
            error_group: self.error_group.clone(),
            expired: self.expired,
            died_before: self.died_before.clone(),
        }
    }

    /// Returns the query of a list by time, or `None` if jobs are listed by id.
    pub fn by_time(&self, kind: &Kind, limit: usize) -> Result<Option<TimeQuery>, Problem> {
        let newest_first = match self.order.unwrap_or_default() {
            JobOrder::Id => return Ok(None),
            JobOrder::Time => false,
            JobOrder::Newest => true,
        };
        let Some(state) = self.state else {
            let detail =
                "a list by time needs a state; add state=waiting, ready, leased, dead or done";
            return Err(Problem::new(ProblemType::Invalid, detail).at("order"));
        };
        let after = self.after.clone().map(TimeCursor::new).transpose();
        let after = after.map_err(|invalid| Problem::from(invalid).at("after"))?;
        Ok(Some(TimeQuery { kind: kind.clone(), state: state.into(), newest_first, after, limit }))
    }
}

/// The position from which a call continues.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct AfterQuery {
    /// The `cursor` of the previous response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(min_length = 1, max_length = 512))]
    pub after: Option<String>,
}

/// The spans of time for which due jobs are counted.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct UpcomingQuery {
    /// The start of the first span, such as `2026-12-01T09:00:00Z`. Default: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The length of each span; it must not be zero. Default: `1m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<String>,
    /// The number of spans, at most 1000. Default: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(maximum = 1000))]
    pub count: Option<usize>,
}

impl UpcomingQuery {
    /// Converts this query to spans.
    pub fn read(&self, context: &ParseContext) -> Result<Spans, Problem> {
        let from = self.from.as_deref().map(|text| context.time("from", text)).transpose()?;
        let length = context.optional_duration("span", self.span.as_deref())?;
        let length = length.unwrap_or(Duration::from_secs(60));
        if length.is_zero() {
            let detail = "the span must not be empty; write a length such as 1m";
            return Err(Problem::new(ProblemType::Invalid, detail).at("span"));
        }
        let (what, count, limit) = ("spans", self.count.unwrap_or(60), MAX_SPANS);
        if count > limit {
            return Err(Problem::from(Invalid::TooMany { what, count, limit }).at("count"));
        }
        Ok(Spans { from: from.unwrap_or(context.now), length, count })
    }
}

impl From<Spans> for UpcomingQuery {
    fn from(spans: Spans) -> Self {
        // Stores treat a length of zero as one millisecond.
        let length = spans.length.max(Duration::from_millis(1));
        UpcomingQuery {
            from: Some(show_time(spans.from)),
            span: Some(show_duration(length)),
            count: Some(spans.count),
        }
    }
}

/// The number of pending jobs that become due in each span of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Upcoming {
    /// The start of the first span, in RFC 3339.
    pub from: String,
    /// The length of each span, such as `1m`.
    pub span: String,
    /// The number of jobs that become due in each span.
    pub counts: Vec<u64>,
}

impl Upcoming {
    /// Returns the response for these spans and counts.
    pub fn new(spans: Spans, counts: Vec<u64>) -> Self {
        Upcoming { from: show_time(spans.from), span: show_duration(spans.length), counts }
    }
}

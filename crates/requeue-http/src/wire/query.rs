//! Query parameters for listing jobs, and the forecast of due jobs.

use super::filter::{JobFilter, with_filter};
use super::job::StateJson;
use super::parse::{ParseContext, invalid};
use super::text::{DurationText, TimeText, duration, time};
use super::word::words;
use crate::problem::{AtField, Problem};
use requeue_jobs::limits::MAX_SPANS;
use requeue_jobs::{Invalid, Kind, Spans, TimeCursor, TimeQuery};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::time::Duration;

words! {
    /// The order of a list of jobs.
    pub enum JobOrder as JobOrder, default Id {
        /// By id.
        Id = "id",
        /// By time, the earliest first: waiting and ready jobs by their due time, leased jobs by the end
        /// of the lease, dead jobs by the time of death, done jobs by the time of the ack.
        Time = "time",
        /// By the same time, the latest first.
        Newest = "newest",
    }
}

with_filter! {
    param,
    /// The jobs to list.
    #[skip_serializing_none]
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
    #[serde(default, deny_unknown_fields)]
    pub struct JobsQuery {
        /// The order: `id` (default), `time` or `newest`. The last two need `state`: waiting and ready
        /// jobs are ordered by their due time, leased jobs by the end of the lease, dead jobs by the time
        /// of death, done jobs by the time of the ack.
        #[cfg_attr(feature = "openapi", param(inline))]
        pub order: Option<JobOrder>,
        /// Lists jobs after this position: the `cursor` of the previous page.
        #[cfg_attr(feature = "openapi", param(min_length = 1, max_length = 544))]
        pub after: Option<String>,
        /// The maximum number of jobs to return, from 1 to 1000. Default: 100.
        #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
        pub limit: Option<usize>,
        /// The length of the longest body to return, in bytes, from 0 to 1048576. Longer bodies of jobs
        /// and successors, and longer results, are left out, and `body_bytes` contains their length.
        /// Default: all bodies are returned.
        #[cfg_attr(feature = "openapi", param(maximum = 1048576))]
        pub body_limit: Option<usize>,
        /// Whether to return the envelopes of jobs and successors. Default: `false`.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub envelope: bool,
    }
}

with_filter! {
    param,
    /// The jobs to count.
    #[skip_serializing_none]
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
    #[serde(default, deny_unknown_fields)]
    pub struct CountQuery {
        /// Counts jobs after this position: the `cursor` of the previous response.
        #[cfg_attr(feature = "openapi", param(min_length = 1, max_length = 512))]
        pub after: Option<String>,
    }
}

impl CountQuery {
    /// Counts the jobs that match, from this position on.
    pub fn new(filter: JobFilter, after: Option<String>) -> Self {
        let JobFilter { state, prefix, priority, error, error_group, expired, died_before } =
            filter;
        CountQuery { state, prefix, priority, error, error_group, expired, died_before, after }
    }
}

impl JobsQuery {
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
            return Err(invalid("order", detail));
        };
        let after = self.after.clone().map(TimeCursor::new).transpose().at("after")?;
        Ok(Some(TimeQuery { kind: kind.clone(), state: state.into(), newest_first, after, limit }))
    }
}

/// What to return of a job.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct JobQuery {
    /// Whether to return the envelopes of the job and of its successor. Default: `false`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub envelope: bool,
}

/// The position from which a call continues.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct AfterQuery {
    /// The `cursor` of the previous response.
    #[cfg_attr(feature = "openapi", param(min_length = 1, max_length = 512))]
    pub after: Option<String>,
}

/// The spans of time for which due jobs are counted.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct UpcomingQuery {
    /// The start of the first span, such as `2026-12-01T09:00:00Z`. Default: now.
    pub from: Option<TimeText>,
    /// The length of each span; it must not be zero. Default: `1m`.
    pub span: Option<DurationText>,
    /// The number of spans, at most 1000. Default: 60.
    #[cfg_attr(feature = "openapi", param(maximum = 1000))]
    pub count: Option<usize>,
}

impl UpcomingQuery {
    /// Converts this query to spans.
    pub fn read(&self, context: &ParseContext) -> Result<Spans, Problem> {
        let from = time("from", &self.from, context)?.unwrap_or(context.now);
        let length = duration("span", &self.span)?.unwrap_or(Duration::from_secs(60));
        if length.is_zero() {
            let detail = "the span must not be empty; write a length such as 1m";
            return Err(invalid("span", detail));
        }
        let (what, count, limit) = ("spans", self.count.unwrap_or(60), MAX_SPANS);
        if count > limit {
            return Err(Problem::from(Invalid::TooMany { what, count, limit }).at("count"));
        }
        Ok(Spans { from, length, count })
    }
}

impl From<Spans> for UpcomingQuery {
    fn from(spans: Spans) -> Self {
        let Spans { from, length, count } = spans;
        // Stores treat a length of zero as one millisecond.
        let span = length.max(Duration::from_millis(1)).into();
        UpcomingQuery { from: Some(from.into()), span: Some(span), count: Some(count) }
    }
}

/// The number of pending jobs that become due in each span of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Upcoming {
    /// The start of the first span, in RFC 3339.
    pub from: TimeText,
    /// The length of each span, such as `1m`.
    pub span: DurationText,
    /// The number of jobs that become due in each span.
    pub counts: Vec<u64>,
}

impl Upcoming {
    /// Returns the response for these spans and counts.
    pub fn new(spans: Spans, counts: Vec<u64>) -> Self {
        Upcoming { from: spans.from.into(), span: spans.length.into(), counts }
    }
}

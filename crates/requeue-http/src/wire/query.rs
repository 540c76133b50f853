//! Asking about jobs.

use super::change::All;
use super::job::State;
use super::reading::Reading;
use crate::problem::{Problem, Sort};
use crate::times::{show_duration, show_time};
use requeue_jobs::limits::MAX_SPANS;
use requeue_jobs::{Invalid, Spans};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Which jobs to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct JobsQuery {
    /// In this state. Default: in any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(inline))]
    pub state: Option<State>,
    /// Whose id begins with this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Whose last error contains this, whatever the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// That died before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died_before: Option<String>,
    /// Those behind this id: the cursor of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(min_length = 1, max_length = 512))]
    pub after: Option<String>,
    /// At most so many, and at most 1000. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    pub limit: Option<usize>,
}

impl JobsQuery {
    /// What a job must be.
    pub fn all(&self) -> All {
        All {
            state: self.state,
            prefix: self.prefix.clone(),
            error: self.error.clone(),
            died_before: self.died_before.clone(),
        }
    }
}

/// Where a call goes on that another began.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct AfterQuery {
    /// The cursor of the answer before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(min_length = 1, max_length = 512))]
    pub after: Option<String>,
}

/// Of which spans of time the load is asked.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct UpcomingQuery {
    /// When the first begins. Default: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// How long each is. Default: `1m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<String>,
    /// How many there are, at most 1000. Default: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(maximum = 1000))]
    pub count: Option<usize>,
}

impl UpcomingQuery {
    /// The spans that this means.
    pub fn read(&self, reading: &Reading) -> Result<Spans, Problem> {
        let from = self.from.as_deref().map(|text| reading.time("from", text)).transpose()?;
        let length = reading.maybe("span", self.span.as_deref())?;
        let length = length.unwrap_or(Duration::from_secs(60));
        if length.is_zero() {
            let detail = "a span of time must not be empty";
            return Err(Problem::new(Sort::Invalid, detail).at("span"));
        }
        let (what, count, limit) = ("spans", self.count.unwrap_or(60), MAX_SPANS);
        if count > limit {
            return Err(Problem::from(Invalid::TooMany { what, count, limit }).at("count"));
        }
        Ok(Spans { from: from.unwrap_or(reading.now), length, count })
    }
}

impl From<Spans> for UpcomingQuery {
    fn from(spans: Spans) -> Self {
        // A store counts none as a millisecond.
        let length = spans.length.max(Duration::from_millis(1));
        UpcomingQuery {
            from: Some(show_time(spans.from)),
            span: Some(show_duration(length)),
            count: Some(spans.count),
        }
    }
}

/// How many pending jobs fall due when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Upcoming {
    /// When the first span begins.
    pub from: String,
    /// How long each is.
    pub span: String,
    /// How many fall due in each.
    pub counts: Vec<u64>,
}

impl Upcoming {
    /// The answer to this question.
    pub fn new(spans: Spans, counts: Vec<u64>) -> Self {
        Upcoming { from: show_time(spans.from), span: show_duration(spans.length), counts }
    }
}

//! Counting jobs that match a filter, and the groups of their errors.

use super::change::JobFilter;
use super::job::StateJson;
use serde::{Deserialize, Serialize};

/// The jobs to count.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct CountQuery {
    /// Counts only jobs in this state. Default: any state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(inline))]
    pub state: Option<StateJson>,
    /// Counts only jobs whose id starts with this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Counts only jobs of exactly this priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(maximum = 9))]
    pub priority: Option<u8>,
    /// Counts only jobs whose last error contains this text. Upper and lower case are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Counts only jobs whose last error belongs to this group: the `error_group` of a group, or any
    /// error of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_group: Option<String>,
    /// If `true`, counts only jobs whose last failed attempt has no error, because its lease expired. If
    /// `false`, counts only other jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<bool>,
    /// Counts only dead jobs that died before this time, such as `2026-12-01T09:00:00Z` or `1h ago`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died_before: Option<String>,
    /// Counts jobs after this position: the `cursor` of the previous response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(min_length = 1, max_length = 512))]
    pub after: Option<String>,
}

impl CountQuery {
    /// Returns the filter without the position.
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
}

/// The number of jobs that match a filter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobCount {
    /// The number of jobs that match. If there is a cursor, only those that this call examined.
    pub matched: u64,
    /// The number of jobs that this call examined. 0 if the store has the count.
    pub scanned: u64,
    /// If there are more jobs to examine, the value to send as `after` in the next call; otherwise
    /// `null`.
    pub cursor: Option<String>,
}

/// The dead jobs of a kind, grouped by their last error.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorGroups {
    /// At most 100 groups, sorted by their counts, the largest first, and then by `error_group`.
    #[cfg_attr(feature = "openapi", schema(max_items = 100))]
    pub groups: Vec<ErrorGroup>,
    /// The number of examined jobs that belong to further groups.
    pub other: u64,
    /// The number of dead jobs that this call examined.
    pub scanned: u64,
    /// If there are more dead jobs to examine, the value to send as `after` in the next call; otherwise
    /// `null`.
    pub cursor: Option<String>,
}

/// Dead jobs with the same error, apart from numbers and ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorGroup {
    /// The first line of the error, with `*` instead of numbers and ids, at most 200 characters. `null`
    /// for jobs without an error, whose last lease expired.
    pub error_group: Option<String>,
    /// The number of jobs in the group, of those that this call examined.
    pub count: u64,
    /// The job of the group that died last.
    pub example: ErrorExample,
    /// The time at which the first of these jobs died, in RFC 3339.
    pub first_died_at: String,
    /// The time at which the last of these jobs died, in RFC 3339.
    pub last_died_at: String,
}

/// A job of a group of errors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorExample {
    /// The id of the job.
    pub id: String,
    /// Its last error; `null` if the lease expired.
    pub error: Option<String>,
}

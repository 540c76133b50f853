//! The numbers of jobs that match a filter, and the groups of their errors.

use super::text::TimeText;
use serde::{Deserialize, Serialize};

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
    pub first_died_at: TimeText,
    /// The time at which the last of these jobs died, in RFC 3339.
    pub last_died_at: TimeText,
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

//! Which jobs of a kind a request applies to: the conditions of lists, counts and changes.

use super::job::StateJson;
use super::parse::ParseContext;
use super::text::{TimeText, time};
use crate::error_group::error_group;
use crate::problem::{AtField, Problem};
use requeue_jobs::limits::{MAX_ERROR_LEN, MAX_ID_LEN};
use requeue_jobs::{Invalid, JobId, JobState, JobView, Kind, Priority, Query, Timestamp};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Declares a struct with the conditions of a [`JobFilter`] before its own fields, because serde's
/// `flatten` would read no numbers from a query string. `schema` or `param` is the OpenAPI attribute of its
/// fields.
macro_rules! with_filter {
    ($attribute:ident, $(#[$meta:meta])* pub struct $name:ident { $($own:tt)* }) => {
        $(#[$meta])*
        pub struct $name {
            /// Only jobs in this state. Default: any state.
            pub state: Option<StateJson>,
            /// Only jobs whose id starts with this text.
            pub prefix: Option<String>,
            /// Only jobs of exactly this priority.
            #[cfg_attr(feature = "openapi", $attribute(maximum = 9))]
            pub priority: Option<u8>,
            /// Only jobs whose last error contains this text. Upper and lower case are equal.
            pub error: Option<String>,
            /// Only jobs whose last error belongs to this group: the `error_group` of a group, or any
            /// error of the group.
            pub error_group: Option<String>,
            /// If `true`, only jobs whose last failed attempt has no error, because its lease expired. If
            /// `false`, only other jobs.
            pub expired: Option<bool>,
            /// Only dead jobs that died before this time, such as `2026-12-01T09:00:00Z` or `1h ago`.
            pub died_before: Option<TimeText>,
            $($own)*
        }

        impl $name {
            /// Returns the conditions.
            pub fn filter(&self) -> $crate::wire::JobFilter {
                $crate::wire::JobFilter {
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
    };
}
pub(super) use with_filter;

with_filter! {
    schema,
    /// A filter for jobs. A job matches if it matches every field that is set.
    #[skip_serializing_none]
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[serde(default, deny_unknown_fields)]
    pub struct JobFilter {}
}

impl JobFilter {
    /// Checks and parses the conditions. An error names its field.
    pub fn read(self, context: &ParseContext) -> Result<BulkFilter, Problem> {
        let JobFilter { state, prefix, priority, error, error_group: group, .. } = &self;
        // Longer ones match nothing, and a store would copy them for every page.
        for (name, field, text, limit) in [
            ("prefix", "the prefix", prefix, MAX_ID_LEN),
            ("error", "the text of the error", error, MAX_ERROR_LEN),
            ("error_group", "the group of errors", group, MAX_ERROR_LEN),
        ] {
            let len = text.as_ref().map_or(0, String::len);
            if len > limit {
                return Err(Problem::from(Invalid::TooLong { field, len, limit }).at(name));
            }
        }
        Ok(BulkFilter {
            state: state.map(JobState::from),
            prefix: prefix.clone().unwrap_or_default(),
            priority: priority.map(Priority::new).transpose().at("priority")?,
            error: error.as_deref().map(str::to_lowercase),
            error_group: group.as_deref().map(error_group),
            expired: self.expired,
            died_before: time("died_before", &self.died_before, context)?,
        })
    }
}

/// The conditions of a [`JobFilter`], checked and parsed.
#[derive(Debug, Clone, Default)]
pub struct BulkFilter {
    /// The state. A store lists by it.
    pub state: Option<JobState>,
    /// The beginning of the id. A store lists by it.
    pub prefix: String,
    /// The priority.
    pub priority: Option<Priority>,
    /// Text that the last error must contain, in lower case.
    pub error: Option<String>,
    /// The group of the last error.
    pub error_group: Option<String>,
    /// Whether the last failed attempt must have no error, or must not.
    pub expired: Option<bool>,
    /// Before which time the job must have died.
    pub died_before: Option<Timestamp>,
}

impl BulkFilter {
    /// Returns whether a job that a store listed by state and prefix matches the other conditions.
    pub fn matches(&self, job: &JobView) -> bool {
        let has_error = |text: &String| {
            last_error(job).is_some_and(|error| error.to_lowercase().contains(text.as_str()))
        };
        let is_in_group =
            |group: &String| last_error(job).is_some_and(|error| error_group(error) == *group);
        let died = |before| job.died_at.is_some_and(|at| at < before);
        self.priority.is_none_or(|priority| job.version.priority == priority)
            && self.expired.is_none_or(|expired| is_expired(job) == expired)
            && self.died_before.is_none_or(died)
            && self.error.as_ref().is_none_or(has_error)
            && self.error_group.as_ref().is_none_or(is_in_group)
    }

    /// Returns whether there are conditions that stores cannot list by.
    pub fn needs_scan(&self) -> bool {
        self.priority.is_some()
            || self.error.is_some()
            || self.error_group.is_some()
            || self.expired.is_some()
            || self.died_before.is_some()
    }

    /// Returns the query for the jobs that may match, without a limit for its pages.
    pub fn query(&self, kind: Kind, after: Option<JobId>) -> Query {
        Query { state: self.state, prefix: self.prefix.clone(), after, ..Query::new(kind) }
    }
}

/// Returns the error of the last failed attempt. `None` if there is none.
pub fn last_error(job: &JobView) -> Option<&str> {
    job.failures.last().and_then(|failure| failure.error.as_deref())
}

/// Returns whether the lease of the last failed attempt expired. A dead job that was restored without
/// failures counts as such, so that the dead jobs without an error are exactly those.
fn is_expired(job: &JobView) -> bool {
    let has_failed = !job.failures.is_empty() || job.state == JobState::Dead;
    has_failed && last_error(job).is_none()
}

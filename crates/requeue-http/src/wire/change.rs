//! Changing jobs by id, or all that match a filter.

use super::job::StateJson;
use super::parse::{
    ParseContext, objects, optional_ids, optional_object, optional_time_text, parse,
};
use super::reschedule::RescheduleRequest;
use crate::problem::{Problem, ProblemType};
use requeue_jobs::{
    Change, ChangeKind, Changed, Generation, JobId, Kind, Placed, PutOutcome, Timestamp,
};
use serde::{Deserialize, Serialize};

/// The operation to perform on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(
        description = "The operation to perform on a job: `cancel` removes it, if it is leased when its lease ends; `run-now` makes it due now; `revive` makes a dead job due now and resets its attempts; `reschedule` changes what `set` contains."
    )
)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeVerb {
    /// Removes the job. A leased job is removed when its lease ends.
    Cancel,
    /// Makes the job due now.
    RunNow,
    /// Makes a dead job due now and resets its attempts.
    Revive,
    /// Changes the due time, the priority or the body of the job.
    Reschedule,
}

/// A batch of changes to jobs of any kinds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeBatch {
    /// The changes, at most 1000.
    #[serde(deserialize_with = "objects")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub jobs: Vec<ChangeEntry>,
}

/// A change to one job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeEntry {
    /// The kind of the job.
    #[cfg_attr(feature = "openapi", schema(max_length = 128, pattern = "^[A-Za-z0-9._-]+$"))]
    pub kind: String,
    /// The id of the job.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub id: String,
    /// The operation to perform.
    pub what: ChangeVerb,
    /// Required with `reschedule`: what to change.
    #[serde(
        default,
        deserialize_with = "optional_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub set: Option<RescheduleRequest>,
}

impl ChangeEntry {
    /// Returns the length of the body as it is written in the request, in bytes. Converting this
    /// JSON takes that much work and memory.
    pub fn body_len(&self) -> usize {
        self.set.as_ref().map_or(0, RescheduleRequest::body_len)
    }

    /// Converts this entry to a change. `path` is the prefix of field names in errors.
    pub fn read(self, path: &str, context: &ParseContext) -> Result<Change, Problem> {
        self.read_fields(context).map_err(|problem| problem.within(path))
    }

    fn read_fields(self, context: &ParseContext) -> Result<Change, Problem> {
        let kind = parse("kind", &self.kind, |text| Kind::new(text))?;
        let id = parse("id", &self.id, |text| JobId::new(text))?;
        let wrong_set = |detail| Err(Problem::new(ProblemType::Invalid, detail).at("set"));
        let action = match (self.what, self.set) {
            (ChangeVerb::Cancel, None) => ChangeKind::Cancel,
            (ChangeVerb::RunNow, None) => ChangeKind::RunNow,
            (ChangeVerb::Revive, None) => ChangeKind::Revive,
            (ChangeVerb::Reschedule, Some(set)) => {
                ChangeKind::Reschedule(set.read("set.", context)?)
            }
            (ChangeVerb::Reschedule, None) => {
                return wrong_set("a reschedule requires this field");
            }
            (_, Some(_)) => return wrong_set("this field is only allowed with reschedule"),
        };
        Ok(Change { kind, id, action })
    }
}

impl From<Change> for ChangeEntry {
    fn from(change: Change) -> Self {
        let (kind, id) = (change.kind.as_str().to_owned(), change.id.as_str().to_owned());
        let (what, set) = match change.action {
            ChangeKind::Cancel => (ChangeVerb::Cancel, None),
            ChangeKind::RunNow => (ChangeVerb::RunNow, None),
            ChangeKind::Revive => (ChangeVerb::Revive, None),
            ChangeKind::Reschedule(set) => (ChangeVerb::Reschedule, Some(set.into())),
        };
        ChangeEntry { kind, id, what, set }
    }
}

/// The jobs of a kind to change: either `ids`, or `all` with a filter.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeIds {
    /// The ids of the jobs to change, at most 1000.
    #[serde(default, deserialize_with = "optional_ids", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub ids: Option<Vec<String>>,
    /// Changes all jobs that match this filter, instead of `ids`. `{}` matches every job of the kind.
    #[serde(
        default,
        deserialize_with = "optional_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub all: Option<JobFilter>,
    /// With `all`: the `cursor` of the previous response, to continue where that call stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub after: Option<String>,
    /// With `all`: the maximum number of jobs that this call changes, from 1 to 10,000. Default:
    /// 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 10000))]
    pub limit: Option<usize>,
}

/// A filter for jobs. A job matches if it matches every field that is set.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct JobFilter {
    /// Matches jobs in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateJson>,
    /// Matches jobs whose id starts with this text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Matches jobs of exactly this priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 9))]
    pub priority: Option<u8>,
    /// Matches jobs whose last error contains this text. Upper and lower case are equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Matches jobs whose last error belongs to this group: the `error_group` of a group, or any error
    /// of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_group: Option<String>,
    /// If `true`, matches jobs whose last failed attempt has no error, because its lease expired. If
    /// `false`, matches other jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired: Option<bool>,
    /// Matches dead jobs that died before this time, such as `2026-12-01T09:00:00Z` or `1h ago`.
    #[serde(
        default,
        deserialize_with = "optional_time_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub died_before: Option<String>,
}

impl JobFilter {
    /// Parses the time before which a job must have died. Fails with a problem that names `field`.
    pub fn died_before(
        &self,
        field: &str,
        context: &ParseContext,
    ) -> Result<Option<Timestamp>, Problem> {
        self.died_before.as_deref().map(|text| context.time(field, text)).transpose()
    }
}

/// The result of changing all jobs that match a filter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BulkChangeResult {
    /// The number of jobs that matched the filter.
    pub matched: u64,
    /// The number of jobs that were changed.
    pub changed: u64,
    /// The number of jobs that could not be changed, because they are leased, or because another
    /// client settled or changed them in the meantime.
    pub failed: u64,
    /// If there may be more matching jobs, the value to send as `after` in the next call; otherwise
    /// `null`.
    pub cursor: Option<String>,
}

/// The result of a change to one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChangeDone {
    /// What the change did.
    pub result: ChangeResult,
    /// The new generation of the job. Only for a reschedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
}

/// What a change did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(
        description = "What a change did: `removed`: the job was removed; `ending`: the job is leased and will be removed when its lease ends; `ready`: the job is now due; `revived`: the job was dead and is pending again; `updated`: the job was rescheduled; `coalesced`: the job is leased, and its successor was rescheduled; `other`: a result that this version does not know."
    )
)]
#[serde(rename_all = "lowercase")]
pub enum ChangeResult {
    /// The job was removed.
    Removed,
    /// The job is leased and will be removed when its lease ends.
    Ending,
    /// The job is now due.
    Ready,
    /// The job was dead and is pending again.
    Revived,
    /// The job was rescheduled.
    Updated,
    /// The job is leased, and its successor was rescheduled.
    Coalesced,
    /// A result that this version does not know.
    Other,
}

impl From<Changed> for ChangeDone {
    fn from(changed: Changed) -> Self {
        let mut generation = None;
        let result = match changed {
            Changed::Removed => ChangeResult::Removed,
            Changed::Ending => ChangeResult::Ending,
            Changed::Ready => ChangeResult::Ready,
            Changed::Revived => ChangeResult::Revived,
            Changed::Rescheduled(placed) => {
                generation = Some(placed.generation.0);
                match placed.outcome {
                    PutOutcome::Updated => ChangeResult::Updated,
                    PutOutcome::Coalesced => ChangeResult::Coalesced,
                    PutOutcome::Revived => ChangeResult::Revived,
                    PutOutcome::Created | PutOutcome::Kept => ChangeResult::Other,
                }
            }
            _ => ChangeResult::Other,
        };
        ChangeDone { result, generation }
    }
}

impl TryFrom<ChangeDone> for Changed {
    type Error = Problem;

    fn try_from(done: ChangeDone) -> Result<Self, Problem> {
        let rescheduled = |outcome, number| {
            Changed::Rescheduled(Placed { outcome, generation: Generation(number) })
        };
        Ok(match (done.result, done.generation) {
            (ChangeResult::Removed, None) => Changed::Removed,
            (ChangeResult::Ending, None) => Changed::Ending,
            (ChangeResult::Ready, None) => Changed::Ready,
            (ChangeResult::Revived, None) => Changed::Revived,
            (ChangeResult::Updated, Some(number)) => rescheduled(PutOutcome::Updated, number),
            (ChangeResult::Coalesced, Some(number)) => rescheduled(PutOutcome::Coalesced, number),
            (ChangeResult::Revived, Some(number)) => rescheduled(PutOutcome::Revived, number),
            _ => {
                return Err(Problem::new(
                    ProblemType::Bug,
                    "the result is unknown to this version",
                ));
            }
        })
    }
}

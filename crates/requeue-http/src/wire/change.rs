//! Changing jobs by id, or all that match a filter.

use super::filter::JobFilter;
use super::parse::{ParseContext, invalid, objects, optional_ids, optional_object};
use super::reschedule::RescheduleRequest;
use super::word::words;
use crate::problem::{AtField, Problem, ProblemType};
use requeue_jobs::{Change, ChangeKind, Changed, Generation, JobId, Kind, Placed, PutOutcome};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

words! {
    /// The operation to perform on a job.
    pub enum ChangeVerb as ChangeVerb {
        /// Removes the job. A leased job is removed when its lease ends.
        Cancel = "cancel",
        /// Makes the job due now.
        RunNow = "run-now",
        /// Makes a dead job due now and resets its attempts.
        Revive = "revive",
        /// Changes the due time, the priority or the body of the job, as `set` says.
        Reschedule = "reschedule",
    }
}

words! {
    /// An operation that one request can perform on all jobs that match a filter: the last segment of its
    /// path.
    pub enum BulkVerb as BulkVerb {
        /// Removes the jobs. Leased jobs are removed when their leases end.
        Cancel = "cancel",
        /// Makes the jobs due now.
        RunNow = "run-now",
        /// Makes dead jobs due now and resets their attempts.
        Revive = "revive",
    }
}

impl From<BulkVerb> for ChangeKind {
    fn from(verb: BulkVerb) -> Self {
        match verb {
            BulkVerb::Cancel => ChangeKind::Cancel,
            BulkVerb::RunNow => ChangeKind::RunNow,
            BulkVerb::Revive => ChangeKind::Revive,
        }
    }
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
#[skip_serializing_none]
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
    #[serde(default, deserialize_with = "optional_object")]
    pub set: Option<RescheduleRequest>,
}

impl ChangeEntry {
    /// Returns the length of the body as it is written in the request, in bytes. Converting this
    /// JSON takes that much work and memory.
    pub fn body_len(&self) -> usize {
        self.set.as_ref().map_or(0, |set| set.body_fields().len())
    }

    /// Converts this entry to a change. An error names its field.
    pub fn read(self, context: &ParseContext) -> Result<Change, Problem> {
        let ChangeEntry { kind, id, what, set } = self;
        let action = match (what, set) {
            (ChangeVerb::Cancel, None) => ChangeKind::Cancel,
            (ChangeVerb::RunNow, None) => ChangeKind::RunNow,
            (ChangeVerb::Revive, None) => ChangeKind::Revive,
            (ChangeVerb::Reschedule, Some(set)) => {
                ChangeKind::Reschedule(set.read(context).within("set.")?)
            }
            (ChangeVerb::Reschedule, None) => {
                return Err(invalid("set", "a reschedule requires this field"));
            }
            (_, Some(_)) => {
                return Err(invalid("set", "this field is only allowed with reschedule"));
            }
        };
        Ok(Change { kind: Kind::new(kind).at("kind")?, id: JobId::new(id).at("id")?, action })
    }
}

impl From<Change> for ChangeEntry {
    fn from(change: Change) -> Self {
        let Change { kind, id, action } = change;
        let (what, set) = match action {
            ChangeKind::Cancel => (ChangeVerb::Cancel, None),
            ChangeKind::RunNow => (ChangeVerb::RunNow, None),
            ChangeKind::Revive => (ChangeVerb::Revive, None),
            ChangeKind::Reschedule(set) => (ChangeVerb::Reschedule, Some(set.into())),
        };
        ChangeEntry { kind: kind.as_str().to_owned(), id: id.as_str().to_owned(), what, set }
    }
}

/// The jobs of a kind to change: either `ids`, or `all` with a filter.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ChangeIds {
    /// The ids of the jobs to change, at most 1000.
    #[serde(deserialize_with = "optional_ids")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub ids: Option<Vec<String>>,
    /// Changes all jobs that match this filter, instead of `ids`. `{}` matches every job of the kind.
    #[serde(deserialize_with = "optional_object")]
    pub all: Option<JobFilter>,
    /// With `all`: the `cursor` of the previous response, to continue where that call stopped.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub after: Option<String>,
    /// With `all`: the maximum number of jobs that this call changes, from 1 to 10,000. Default:
    /// 10,000.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 10000))]
    pub limit: Option<usize>,
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
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChangeDone {
    /// What the change did.
    pub result: ChangeResult,
    /// The new generation of the job. Only for a reschedule.
    pub generation: Option<u64>,
}

words! {
    /// What a change did.
    pub enum ChangeResult as ChangeResult {
        /// The job was removed.
        Removed = "removed",
        /// The job is leased and will be removed when its lease ends.
        Ending = "ending",
        /// The job is now due.
        Ready = "ready",
        /// The job was dead and is pending again.
        Revived = "revived",
        /// The job was rescheduled.
        Updated = "updated",
        /// The job is leased, and its successor was rescheduled.
        Coalesced = "coalesced",
        /// A result that this version does not know.
        Other = "other",
    }
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

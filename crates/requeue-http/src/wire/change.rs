//! Changing jobs by name.

use super::job::State;
use super::reading::{Reading, maybe_object, named, objects};
use crate::problem::{Problem, Sort};
use requeue_jobs::{Change, ChangeKind, Changed, JobId, Kind, Timestamp};
use serde::{Deserialize, Serialize};

/// What is to be done with a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ChangeVerb {
    /// Removes it. A leased one ends with its lease.
    Cancel,
    /// Makes it due now.
    RunNow,
    /// Lets a dead one start again.
    Revive,
}

impl From<ChangeVerb> for ChangeKind {
    fn from(verb: ChangeVerb) -> Self {
        match verb {
            ChangeVerb::Cancel => ChangeKind::Cancel,
            ChangeVerb::RunNow => ChangeKind::RunNow,
            ChangeVerb::Revive => ChangeKind::Revive,
        }
    }
}

impl From<ChangeKind> for ChangeVerb {
    fn from(what: ChangeKind) -> Self {
        match what {
            ChangeKind::Cancel => ChangeVerb::Cancel,
            ChangeKind::RunNow => ChangeVerb::RunNow,
            ChangeKind::Revive => ChangeVerb::Revive,
        }
    }
}

/// Changes of jobs of any kinds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeBatch {
    /// At most 1000.
    #[serde(deserialize_with = "objects")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub jobs: Vec<ChangeAny>,
}

/// A change of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeAny {
    /// Its kind.
    #[cfg_attr(feature = "openapi", schema(max_length = 128, pattern = "^[A-Za-z0-9._-]+$"))]
    pub kind: String,
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub id: String,
    /// What.
    pub what: ChangeVerb,
}

impl ChangeAny {
    /// The change that this means.
    pub fn read(self, path: &str) -> Result<Change, Problem> {
        let kind = named(&format!("{path}kind"), &self.kind, |text| Kind::new(text))?;
        let id = named(&format!("{path}id"), &self.id, |text| JobId::new(text))?;
        Ok(Change { kind, id, action: self.what.into() })
    }
}

impl From<Change> for ChangeAny {
    fn from(change: Change) -> Self {
        let (kind, id) = (change.kind.as_str().to_owned(), change.id.as_str().to_owned());
        ChangeAny { kind, id, what: change.action.into() }
    }
}

/// Which jobs of a kind: some by id, or all that match.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeIds {
    /// These, at most 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub ids: Option<Vec<String>>,
    /// All that match, instead.
    #[serde(default, deserialize_with = "maybe_object", skip_serializing_if = "Option::is_none")]
    pub all: Option<All>,
    /// With `all`: the cursor of the answer before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub after: Option<String>,
    /// With `all`: how many are changed at most by this call, and at most 10,000. Default: that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 10000))]
    pub limit: Option<usize>,
}

/// What a job must be to match. What is not said matches all.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct All {
    /// In this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Its id begins with this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Its last error contains this, whatever the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// It died before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died_before: Option<String>,
}

impl All {
    /// The time before which it died, read.
    pub fn died_before(
        &self,
        field: &str,
        reading: &Reading,
    ) -> Result<Option<Timestamp>, Problem> {
        self.died_before.as_deref().map(|text| reading.time(field, text)).transpose()
    }
}

/// What became of all that matched, or of as many as one call changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AllChanged {
    /// How many matched.
    pub matched: u64,
    /// How many were changed.
    pub changed: u64,
    /// How many could not be: they were settled or changed by others meanwhile, or are leased.
    pub failed: u64,
    /// Where the next call goes on. `null`: all were seen.
    pub cursor: Option<String>,
}

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChangeDone {
    /// What happened.
    pub result: ChangeResult,
}

/// What a change did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ChangeResult {
    /// It is gone.
    Removed,
    /// It is leased, and ends with its lease.
    Ending,
    /// It is due now.
    Ready,
    /// It was dead, and is due now.
    Revived,
    /// Something that this version does not know.
    Other,
}

impl From<Changed> for ChangeDone {
    fn from(changed: Changed) -> Self {
        let result = match changed {
            Changed::Removed => ChangeResult::Removed,
            Changed::Ending => ChangeResult::Ending,
            Changed::Ready => ChangeResult::Ready,
            Changed::Revived => ChangeResult::Revived,
            _ => ChangeResult::Other,
        };
        ChangeDone { result }
    }
}

impl TryFrom<ChangeDone> for Changed {
    type Error = Problem;

    fn try_from(done: ChangeDone) -> Result<Self, Problem> {
        Ok(match done.result {
            ChangeResult::Removed => Changed::Removed,
            ChangeResult::Ending => Changed::Ending,
            ChangeResult::Ready => Changed::Ready,
            ChangeResult::Revived => Changed::Revived,
            ChangeResult::Other => return Err(Problem::new(Sort::Bug, "an unknown result")),
        })
    }
}

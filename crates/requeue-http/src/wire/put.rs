//! Putting (enqueueing) jobs.

use super::content::{ContentJson, with_content};
use super::parse::{ParseContext, due_at, invalid, objects};
use super::text::{DurationText, TimeText, duration};
use super::word::words;
use crate::problem::{AtField, Problem};
use requeue_jobs::{
    Condition, Due, Generation, Invalid, JobId, Kind, Mode, Placed, Priority, Put, PutOutcome,
};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

with_content! {
    /// A job to put. It replaces the whole job: a field that is missing gets its default, and without a body
    /// the job has an empty one. `kind` and `id` are required unless the path contains them.
    #[skip_serializing_none]
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[serde(default, deny_unknown_fields)]
    pub struct PutRequest {
        /// The kind of the job: 1 to 128 of the characters `A-Z a-z 0-9 . _ -`.
        #[cfg_attr(feature = "openapi", schema(max_length = 128, pattern = "^[A-Za-z0-9._-]+$"))]
        pub kind: Option<String>,
        /// The id of the job: any text of 1 to 512 bytes in UTF-8. It is unique within the kind.
        #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
        pub id: Option<String>,
        ..content: Option<String>,
        /// The due time, such as `2026-12-01T09:00:00+01:00` or `tomorrow 09:00 Europe/Berlin`, at most
        /// 10 years from now. A time without a time zone is rejected. Default: now.
        pub due: Option<TimeText>,
        /// The delay until the job is due, such as `5m` or `1h30m`, at most 10 years. Use it instead of
        /// `due`.
        pub delay: Option<DurationText>,
        /// The priority, 0 to 9. Of the ready jobs of a kind, those with a higher priority are claimed
        /// first. Default: 0.
        #[cfg_attr(feature = "openapi", schema(maximum = 9))]
        pub priority: Option<u8>,
        /// What happens if a job with this kind and id is already pending. Default: `replace`.
        pub mode: Option<PutMode>,
        /// Required with mode `debounce`: the longest time by which puts can postpone the job, counted from
        /// its first put.
        pub max_wait: Option<DurationText>,
        /// If `true`, the put fails with the problem `exists` if a job with this kind and id exists in any
        /// state, including leased and dead, but not done. Default: `false`.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub if_absent: bool,
        /// If `true`, the put fails with the problem `exists` if a job with this kind and id exists in any
        /// state, including done. If the kind keeps done jobs, a repeated put does not run its job again.
        /// Default: `false`.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub if_new: bool,
        /// If set, the put fails with the problem `other-generation` unless this is the newest generation
        /// of the job.
        pub if_generation: Option<u64>,
    }
}

words! {
    /// What a put does to a job that is already pending, or to the successor of a leased job.
    pub enum PutMode as PutMode {
        /// Replaces body, due time and priority.
        Replace = "replace",
        /// Replaces the body and keeps the earlier of the two due times, and the higher priority.
        Earliest = "earliest",
        /// Changes nothing.
        Keep = "keep",
        /// Replaces body, due time and priority, but the due time is never later than `max_wait` after
        /// the first put.
        Debounce = "debounce",
    }
}

/// A batch of jobs to put.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PutBatch {
    /// The jobs, at most 1000. Their bodies have at most 16 MiB in total.
    #[serde(deserialize_with = "objects")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub jobs: Vec<PutRequest>,
}

/// The result of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PutDone {
    /// What the put did.
    pub outcome: PutOutcomeJson,
    /// The generation of this put. If the outcome is `kept`, the generation of the existing job.
    pub generation: u64,
}

words! {
    /// What a put did.
    pub enum PutOutcomeJson as PutOutcome, from PutOutcome {
        /// A new job was created.
        Created = "created",
        /// A pending job was updated.
        Updated = "updated",
        /// A job existed and was left unchanged.
        Kept = "kept",
        /// The job is leased. The put is now its successor and runs once after the lease ends.
        Coalesced = "coalesced",
        /// The job was dead and is pending again.
        Revived = "revived",
    }
}

impl PutRequest {
    /// Converts this request to a put. `kind` and `id` come from the URL path, if it contains them. An
    /// error names its field.
    pub fn read(
        mut self,
        kind: Option<&Kind>,
        id: Option<&JobId>,
        context: &ParseContext,
    ) -> Result<Put, Problem> {
        let content = self.take_content().read_new()?;
        let max_wait = duration("max_wait", &self.max_wait)?;
        let mode = match (self.mode.unwrap_or(PutMode::Replace), max_wait) {
            (PutMode::Debounce, Some(max_wait)) => Mode::Debounce { max_wait },
            (PutMode::Debounce, None) => {
                return Err(invalid("max_wait", "mode debounce requires max_wait, such as \"1h\""));
            }
            (_, Some(_)) => {
                return Err(invalid("max_wait", "max_wait is only allowed with mode debounce"));
            }
            (PutMode::Replace, None) => Mode::Replace,
            (PutMode::Earliest, None) => Mode::Earliest,
            (PutMode::Keep, None) => Mode::Keep,
        };
        let condition = match (self.if_absent, self.if_new, self.if_generation) {
            (false, false, None) => None,
            (true, false, None) => Some(Condition::IfAbsent),
            (false, true, None) => Some(Condition::IfNew),
            (false, false, Some(number)) => Some(Condition::IfGeneration(Generation(number))),
            (true, true, _) => return Err(both("if_new", "if_absent and if_new")),
            (true, ..) => return Err(both("if_absent", "if_absent and if_generation")),
            (_, true, _) => return Err(both("if_new", "if_new and if_generation")),
        };
        Ok(Put {
            kind: from_path_or_request("kind", kind, self.kind, Kind::new)?,
            id: from_path_or_request("id", id, self.id, JobId::new)?,
            content,
            due: read_due(&self.due, &self.delay, context)?.unwrap_or_default(),
            priority: Priority::new(self.priority.unwrap_or(0)).at("priority")?,
            mode,
            condition,
        })
    }
}

/// Reads a due time from the two fields of which at most one contains it.
pub(super) fn read_due(
    due: &Option<TimeText>,
    delay: &Option<DurationText>,
    context: &ParseContext,
) -> Result<Option<Due>, Problem> {
    Ok(match (due, delay) {
        (None, None) => None,
        (Some(due), None) => Some(due_at("due", Due::At(due.read("due", context)?), context)?),
        (None, Some(delay)) => Some(due_at("delay", Due::After(delay.read("delay")?), context)?),
        (Some(_), Some(_)) => return Err(both("due", "due and delay")),
    })
}

fn both(field: &str, names: &str) -> Problem {
    invalid(field, format!("only one of {names} is allowed"))
}

/// Returns the value from the URL path if there is one, and otherwise parses that of the request.
fn from_path_or_request<T: Clone>(
    field: &str,
    path: Option<&T>,
    request: Option<String>,
    make: impl FnOnce(String) -> Result<T, Invalid>,
) -> Result<T, Problem> {
    match (path, request) {
        (Some(path), None) => Ok(path.clone()),
        (None, Some(text)) => make(text).at(field),
        (Some(_), Some(_)) => Err(invalid(field, "remove this field: the path contains it")),
        (None, None) => Err(invalid(field, "this field is missing")),
    }
}

impl From<Put> for PutRequest {
    /// Returns a request that contains kind and id.
    fn from(put: Put) -> Self {
        let Put { kind, id, content, due, priority, mode, condition } = put;
        let (due, delay) = match due {
            Due::Now => (None, None),
            Due::After(delay) => (None, Some(delay.into())),
            Due::At(at) => (Some(at.into()), None),
        };
        let (mode, max_wait) = match mode {
            Mode::Replace => (None, None),
            Mode::Earliest => (Some(PutMode::Earliest), None),
            Mode::Keep => (Some(PutMode::Keep), None),
            Mode::Debounce { max_wait } => (Some(PutMode::Debounce), Some(max_wait.into())),
        };
        let if_generation = match condition {
            Some(Condition::IfGeneration(Generation(number))) => Some(number),
            _ => None,
        };
        PutRequest {
            kind: Some(kind.as_str().to_owned()),
            id: Some(id.as_str().to_owned()),
            due,
            delay,
            priority: Some(priority.get()).filter(|level| *level > 0),
            mode,
            max_wait,
            if_absent: condition == Some(Condition::IfAbsent),
            if_new: condition == Some(Condition::IfNew),
            if_generation,
            ..ContentJson::new(&content).into()
        }
    }
}

impl From<Placed> for PutDone {
    fn from(Placed { outcome, generation }: Placed) -> Self {
        PutDone { outcome: outcome.into(), generation: generation.0 }
    }
}

impl From<PutDone> for Placed {
    fn from(PutDone { outcome, generation }: PutDone) -> Self {
        Placed { outcome: outcome.into(), generation: Generation(generation) }
    }
}

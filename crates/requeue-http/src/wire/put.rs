//! Putting (enqueueing) jobs.

use super::parse::{
    ParseContext, any_json, check, fields_len, objects, optional_time_text, parse, read_new_body,
};
use crate::problem::{Problem, ProblemType};
use crate::times::{show_duration, show_time};
use requeue_jobs::json::BodyJson;
use requeue_jobs::{
    Condition, Due, Generation, Invalid, JobId, Kind, Mode, Placed, Priority, Put, PutOutcome,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A job to put. It replaces the whole job: a field that is missing gets its default, and without a body
/// the job has an empty one. `kind` and `id` are required unless the path contains them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PutRequest {
    /// The kind of the job: 1 to 128 of the characters `A-Z a-z 0-9 . _ -`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 128, pattern = "^[A-Za-z0-9._-]+$"))]
    pub kind: Option<String>,
    /// The id of the job: any text of 1 to 512 bytes in UTF-8. It is unique within the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub id: Option<String>,
    /// The body as any JSON value. It is stored byte for byte as sent, at most 1 MiB.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub body: Option<Box<RawValue>>,
    /// The body as text, instead of `body`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_text: Option<String>,
    /// The body as any bytes, in base64 with padding, instead of `body`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// The content type of the body, at most 128 bytes. Default: `application/json` for `body`,
    /// `text/plain; charset=utf-8` for `body_text`, otherwise `application/octet-stream`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 128))]
    pub content_type: Option<String>,
    /// The due time, such as `2026-12-01T09:00:00+01:00` or `tomorrow 09:00 Europe/Berlin`, at most
    /// 10 years from now. A time without a time zone is rejected. Default: now.
    #[serde(
        default,
        deserialize_with = "optional_time_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub due: Option<String>,
    /// The delay until the job is due, such as `5m` or `1h30m`, at most 10 years. Use it instead of
    /// `due`.
    #[serde(
        default,
        deserialize_with = "optional_time_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub delay: Option<String>,
    /// The priority, 0 to 9. Of the ready jobs of a kind, those with a higher priority are claimed
    /// first. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 9))]
    pub priority: Option<u8>,
    /// What happens if a job with this kind and id is already pending. Default: `replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<PutMode>,
    /// Required with mode `debounce`: the longest time by which puts can postpone the job, counted from
    /// its first put.
    #[serde(
        default,
        deserialize_with = "optional_time_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub max_wait: Option<String>,
    /// If `true`, the put fails with the problem `exists` if a job with this kind and id exists in any
    /// state, including leased and dead, but not done. Default: `false`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub if_absent: bool,
    /// If `true`, the put fails with the problem `exists` if a job with this kind and id exists in any
    /// state, including done. If the kind keeps done jobs, a repeated put does not run its job again.
    /// Default: `false`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub if_new: bool,
    /// If set, the put fails with the problem `other-generation` unless this is the newest generation
    /// of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_generation: Option<u64>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// What a put does to a job that is already pending, or to the successor of a leased job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(
        description = "What a put does to a job that is already pending, or to the successor of a leased job: `replace` replaces body, due time and priority; `earliest` replaces the body and keeps the earlier due time and the higher priority; `keep` changes nothing; `debounce` replaces body, due time and priority, but the due time is never later than `max_wait` after the first put."
    )
)]
#[serde(rename_all = "lowercase")]
pub enum PutMode {
    /// Replaces body, due time and priority.
    Replace,
    /// Replaces the body and keeps the earlier of the two due times, and the higher priority.
    Earliest,
    /// Changes nothing.
    Keep,
    /// Replaces body, due time and priority, but the due time is never later than `max_wait` after the first
    /// put.
    Debounce,
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

/// What a put did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PutOutcome))]
#[cfg_attr(
    feature = "openapi",
    schema(
        description = "What a put did: `created` a new job; `updated` a pending job; `kept` an existing job unchanged; `coalesced`: the job is leased, and the put is its successor; `revived` a dead job."
    )
)]
#[serde(rename_all = "lowercase")]
pub enum PutOutcomeJson {
    /// A new job was created.
    Created,
    /// A pending job was updated.
    Updated,
    /// A job existed and was left unchanged.
    Kept,
    /// The job is leased. The put is now its successor and runs once after the lease ends.
    Coalesced,
    /// The job was dead and is pending again.
    Revived,
}

impl PutRequest {
    /// Returns the length of the body as it is written in the request, in bytes. Converting this
    /// JSON takes that much work and memory.
    pub fn body_len(&self) -> usize {
        fields_len(&self.body, &self.body_text, &self.body_base64)
    }

    /// Converts this request to a put. `kind` and `id` come from the URL path, if it contains them.
    /// `path` is the prefix of field names in errors.
    pub fn read(
        self,
        path: &str,
        kind: Option<&Kind>,
        id: Option<&JobId>,
        context: &ParseContext,
    ) -> Result<Put, Problem> {
        self.read_fields(kind, id, context).map_err(|problem| problem.within(path))
    }

    fn read_fields(
        self,
        kind: Option<&Kind>,
        id: Option<&JobId>,
        context: &ParseContext,
    ) -> Result<Put, Problem> {
        let kind =
            from_path_or_request("kind", kind, self.kind.as_deref(), |text| Kind::new(text))?;
        let id = from_path_or_request("id", id, self.id.as_deref(), |text| JobId::new(text))?;
        let due = read_due(self.due.as_deref(), self.delay.as_deref(), context)?;
        let due = due.unwrap_or_default();
        let max_wait = context.optional_duration("max_wait", self.max_wait.as_deref())?;
        let mode = match (self.mode.unwrap_or(PutMode::Replace), max_wait) {
            (PutMode::Debounce, Some(max_wait)) => Mode::Debounce { max_wait },
            (PutMode::Debounce, None) => {
                let detail = "mode debounce requires max_wait, such as \"1h\"";
                return Err(Problem::new(ProblemType::Invalid, detail).at("max_wait"));
            }
            (_, Some(_)) => {
                let detail = "max_wait is only allowed with mode debounce";
                return Err(Problem::new(ProblemType::Invalid, detail).at("max_wait"));
            }
            (PutMode::Replace, None) => Mode::Replace,
            (PutMode::Earliest, None) => Mode::Earliest,
            (PutMode::Keep, None) => Mode::Keep,
        };
        let priority = check("priority", Priority::new(self.priority.unwrap_or(0)))?;
        let condition = match (self.if_absent, self.if_new, self.if_generation) {
            (false, false, None) => None,
            (true, false, None) => Some(Condition::IfAbsent),
            (false, true, None) => Some(Condition::IfNew),
            (false, false, Some(number)) => Some(Condition::IfGeneration(Generation(number))),
            (true, true, _) => return Err(both("if_new", "if_absent and if_new")),
            (true, ..) => return Err(both("if_absent", "if_absent and if_generation")),
            (_, true, _) => return Err(both("if_new", "if_new and if_generation")),
        };
        let PutRequest { body, body_text, body_base64, content_type, .. } = self;
        let content =
            read_new_body("", BodyJson { body, body_text, body_base64, content_type })?.into();
        Ok(Put { kind, id, content, due, priority, mode, condition })
    }
}

/// Reads a due time from the two fields of which at most one contains it.
pub(super) fn read_due(
    due: Option<&str>,
    delay: Option<&str>,
    context: &ParseContext,
) -> Result<Option<Due>, Problem> {
    Ok(match (due, delay) {
        (None, None) => None,
        (Some(due), None) => Some(context.due("due", Due::At(context.time("due", due)?))?),
        (None, Some(delay)) => {
            Some(context.due("delay", Due::After(context.duration("delay", delay)?))?)
        }
        (Some(_), Some(_)) => return Err(both("due", "due and delay")),
    })
}

fn both(field: &str, names: &str) -> Problem {
    Problem::new(ProblemType::Invalid, format!("only one of {names} is allowed")).at(field)
}

/// Returns the value from the URL path if there is one, and otherwise parses that of the request.
fn from_path_or_request<T: Clone>(
    field: &str,
    path: Option<&T>,
    request: Option<&str>,
    make: impl FnOnce(&str) -> Result<T, Invalid>,
) -> Result<T, Problem> {
    match (path, request) {
        (Some(path), None) => Ok(path.clone()),
        (None, Some(text)) => parse(field, text, make),
        (Some(_), Some(_)) => {
            Err(Problem::new(ProblemType::Invalid, "remove this field: the path contains it")
                .at(field))
        }
        (None, None) => Err(Problem::new(ProblemType::Invalid, "this field is missing").at(field)),
    }
}

impl From<Put> for PutRequest {
    /// Returns a request that contains kind and id.
    fn from(put: Put) -> Self {
        let BodyJson { body, body_text, body_base64, content_type } =
            BodyJson::new(&put.content.body);
        let (due, delay) = match put.due {
            Due::Now => (None, None),
            Due::After(delay) => (None, Some(show_duration(delay))),
            Due::At(at) => (Some(show_time(at)), None),
        };
        let (mode, max_wait) = match put.mode {
            Mode::Replace => (None, None),
            Mode::Earliest => (Some(PutMode::Earliest), None),
            Mode::Keep => (Some(PutMode::Keep), None),
            Mode::Debounce { max_wait } => (Some(PutMode::Debounce), Some(show_duration(max_wait))),
        };
        let if_generation = match put.condition {
            Some(Condition::IfGeneration(Generation(number))) => Some(number),
            _ => None,
        };
        PutRequest {
            kind: Some(put.kind.as_str().to_owned()),
            id: Some(put.id.as_str().to_owned()),
            body,
            body_text,
            body_base64,
            content_type,
            due,
            delay,
            priority: Some(put.priority.get()).filter(|level| *level > 0),
            mode,
            max_wait,
            if_absent: put.condition == Some(Condition::IfAbsent),
            if_new: put.condition == Some(Condition::IfNew),
            if_generation,
        }
    }
}

const OUTCOMES: [(PutOutcome, PutOutcomeJson); 5] = [
    (PutOutcome::Created, PutOutcomeJson::Created),
    (PutOutcome::Updated, PutOutcomeJson::Updated),
    (PutOutcome::Kept, PutOutcomeJson::Kept),
    (PutOutcome::Coalesced, PutOutcomeJson::Coalesced),
    (PutOutcome::Revived, PutOutcomeJson::Revived),
];

impl From<Placed> for PutDone {
    fn from(placed: Placed) -> Self {
        let (_, outcome) = OUTCOMES[placed.outcome as usize];
        PutDone { outcome, generation: placed.generation.0 }
    }
}

impl From<PutDone> for Placed {
    fn from(done: PutDone) -> Self {
        let (outcome, _) = OUTCOMES[done.outcome as usize];
        Placed { outcome, generation: Generation(done.generation) }
    }
}

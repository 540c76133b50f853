//! Putting jobs.

use super::body::{BodyText, any_json};
use super::reading::{Reading, named, objects};
use crate::problem::{Problem, Sort};
use crate::times::{show_duration, show_time};
use requeue_jobs::{
    Condition, Due, Generation, Invalid, JobId, Kind, Mode, Placed, Put, PutOutcome,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A job to be put. `kind` and `id` are here where the path does not say them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PutRequest {
    /// Its kind: at most 128 of `A-Z a-z 0-9 . _ -`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 128, pattern = "^[A-Za-z0-9._-]+$"))]
    pub kind: Option<String>,
    /// Its id: any text of at most 512 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub id: Option<String>,
    /// What it carries: any JSON, kept as it is written.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub body: Option<Box<RawValue>>,
    /// The same as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_text: Option<String>,
    /// The same as any bytes, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// What the body is. Default: `application/json`, `text/plain; charset=utf-8` or
    /// `application/octet-stream`, by how it is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 128))]
    pub content_type: Option<String>,
    /// When it is due: `2026-12-01T09:00:00+01:00`, `tomorrow 09:00 Europe/Berlin`. Default: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<String>,
    /// In how long it is due: `5m`, `1h30m`. Instead of `due`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// What becomes of a job that is pending already. Default: `replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<PutMode>,
    /// With `debounce`: how long after its first put it is due at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wait: Option<String>,
    /// Put it only if there is no such job, not even a leased or dead one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub if_absent: bool,
    /// Put it only if this is the newest generation of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_generation: Option<u64>,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// What becomes of a job that is pending already, or of a successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PutMode {
    /// Body and due time are replaced.
    Replace,
    /// The body is replaced, and the sooner time stays.
    Earliest,
    /// Nothing changes.
    Keep,
    /// The body is replaced, and the due time too, but never past `max_wait` after the first put.
    Debounce,
}

/// Jobs to be put.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PutBatch {
    /// At most 1000, with bodies of 16 MiB in all.
    #[serde(deserialize_with = "objects")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub jobs: Vec<PutRequest>,
}

/// What became of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PutDone {
    /// What happened.
    pub outcome: PutOutcomeText,
    /// The put's generation; where the job was kept, the old one.
    pub generation: u64,
}

/// What a put did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PutOutcomeText {
    /// There was no such job.
    Created,
    /// There was, waiting or ready.
    Updated,
    /// Nothing changed.
    Kept,
    /// It is leased: this is its successor now.
    Coalesced,
    /// It was dead.
    Revived,
}

impl PutRequest {
    /// The put that this means. Kind and id are those of the path, where it has them. `path` is
    /// what the names of fields begin with.
    pub fn read(
        self,
        path: &str,
        kind: Option<&Kind>,
        id: Option<&JobId>,
        reading: &Reading,
    ) -> Result<Put, Problem> {
        let at = |field: &str| format!("{path}{field}");
        let kind = of_path(&at("kind"), kind, self.kind.as_deref(), |text| Kind::new(text))?;
        let id = of_path(&at("id"), id, self.id.as_deref(), |text| JobId::new(text))?;
        let due = match (&self.due, &self.delay) {
            (None, None) => Due::Now,
            (Some(due), None) => {
                let field = at("due");
                reading.due(&field, Due::At(reading.time(&field, due)?))?
            }
            (None, Some(delay)) => {
                let field = at("delay");
                reading.due(&field, Due::After(reading.duration(&field, delay)?))?
            }
            (Some(_), Some(_)) => return Err(both(&at("due"), "due and delay")),
        };
        let max_wait = reading.maybe(&at("max_wait"), self.max_wait.as_deref())?;
        let mode = match (self.mode.unwrap_or(PutMode::Replace), max_wait) {
            (PutMode::Debounce, Some(max_wait)) => Mode::Debounce { max_wait },
            (PutMode::Debounce, None) => {
                let detail = "mode debounce needs max_wait, such as \"1h\"";
                return Err(Problem::new(Sort::Invalid, detail).at(at("max_wait")));
            }
            (_, Some(_)) => {
                let detail = "only mode debounce has max_wait";
                return Err(Problem::new(Sort::Invalid, detail).at(at("max_wait")));
            }
            (PutMode::Replace, None) => Mode::Replace,
            (PutMode::Earliest, None) => Mode::Earliest,
            (PutMode::Keep, None) => Mode::Keep,
        };
        let condition = match (self.if_absent, self.if_generation) {
            (false, None) => None,
            (true, None) => Some(Condition::IfAbsent),
            (false, Some(number)) => Some(Condition::IfGeneration(Generation(number))),
            (true, Some(_)) => return Err(both(&at("if_absent"), "if_absent and if_generation")),
        };
        let PutRequest { body, body_text, body_base64, content_type, .. } = self;
        let body = BodyText { body, body_text, body_base64, content_type }.read(path)?;
        Ok(Put { kind, id, body, due, mode, condition })
    }
}

fn both(field: &str, names: &str) -> Problem {
    Problem::new(Sort::Invalid, format!("only one of {names} may be there")).at(field)
}

/// What the path says, or the request does where it does not.
fn of_path<T: Clone>(
    field: &str,
    path: Option<&T>,
    request: Option<&str>,
    make: impl FnOnce(&str) -> Result<T, Invalid>,
) -> Result<T, Problem> {
    match (path, request) {
        (Some(path), None) => Ok(path.clone()),
        (None, Some(text)) => named(field, text, make),
        (Some(_), Some(_)) => {
            Err(Problem::new(Sort::Invalid, "the path says it already").at(field))
        }
        (None, None) => Err(Problem::new(Sort::Invalid, "this is missing").at(field)),
    }
}

impl From<Put> for PutRequest {
    /// With kind and id.
    fn from(put: Put) -> Self {
        let BodyText { body, body_text, body_base64, content_type } = (&put.body).into();
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
        let (if_absent, if_generation) = match put.condition {
            None => (false, None),
            Some(Condition::IfAbsent) => (true, None),
            Some(Condition::IfGeneration(Generation(number))) => (false, Some(number)),
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
            mode,
            max_wait,
            if_absent,
            if_generation,
        }
    }
}

const OUTCOMES: [(PutOutcome, PutOutcomeText); 5] = [
    (PutOutcome::Created, PutOutcomeText::Created),
    (PutOutcome::Updated, PutOutcomeText::Updated),
    (PutOutcome::Kept, PutOutcomeText::Kept),
    (PutOutcome::Coalesced, PutOutcomeText::Coalesced),
    (PutOutcome::Revived, PutOutcomeText::Revived),
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

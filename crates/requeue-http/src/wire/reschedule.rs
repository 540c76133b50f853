//! Rescheduling jobs: changing some of what a put sets.

use super::parse::{ParseContext, any_json, check, fields_len, optional_time_text, read_new_body};
use super::put::read_due;
use crate::problem::{Problem, ProblemType};
use crate::times::{show_duration, show_time};
use requeue_jobs::json::BodyJson;
use requeue_jobs::{Due, Generation, Priority, Reschedule};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;

/// What to change of a job: at least one of due time, priority and body. What is not named stays as
/// it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RescheduleRequest {
    /// The due time, such as `2026-12-01T09:00:00+01:00` or `tomorrow 09:00 Europe/Berlin`, at most
    /// 10 years from now. A time without a time zone is rejected.
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
    /// The priority, 0 to 9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 9))]
    pub priority: Option<u8>,
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
    /// The content type of the new body, at most 128 bytes. Default: `application/json` for `body`,
    /// `text/plain; charset=utf-8` for `body_text`, otherwise `application/octet-stream`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 128))]
    pub content_type: Option<String>,
    /// If set, the request fails with the problem `other-generation` unless this is the newest
    /// generation of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_generation: Option<u64>,
}

impl RescheduleRequest {
    /// Returns the length of the body as it is written in the request, in bytes. Converting this
    /// JSON takes that much work and memory.
    pub fn body_len(&self) -> usize {
        fields_len(&self.body, &self.body_text, &self.body_base64)
    }

    /// Converts this request to a reschedule. `path` is the prefix of field names in errors.
    pub fn read(self, path: &str, context: &ParseContext) -> Result<Reschedule, Problem> {
        self.read_fields(context).map_err(|problem| problem.within(path))
    }

    fn read_fields(self, context: &ParseContext) -> Result<Reschedule, Problem> {
        let due = read_due(self.due.as_deref(), self.delay.as_deref(), context)?;
        let priority = check("priority", self.priority.map(Priority::new).transpose())?;
        let RescheduleRequest { body, body_text, body_base64, content_type, .. } = self;
        let body = match (&body, &body_text, &body_base64, &content_type) {
            (None, None, None, None) => None,
            (None, None, None, Some(_)) => {
                let detail = "this field is only allowed together with a body";
                return Err(Problem::new(ProblemType::Invalid, detail).at("content_type"));
            }
            _ => Some(read_new_body("", BodyJson { body, body_text, body_base64, content_type })?),
        };
        let if_generation = self.if_generation.map(Generation);
        let set = Reschedule { due, priority, body, if_generation };
        if set.check().is_err() {
            let detail = "at least one of due, delay, priority and a body is required";
            return Err(Problem::new(ProblemType::Invalid, detail).at("due"));
        }
        Ok(set)
    }
}

impl From<Reschedule> for RescheduleRequest {
    fn from(set: Reschedule) -> Self {
        let Reschedule { due, priority, body, if_generation } = set;
        let (due, delay) = match due {
            None => (None, None),
            Some(Due::Now) => (None, Some(show_duration(Duration::ZERO))),
            Some(Due::After(delay)) => (None, Some(show_duration(delay))),
            Some(Due::At(at)) => (Some(show_time(at)), None),
        };
        let BodyJson { body, body_text, body_base64, content_type } = match &body {
            // One of the three fields is set, also if the body is empty.
            Some(body) => BodyJson::on_one_line(body),
            None => BodyJson::default(),
        };
        let priority = priority.map(Priority::get);
        let if_generation = if_generation.map(|Generation(number)| number);
        RescheduleRequest {
            due,
            delay,
            priority,
            body,
            body_text,
            body_base64,
            content_type,
            if_generation,
        }
    }
}

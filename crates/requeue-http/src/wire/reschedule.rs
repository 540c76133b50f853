//! Rescheduling jobs: changing some of what a put sets.

use super::content::{read_new_body, with_content};
use super::parse::{ParseContext, invalid};
use super::put::read_due;
use super::text::{DurationText, TimeText};
use crate::problem::{AtField, Problem};
use requeue_jobs::json::BodyJson;
use requeue_jobs::{Due, Generation, Priority, Reschedule};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::time::Duration;

with_content! {
    /// What to change of a job: at least one of due time, priority and body. What is not named stays as
    /// it is.
    #[skip_serializing_none]
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[serde(default, deny_unknown_fields)]
    pub struct RescheduleRequest {
        /// The due time, such as `2026-12-01T09:00:00+01:00` or `tomorrow 09:00 Europe/Berlin`, at most
        /// 10 years from now. A time without a time zone is rejected.
        pub due: Option<TimeText>,
        /// The delay until the job is due, such as `5m` or `1h30m`, at most 10 years. Use it instead of
        /// `due`.
        pub delay: Option<DurationText>,
        /// The priority, 0 to 9.
        #[cfg_attr(feature = "openapi", schema(maximum = 9))]
        pub priority: Option<u8>,
        ..body: Option<String>,
        /// If set, the request fails with the problem `other-generation` unless this is the newest
        /// generation of the job.
        pub if_generation: Option<u64>,
    }
}

impl RescheduleRequest {
    /// Converts this request to a reschedule. An error names its field.
    pub fn read(mut self, context: &ParseContext) -> Result<Reschedule, Problem> {
        let due = read_due(&self.due, &self.delay, context)?;
        let priority = self.priority.map(Priority::new).transpose().at("priority")?;
        let body = match self.take_body() {
            BodyJson { body: None, body_text: None, body_base64: None, content_type } => {
                if content_type.is_some() {
                    let detail = "this field is only allowed together with a body";
                    return Err(invalid("content_type", detail));
                }
                None
            }
            body => Some(read_new_body(body)?),
        };
        let if_generation = self.if_generation.map(Generation);
        let set = Reschedule { due, priority, body, if_generation };
        if set.check().is_err() {
            let detail = "at least one of due, delay, priority and a body is required";
            return Err(invalid("due", detail));
        }
        Ok(set)
    }
}

impl From<Reschedule> for RescheduleRequest {
    fn from(set: Reschedule) -> Self {
        let Reschedule { due, priority, body, if_generation } = set;
        let (due, delay) = match due {
            None => (None, None),
            Some(Due::Now) => (None, Some(Duration::ZERO.into())),
            Some(Due::After(delay)) => (None, Some(delay.into())),
            Some(Due::At(at)) => (Some(at.into()), None),
        };
        // One of the three fields is set, also if the body is empty.
        let body = body.as_ref().map(BodyJson::on_one_line).unwrap_or_default();
        let priority = priority.map(Priority::get);
        let if_generation = if_generation.map(|Generation(number)| number);
        RescheduleRequest { due, delay, priority, if_generation, ..body.into() }
    }
}

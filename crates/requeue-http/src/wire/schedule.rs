//! Schedules of a kind.

use super::parse::{ParseContext, any_json, parse, read_body, read_new_body};
use super::put::PutDone;
use crate::problem::{Problem, ProblemType};
use crate::times::show_time;
use requeue_jobs::json::BodyJson;
use requeue_jobs::{Body, Invalid, JobId, Kind, Missed, Schedule, Tick, Ticked};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A schedule of a kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Schedule))]
#[serde(deny_unknown_fields)]
pub struct ScheduleJson {
    /// The id of the schedule and of its jobs. In requests it is part of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// When the schedule runs, such as a cron expression; at most 256 bytes. The server stores it for
    /// the client that ticks the schedule, and does not interpret it. Default: empty.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(max_length = 256))]
    pub when: String,
    /// The time zone of `when`; at most 256 bytes. The server does not interpret it. Default: empty.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(max_length = 256))]
    pub time_zone: String,
    /// The body of the jobs as any JSON value.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub body: Option<Box<RawValue>>,
    /// The body of the jobs as text, instead of `body`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_text: Option<String>,
    /// The body of the jobs as any bytes, in base64 with padding, instead of `body`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// The content type of the body. Default: depends on the field that contains the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// What happens to times that passed while no client ticked the schedule. Default: `one`.
    #[serde(default)]
    pub missed: MissedJson,
    /// The next time at which the schedule puts a job, such as `2026-12-01T09:00:00Z`.
    pub next: String,
}

/// What happens to times that passed while no client ticked the schedule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Missed))]
#[cfg_attr(
    feature = "openapi",
    schema(
        description = "What happens to times that passed while no client ticked the schedule: `one` job is put for all of them together, or they are skipped with `skip`."
    )
)]
#[serde(rename_all = "lowercase")]
pub enum MissedJson {
    /// One job is put for all missed times together.
    #[default]
    One,
    /// No job is put for missed times.
    Skip,
}

/// The schedules of a kind, in the order of their ids.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schedules {
    /// The schedules.
    pub schedules: Vec<ScheduleJson>,
}

impl ScheduleJson {
    /// Converts this request to a schedule with the id of the path.
    pub fn read(self, id: JobId, context: &ParseContext) -> Result<Schedule, Problem> {
        self.read_with(id, context, read_new_body)
    }

    fn read_with(
        self,
        id: JobId,
        context: &ParseContext,
        read_body: fn(&str, BodyJson) -> Result<Body, Problem>,
    ) -> Result<Schedule, Problem> {
        let ScheduleJson { body, body_text, body_base64, content_type, .. } = self;
        let body = read_body("", BodyJson { body, body_text, body_base64, content_type })?;
        let missed = match self.missed {
            MissedJson::One => Missed::One,
            MissedJson::Skip => Missed::Skip,
        };
        let next = context.time("next", &self.next)?;
        let schedule =
            Schedule { id, when: self.when, time_zone: self.time_zone, body, missed, next };
        schedule.check().map_err(|invalid| {
            let is_zone = matches!(invalid, Invalid::TooLong { field: "the time zone", .. });
            Problem::from(invalid).at(if is_zone { "time_zone" } else { "when" })
        })?;
        Ok(schedule)
    }

    /// Converts this response, which contains the id, to a schedule.
    pub fn read_response(self, context: &ParseContext) -> Result<Schedule, Problem> {
        let id = self.id.clone().unwrap_or_default();
        self.read_with(parse("id", &id, |text| JobId::new(text))?, context, read_body)
    }
}

impl From<&Schedule> for ScheduleJson {
    fn from(schedule: &Schedule) -> Self {
        let body = BodyJson::new(&schedule.body);
        let BodyJson { body, body_text, body_base64, content_type } = body;
        ScheduleJson {
            id: Some(schedule.id.as_str().to_owned()),
            when: schedule.when.clone(),
            time_zone: schedule.time_zone.clone(),
            body,
            body_text,
            body_base64,
            content_type,
            missed: match schedule.missed {
                Missed::One => MissedJson::One,
                Missed::Skip => MissedJson::Skip,
            },
            next: show_time(schedule.next),
        }
    }
}

/// A tick: moves a schedule to its next time and optionally puts its job, in one atomic step.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TickRequest {
    /// The current `next` of the schedule. If it differs, the tick does nothing and returns `moved`.
    pub expected: String,
    /// The new `next` of the schedule.
    pub next: String,
    /// Whether the tick puts the job of the schedule.
    pub put: bool,
}

impl TickRequest {
    /// Converts this request to a tick of the schedule with this kind and id.
    pub fn read(&self, kind: Kind, id: JobId, context: &ParseContext) -> Result<Tick, Problem> {
        let expected = context.time("expected", &self.expected)?;
        let next = context.time("next", &self.next)?;
        Ok(Tick { kind, id, expected, next, put: self.put })
    }
}

impl From<&Tick> for TickRequest {
    fn from(tick: &Tick) -> Self {
        TickRequest {
            expected: show_time(tick.expected),
            next: show_time(tick.next),
            put: tick.put,
        }
    }
}

/// The result of a tick.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TickResult {
    /// What the tick did.
    pub result: TickOutcome,
    /// The result of the put, if the result is `put`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put: Option<PutDone>,
    /// The current `next` of the schedule, if the result is `moved`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What a tick did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(
        description = "What a tick did: `put`: the job was put, and the schedule moved to its next time; `skipped`: the schedule moved, and no job was put; `moved`: nothing was done, because another client ticked or changed the schedule first; `absent`: the schedule does not exist."
    )
)]
#[serde(rename_all = "lowercase")]
pub enum TickOutcome {
    /// The job was put, and the schedule was moved to its next time.
    Put,
    /// The schedule was moved to its next time, and no job was put.
    Skipped,
    /// Nothing was done: another client ticked the schedule first, or changed it.
    Moved,
    /// Nothing was done: the schedule does not exist.
    Absent,
}

impl From<Ticked> for TickResult {
    fn from(ticked: Ticked) -> Self {
        let (result, put, next) = match ticked {
            Ticked::Put(placed) => (TickOutcome::Put, Some(placed.into()), None),
            Ticked::Skipped => (TickOutcome::Skipped, None, None),
            Ticked::Moved(next) => (TickOutcome::Moved, None, Some(show_time(next))),
            Ticked::Absent => (TickOutcome::Absent, None, None),
        };
        TickResult { result, put, next }
    }
}

impl TickResult {
    /// Converts this response to the result of a tick.
    pub fn read(self, context: &ParseContext) -> Result<Ticked, Problem> {
        let missing =
            |field: &str| Problem::new(ProblemType::Bug, "the response lacks this field").at(field);
        Ok(match self.result {
            TickOutcome::Put => Ticked::Put(self.put.ok_or_else(|| missing("put"))?.into()),
            TickOutcome::Skipped => Ticked::Skipped,
            TickOutcome::Moved => {
                let next = self.next.ok_or_else(|| missing("next"))?;
                Ticked::Moved(context.time("next", &next)?)
            }
            TickOutcome::Absent => Ticked::Absent,
        })
    }
}

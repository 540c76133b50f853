//! Schedules, as a store keeps them.

use super::body::{BodyText, any_json};
use super::put::PutDone;
use super::reading::{Reading, named};
use crate::problem::{Problem, Sort};
use crate::times::show_time;
use requeue_jobs::{Invalid, JobId, Kind, Missed, Schedule, Tick, Ticked};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A schedule of a kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ScheduleText {
    /// Also the id of the jobs. In requests the path says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// When: for whoever ticks. At most 256 bytes, not looked at here.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(max_length = 256))]
    pub when: String,
    /// In which time zone. At most 256 bytes, not looked at here.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(max_length = 256))]
    pub time_zone: String,
    /// What the jobs carry, as JSON.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub body: Option<Box<RawValue>>,
    /// The same as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_text: Option<String>,
    /// The same as any bytes, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// What the body is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// What happens about times that passed while nobody ticked.
    #[serde(default)]
    pub missed: MissedText,
    /// The next time.
    pub next: String,
}

/// What happens about times that passed while nobody ticked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum MissedText {
    /// One job for all of them.
    #[default]
    One,
    /// None.
    Skip,
}

/// The schedules of a kind, by id.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schedules {
    /// The schedules.
    pub schedules: Vec<ScheduleText>,
}

impl ScheduleText {
    /// The schedule that this means, of this id.
    pub fn read(self, id: JobId, reading: &Reading) -> Result<Schedule, Problem> {
        let ScheduleText { body, body_text, body_base64, content_type, .. } = self;
        let body = BodyText { body, body_text, body_base64, content_type }.read("")?;
        let missed = match self.missed {
            MissedText::One => Missed::One,
            MissedText::Skip => Missed::Skip,
        };
        let next = reading.time("next", &self.next)?;
        let schedule =
            Schedule { id, when: self.when, time_zone: self.time_zone, body, missed, next };
        schedule.check().map_err(|invalid| {
            let is_zone = matches!(invalid, Invalid::TooLong { field: "the time zone", .. });
            Problem::from(invalid).at(if is_zone { "time_zone" } else { "when" })
        })?;
        Ok(schedule)
    }

    /// The schedule that an answer tells of.
    pub fn told(self, reading: &Reading) -> Result<Schedule, Problem> {
        let id = self.id.clone().unwrap_or_default();
        self.read(named("id", &id, |text| JobId::new(text))?, reading)
    }
}

impl From<&Schedule> for ScheduleText {
    fn from(schedule: &Schedule) -> Self {
        let BodyText { body, body_text, body_base64, content_type } = (&schedule.body).into();
        ScheduleText {
            id: Some(schedule.id.as_str().to_owned()),
            when: schedule.when.clone(),
            time_zone: schedule.time_zone.clone(),
            body,
            body_text,
            body_base64,
            content_type,
            missed: match schedule.missed {
                Missed::One => MissedText::One,
                Missed::Skip => MissedText::Skip,
            },
            next: show_time(schedule.next),
        }
    }
}

/// A step of a schedule.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TickRequest {
    /// What its next time should be.
    pub expected: String,
    /// What its next time shall be.
    pub next: String,
    /// Whether a job is put.
    pub put: bool,
}

impl TickRequest {
    /// The step that this means.
    pub fn read(&self, kind: Kind, id: JobId, reading: &Reading) -> Result<Tick, Problem> {
        let expected = reading.time("expected", &self.expected)?;
        let next = reading.time("next", &self.next)?;
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

/// What a tick did.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TickResult {
    /// What happened.
    pub result: Ticking,
    /// What became of the put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub put: Option<PutDone>,
    /// The schedule's next time, where another was first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What a tick did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Ticking {
    /// The job was put, and the schedule moved on.
    Put,
    /// The schedule moved on, and no job was put.
    Skipped,
    /// Another was first, or the schedule was changed.
    Moved,
    /// There is no such schedule.
    Absent,
}

impl From<Ticked> for TickResult {
    fn from(ticked: Ticked) -> Self {
        let (result, put, next) = match ticked {
            Ticked::Put(placed) => (Ticking::Put, Some(placed.into()), None),
            Ticked::Skipped => (Ticking::Skipped, None, None),
            Ticked::Moved(next) => (Ticking::Moved, None, Some(show_time(next))),
            Ticked::Absent => (Ticking::Absent, None, None),
        };
        TickResult { result, put, next }
    }
}

impl TickResult {
    /// What this tells.
    pub fn read(self, reading: &Reading) -> Result<Ticked, Problem> {
        let missing = |field: &str| Problem::new(Sort::Bug, "this is missing").at(field);
        Ok(match self.result {
            Ticking::Put => Ticked::Put(self.put.ok_or_else(|| missing("put"))?.into()),
            Ticking::Skipped => Ticked::Skipped,
            Ticking::Moved => {
                let next = self.next.ok_or_else(|| missing("next"))?;
                Ticked::Moved(reading.time("next", &next)?)
            }
            Ticking::Absent => Ticked::Absent,
        })
    }
}

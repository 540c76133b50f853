//! Schedules of a kind.

use super::parse::{
    ParseContext, any_json, check, nullable, nullable_time_text, optional_time_text, parse,
    read_body, read_new_body,
};
use crate::problem::{Problem, ProblemType};
use crate::times::{show_duration, show_time};
use requeue_jobs::json::BodyJson;
use requeue_jobs::{
    Body, JobId, Missed, Priority, Schedule, ScheduleSpec, ScheduleTimes, ScheduleView,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;

/// The time zone of a cron expression, if none is specified.
const DEFAULT_ZONE: &str = "UTC";

/// A schedule to set, or what to change about one. Fields that are missing stay as they are with
/// `PATCH`, and get their default with `PUT`, which requires `cron` or `every`. A field that is `null`
/// gets its default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ScheduleRequest {
    /// When the schedule runs: five fields, or six with seconds first, such as `0 9 * * MON-FRI`; or
    /// `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 1024))]
    pub cron: Option<String>,
    /// With `cron`: its time zone, such as `Europe/Berlin`. Default: `UTC`.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, max_length = 1024))]
    pub time_zone: Option<Option<String>>,
    /// The period of the schedule, such as `90s`, instead of `cron`: from `1s` to 10 years.
    #[serde(
        default,
        deserialize_with = "optional_time_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub every: Option<String>,
    /// The body of the jobs as any JSON value. `{{scheduled_at}}` in a body of JSON or text is
    /// replaced by the time of the run.
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
    #[cfg_attr(feature = "openapi", schema(max_length = 128))]
    pub content_type: Option<String>,
    /// The priority of the jobs, 0 to 9. Default: 0.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u8>, maximum = 9))]
    pub priority: Option<Option<u8>>,
    /// The runs are up to this much later than the times, by an amount that is the same for all runs
    /// of the schedule; at most `1d`, and at most `every`. Default: `0s`.
    #[serde(
        default,
        deserialize_with = "nullable_time_text",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub jitter: Option<Option<String>>,
    /// What happens with runs that were missed because no server was running. Default: `one`.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<MissedJson>))]
    pub missed: Option<Option<MissedJson>>,
    /// Runs that were missed longer ago than this are skipped; at most 10 years. Not allowed with
    /// `skip`. Default: `1d` with `all`, and no limit with `one`.
    #[serde(
        default,
        deserialize_with = "nullable_time_text",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub catch_up: Option<Option<String>>,
    /// Whether a run may begin while an earlier one goes on. Default: `none`.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<OverlapJson>))]
    pub overlap: Option<Option<OverlapJson>>,
    /// Whether the schedule is paused. Runs of that time are not made up for. Default: `false`.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>))]
    pub paused: Option<Option<bool>>,
    /// The schedule does not run before this time, such as `2026-12-01T09:00:00Z`. A period is counted
    /// from it. Default: `null`.
    #[serde(
        default,
        deserialize_with = "nullable_time_text",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub starts_at: Option<Option<String>>,
    /// The schedule does not run after this time, such as `2026-12-31T23:59:59Z`. Default: `null`.
    #[serde(
        default,
        deserialize_with = "nullable_time_text",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub ends_at: Option<Option<String>>,
}

/// A schedule of a kind, with its next times.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Schedule))]
pub struct ScheduleJson {
    /// The kind of its jobs.
    pub kind: String,
    /// The id of the schedule.
    pub id: String,
    /// The cron expression, unless the schedule has a period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// The time zone of the cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// The period, unless the schedule has a cron expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// The body of the jobs, if it is JSON.
    #[serde(default, deserialize_with = "any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub body: Option<Box<RawValue>>,
    /// The body of the jobs, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_text: Option<String>,
    /// The body of the jobs in base64, if it is neither JSON nor text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_base64: Option<String>,
    /// The content type of the body.
    pub content_type: String,
    /// The priority of the jobs.
    #[serde(default)]
    pub priority: u8,
    /// The runs are up to this much later than the times.
    pub jitter: String,
    /// What happens with runs that were missed.
    pub missed: MissedJson,
    /// Runs that were missed longer ago than this are skipped; `null` for the default.
    #[serde(default)]
    pub catch_up: Option<String>,
    /// Whether a run may begin while an earlier one goes on.
    #[serde(default)]
    pub overlap: OverlapJson,
    /// Whether the schedule is paused.
    #[serde(default)]
    pub paused: bool,
    /// The schedule does not run before this time.
    #[serde(default)]
    pub starts_at: Option<String>,
    /// The schedule does not run after this time.
    #[serde(default)]
    pub ends_at: Option<String>,
    /// When the schedule runs next. Missing if it is paused, has no more runs, or has a `problem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Its next five times. A paused schedule has them too, although it will not run then.
    #[serde(default)]
    pub next_times: Vec<String>,
    /// Why the schedule cannot run, for example because the server does not know its time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What happens with runs that were missed because no server was running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Missed))]
#[cfg_attr(
    feature = "openapi",
    schema(
        description = "What happens with runs that were missed because no server was running: `one` job is put for all of them together, they are skipped with `skip`, or a job is put for each of them, one after the other, with `all`."
    )
)]
#[serde(rename_all = "lowercase")]
pub enum MissedJson {
    /// One job is put for all missed runs together.
    #[default]
    One,
    /// No job is put for missed runs.
    Skip,
    /// A job is put for each missed run.
    All,
}

/// Whether a run may begin while an earlier one goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Overlap))]
#[cfg_attr(
    feature = "openapi",
    schema(
        description = "Whether a run may begin while an earlier one goes on: with `none`, all runs have the job id of the schedule, and a run that falls due during another one follows it, once; with `allow`, the job id of a run contains its time."
    )
)]
#[serde(rename_all = "lowercase")]
pub enum OverlapJson {
    /// Runs do not overlap: a run that falls due during another one follows it, once.
    #[default]
    None,
    /// Runs may overlap: the job id of a run is that of the schedule with its time.
    Allow,
}

/// The schedules of a kind, in the order of their ids.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schedules {
    /// The schedules.
    pub schedules: Vec<ScheduleJson>,
}

const MISSED: [(Missed, MissedJson); 3] = [
    (Missed::One, MissedJson::One),
    (Missed::Skip, MissedJson::Skip),
    (Missed::All, MissedJson::All),
];

impl From<Missed> for MissedJson {
    fn from(missed: Missed) -> Self {
        MISSED[missed as usize].1
    }
}

impl From<MissedJson> for Missed {
    fn from(missed: MissedJson) -> Self {
        MISSED[missed as usize].0
    }
}

impl From<bool> for OverlapJson {
    /// Converts whether runs may overlap.
    fn from(is_allowed: bool) -> Self {
        if is_allowed { OverlapJson::Allow } else { OverlapJson::None }
    }
}

fn invalid(field: &str, detail: &str) -> Problem {
    Problem::new(ProblemType::Invalid, detail).at(field)
}

/// Stores keep durations in milliseconds.
fn in_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

impl ScheduleRequest {
    /// Returns the new schedule of a `PUT`. Fails with a problem that names the field.
    pub fn create(&self, context: &ParseContext) -> Result<ScheduleSpec, Problem> {
        // The times are set below.
        self.apply_to(None, ScheduleSpec::every(Duration::ZERO), context)
    }

    /// Returns `spec` with the changes of a `PATCH`. Fails with a problem that names the field.
    pub fn change(
        &self,
        spec: ScheduleSpec,
        context: &ParseContext,
    ) -> Result<ScheduleSpec, Problem> {
        self.apply_to(Some(&spec.times.clone()), spec, context)
    }

    fn apply_to(
        &self,
        present: Option<&ScheduleTimes>,
        mut spec: ScheduleSpec,
        context: &ParseContext,
    ) -> Result<ScheduleSpec, Problem> {
        spec.times = self.times(present, context)?;
        spec.content.body = self.new_body(spec.content.body)?;
        if let Some(priority) = self.priority {
            spec.priority = check("priority", Priority::new(priority.unwrap_or_default()))?;
        }
        let duration = |field: &str, text: &Option<String>| {
            let duration = context.optional_duration(field, text.as_deref())?;
            Ok::<_, Problem>(duration.map(in_millis))
        };
        if let Some(jitter) = &self.jitter {
            spec.jitter = duration("jitter", jitter)?.unwrap_or_default();
        }
        if let Some(missed) = self.missed {
            spec.missed = missed.unwrap_or_default().into();
        }
        if let Some(catch_up) = &self.catch_up {
            spec.catch_up = duration("catch_up", catch_up)?;
        }
        if let Some(overlap) = self.overlap {
            spec.allow_overlap = overlap == Some(OverlapJson::Allow);
        }
        if let Some(paused) = self.paused {
            spec.paused = paused.unwrap_or_default();
        }
        for (field, text, at) in [
            ("starts_at", &self.starts_at, &mut spec.starts_at),
            ("ends_at", &self.ends_at, &mut spec.ends_at),
        ] {
            if let Some(text) = text {
                *at = text.as_deref().map(|text| context.time(field, text)).transpose()?;
            }
        }
        Ok(spec)
    }

    fn times(
        &self,
        present: Option<&ScheduleTimes>,
        context: &ParseContext,
    ) -> Result<ScheduleTimes, Problem> {
        let (mut expression, mut zone) = (None, None);
        if let Some(ScheduleTimes::Cron { expression: old, time_zone }) = present {
            (expression, zone) = (Some(&**old), Some(&**time_zone));
        }
        match (&self.cron, &self.every) {
            (Some(_), Some(_)) => {
                return Err(invalid("every", "only one of cron and every is allowed"));
            }
            (Some(cron), None) => expression = Some(cron.trim()),
            (None, _) => {}
        }
        let period = match (&self.every, present) {
            (Some(every), _) => Some(in_millis(context.duration("every", every)?)),
            (None, Some(ScheduleTimes::Every(period))) if self.cron.is_none() => Some(*period),
            _ => None,
        };
        match (period, expression) {
            (Some(_), _) if self.time_zone.as_ref().is_some_and(Option::is_some) => {
                Err(invalid("time_zone", "a time zone is only allowed with cron"))
            }
            (Some(period), _) => Ok(ScheduleTimes::Every(period)),
            (None, Some(expression)) => {
                let zone = self.time_zone.as_ref().map_or(zone, Option::as_deref);
                let zone = zone.unwrap_or(DEFAULT_ZONE);
                Ok(ScheduleSpec::cron(expression, zone).times)
            }
            (None, None) => Err(invalid("cron", "cron or every is required")),
        }
    }

    /// Returns the new body. If only the content type is given, the bytes stay.
    fn new_body(&self, present: Body) -> Result<Body, Problem> {
        let fields = BodyJson {
            body: self.body.clone(),
            body_text: self.body_text.clone(),
            body_base64: self.body_base64.clone(),
            content_type: self.content_type.clone(),
        };
        match (&fields.body, &fields.body_text, &fields.body_base64, &fields.content_type) {
            (None, None, None, None) => Ok(present),
            (None, None, None, Some(content_type)) => {
                check("content_type", Body::new(present.bytes(), content_type.as_str()))
            }
            _ => read_new_body("", fields),
        }
    }
}

impl From<&ScheduleSpec> for ScheduleRequest {
    /// Returns a request that sets every field.
    fn from(spec: &ScheduleSpec) -> Self {
        let BodyJson { body, body_text, body_base64, content_type } =
            BodyJson::new(&spec.content.body);
        let (cron, time_zone, every) = match &spec.times {
            ScheduleTimes::Cron { expression, time_zone } => {
                (Some(expression.clone()), Some(Some(time_zone.clone())), None)
            }
            ScheduleTimes::Every(period) => (None, None, Some(show_duration(*period))),
        };
        ScheduleRequest {
            cron,
            time_zone,
            every,
            body,
            body_text,
            body_base64,
            content_type,
            priority: Some(Some(spec.priority.get())),
            jitter: Some(Some(show_duration(spec.jitter))),
            missed: Some(Some(spec.missed.into())),
            catch_up: Some(spec.catch_up.map(show_duration)),
            overlap: Some(Some(spec.allow_overlap.into())),
            paused: Some(Some(spec.paused)),
            starts_at: Some(spec.starts_at.map(show_time)),
            ends_at: Some(spec.ends_at.map(show_time)),
        }
    }
}

impl From<&ScheduleView> for ScheduleJson {
    fn from(view: &ScheduleView) -> Self {
        let spec = &view.spec;
        let (cron, time_zone, every) = match &spec.times {
            ScheduleTimes::Cron { expression, time_zone } => {
                (Some(expression.clone()), Some(time_zone.clone()), None)
            }
            ScheduleTimes::Every(period) => (None, None, Some(show_duration(*period))),
        };
        let BodyJson { body, body_text, body_base64, .. } = BodyJson::new(&spec.content.body);
        ScheduleJson {
            kind: view.kind.as_str().to_owned(),
            id: view.id.as_str().to_owned(),
            cron,
            time_zone,
            every,
            body,
            body_text,
            body_base64,
            content_type: spec.content.body.content_type().to_owned(),
            priority: spec.priority.get(),
            jitter: show_duration(spec.jitter),
            missed: spec.missed.into(),
            catch_up: spec.catch_up.map(show_duration),
            overlap: spec.allow_overlap.into(),
            paused: spec.paused,
            starts_at: spec.starts_at.map(show_time),
            ends_at: spec.ends_at.map(show_time),
            next: view.next.map(show_time),
            next_times: view.next_times.iter().copied().map(show_time).collect(),
            problem: view.problem.as_ref().map(ToString::to_string),
        }
    }
}

impl ScheduleJson {
    /// Converts this response to a schedule, as a store keeps it.
    pub fn read(self, context: &ParseContext) -> Result<Schedule, Problem> {
        let id = parse("id", &self.id, |text| JobId::new(text))?;
        let mut spec = match (&self.cron, &self.every) {
            (None, Some(every)) => ScheduleSpec::every(context.duration("every", every)?),
            (Some(cron), None) => {
                ScheduleSpec::cron(cron, self.time_zone.as_deref().unwrap_or(DEFAULT_ZONE))
            }
            _ => return Err(invalid("cron", "either cron or every is expected")),
        };
        let ScheduleJson { body, body_text, body_base64, content_type, .. } = self;
        let content_type = Some(content_type);
        spec.content.body = read_body("", BodyJson { body, body_text, body_base64, content_type })?;
        spec.priority = check("priority", Priority::new(self.priority))?;
        spec.jitter = context.duration("jitter", &self.jitter)?;
        spec.missed = self.missed.into();
        spec.catch_up = context.optional_duration("catch_up", self.catch_up.as_deref())?;
        spec.allow_overlap = self.overlap == OverlapJson::Allow;
        spec.paused = self.paused;
        let time = |field: &str, text: &Option<String>| {
            text.as_deref().map(|text| context.time(field, text)).transpose()
        };
        spec.starts_at = time("starts_at", &self.starts_at)?;
        spec.ends_at = time("ends_at", &self.ends_at)?;
        Ok(spec.to_schedule(id, time("next", &self.next)?.unwrap_or(Schedule::NEVER)))
    }
}

//! Schedules of a kind.

use super::content::{ContentJson, read_head, read_new_body, with_content};
use super::parse::{ParseContext, invalid, nullable};
use super::text::{DurationText, TimeText, duration, time};
use super::word::words;
use crate::problem::{AtField, Problem};
use requeue_jobs::json::{BodyJson, HeadJson};
use requeue_jobs::{
    Body, Content, JobId, Missed, Priority, Schedule, ScheduleSpec, ScheduleTimes, ScheduleView,
};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::time::Duration;

/// The time zone of a cron expression, if none is specified.
const DEFAULT_ZONE: &str = "UTC";

with_content! {
    /// A schedule to set, or what to change about one. Fields that are missing stay as they are with
    /// `PATCH`, and get their default with `PUT`, which requires `cron` or `every`. A field that is `null`
    /// gets its default.
    #[skip_serializing_none]
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    #[serde(default, deny_unknown_fields)]
    pub struct ScheduleRequest {
        /// When the schedule runs: five fields, or six with seconds first, such as `0 9 * * MON-FRI`; or
        /// `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`.
        #[cfg_attr(feature = "openapi", schema(max_length = 1024))]
        pub cron: Option<String>,
        /// With `cron`: its time zone, such as `Europe/Berlin`. Default: `UTC`.
        #[serde(deserialize_with = "nullable")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, max_length = 1024))]
        pub time_zone: Option<Option<String>>,
        /// The period of the schedule, such as `90s`, instead of `cron`: from `1s` to 10 years.
        pub every: Option<DurationText>,
        ..content: Option<String>,
        /// The priority of the jobs, 0 to 9. Default: 0.
        #[serde(deserialize_with = "nullable")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<u8>, maximum = 9))]
        pub priority: Option<Option<u8>>,
        /// The runs are up to this much later than the times, by an amount that is the same for all runs
        /// of the schedule; at most `1d`, and at most `every`. Default: `0s`.
        #[serde(deserialize_with = "nullable")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<DurationText>))]
        pub jitter: Option<Option<DurationText>>,
        /// What happens with runs that were missed because no server was running. Default: `one`.
        #[serde(deserialize_with = "nullable")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<MissedJson>))]
        pub missed: Option<Option<MissedJson>>,
        /// Runs that were missed longer ago than this are skipped; at most 10 years. Not allowed with
        /// `skip`. Default: `1d` with `all`, and no limit with `one`.
        #[serde(deserialize_with = "nullable")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<DurationText>))]
        pub catch_up: Option<Option<DurationText>>,
        /// Whether a run may begin while an earlier one goes on. Default: `none`.
        #[serde(deserialize_with = "nullable")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<OverlapJson>))]
        pub overlap: Option<Option<OverlapJson>>,
        /// Whether the schedule is paused. Runs of that time are not made up for. Default: `false`.
        #[serde(deserialize_with = "nullable")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>))]
        pub paused: Option<Option<bool>>,
        /// The schedule does not run before this time, such as `2026-12-01T09:00:00Z`. A period is counted
        /// from it. Default: `null`.
        #[serde(deserialize_with = "nullable")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<TimeText>))]
        pub starts_at: Option<Option<TimeText>>,
        /// The schedule does not run after this time, such as `2026-12-31T23:59:59Z`. Default: `null`.
        #[serde(deserialize_with = "nullable")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<TimeText>))]
        pub ends_at: Option<Option<TimeText>>,
    }
}

with_content! {
    /// A schedule of a kind, with its next times. `{{scheduled_at}}` in a body of JSON or text is replaced
    /// by the time of the run.
    #[skip_serializing_none]
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Schedule))]
    pub struct ScheduleJson {
        /// The kind of its jobs.
        pub kind: String,
        /// The id of the schedule.
        pub id: String,
        /// The cron expression, unless the schedule has a period.
        pub cron: Option<String>,
        /// The time zone of the cron expression.
        pub time_zone: Option<String>,
        /// The period, unless the schedule has a cron expression.
        pub every: Option<DurationText>,
        ..content: String,
        /// The priority of the jobs.
        #[serde(default)]
        pub priority: u8,
        /// The runs are up to this much later than the times.
        pub jitter: DurationText,
        /// What happens with runs that were missed.
        pub missed: MissedJson,
        /// Runs that were missed longer ago than this are skipped; `null` for the default.
        #[serialize_always]
        pub catch_up: Option<DurationText>,
        /// Whether a run may begin while an earlier one goes on.
        #[serde(default)]
        pub overlap: OverlapJson,
        /// Whether the schedule is paused.
        #[serde(default)]
        pub paused: bool,
        /// The schedule does not run before this time.
        #[serialize_always]
        pub starts_at: Option<TimeText>,
        /// The schedule does not run after this time.
        #[serialize_always]
        pub ends_at: Option<TimeText>,
        /// When the schedule runs next. Missing if it is paused, has no more runs, or has a `problem`.
        pub next: Option<TimeText>,
        /// Its next five times. A paused schedule has them too, although it will not run then.
        #[serde(default)]
        pub next_times: Vec<TimeText>,
        /// Why the schedule cannot run, for example because the server does not know its time zone.
        pub problem: Option<String>,
    }
}

words! {
    /// What happens with runs that were missed because no server was running.
    pub enum MissedJson as Missed, default One, from Missed {
        /// One job is put for all missed runs together.
        One = "one",
        /// No job is put for missed runs.
        Skip = "skip",
        /// A job is put for each missed run, one after the other.
        All = "all",
    }
}

words! {
    /// Whether a run may begin while an earlier one goes on.
    pub enum OverlapJson as Overlap, default None {
        /// All runs have the job id of the schedule: a run that falls due during another one follows it,
        /// once.
        None = "none",
        /// Runs may overlap: the job id of a run is that of the schedule with its time.
        Allow = "allow",
    }
}

/// The schedules of a kind, in the order of their ids.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Schedules {
    /// The schedules.
    pub schedules: Vec<ScheduleJson>,
}

impl From<bool> for OverlapJson {
    /// Converts whether runs may overlap.
    fn from(is_allowed: bool) -> Self {
        if is_allowed { OverlapJson::Allow } else { OverlapJson::None }
    }
}

/// Stores keep durations in milliseconds.
fn in_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

impl ScheduleRequest {
    /// Returns the new schedule of a `PUT`. Fails with a problem that names the field.
    pub fn create(self, context: &ParseContext) -> Result<ScheduleSpec, Problem> {
        // The times are set below.
        self.apply_to(None, ScheduleSpec::every(Duration::ZERO), context)
    }

    /// Returns `spec` with the changes of a `PATCH`. Fails with a problem that names the field.
    pub fn change(
        &self,
        spec: ScheduleSpec,
        context: &ParseContext,
    ) -> Result<ScheduleSpec, Problem> {
        self.clone().apply_to(Some(&spec.times.clone()), spec, context)
    }

    fn apply_to(
        mut self,
        present: Option<&ScheduleTimes>,
        mut spec: ScheduleSpec,
        context: &ParseContext,
    ) -> Result<ScheduleSpec, Problem> {
        spec.times = self.times(present)?;
        spec.content = new_content(self.take_content(), spec.content)?;
        if let Some(priority) = self.priority {
            spec.priority = Priority::new(priority.unwrap_or_default()).at("priority")?;
        }
        if let Some(jitter) = &self.jitter {
            spec.jitter = duration("jitter", jitter)?.map(in_millis).unwrap_or_default();
        }
        if let Some(missed) = self.missed {
            spec.missed = missed.unwrap_or_default().into();
        }
        if let Some(catch_up) = &self.catch_up {
            spec.catch_up = duration("catch_up", catch_up)?.map(in_millis);
        }
        if let Some(overlap) = self.overlap {
            spec.allow_overlap = overlap == Some(OverlapJson::Allow);
        }
        if let Some(paused) = self.paused {
            spec.paused = paused.unwrap_or_default();
        }
        if let Some(starts_at) = &self.starts_at {
            spec.starts_at = time("starts_at", starts_at, context)?;
        }
        if let Some(ends_at) = &self.ends_at {
            spec.ends_at = time("ends_at", ends_at, context)?;
        }
        Ok(spec)
    }

    fn times(&self, present: Option<&ScheduleTimes>) -> Result<ScheduleTimes, Problem> {
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
            (Some(every), _) => Some(in_millis(every.read("every")?)),
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
}

/// Returns the new content. What is not given stays; if only the content type is given, the bytes stay.
fn new_content(fields: ContentJson, present: Content) -> Result<Content, Problem> {
    let ContentJson { body: fields, head } = fields;
    let mut content = match &fields {
        BodyJson { body: None, body_text: None, body_base64: None, content_type } => {
            let mut content = present;
            if let Some(of) = content_type {
                content.body = Body::new(content.body.bytes(), of.as_str()).at("content_type")?;
            }
            content
        }
        _ => present.with_body(read_new_body(fields)?),
    };
    if head != HeadJson::default() {
        content.head = read_head(head)?;
    }
    content.check().at("envelope")?;
    Ok(content)
}

/// Returns expression and time zone, or the period.
fn times_of(times: &ScheduleTimes) -> (Option<String>, Option<String>, Option<DurationText>) {
    match times {
        ScheduleTimes::Cron { expression, time_zone } => {
            (Some(expression.clone()), Some(time_zone.clone()), None)
        }
        ScheduleTimes::Every(period) => (None, None, Some((*period).into())),
    }
}

impl From<&ScheduleSpec> for ScheduleRequest {
    /// Returns a request that sets every field.
    fn from(spec: &ScheduleSpec) -> Self {
        let (cron, time_zone, every) = times_of(&spec.times);
        ScheduleRequest {
            cron,
            time_zone: time_zone.map(Some),
            every,
            priority: Some(Some(spec.priority.get())),
            jitter: Some(Some(spec.jitter.into())),
            missed: Some(Some(spec.missed.into())),
            catch_up: Some(spec.catch_up.map(DurationText::from)),
            overlap: Some(Some(spec.allow_overlap.into())),
            paused: Some(Some(spec.paused)),
            starts_at: Some(spec.starts_at.map(TimeText::from)),
            ends_at: Some(spec.ends_at.map(TimeText::from)),
            ..ContentJson::new(&spec.content).into()
        }
    }
}

impl From<&ScheduleView> for ScheduleJson {
    fn from(view: &ScheduleView) -> Self {
        let ScheduleView { kind, id, spec, next, next_times, problem, .. } = view;
        let (cron, time_zone, every) = times_of(&spec.times);
        ScheduleJson {
            kind: kind.as_str().to_owned(),
            id: id.as_str().to_owned(),
            cron,
            time_zone,
            every,
            priority: spec.priority.get(),
            jitter: spec.jitter.into(),
            missed: spec.missed.into(),
            catch_up: spec.catch_up.map(DurationText::from),
            overlap: spec.allow_overlap.into(),
            paused: spec.paused,
            starts_at: spec.starts_at.map(TimeText::from),
            ends_at: spec.ends_at.map(TimeText::from),
            next: next.map(TimeText::from),
            next_times: next_times.iter().copied().map(TimeText::from).collect(),
            problem: problem.as_ref().map(ToString::to_string),
            ..ContentJson::new(&spec.content).into()
        }
    }
}

impl ScheduleJson {
    /// Converts this response to a schedule, as a store keeps it.
    pub fn read(mut self, context: &ParseContext) -> Result<Schedule, Problem> {
        let mut spec = match (&self.cron, &self.every) {
            (None, Some(every)) => ScheduleSpec::every(every.read("every")?),
            (Some(cron), None) => {
                ScheduleSpec::cron(cron, self.time_zone.as_deref().unwrap_or(DEFAULT_ZONE))
            }
            _ => return Err(invalid("cron", "either cron or every is expected")),
        };
        spec.content = self.take_content().read()?;
        spec.priority = Priority::new(self.priority).at("priority")?;
        spec.jitter = self.jitter.read("jitter")?;
        spec.missed = self.missed.into();
        spec.catch_up = duration("catch_up", &self.catch_up)?;
        spec.allow_overlap = self.overlap == OverlapJson::Allow;
        spec.paused = self.paused;
        spec.starts_at = time("starts_at", &self.starts_at, context)?;
        spec.ends_at = time("ends_at", &self.ends_at, context)?;
        let next = time("next", &self.next, context)?.unwrap_or(Schedule::NEVER);
        Ok(spec.to_schedule(JobId::new(self.id).at("id")?, next))
    }
}

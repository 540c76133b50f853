//! The runs of a schedule: when they are, and the jobs that they put.

use super::occurrences::{Occurrences, Times, offset};
use super::spec::{RuleError, ScheduleSpec, ScheduleTimes};
use super::times::{CronTimes, CronTimesError};
use super::{Missed, Schedule, TickJob};
use crate::content::Content;
use crate::error::{Invalid, PutError, StoreError};
use crate::job::Body;
use crate::limits::{MAX_DELAY, MAX_ID_LEN, MAX_SCHEDULE_JITTER, MIN_SCHEDULE_PERIOD};
use crate::names::{JobId, Kind};
use crate::time::Timestamp;
use std::borrow::Cow;
use std::time::Duration;

/// What a body contains where the time of the run belongs.
const TIME_PLACEHOLDER: &str = "{{scheduled_at}}";

/// How far back missed runs are caught up with [`Missed::All`], if nothing else is specified: a day.
const DEFAULT_CATCH_UP: Duration = Duration::from_secs(86_400);

/// The length of what `allow_overlap` appends to the id: `@` and a time such as
/// `2026-12-01T09:00:00.125Z`.
const TIME_SUFFIX_LEN: usize = 25;

/// How many of its next times a [`ScheduleView`] shows.
const SHOWN_TIMES: usize = 5;

/// Why a schedule was rejected, or could not be stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The cron expression or the time zone is invalid, or the expression never fires.
    #[error(transparent)]
    Times(#[from] CronTimesError),
    /// A value is out of range.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// `catch_up` is set for a schedule that does not catch up.
    #[error("the catch-up window has no effect if missed runs are skipped")]
    NothingToCatchUp,
    /// The schedule ends before its next time.
    #[error("the schedule has no run before its end")]
    Over,
    /// The stored schedule cannot be read.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// There is no such schedule.
    #[error("there is no schedule {id:?} of kind {kind}")]
    Absent {
        /// The kind.
        kind: Kind,
        /// The id.
        id: JobId,
    },
    /// A schedule that is due cannot run.
    #[error("schedule {id:?} of kind {kind} cannot run: {reason}")]
    CannotRun {
        /// The kind.
        kind: Kind,
        /// The id.
        id: JobId,
        /// What prevents the run.
        reason: Box<ScheduleError>,
    },
    /// Something has removed the timers of schedules, so that their runs did not begin. They are set again.
    #[error("{count} schedules had no timer and did not run; their timers are set again")]
    TimersMissing {
        /// How many schedules had no timer.
        count: usize,
    },
    /// The job of a run could not be put.
    #[error(transparent)]
    Put(PutError),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ScheduleError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Invalid(invalid) => ScheduleError::Invalid(invalid),
            other => ScheduleError::Store(other),
        }
    }
}

/// A schedule of a store, with its next times.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleView {
    /// The kind of its jobs.
    pub kind: Kind,
    /// Its id.
    pub id: JobId,
    /// When it runs, and what it puts.
    pub spec: ScheduleSpec,
    /// When it runs next. `None` if it is paused, or if it has no more runs.
    pub next: Option<Timestamp>,
    /// Its next five times. A paused schedule has them too, although it will not run then.
    pub next_times: Vec<Timestamp>,
    /// Why the schedule cannot run, for example because its time zone does not exist on this machine.
    pub problem: Option<ScheduleError>,
}

impl ScheduleView {
    /// Returns the view of a stored schedule. The next times are those after `now`.
    pub fn new(kind: &Kind, schedule: &Schedule, now: Timestamp) -> Self {
        let mut view = ScheduleView {
            kind: kind.clone(),
            id: schedule.id.clone(),
            spec: ScheduleSpec::cron(&schedule.when, &schedule.time_zone),
            next: Some(schedule.next).filter(|next| *next < Schedule::NEVER),
            next_times: Vec::new(),
            problem: None,
        };
        view.spec.content = schedule.content.clone();
        let read = ScheduleSpec::from_schedule(schedule).map_err(ScheduleError::from);
        let times = read.and_then(|spec| {
            view.spec = spec;
            view.spec.next_times(kind, &schedule.id, now, SHOWN_TIMES)
        });
        match times {
            Ok(times) => view.next_times = times,
            Err(problem) => (view.problem, view.next) = (Some(problem), None),
        }
        view
    }
}

impl ScheduleSpec {
    /// Fails if a schedule with this kind and id is invalid: because of its cron expression or time zone,
    /// or because a value is out of range.
    ///
    /// For an expression that never fires, such as `0 0 31 2 *`, this takes up to a tenth of a second.
    pub fn check(&self, kind: &Kind, id: &JobId) -> Result<(), ScheduleError> {
        self.check_ranges(id)?;
        if self.missed == Missed::Skip && self.catch_up.is_some() {
            return Err(ScheduleError::NothingToCatchUp);
        }
        self.to_schedule(id.clone(), Schedule::NEVER).check()?;
        self.occurrences(kind, id)?;
        // Replacing the placeholders may make the body too long.
        self.content_at(Timestamp::default())?.check()?;
        Ok(())
    }

    /// Returns up to `count` times of a schedule with this kind and id after `after`.
    pub fn next_times(
        &self,
        kind: &Kind,
        id: &JobId,
        after: Timestamp,
        count: usize,
    ) -> Result<Vec<Timestamp>, ScheduleError> {
        let occurrences = self.occurrences(kind, id)?;
        let mut at = after;
        let next = || {
            at = occurrences.next_after(at)?;
            Some(at)
        };
        Ok(std::iter::from_fn(next).take(count).collect())
    }

    /// Fails if a value is out of range. It does not look at the cron expression.
    fn check_ranges(&self, id: &JobId) -> Result<(), Invalid> {
        let (period, jitter_limit) = match self.times {
            // Otherwise a run could be later than the next period begins.
            ScheduleTimes::Every(period) => (period, period.min(MAX_SCHEDULE_JITTER)),
            ScheduleTimes::Cron { .. } => (MIN_SCHEDULE_PERIOD, MAX_SCHEDULE_JITTER),
        };
        let catch_up = self.catch_up.unwrap_or_default();
        for (field, value, min, max) in [
            ("the period of the schedule", period, MIN_SCHEDULE_PERIOD, MAX_DELAY),
            ("the jitter of the schedule", self.jitter, Duration::ZERO, jitter_limit),
            ("the catch-up window", catch_up, Duration::ZERO, MAX_DELAY),
        ] {
            if !(min..=max).contains(&value) {
                return Err(Invalid::OutOfRange { field, value, min, max });
            }
        }
        let limit = MAX_ID_LEN - TIME_SUFFIX_LEN;
        if self.allow_overlap && id.as_str().len() > limit {
            let (field, len) = ("the id of a schedule whose runs overlap", id.as_str().len());
            return Err(Invalid::TooLong { field, len, limit });
        }
        Ok(())
    }

    /// Returns how far back runs are caught up.
    pub(crate) fn catch_up_window(&self) -> Duration {
        let usual = match self.missed {
            Missed::All => DEFAULT_CATCH_UP,
            Missed::One | Missed::Skip => Duration::MAX,
        };
        self.catch_up.unwrap_or(usual)
    }

    /// Returns whether the schedule has the same runs as another one.
    pub(crate) fn has_runs_of(&self, other: &Self) -> bool {
        let runs = |it: &Self| (it.times.clone(), it.jitter, it.starts_at, it.ends_at, it.paused);
        runs(self) == runs(other)
    }

    pub(crate) fn occurrences(
        &self,
        kind: &Kind,
        id: &JobId,
    ) -> Result<Occurrences, ScheduleError> {
        let times = match &self.times {
            ScheduleTimes::Cron { expression, time_zone } => {
                Times::Cron(Box::new(CronTimes::parse(expression, time_zone)?))
            }
            ScheduleTimes::Every(period) => Times::Every(*period),
        };
        let offset = offset(kind.as_str(), id.as_str(), self.jitter);
        let starts_at = self.starts_at.unwrap_or_default();
        Ok(Occurrences { times, offset, starts_at, ends_at: self.ends_at })
    }

    /// Returns the job of the run at `time`, which is without jitter.
    pub(crate) fn job_at(&self, id: &JobId, time: Timestamp) -> Result<TickJob, Invalid> {
        let id = match self.allow_overlap {
            true => JobId::new(format!("{}@{}", id.as_str(), rfc3339(time)))?,
            false => id.clone(),
        };
        Ok(TickJob { id, content: self.content_at(time)?, priority: self.priority })
    }

    fn content_at(&self, time: Timestamp) -> Result<Content, Invalid> {
        let Content { body, head } = self.content.clone();
        let content_type = body.content_type();
        let is_text = content_type.starts_with("text/") || content_type.contains("json");
        let body = match std::str::from_utf8(body.bytes()) {
            Ok(text) if is_text && text.contains(TIME_PLACEHOLDER) => {
                let bytes = text.replace(TIME_PLACEHOLDER, &rfc3339(time)).into_bytes();
                Body::new(bytes, content_type)?
            }
            _ => body,
        };
        Ok(Content { body, head })
    }
}

/// Returns a time such as `2026-12-01T09:00:00Z`.
fn rfc3339(time: Timestamp) -> Cow<'static, str> {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_millisecond(millis) {
        Ok(time) => time.to_string().into(),
        Err(_) => "after the year 9999".into(),
    }
}

/// Returns how long it is until `next`. A timer is at most nine years ahead, because that of a store is
/// limited: it then waits again.
pub(crate) fn until(next: Timestamp, now: Timestamp) -> Duration {
    next.saturating_since(now).min(Duration::from_secs(9 * 366 * 86_400))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;

    fn names() -> (Kind, JobId) {
        (Kind::new("report").unwrap(), JobId::new("daily").unwrap())
    }

    fn at(text: &str) -> Timestamp {
        let time: jiff::Timestamp = text.parse().unwrap();
        Timestamp::from_millis(time.as_millisecond().try_into().unwrap())
    }

    #[test]
    fn the_body_and_the_id_can_carry_the_time_of_the_run() {
        let mut spec = ScheduleSpec::cron("@daily", "UTC");
        let (kind, id) = names();
        let time = at("2026-12-01T09:00:00Z");
        for (content_type, text, expected) in [
            ("text/plain", "at {{scheduled_at}}!", "at 2026-12-01T09:00:00Z!"),
            (
                "application/json",
                r#"{"at":"{{scheduled_at}}"}"#,
                r#"{"at":"2026-12-01T09:00:00Z"}"#,
            ),
            ("application/octet-stream", "{{scheduled_at}}", "{{scheduled_at}}"),
            ("text/plain", "{{later}}", "{{later}}"),
        ] {
            spec.content.body = Body::new(text.as_bytes(), content_type).unwrap();
            let job = spec.job_at(&id, time).unwrap();
            assert_eq!((job.id.as_str(), job.content.body.bytes()), ("daily", expected.as_bytes()));
            assert_eq!(job.content.body.content_type(), content_type);
        }
        spec.allow_overlap = true;
        let job = spec.job_at(&id, time).unwrap();
        assert_eq!(job.id.as_str(), "daily@2026-12-01T09:00:00Z");

        spec.content.body =
            Body::new(TIME_PLACEHOLDER.repeat(1 << 16).into_bytes(), "text/plain").unwrap();
        let error = spec.check(&kind, &id).unwrap_err();
        assert!(error.to_string().contains("the body has 1310720 bytes"), "{error}");
    }

    #[test]
    fn invalid_schedules_are_rejected_with_the_reason() {
        let (kind, id) = names();
        let catch_up = Some(Duration::from_secs(60));
        let daily = || ScheduleSpec::cron("@daily", "UTC");
        for (spec, reason) in [
            (ScheduleSpec::cron("0 0 31 2 *", "UTC"), "\"0 0 31 2 *\" never fires"),
            (ScheduleSpec::cron("0 25 * * *", "UTC"), "the hour \"25\""),
            (
                ScheduleSpec::cron("@daily", "Europe/Atlantis"),
                "unknown time zone \"Europe/Atlantis\"",
            ),
            (ScheduleSpec::every(Duration::ZERO), "the period of the schedule is 0ns"),
            (ScheduleSpec { missed: Missed::Skip, catch_up, ..daily() }, "has no effect"),
            (ScheduleSpec::cron(&"0,".repeat(600), "UTC"), "the schedule has 1200 bytes"),
        ] {
            let error = spec.check(&kind, &id).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert_eq!(daily().check(&kind, &id), Ok(()));
    }

    #[test]
    fn a_view_shows_the_next_times_and_why_a_schedule_cannot_run() {
        let (kind, id) = names();
        let now = at("2026-12-01T08:00:00Z");
        let spec = ScheduleSpec::cron("0 9 * * *", "Europe/Berlin");
        let next = at("2026-12-02T08:00:00Z");
        let view = ScheduleView::new(&kind, &spec.to_schedule(id.clone(), next), now);
        assert_eq!((view.next, view.next_times.len()), (Some(next), 5));
        assert_eq!(view.next_times[0], next);

        let paused = ScheduleSpec { paused: true, ..spec };
        let view = ScheduleView::new(&kind, &paused.to_schedule(id.clone(), Schedule::NEVER), now);
        assert_eq!((view.next, view.next_times[0]), (None, next));

        let mut old = paused.to_schedule(id, next);
        old.when = "every full moon".to_owned();
        let view = ScheduleView::new(&kind, &old, now);
        assert_eq!((view.next, view.next_times.len()), (None, 0));
        assert!(view.problem.unwrap().to_string().contains("every full moon"));
    }

    #[test]
    fn values_out_of_range_are_rejected() {
        let second = Duration::from_secs(1);
        let every = ScheduleSpec::every;
        assert!(every(second).check_ranges(&names().1).is_ok());
        let with_jitter = |jitter| ScheduleSpec { jitter, ..every(10 * second) };
        assert!(with_jitter(10 * second).check_ranges(&names().1).is_ok());
        let catch_up = Some(2 * MAX_DELAY);
        let long = JobId::new("x".repeat(500)).unwrap();
        for (spec, id, message) in [
            (
                every(second / 2),
                names().1,
                "the period of the schedule is 500ms; the range is 1s to",
            ),
            (
                with_jitter(11 * second),
                names().1,
                "the jitter of the schedule is 11s; the range is 0ns to 10s",
            ),
            (ScheduleSpec { catch_up, ..every(second) }, names().1, "the catch-up window is"),
            (
                ScheduleSpec { allow_overlap: true, ..every(second) },
                long,
                "has 500 bytes; the limit is 487",
            ),
        ] {
            let error = spec.check_ranges(&id).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}

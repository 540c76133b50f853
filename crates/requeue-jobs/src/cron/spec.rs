//! A schedule as applications specify it, and the text in which stores keep it.
//!
//! Stores keep a schedule as a rule in text form ([`Schedule::when`]), so that they need not change when
//! schedules get another option. The rule is a cron expression or a period, and then options:
//!
//! ```text
//!   0 9 * * MON-FRI
//!   every 90s; priority=5; jitter=30s
//!   @daily; overlap; catch_up=86400s; starts=1764576000000; ends=1772352000000; paused
//! ```

use super::{Missed, Schedule};
use crate::content::Content;
use crate::names::JobId;
use crate::priority::Priority;
use crate::time::Timestamp;
use std::fmt;
use std::time::Duration;

/// A recurring job: when it runs, and the jobs that it puts.
///
/// ```
/// use requeue_jobs::{Body, Missed, ScheduleSpec};
/// use std::time::Duration;
///
/// let mut report = ScheduleSpec::cron("0 9 * * MON-FRI", "Europe/Berlin");
/// report.content = Body::new(*b"the daily report", "text/plain")?.into();
/// report.missed = Missed::Skip;
///
/// let mut poll = ScheduleSpec::every(Duration::from_secs(90));
/// poll.jitter = Duration::from_secs(30);
/// # Ok::<(), requeue_jobs::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleSpec {
    /// When it runs.
    pub times: ScheduleTimes,
    /// The content of the jobs. `{{scheduled_at}}` in a body of JSON or text is replaced by the time of
    /// the run, such as `2026-12-01T09:00:00Z`.
    pub content: Content,
    /// The priority of the jobs (default 0).
    pub priority: Priority,
    /// The runs are up to this much later than the times, by an amount that depends on kind and id of
    /// the schedule, and is the same for all its runs (default 0, at most a day). It spreads schedules
    /// that have the same times.
    pub jitter: Duration,
    /// What happens with runs that were missed, because no process was there to start them (default
    /// [`Missed::One`]). A run that is more than a minute late counts as missed.
    pub missed: Missed,
    /// Runs that were missed longer ago than this are not caught up. `None` (default) means a day for
    /// [`Missed::All`], and no limit for [`Missed::One`]. Not allowed with [`Missed::Skip`].
    pub catch_up: Option<Duration>,
    /// Whether a run may begin while an earlier one goes on (default `false`).
    ///
    /// By default, all runs have one job id, that of the schedule. So they never overlap: a run that
    /// falls due during another one follows it, once. With `true`, the id of a run is that of the
    /// schedule with the time, such as `report@2026-12-01T09:00:00Z`.
    pub allow_overlap: bool,
    /// Whether the schedule is paused (default `false`). Runs of that time are not made up for.
    pub paused: bool,
    /// The schedule does not run before this time. A period is counted from it.
    pub starts_at: Option<Timestamp>,
    /// The schedule does not run after this time, except for its jitter.
    pub ends_at: Option<Timestamp>,
}

/// When a schedule runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleTimes {
    /// At the times of a cron expression.
    Cron {
        /// Five fields, or six with seconds first; or `@hourly`, `@daily` and the like.
        expression: String,
        /// The time zone, as a name of the IANA database, such as `Europe/Berlin`.
        time_zone: String,
    },
    /// Once per period of at least a second. The periods are counted from
    /// [`starts_at`](ScheduleSpec::starts_at), by default from 1970-01-01 in UTC, so that setting the
    /// schedule again does not shift its runs.
    Every(Duration),
}

/// Why the rule of a stored schedule cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rule {rule:?} of the schedule has an unknown option {option:?}")]
pub struct RuleError {
    /// The rule.
    pub rule: String,
    /// The option.
    pub option: String,
}

impl ScheduleSpec {
    /// Returns a schedule that runs at the times of a cron expression. See
    /// `CronTimes` for its syntax.
    pub fn cron(expression: &str, time_zone: &str) -> Self {
        let (expression, time_zone) = (expression.to_owned(), time_zone.to_owned());
        ScheduleSpec::new(ScheduleTimes::Cron { expression, time_zone })
    }

    /// Returns a schedule that runs once per period.
    pub fn every(period: Duration) -> Self {
        ScheduleSpec::new(ScheduleTimes::Every(period))
    }

    fn new(times: ScheduleTimes) -> Self {
        ScheduleSpec {
            times,
            content: Content::default(),
            priority: Priority::default(),
            jitter: Duration::ZERO,
            missed: Missed::default(),
            catch_up: None,
            allow_overlap: false,
            paused: false,
            starts_at: None,
            ends_at: None,
        }
    }

    /// Returns the schedule as stores keep it.
    pub fn to_schedule(&self, id: JobId, next: Timestamp) -> Schedule {
        let time_zone = match &self.times {
            ScheduleTimes::Cron { time_zone, .. } => time_zone.clone(),
            ScheduleTimes::Every(_) => String::new(),
        };
        let (content, missed) = (self.content.clone(), self.missed);
        Schedule { id, when: self.to_string(), time_zone, content, missed, next }
    }

    /// Returns the specification of a schedule that a store has kept. A cron expression is not checked.
    pub fn from_schedule(schedule: &Schedule) -> Result<Self, RuleError> {
        let rule = &schedule.when;
        let mut parts = rule.split(';').map(str::trim);
        let times = parts.next().unwrap_or_default();
        let error = |option: &str| RuleError { rule: rule.clone(), option: option.to_owned() };
        let mut spec = match times.strip_prefix("every ") {
            Some(period) => ScheduleSpec::every(read_duration(period).ok_or_else(|| error(times))?),
            // Schedules that were stored before time zones were checked have none.
            None if schedule.time_zone.is_empty() => ScheduleSpec::cron(times, "UTC"),
            None => ScheduleSpec::cron(times, &schedule.time_zone),
        };
        (spec.content, spec.missed) = (schedule.content.clone(), schedule.missed);
        for option in parts {
            spec.read_option(option).ok_or_else(|| error(option))?;
        }
        Ok(spec)
    }

    fn read_option(&mut self, option: &str) -> Option<()> {
        let time = |millis: &str| Some(Timestamp::from_millis(millis.parse().ok()?));
        match option.split_once('=') {
            Some(("priority", value)) => self.priority = Priority::new(value.parse().ok()?).ok()?,
            Some(("jitter", value)) => self.jitter = read_duration(value)?,
            Some(("catch_up", value)) => self.catch_up = Some(read_duration(value)?),
            Some(("starts", value)) => self.starts_at = Some(time(value)?),
            Some(("ends", value)) => self.ends_at = Some(time(value)?),
            None if option == "overlap" => self.allow_overlap = true,
            None if option == "paused" => self.paused = true,
            _ => return None,
        }
        Some(())
    }
}

/// The rule, as stores keep it.
impl fmt::Display for ScheduleSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.times {
            ScheduleTimes::Cron { expression, .. } => f.write_str(expression)?,
            ScheduleTimes::Every(period) => write!(f, "every {}", Millis(*period))?,
        }
        if self.priority > Priority::default() {
            write!(f, "; priority={}", self.priority.get())?;
        }
        if !self.jitter.is_zero() {
            write!(f, "; jitter={}", Millis(self.jitter))?;
        }
        if let Some(window) = self.catch_up {
            write!(f, "; catch_up={}", Millis(window))?;
        }
        for (name, time) in [("starts", self.starts_at), ("ends", self.ends_at)] {
            if let Some(time) = time {
                write!(f, "; {name}={}", time.as_millis())?;
            }
        }
        f.write_str(if self.allow_overlap { "; overlap" } else { "" })?;
        f.write_str(if self.paused { "; paused" } else { "" })
    }
}

/// A duration in seconds, or in milliseconds if it is not whole.
struct Millis(Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            millis if millis % 1000 == 0 => write!(f, "{}s", millis / 1000),
            millis => write!(f, "{millis}ms"),
        }
    }
}

fn read_duration(text: &str) -> Option<Duration> {
    match text.strip_suffix("ms") {
        Some(millis) => Some(Duration::from_millis(millis.parse().ok()?)),
        None => Some(Duration::from_secs(text.strip_suffix('s')?.parse().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use crate::job::Body;

    fn id() -> JobId {
        JobId::new("report").unwrap()
    }

    #[test]
    fn every_option_is_kept_in_the_rule() {
        let mut spec = ScheduleSpec::every(Duration::from_millis(90_500));
        for _ in 0..2 {
            spec.content = Body::new(*b"hello", "text/plain").unwrap().into();
            spec.priority = Priority::new(5).unwrap();
            (spec.jitter, spec.catch_up) =
                (Duration::from_secs(30), Some(Duration::from_millis(1)));
            (spec.missed, spec.allow_overlap, spec.paused) = (Missed::All, true, true);
            spec.starts_at = Some(Timestamp::from_millis(7));
            spec.ends_at = Some(Timestamp::from_millis(8));
            let kept = spec.to_schedule(id(), Timestamp::default());
            assert!(kept.check().is_ok());
            assert_eq!(ScheduleSpec::from_schedule(&kept), Ok(spec.clone()), "{}", kept.when);
            spec = ScheduleSpec::cron("*/5 9-17 * * MON-FRI", "Europe/Berlin");
        }
        let plain = ScheduleSpec::cron("@daily", "UTC");
        assert_eq!(plain.to_string(), "@daily");
        assert_eq!(ScheduleSpec::every(Duration::from_secs(90)).to_string(), "every 90s");
    }

    #[test]
    fn an_unknown_option_is_reported_instead_of_ignored() {
        for rule in
            ["@daily; colour=red", "@daily; priority=10", "every day", "@daily;", "@daily; x"]
        {
            let mut kept =
                ScheduleSpec::cron("@daily", "UTC").to_schedule(id(), Timestamp::default());
            kept.when = rule.to_owned();
            assert!(ScheduleSpec::from_schedule(&kept).is_err(), "{rule}");
        }
    }
}

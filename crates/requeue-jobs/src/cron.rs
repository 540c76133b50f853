//! Schedules: recurring jobs.

#[cfg(feature = "cron")]
mod occurrences;
#[cfg(feature = "cron")]
mod runs;
mod spec;
#[cfg(feature = "cron")]
mod ticker;
#[cfg(feature = "cron")]
mod timers;
#[cfg(feature = "cron")]
mod times;

#[cfg(feature = "cron")]
pub use runs::{ScheduleError, ScheduleView};
pub use spec::{RuleError, ScheduleSpec, ScheduleTimes};
#[cfg(feature = "cron")]
pub use ticker::ScheduleTicker;
#[cfg(feature = "cron")]
pub(crate) use ticker::{TURN_INTERVAL, TickTurn};
#[cfg(feature = "cron")]
pub use timers::SCHEDULE_TIMERS;
#[cfg(feature = "cron")]
pub(crate) use timers::timer_put;
#[cfg(feature = "cron")]
pub use times::{CronTimes, CronTimesError};

use crate::content::Content;
use crate::error::Invalid;
use crate::limits::MAX_SCHEDULE_LEN;
use crate::names::{JobId, Kind};
use crate::priority::Priority;
use crate::put::Placed;
use crate::time::Timestamp;

/// A recurring job of a kind, as stores keep it. [`ScheduleSpec`] is its readable form.
///
/// The store only keeps the schedule and performs [`tick`](crate::Store::tick). The caller of
/// `tick` (`ScheduleTicker`) parses [`when`](Self::when) and computes the next
/// time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The id of the schedule, and of its jobs.
    pub id: JobId,
    /// The rule that specifies the times and the options. Stores do not parse it.
    pub when: String,
    /// The time zone of the expression. Stores do not parse it.
    pub time_zone: String,
    /// The content of the jobs.
    pub content: Content,
    /// What happens with times that passed while nothing called `tick`.
    pub missed: Missed,
    /// The next time at which a job is put.
    pub next: Timestamp,
}

impl Schedule {
    /// The [next time](Self::next) of a schedule that does not run again: it is paused or over. It is the
    /// latest time that every store can keep.
    pub const NEVER: Timestamp = Timestamp::from_millis((1 << 48) - 1);

    /// Fails if the expression or the time zone is longer than [`MAX_SCHEDULE_LEN`], or if the content is too
    /// long. For stores.
    pub fn check(&self) -> Result<(), Invalid> {
        let limit = MAX_SCHEDULE_LEN;
        for (field, text) in [("the schedule", &self.when), ("the time zone", &self.time_zone)] {
            if text.len() > limit {
                return Err(Invalid::TooLong { field, len: text.len(), limit });
            }
        }
        self.content.check()
    }
}

/// When [`Store::set_schedule`](crate::Store::set_schedule) stores a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScheduleCondition {
    /// In any case.
    #[default]
    Always,
    /// If there is no schedule with this id.
    Absent,
    /// If there is one, and this is its next time. So a change that is based on a schedule that was
    /// read before cannot undo a tick, and no time is run twice.
    Next(Timestamp),
}

impl ScheduleCondition {
    /// Returns whether the condition holds for the present schedule, given its next time. For stores.
    pub fn holds(self, present: Option<Timestamp>) -> bool {
        match self {
            ScheduleCondition::Always => true,
            ScheduleCondition::Absent => present.is_none(),
            ScheduleCondition::Next(next) => present == Some(next),
        }
    }
}

/// What happens with times of a schedule that passed while nothing called
/// [`Store::tick`](crate::Store::tick).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Missed {
    /// One job is put for all of them.
    #[default]
    One,
    /// No job is put for them.
    Skip,
    /// A job is put for each of them.
    All,
}

/// One step of a schedule: the argument of [`Store::tick`](crate::Store::tick).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tick {
    /// The kind of the schedule.
    pub kind: Kind,
    /// The id of the schedule.
    pub id: JobId,
    /// The next time that the caller read from the schedule. If the schedule has another one, the
    /// tick does nothing.
    pub expected: Timestamp,
    /// The next time that the schedule gets.
    pub next: Timestamp,
    /// The job to put, due at the expected time. `None` skips a missed run.
    pub put: Option<TickJob>,
}

/// The job that a tick puts. It replaces the content, due time and priority of a job that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TickJob {
    /// The id of the job.
    pub id: JobId,
    /// The content.
    pub content: Content,
    /// The priority.
    pub priority: Priority,
}

/// The result of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticked {
    /// The job was put, and the schedule moved on.
    Put(Placed),
    /// The schedule moved on, and no job was put.
    Skipped,
    /// Another node was first, or the schedule was changed. This is its next time.
    Moved(Timestamp),
    /// There is no such schedule.
    Absent,
}

//! Schedules: recurring jobs.

use crate::error::Invalid;
use crate::job::Body;
use crate::limits::MAX_SCHEDULE_LEN;
use crate::names::JobId;
use crate::put::Placed;
use crate::time::Timestamp;

/// A recurring job of a kind. At each of its times, a job with its id and body is put. All runs
/// share one id, so they never overlap.
///
/// The store only keeps the schedule and performs [`tick`](crate::Store::tick). The caller of
/// `tick` (the service) parses [`when`](Self::when) and computes the next time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The id of the schedule, and of its jobs.
    pub id: JobId,
    /// The expression that specifies the times, such as a cron expression. Stores do not parse it.
    pub when: String,
    /// The time zone of the expression. Stores do not parse it.
    pub time_zone: String,
    /// The payload of the jobs.
    pub body: Body,
    /// What happens with times that passed while nothing called `tick`.
    pub missed: Missed,
    /// The next time at which a job is put.
    pub next: Timestamp,
}

impl Schedule {
    /// Fails if the expression or the time zone is longer than [`MAX_SCHEDULE_LEN`]. For stores.
    pub fn check(&self) -> Result<(), Invalid> {
        let limit = MAX_SCHEDULE_LEN;
        for (field, text) in [("the schedule", &self.when), ("the time zone", &self.time_zone)] {
            if text.len() > limit {
                return Err(Invalid::TooLong { field, len: text.len(), limit });
            }
        }
        Ok(())
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

//! Schedules: jobs that come again.

use crate::error::Invalid;
use crate::job::Body;
use crate::limits::MAX_SCHEDULE_LEN;
use crate::names::JobId;
use crate::put::Placed;
use crate::time::Timestamp;

/// A schedule of a kind. At its time a job with its id and body is put: one id, so that two
/// runs never overlap.
///
/// The store keeps it and does one thing with it, [`tick`](crate::Store::tick). When the next
/// time is, the caller says: reading schedules is the service's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Also the id of the jobs.
    pub id: JobId,
    /// When: for the reader of schedules. Not looked at here.
    pub when: String,
    /// In which time zone. Not looked at here.
    pub time_zone: String,
    /// What the jobs carry.
    pub body: Body,
    /// What happens about times that passed while nobody ticked.
    pub missed: Missed,
    /// The next time.
    pub next: Timestamp,
}

impl Schedule {
    /// Whether it is not too long; for stores.
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

/// What happens about times that passed while nobody ticked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Missed {
    /// One job for all of them.
    #[default]
    One,
    /// None.
    Skip,
}

/// What a tick did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticked {
    /// The job was put, and the schedule moved on.
    Put(Placed),
    /// The schedule moved on, and no job was put.
    Skipped,
    /// Another was first, or the schedule was changed: its next time is this.
    Moved(Timestamp),
    /// There is no such schedule.
    Absent,
}

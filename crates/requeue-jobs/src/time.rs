//! Points in time, as stores keep them: milliseconds since the Unix epoch.

use crate::error::Invalid;
use crate::limits::MAX_DELAY;
use requeue::{Clock, ManualClock};
use std::time::{Duration, SystemTime};

/// A point in time: milliseconds since the Unix epoch (1970-01-01 in UTC).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Returns the time that is `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Timestamp(millis)
    }

    /// Returns the milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the time that is `duration` later. Rounds up to whole milliseconds, so that no job
    /// runs early.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let millis = duration.as_nanos().div_ceil(1_000_000);
        Timestamp(self.0.saturating_add(u64::try_from(millis).unwrap_or(u64::MAX)))
    }

    /// Returns the time that has passed since `earlier`, or zero if `earlier` is later.
    #[must_use]
    pub fn saturating_since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for Timestamp {
    /// Rounds up to whole milliseconds. A time before the Unix epoch becomes the epoch.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp::default().saturating_add(since)
    }
}

/// When a job becomes due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Due {
    /// The job is due as soon as the store has it.
    #[default]
    Now,
    /// This long after the store receives the put, at most
    /// [`MAX_DELAY`](crate::limits::MAX_DELAY).
    After(Duration),
    /// At this time, or immediately if it has passed.
    At(Timestamp),
}

impl Due {
    /// Returns the point in time, given the current time. Fails if it is more than
    /// [`MAX_DELAY`] ahead.
    pub fn at(self, now: Timestamp) -> Result<Timestamp, Invalid> {
        let due = match self {
            Due::Now => now,
            Due::After(delay) => now.saturating_add(delay),
            Due::At(at) => at.max(now),
        };
        let value = due.saturating_since(now);
        if value > MAX_DELAY {
            let (field, min, max) = ("the delay", Duration::ZERO, MAX_DELAY);
            return Err(Invalid::OutOfRange { field, value, min, max });
        }
        Ok(due)
    }
}

/// A clock that tells the date: the system's clock, or for tests a manual one.
#[derive(Debug, Clone)]
pub struct WallClock {
    clock: Clock,
    /// The time at which the manual clock started. `None` for the system's clock.
    began_at: Option<Timestamp>,
}

impl WallClock {
    /// Returns the system's clock.
    pub fn system() -> Self {
        WallClock { clock: Clock::system(), began_at: None }
    }

    /// Returns a clock that started at `began_at` and advances with `clock`.
    pub fn manual(clock: &ManualClock, began_at: Timestamp) -> Self {
        WallClock { clock: clock.into(), began_at: Some(began_at) }
    }

    /// Returns the system's date, with this clock for timers.
    pub(crate) fn on(clock: Clock) -> Self {
        WallClock { clock, began_at: None }
    }

    /// Returns the current time, rounded down to whole milliseconds.
    pub fn now(&self) -> Timestamp {
        match self.began_at {
            // Rounded down, so that no job runs early.
            Some(began_at) => {
                Timestamp(began_at.0.saturating_add(self.clock.now().as_nanos() / 1_000_000))
            }
            None => {
                let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
                Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
            }
        }
    }

    /// Returns the monotonic clock that timers use.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_due_time_is_rounded_up_and_the_present_down() {
        let at = Timestamp::from_millis;
        assert_eq!(at(5).saturating_add(Duration::from_nanos(1)), at(6));
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, at(5));
        clock.advance(Duration::from_nanos(999_999));
        assert_eq!(wall_clock.now(), at(5));
        clock.advance(Duration::from_nanos(1));
        assert_eq!(wall_clock.now(), at(6));
    }

    #[test]
    fn a_due_time_is_not_in_the_past_and_not_too_far_away() {
        let now = Timestamp::from_millis(1000);
        assert_eq!(Due::At(Timestamp::default()).at(now), Ok(now));
        assert_eq!(Due::After(MAX_DELAY).at(now), Ok(now.saturating_add(MAX_DELAY)));
        let error = Due::After(MAX_DELAY + Duration::from_millis(1)).at(now).unwrap_err();
        assert!(matches!(error, Invalid::OutOfRange { field: "the delay", .. }));
        assert!(Due::At(Timestamp::from_millis(u64::MAX)).at(now).is_err());
    }
}

//! What is wrong with a text, and what would be right.

use std::time::Duration;

/// A text that is no time, or no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimeError {
    /// Nobody writes times that long.
    #[error("a time, duration or zone of {len} bytes is too long; the limit is {limit}")]
    TooLong {
        /// How many bytes it has.
        len: usize,
        /// How many it may have.
        limit: usize,
    },
    /// It cannot be read as a duration.
    #[error("{text:?} is no duration: {wrong}")]
    Duration {
        /// What was written.
        text: String,
        /// What is wrong, and what to write instead.
        wrong: String,
    },
    /// More than a duration can hold.
    #[error("{text:?} is too long a duration; the limit is {}", super::show_duration(*limit))]
    DurationTooLong {
        /// What was written.
        text: String,
        /// The longest duration.
        limit: Duration,
    },
    /// It cannot be read as a time.
    #[error("{text:?} is no time: {wrong}")]
    Time {
        /// What was written.
        text: String,
        /// What is wrong, and what to write instead.
        wrong: String,
    },
    /// Times are counted from 1970 on.
    #[error("{text:?} is before 1970-01-01T00:00:00Z, the earliest time there is")]
    Before1970 {
        /// What was written.
        text: String,
    },
    /// More milliseconds than a time can hold.
    #[error("{text:?} is too late a time; the limit is @{limit_ms}ms")]
    TooLate {
        /// What was written.
        text: String,
        /// Milliseconds from 1970 to the latest time.
        limit_ms: u64,
    },
    /// No time zone has this name.
    #[error(
        "{name:?} is no time zone: write a name of the IANA database, like Europe/Berlin, \
         or UTC, or an offset, like +01:00"
    )]
    Zone {
        /// What was written.
        name: String,
    },
}

impl TimeError {
    pub(super) fn duration(text: &str, wrong: impl Into<String>) -> Self {
        TimeError::Duration { text: text.to_owned(), wrong: wrong.into() }
    }

    pub(super) fn time(text: &str, wrong: impl Into<String>) -> Self {
        TimeError::Time { text: text.to_owned(), wrong: wrong.into() }
    }

    pub(super) fn too_late(text: &str) -> Self {
        TimeError::TooLate { text: text.to_owned(), limit_ms: u64::MAX }
    }
}

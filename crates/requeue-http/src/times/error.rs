//! Errors of parsing a time, a duration or a time zone.

use std::time::Duration;

/// A text cannot be parsed as a time, a duration or a time zone. The message tells what to write
/// instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimeError {
    /// The text is too long.
    #[error("the text of a time, duration or time zone has {len} bytes; the limit is {limit}")]
    TooLong {
        /// The length of the text in bytes.
        len: usize,
        /// The maximum length in bytes.
        limit: usize,
    },
    /// The text is not a duration.
    #[error("{text:?} is not a duration: {reason}")]
    Duration {
        /// The text.
        text: String,
        /// What is wrong, and what to write instead.
        reason: String,
    },
    /// The duration is longer than [`Duration::MAX`].
    #[error("{text:?} is too long for a duration; the limit is {}", super::show_duration(*limit))]
    DurationTooLong {
        /// The text.
        text: String,
        /// The longest duration.
        limit: Duration,
    },
    /// The text is not a rate.
    #[error("{text:?} is not a rate: write jobs per time, such as 10/s or 100/1m")]
    Rate {
        /// The text.
        text: String,
    },
    /// The text is not a time.
    #[error("{text:?} is not a time: {reason}")]
    Time {
        /// The text.
        text: String,
        /// What is wrong, and what to write instead.
        reason: String,
    },
    /// The time has no time zone, and there is no default.
    #[error("{text:?} has no time zone; write {instead}")]
    NoZone {
        /// The text.
        text: String,
        /// The text with some time zones.
        instead: String,
    },
    /// The time is before 1970.
    #[error("{text:?} is before 1970-01-01T00:00:00Z, the earliest allowed time")]
    Before1970 {
        /// The text.
        text: String,
    },
    /// The time is too far in the future to be represented.
    #[error("{text:?} is too far in the future; the limit is @{limit_ms}ms")]
    TooLate {
        /// The text.
        text: String,
        /// The latest time, in milliseconds since 1970.
        limit_ms: u64,
    },
    /// The text is not a time zone.
    #[error(
        "{name:?} is not a time zone: write an IANA name like Europe/Berlin, \
         or UTC, or an offset like +01:00"
    )]
    Zone {
        /// The text.
        name: String,
    },
}

impl TimeError {
    pub(super) fn duration(text: &str, reason: impl Into<String>) -> Self {
        TimeError::Duration { text: text.to_owned(), reason: reason.into() }
    }

    pub(super) fn time(text: &str, reason: impl Into<String>) -> Self {
        TimeError::Time { text: text.to_owned(), reason: reason.into() }
    }

    /// `space` is what separates the text from `Z` or an offset.
    pub(super) fn no_zone(text: &str, space: &str) -> Self {
        let utc = if space.is_empty() { "Z" } else { "UTC" };
        let instead = format!("{text}{space}{utc}, {text}{space}+01:00 or {text} Europe/Berlin");
        TimeError::NoZone { text: text.to_owned(), instead }
    }

    pub(super) fn too_late(text: &str) -> Self {
        TimeError::TooLate { text: text.to_owned(), limit_ms: u64::MAX }
    }
}

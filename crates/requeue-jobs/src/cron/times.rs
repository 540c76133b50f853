//! The times of a schedule: those of a cron expression in a time zone.
//!
//! [`croner`] parses the expression and finds its local times, and `jiff` knows the zones. When clocks
//! change, the rule is that of common cron daemons:
//!
//! - An expression with fixed hours and minutes fires once for each of its local times. A time that the
//!   change skips fires at the first moment after the gap, and a time that occurs twice the first time.
//! - An expression with a `*` among seconds, minutes or hours follows the clock: it fires whenever the
//!   local time matches, so not in a gap, and twice in an hour that occurs twice.
//!
//! croner can do that too, but it treats a list such as `0 2,14 * * *` as if it had a `*`, and adds runs on
//! days that begin with a gap (4.0.2, `3 3 * * *` in America/Santiago). It is therefore only asked for
//! local times.

use crate::time::Timestamp;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp as Instant};
use std::fmt;

/// Longer than any change of a clock, and than any offset: Samoa has skipped a whole day.
const LONGEST_CHANGE: SignedDuration = SignedDuration::from_hours(27);

/// The names of the fields of an expression with seconds.
const FIELDS: [&str; 6] =
    ["second", "minute", "hour", "day of the month", "month", "day of the week"];

/// The times of a cron expression in a time zone.
///
/// ```
/// use requeue_jobs::{CronTimes, Timestamp};
///
/// let times = CronTimes::parse("30 2 * * *", "Europe/Berlin")?;
/// // On 2026-03-29 the clocks go from 02:00 to 03:00: the run is at 03:00.
/// let noon_before = Timestamp::from_millis(1_774_695_600_000);
/// assert_eq!(times.next_after(noon_before), Some(Timestamp::from_millis(1_774_746_000_000)));
///
/// let error = CronTimes::parse("0 25 * * *", "UTC").unwrap_err();
/// assert!(error.to_string().contains("the hour \"25\""), "{error}");
/// # Ok::<(), requeue_jobs::CronTimesError>(())
/// ```
#[derive(Debug, Clone)]
pub struct CronTimes {
    expression: String,
    zone: TimeZone,
    cron: Cron,
    /// Whether it fires whenever the local time matches.
    follows_the_clock: bool,
}

/// Why a cron expression or its time zone was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CronTimesError {
    /// The expression cannot be parsed.
    #[error("the cron expression {expression:?} is invalid: {reason}")]
    Invalid {
        /// The expression.
        expression: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no date that matches the expression, such as a 31 February.
    #[error("the cron expression {expression:?} never fires")]
    Never {
        /// The expression.
        expression: String,
    },
    /// The time zone does not exist.
    #[error("unknown time zone {zone:?}: expected a name such as Europe/Berlin, or UTC")]
    Zone {
        /// The name.
        zone: String,
    },
}

impl CronTimes {
    /// Parses an expression of five fields, or six with seconds first; or `@hourly`, `@daily`,
    /// `@weekly`, `@monthly` or `@yearly`. The zone is a name of the IANA database.
    ///
    /// Fails if the expression is invalid or never fires, or the zone is unknown.
    pub fn parse(expression: &str, zone: &str) -> Result<Self, CronTimesError> {
        let text = expression.trim();
        let cron = parse(text).map_err(|error| CronTimesError::Invalid {
            expression: expression.to_owned(),
            reason: explain(text, &error),
        })?;
        let zone =
            TimeZone::get(zone).map_err(|_| CronTimesError::Zone { zone: zone.to_owned() })?;
        let follows_the_clock = follows_the_clock(text);
        let times = CronTimes { expression: text.to_owned(), zone, cron, follows_the_clock };
        // Every date occurs within 40 years: 29 February on a given weekday, around 2100.
        match times.next_after(Timestamp::default()) {
            Some(_) => Ok(times),
            None => Err(CronTimesError::Never { expression: expression.to_owned() }),
        }
    }

    /// Returns the first time after `after`.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let after = Instant::from_millisecond(i64::try_from(after.as_millis()).ok()?).ok()?;
        let next = match self.follows_the_clock {
            true => self.next_by_the_clock(after),
            false => self.next_fixed(after),
        };
        u64::try_from(next?.as_millisecond()).ok().map(Timestamp::from_millis)
    }

    /// Returns the first time after `after` of an expression that has one run for each local time.
    fn next_fixed(&self, after: Instant) -> Option<Instant> {
        // A local time that is over may be one that occurs again, or was skipped just now.
        let mut local = self.zone.to_datetime(after).checked_sub(LONGEST_CHANGE).ok()?;
        loop {
            local = self.next_local(local, false)?;
            let first = self.first_instant(local)?;
            if first > after {
                return Some(first);
            }
        }
    }

    /// Returns the first moment at which clocks show this local time, or if a change skips it, the moment
    /// of the change.
    ///
    /// `TimeZone::to_ambiguous_timestamp` does not serve: at a change after which the offset is the same,
    /// it finds a local time that occurs twice (jiff 0.2.39, America/Nuuk on 2023-10-28).
    fn first_instant(&self, local: DateTime) -> Option<Instant> {
        let utc = Offset::UTC.to_timestamp(local).ok()?;
        let begin = utc.checked_sub(LONGEST_CHANGE).ok()?;
        let end = utc.checked_add(LONGEST_CHANGE).ok()?;
        let mut offset = self.zone.to_offset(begin);
        let changes = self.zone.following(begin).map(|change| change.timestamp());
        for change in changes.take_while(|change| *change <= end) {
            // Before this change, or skipped by it.
            let time = offset.to_timestamp(local).ok()?;
            let next = self.zone.to_offset(change);
            if time < change {
                return Some(time);
            }
            if next.to_timestamp(local).ok()? < change {
                return Some(change);
            }
            offset = next;
        }
        offset.to_timestamp(local).ok()
    }

    /// Returns the first time after `after` whose local time matches.
    fn next_by_the_clock(&self, after: Instant) -> Option<Instant> {
        let (mut from, mut inclusive) = (after, false);
        loop {
            // Until the next change, the offset is the same.
            let offset = self.zone.to_offset(from);
            let change = self.zone.following(from).next().map(|change| change.timestamp());
            let local = self.next_local(offset.to_datetime(from), inclusive)?;
            let next = offset.to_timestamp(local).ok()?;
            match change {
                Some(change) if next >= change => (from, inclusive) = (change, true),
                _ => return Some(next),
            }
        }
    }

    /// Returns the next local time that matches.
    fn next_local(&self, after: DateTime, inclusive: bool) -> Option<DateTime> {
        let after = after.to_zoned(TimeZone::UTC).ok()?;
        Some(self.cron.find_next_occurrence(&after, inclusive).ok()?.datetime())
    }
}

impl fmt::Display for CronTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.expression)
    }
}

fn parse(text: &str) -> Result<Cron, String> {
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    parser.parse(text).map_err(|error| error.to_string())
}

fn follows_the_clock(text: &str) -> bool {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let times = match fields.len() {
        6 => &fields[..3],
        5 => &fields[..2],
        _ => return text.eq_ignore_ascii_case("@hourly"),
    };
    times.iter().any(|field| field.contains(['*', '?']))
}

/// Says what is wrong with an expression: if it is a single field, which one.
fn explain(text: &str, error: &str) -> String {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let names = match fields.len() {
        5 => &FIELDS[1..],
        6 => &FIELDS[..],
        _ if text.starts_with('@') => {
            return "expected @hourly, @daily, @weekly, @monthly or @yearly".to_owned();
        }
        count => return format!("it has {count} fields, expected 5, or 6 with seconds first"),
    };
    for (number, (field, name)) in fields.iter().zip(names).enumerate() {
        let mut others = vec!["*"; fields.len()];
        others[number] = field;
        if let Err(error) = parse(&others.join(" ")) {
            return format!("the {name} {field:?}: {}", without_prefix(&error));
        }
    }
    without_prefix(error)
}

/// Removes the name that croner gives to an error and its full stop.
fn without_prefix(error: &str) -> String {
    let text = error.split_once(": ").map_or(error, |(_, text)| text).trim_end_matches('.');
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

#[cfg(test)]
mod tests;

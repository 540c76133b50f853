//! Parsing and formatting of points in time.

use super::calendar::{Day, TimeOfDay, days_after, days_until, first_word};
use super::zone::{Zone, ZoneSpec};
use super::{TimeError, parse_duration, trim_checked};
use jiff::SignedDuration;
use jiff::civil::{Date, DateTime};
use requeue_jobs::Timestamp;

const FORMS: &str = "write it like 2026-12-01T09:00:00+01:00, 2026-12-01 09:00 Europe/Berlin, \
                     tomorrow 09:00 UTC, monday 08:30 +01:00 or in 5m";

const AFTER_9999: &str = "it is after the year 9999, the last year supported";

type Parsed = Result<Timestamp, TimeError>;

/// Parses a time. `now` is the current time, and `zone` the time zone of texts that contain none. If it
/// is `None`, such texts are rejected, because they may mean another time to the sender.
///
/// | text | means |
/// |---|---|
/// | `2026-12-01T09:00:00+01:00`, `2026-12-01 08:00:00z` | RFC 3339 |
/// | `2026-12-01T09:00:00+01:00[Europe/Berlin]` | RFC 9557; offset and zone must agree |
/// | `2026-12-01 09:00 Europe/Berlin`, `2026-12-01 09:00 +01:00` | in that zone |
/// | `2026-12-01 09:00`, `2026-12-01T09:00` | in `zone` |
/// | `2026-12-01`, `today`, `tomorrow`, `yesterday` | the start of that day in `zone` |
/// | `today 18:00`, `tomorrow at 09:00` | that day, even if the time has passed |
/// | `09:00`, `9:00` | the next such time: today, or tomorrow if it has passed |
/// | `monday 08:30`, `mon`  | the next such time: within a week |
/// | `now`, `in 5m`, `1h ago` | relative to `now`, with a duration as in [`parse_duration`] |
/// | `@1796112000s`, `@1796112000000ms` | Unix time |
///
/// A time zone may follow any text with a day or a time of day; `today` is then the current day in that
/// zone. Minutes may be followed by seconds, and seconds by a fraction. Fractions of a millisecond are
/// rounded up, so that nothing is early.
///
/// A time that does not exist because clocks go forward moves by the same amount: 02:30 becomes 03:30. A
/// time that exists twice because clocks go back means the first of the two; without a date, the first
/// that has not passed.
///
/// Fails for a text without a time zone if `zone` is `None`; for times before 1970; for a number alone; for a duration alone, because it may be meant as a
/// delay; and for `next monday`, which is ambiguous.
///
/// ```
/// use requeue_http::times::{Zone, parse_time, show_time};
/// use requeue_jobs::Timestamp;
///
/// let now = Timestamp::from_millis(1_796_112_000_000); // 2026-12-01T08:00:00Z
/// let read = |text| parse_time(text, now, None).map(show_time);
/// assert_eq!(read("2026-12-01T09:00:00+01:00")?, "2026-12-01T08:00:00.000Z");
/// assert_eq!(read("tomorrow 09:00 Europe/Berlin")?, "2026-12-02T08:00:00.000Z");
/// assert_eq!(
///     read("2026-12-01 09:00").unwrap_err().to_string(),
///     "\"2026-12-01 09:00\" has no time zone; write 2026-12-01 09:00Z, 2026-12-01 09:00+01:00 or \
///      2026-12-01 09:00 Europe/Berlin",
/// );
/// let here = Zone::local();
/// assert!(parse_time("2026-12-01 09:00", now, Some(&here)).is_ok());
/// assert_eq!(
///     read("5m").unwrap_err().to_string(),
///     r#""5m" is not a time: it is a duration; use it as a delay, or write in 5m"#,
/// );
/// # Ok::<(), requeue_http::times::TimeError>(())
/// ```
pub fn parse_time(text: &str, now: Timestamp, zone: Option<&Zone>) -> Result<Timestamp, TimeError> {
    let trimmed = trim_checked(text)?;
    if trimmed.eq_ignore_ascii_case("now") {
        return Ok(now);
    }
    if let Some(count) = trimmed.strip_prefix('@') {
        return since_1970(text, count);
    }
    let (word, rest) = first_word(trimmed);
    if word.eq_ignore_ascii_case("in") {
        let millis = parse_duration(rest.trim_ascii_start())?.as_nanos().div_ceil(1_000_000);
        let at = u64::try_from(millis).ok().and_then(|ms| now.as_millis().checked_add(ms));
        return at.map(Timestamp::from_millis).ok_or_else(|| TimeError::too_late(text));
    }
    if let Some((length, word)) = trimmed.rsplit_once(|c: char| c.is_ascii_whitespace())
        && word.eq_ignore_ascii_case("ago")
    {
        // Whole milliseconds are subtracted, which rounds the time up.
        let millis = parse_duration(length)?.as_millis();
        let at = u64::try_from(millis).ok().and_then(|ms| now.as_millis().checked_sub(ms));
        let before = || TimeError::Before1970 { text: text.to_owned() };
        return at.map(Timestamp::from_millis).ok_or_else(before);
    }
    DayAndTime::read(text, trimmed, zone)?.at(text, now)
}

/// Formats a time in RFC 3339, in UTC, with milliseconds. RFC 3339 ends with the year 9999; later times
/// are formatted as milliseconds since 1970. [`parse_time`] returns exactly the same time for the result.
///
/// ```
/// use requeue_http::times::show_time;
/// use requeue_jobs::Timestamp;
///
/// let at = |millis| show_time(Timestamp::from_millis(millis));
/// assert_eq!(at(1_796_112_000_000), "2026-12-01T08:00:00.000Z");
/// assert_eq!(at(253_402_300_799_999), "9999-12-31T23:59:59.999Z");
/// assert_eq!(at(253_402_300_800_000), "@253402300800000ms");
/// ```
pub fn show_time(time: Timestamp) -> String {
    let millis = time.as_millis();
    let shown = i64::try_from(millis).ok().and_then(|millis| {
        let epoch = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
        epoch.checked_add(SignedDuration::from_millis(millis)).ok()
    });
    shown.map_or_else(|| format!("@{millis}ms"), |shown| format!("{shown:.3}Z"))
}

/// Parses `1796112000s` or `1796112000000ms`.
fn since_1970(text: &str, count: &str) -> Parsed {
    let (digits, unit) = count.split_at(count.find(char::is_alphabetic).unwrap_or(count.len()));
    let scale = match &*unit.to_ascii_lowercase() {
        "s" => 1000,
        "ms" => 1,
        _ => 0,
    };
    if scale == 0 || digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        let reason = "write Unix time as @1796112000s or @1796112000000ms";
        return Err(TimeError::time(text, reason));
    }
    // All characters are digits, so parsing fails only if the number is too large.
    let millis = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(scale));
    millis.map(Timestamp::from_millis).ok_or_else(|| TimeError::too_late(text))
}

/// A day, a time of day and a time zone. The text contains at least one of the first two.
struct DayAndTime {
    /// `None` means the first day on which the time has not passed.
    day: Option<Day>,
    time: TimeOfDay,
    zone: ZoneSpec,
}

impl DayAndTime {
    fn read(text: &str, trimmed: &str, zone: Option<&Zone>) -> Result<Self, TimeError> {
        let day = Day::read(trimmed).map_err(|reason| TimeError::time(text, reason))?;
        let (day, rest) = day.map_or((None, trimmed), |(day, rest)| (Some(day), rest));
        let dated = matches!(day, Some(Day::Date(_)));
        let (start, must) = match rest.strip_prefix(['T', 't']).filter(|_| dated) {
            Some(start) => (start, true),
            None => skip_at(rest),
        };
        let (time, rest) = match TimeOfDay::read(start) {
            Some((time, rest)) => (Some(time), rest),
            None => (None, rest),
        };
        // Without a day, leading digits may mean something else.
        let after_digits = start.trim_start_matches(|c: char| c.is_ascii_digit());
        let looks_like_time =
            after_digits.len() < start.len() && (day.is_some() || after_digits.starts_with(':'));
        if time.is_none() && (must || looks_like_time) {
            let found = first_word(start).0;
            let reason = format!(
                "{found:?} is not a time of day; write hours from 0 to 23 and minutes, like 09:00"
            );
            return Err(TimeError::time(text, reason));
        }
        if day.is_none() && time.is_none() {
            return Err(TimeError::time(text, explain(trimmed)));
        }
        let zone = match rest.trim_ascii_start() {
            "" => match zone {
                Some(zone) => ZoneSpec::of(zone),
                None => {
                    // As in RFC 3339, if it is nearly that.
                    let space = if dated && time.is_some() { "" } else { " " };
                    return Err(TimeError::no_zone(trimmed, space));
                }
            },
            spec if day.is_none() && matches!(Day::read(spec), Ok(Some(_))) => {
                let reason = "write the day before the time, like tomorrow 09:00";
                return Err(TimeError::time(text, reason));
            }
            spec if spec.len() == rest.len() && !may_adjoin(spec) => {
                let reason = format!("{spec:?} is not allowed at this position; {FORMS}");
                return Err(TimeError::time(text, reason));
            }
            spec => ZoneSpec::read(spec)?,
        };
        Ok(DayAndTime { day, time: time.unwrap_or(TimeOfDay::MIDNIGHT), zone })
    }

    fn at(&self, text: &str, now: Timestamp) -> Parsed {
        let late = || TimeError::time(text, AFTER_9999);
        let today = || self.zone.zone.today(now.as_millis()).ok_or_else(late);
        let after = |date, days| days_after(date, days).ok_or_else(late);
        match self.day {
            Some(Day::Date(date)) => Ok(self.on(text, date)?[0]),
            Some(Day::FromToday(days)) => Ok(self.on(text, after(today()?, days)?)?[0]),
            Some(Day::Weekday(weekday)) => {
                let today = today()?;
                let date = after(today, days_until(weekday, today))?;
                self.next(text, now, date, 7)
            }
            None => self.next(text, now, today()?, 1),
        }
    }

    /// Returns the time on this date, or `days` days later if that has passed.
    fn next(&self, text: &str, now: Timestamp, date: Date, days: i64) -> Parsed {
        if let Some(at) = self.on(text, date)?.into_iter().find(|at| *at >= now) {
            return Ok(at);
        }
        let later = days_after(date, days);
        let date = later.ok_or_else(|| TimeError::time(text, AFTER_9999))?;
        Ok(self.on(text, date)?[0])
    }

    /// Returns the first and the last instant of this time on a date.
    fn on(&self, text: &str, date: Date) -> Result<[Timestamp; 2], TimeError> {
        let shown = self.time.on(date);
        if !self.zone.agrees(shown) {
            let reason =
                "the time zone does not have this offset at that time; leave out one of them";
            return Err(TimeError::time(text, reason));
        }
        let [first, last] = self.zone.zone.instants(shown);
        // A second 60 is represented as second 59 plus 1000 ms.
        if self.time.leap && (first + 1).rem_euclid(86_400) != 0 {
            return Err(TimeError::time(
                text,
                "this minute has no leap second; write seconds from 00 to 59",
            ));
        }
        let before = || TimeError::Before1970 { text: text.to_owned() };
        let at = |secs: i64| {
            let millis = secs * 1000 + self.time.millis as i64;
            u64::try_from(millis).map(Timestamp::from_millis).map_err(|_| before())
        };
        Ok([at(first)?, at(last)?])
    }
}

/// Skips white space and an "at". Returns the rest, and whether there was an "at".
fn skip_at(rest: &str) -> (&str, bool) {
    let start = rest.trim_ascii_start();
    let (word, after) = first_word(start);
    if word.eq_ignore_ascii_case("at") { (after.trim_ascii_start(), true) } else { (start, false) }
}

/// Returns whether this zone may follow digits without a space: every form but a name.
fn may_adjoin(zone: &str) -> bool {
    zone.starts_with(['+', '-', '['])
        || matches!(zone, "Z" | "z")
        || zone.starts_with("Z[")
        || zone.starts_with("z[")
}

/// Returns why a text that starts with neither a day nor a time of day is not a time.
fn explain(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    if text.is_empty() {
        return format!("it is empty; {FORMS}");
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return format!(
            "a number without a unit is rejected: write @{text}s or @{text}ms for Unix time, \
             in 5m for a time from now, or 09:00 UTC for a time of day"
        );
    }
    if parse_duration(text).is_ok() {
        return format!("it is a duration; use it as a delay, or write in {text}");
    }
    if lower.starts_with("next ") {
        return "next is ambiguous; write the date, \
                or the weekday alone for the coming one, like monday 08:30"
            .to_owned();
    }
    if lower.ends_with("am") || lower.ends_with("pm") {
        return "write hours from 0 to 23, like 09:00 or 21:00".to_owned();
    }
    FORMS.to_owned()
}

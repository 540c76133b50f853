//! Points in time: when a text means, and the text of a time.

use super::words::{Clock, Day, days_after, days_until, first_word};
use super::zone::{Place, Zone};
use super::{TimeError, fitting, parse_duration};
use jiff::SignedDuration;
use jiff::civil::{Date, DateTime};
use requeue_jobs::Timestamp;

const FORMS: &str = "write it like 2026-12-01T09:00:00+01:00, 2026-12-01 09:00 Europe/Berlin, \
                     tomorrow 09:00, monday 08:30, 09:00 or in 5m";

const AFTER_9999: &str = "it is after the year 9999, where calendars end";

type Read = Result<Timestamp, TimeError>;

/// Reads a time, if it is `now` and clocks show the time of `zone` where the text says no other.
///
/// | text | means |
/// |---|---|
/// | `2026-12-01T09:00:00+01:00`, `2026-12-01 08:00:00z` | RFC 3339 |
/// | `2026-12-01T09:00:00+01:00[Europe/Berlin]` | RFC 9557; offset and zone must agree |
/// | `2026-12-01 09:00 Europe/Berlin`, `2026-12-01 09:00 +01:00` | in that zone |
/// | `2026-12-01 09:00`, `2026-12-01T09:00` | in `zone` |
/// | `2026-12-01`, `today`, `tomorrow`, `yesterday` | the start of that day |
/// | `today 18:00`, `tomorrow at 09:00` | that day, even if it has passed |
/// | `09:00`, `9:00` | the next such time: today, or tomorrow if it has passed |
/// | `monday 08:30`, `mon`  | the next such time: within a week |
/// | `now`, `in 5m`, `1h ago` | as [`parse_duration`] reads it |
/// | `@1796112000s`, `@1796112000000ms` | so long after 1970 |
///
/// A zone may follow wherever a day or a time of day is; `today` is then the day that it is there.
/// Seconds and fractions of them may follow minutes. What is finer than a millisecond is rounded
/// up: nothing is early.
///
/// A time that the clocks skip, since they go forward, is as long after the change as it would be
/// had they not: 02:30 becomes 03:30. A time that they show twice, since they go back, is the first
/// of the two; for a time without a date, the first that has not passed.
///
/// Refused are times before 1970; a number alone; a duration alone, since it may have been meant as
/// a delay; and `next monday`, which is another day for another reader.
///
/// ```
/// use requeue_http::times::{Zone, parse_time, show_time};
/// use requeue_jobs::Timestamp;
///
/// let now = Timestamp::from_millis(1_796_112_000_000); // 2026-12-01T08:00:00Z
/// let read = |text| parse_time(text, now, &Zone::UTC).map(show_time);
/// assert_eq!(read("2026-12-01T09:00:00+01:00")?, "2026-12-01T08:00:00.000Z");
/// assert_eq!(read("tomorrow 09:00 Europe/Berlin")?, "2026-12-02T08:00:00.000Z");
/// assert_eq!(read("07:59")?, "2026-12-02T07:59:00.000Z");
/// assert_eq!(
///     read("5m").unwrap_err().to_string(),
///     r#""5m" is no time: it is a duration; give it as a delay, or write in 5m"#,
/// );
/// # Ok::<(), requeue_http::times::TimeError>(())
/// ```
pub fn parse_time(text: &str, now: Timestamp, zone: &Zone) -> Result<Timestamp, TimeError> {
    let trimmed = fitting(text)?;
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
        // Back by whole milliseconds, which rounds the time up.
        let millis = parse_duration(length)?.as_millis();
        let at = u64::try_from(millis).ok().and_then(|ms| now.as_millis().checked_sub(ms));
        let before = || TimeError::Before1970 { text: text.to_owned() };
        return at.map(Timestamp::from_millis).ok_or_else(before);
    }
    Said::read(text, trimmed, zone)?.at(text, now)
}

/// Writes `time` in RFC 3339: in UTC, with milliseconds. Times after the year 9999, which it does
/// not have, are written as milliseconds since 1970. [`parse_time`] reads exactly the same time
/// back from either.
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

/// `1796112000s` or `1796112000000ms`.
fn since_1970(text: &str, count: &str) -> Read {
    let (digits, unit) = count.split_at(count.find(char::is_alphabetic).unwrap_or(count.len()));
    let scale = match &*unit.to_ascii_lowercase() {
        "s" => 1000,
        "ms" => 1,
        _ => 0,
    };
    if scale == 0 || digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        let wrong = "write @1796112000s or @1796112000000ms for so long after 1970";
        return Err(TimeError::time(text, wrong));
    }
    // All are digits: what does not parse is too much.
    let millis = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(scale));
    millis.map(Timestamp::from_millis).ok_or_else(|| TimeError::too_late(text))
}

/// A day, a time of day and a place, of which all but one of the first two may be left out.
struct Said {
    /// None is the first day on which the time has not passed.
    day: Option<Day>,
    clock: Clock,
    place: Place,
}

impl Said {
    fn read(text: &str, trimmed: &str, zone: &Zone) -> Result<Self, TimeError> {
        let day = Day::read(trimmed).map_err(|wrong| TimeError::time(text, wrong))?;
        let (day, rest) = day.map_or((None, trimmed), |(day, rest)| (Some(day), rest));
        let dated = matches!(day, Some(Day::Date(_)));
        let (start, must) = match rest.strip_prefix(['T', 't']).filter(|_| dated) {
            Some(start) => (start, true),
            None => after_at(rest),
        };
        let (clock, rest) = match Clock::read(start) {
            Some((clock, rest)) => (Some(clock), rest),
            None => (None, rest),
        };
        // Without a day, it may be meant as something else.
        let after_digits = start.trim_start_matches(|c: char| c.is_ascii_digit());
        let clocklike =
            after_digits.len() < start.len() && (day.is_some() || after_digits.starts_with(':'));
        if clock.is_none() && (must || clocklike) {
            let found = first_word(start).0;
            let wrong = format!(
                "{found:?} is no time of day; write hours from 0 to 23 and minutes, like 09:00"
            );
            return Err(TimeError::time(text, wrong));
        }
        if day.is_none() && clock.is_none() {
            return Err(TimeError::time(text, explain(trimmed)));
        }
        let place = match rest.trim_ascii_start() {
            "" => Place::of(zone),
            said if day.is_none() && matches!(Day::read(said), Ok(Some(_))) => {
                let wrong = "write the day before the time, like tomorrow 09:00";
                return Err(TimeError::time(text, wrong));
            }
            said if said.len() == rest.len() && !may_adjoin(said) => {
                let wrong = format!("{said:?} cannot follow there; {FORMS}");
                return Err(TimeError::time(text, wrong));
            }
            said => Place::read(said)?,
        };
        Ok(Said { day, clock: clock.unwrap_or(Clock::MIDNIGHT), place })
    }

    fn at(&self, text: &str, now: Timestamp) -> Read {
        let late = || TimeError::time(text, AFTER_9999);
        let today = || self.place.zone.today(now.as_millis()).ok_or_else(late);
        let after = |date, days| days_after(date, days).ok_or_else(late);
        match self.day {
            Some(Day::Date(date)) => Ok(self.on(text, date)?[0]),
            Some(Day::Ahead(days)) => Ok(self.on(text, after(today()?, days)?)?[0]),
            Some(Day::Weekday(weekday)) => {
                let today = today()?;
                let date = after(today, days_until(weekday, today))?;
                self.next(text, now, date, 7)
            }
            None => self.next(text, now, today()?, 1),
        }
    }

    /// On this date, or so many days later if it has passed by then.
    fn next(&self, text: &str, now: Timestamp, date: Date, days: i64) -> Read {
        if let Some(at) = self.on(text, date)?.into_iter().find(|at| *at >= now) {
            return Ok(at);
        }
        let later = days_after(date, days);
        let date = later.ok_or_else(|| TimeError::time(text, AFTER_9999))?;
        Ok(self.on(text, date)?[0])
    }

    /// When it is on this date, the first time and the last.
    fn on(&self, text: &str, date: Date) -> Result<[Timestamp; 2], TimeError> {
        let shown = self.clock.on(date);
        if !self.place.agrees(shown) {
            let wrong = "the zone is not at that offset then; leave out one of them";
            return Err(TimeError::time(text, wrong));
        }
        let [first, last] = self.place.zone.instants(shown);
        // A second 60 is read as what follows a second 59.
        if self.clock.leap && (first + 1).rem_euclid(86_400) != 0 {
            return Err(TimeError::time(text, "no minute has a second 60 then; write 00 to 59"));
        }
        let before = || TimeError::Before1970 { text: text.to_owned() };
        let at = |secs: i64| {
            let millis = secs * 1000 + self.clock.millis as i64;
            u64::try_from(millis).map(Timestamp::from_millis).map_err(|_| before())
        };
        Ok([at(first)?, at(last)?])
    }
}

/// What follows a day, without the space and an "at"; and whether that was there.
fn after_at(rest: &str) -> (&str, bool) {
    let start = rest.trim_ascii_start();
    let (word, after) = first_word(start);
    if word.eq_ignore_ascii_case("at") { (after.trim_ascii_start(), true) } else { (start, false) }
}

/// Whether this may follow digits without a space: all places may but a zone's name.
fn may_adjoin(place: &str) -> bool {
    place.starts_with(['+', '-', '['])
        || matches!(place, "Z" | "z")
        || place.starts_with("Z[")
        || place.starts_with("z[")
}

/// Why a text that begins with neither a day nor a time of day is no time.
fn explain(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    if text.is_empty() {
        return format!("it is empty; {FORMS}");
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return format!(
            "{text} of what? write @{text}s or @{text}ms for so long after 1970, \
             in 5m for so long from now, or 09:00 for a time of day"
        );
    }
    if parse_duration(text).is_ok() {
        return format!("it is a duration; give it as a delay, or write in {text}");
    }
    if lower.starts_with("next ") {
        return "next may be this week's or the week after's; write the date, \
                or the weekday alone for the coming one, like monday 08:30"
            .to_owned();
    }
    if lower.ends_with("am") || lower.ends_with("pm") {
        return "write hours from 0 to 23, like 09:00 or 21:00".to_owned();
    }
    FORMS.to_owned()
}

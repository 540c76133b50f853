//! The parts of a time: days and times of day.

use jiff::Span;
use jiff::civil::{Date, DateTime, Time, Weekday};

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

/// A day, as it is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Day {
    Date(Date),
    /// This many days after today.
    FromToday(i64),
    Weekday(Weekday),
}

impl Day {
    /// Returns the day at the start of `text`, and the rest; `None` if the text starts with something
    /// else. The error tells what is wrong with the date.
    pub(super) fn read(text: &str) -> Result<Option<(Day, &str)>, String> {
        if text.bytes().take_while(u8::is_ascii_digit).count() == 4 && text[4..].starts_with('-') {
            let (date, rest) = text.split_at(text.find(not_in_date).unwrap_or(text.len()));
            return match read_date(date) {
                Some(date) => Ok(Some((Day::Date(date), rest))),
                None => Err(format!("{date} is not a date; write year-month-day, like 2026-12-01")),
            };
        }
        let (word, rest) = first_word(text);
        let word = word.to_ascii_lowercase();
        let day = match &*word {
            "yesterday" => Day::FromToday(-1),
            "today" => Day::FromToday(0),
            "tomorrow" => Day::FromToday(1),
            word => match WEEKDAYS.iter().find(|(name, _)| word == *name || word == &name[..3]) {
                Some((_, weekday)) => Day::Weekday(*weekday),
                None => return Ok(None),
            },
        };
        Ok(Some((day, rest)))
    }
}

/// A time of day.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TimeOfDay {
    time: Time,
    /// Milliseconds after `time`, rounded up: at most 1000, or 2000 in a leap second.
    pub(super) millis: u64,
    /// Whether the second is 60. Leap seconds exist only at the end of a day in UTC.
    pub(super) leap: bool,
}

impl TimeOfDay {
    pub(super) const MIDNIGHT: TimeOfDay =
        TimeOfDay { time: Time::midnight(), millis: 0, leap: false };

    /// Returns the time of day at the start of `text`, and the rest; `None` if the text starts with
    /// something else.
    pub(super) fn read(text: &str) -> Option<(TimeOfDay, &str)> {
        let end = text.find(|c: char| !matches!(c, '0'..='9' | ':' | '.')).unwrap_or(text.len());
        let (time, rest) = text.split_at(end);
        let (time, fraction) = match time.split_once('.') {
            Some((time, fraction)) => (time, Some(fraction)),
            None => (time, None),
        };
        let mut parts = time.split(':');
        let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next());
        let short = minute.len() != 2 || second.is_some_and(|s| s.len() != 2);
        if short || parts.next().is_some() || fraction.is_some() && second.is_none() {
            return None;
        }
        let (hour, minute) = (number(hour)?, number(minute)?);
        let second = second.map_or(Some(0), number)?;
        let leap = second == 60;
        let time = Time::new(hour, minute, if leap { 59 } else { second }, 0).ok()?;
        let millis = fraction.map_or(Some(0), millis_up)? + if leap { 1000 } else { 0 };
        Some((TimeOfDay { time, millis, leap }, rest))
    }

    pub(super) fn on(self, date: Date) -> DateTime {
        date.to_datetime(self.time)
    }
}

/// Returns the date `days` days after `date`; `None` if that is after the year 9999.
pub(super) fn days_after(date: Date, days: i64) -> Option<Date> {
    date.checked_add(Span::new().try_days(days).ok()?).ok()
}

/// Returns the number of days from `date` to the next such weekday, 0 to 6.
pub(super) fn days_until(weekday: Weekday, date: Date) -> i64 {
    let ahead = weekday.to_monday_zero_offset() - date.weekday().to_monday_zero_offset();
    i64::from(ahead.rem_euclid(7))
}

/// Returns the first word of `text`, and the rest.
pub(super) fn first_word(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| c.is_ascii_whitespace()).unwrap_or(text.len()))
}

/// Parses a number of one or two digits.
pub(super) fn number(digits: &str) -> Option<i8> {
    let plain = matches!(digits.len(), 1 | 2) && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

fn not_in_date(c: char) -> bool {
    !c.is_ascii_digit() && c != '-'
}

/// Parses a date like `2026-12-01`, with all digits.
fn read_date(text: &str) -> Option<Date> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if month.len() != 2 || day.len() != 2 || parts.next().is_some() {
        return None;
    }
    Date::new(year.parse().ok()?, number(month)?, number(day)?).ok()
}

/// Returns the milliseconds of a fraction of a second, rounded up, so that nothing is early.
fn millis_up(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (millis, finer) = digits.split_at(digits.len().min(3));
    let millis: u64 = format!("{millis:0<3}").parse().ok()?;
    Some(millis + u64::from(finer.bytes().any(|b| b != b'0')))
}

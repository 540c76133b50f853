//! Durations: numbers with units, converted exactly to nanoseconds.

use super::{TimeError, trim_checked};
use std::fmt::Write;
use std::time::Duration;

/// Names and nanoseconds of the units, longest first. A duration must name them in this order.
const UNITS: [(&[&str], u128); 8] = [
    (&["w", "wk", "wks", "week", "weeks"], 604_800_000_000_000),
    (&["d", "day", "days"], 86_400_000_000_000),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600_000_000_000),
    (&["m", "min", "mins", "minute", "minutes"], 60_000_000_000),
    (&["s", "sec", "secs", "second", "seconds"], 1_000_000_000),
    (&["ms", "msec", "msecs", "milli", "millis", "millisecond", "milliseconds"], 1_000_000),
    (&["us", "µs", "μs", "usec", "usecs", "micro", "micros", "microsecond", "microseconds"], 1000),
    (&["ns", "nsec", "nsecs", "nano", "nanos", "nanosecond", "nanoseconds"], 1),
];

/// Units that are rejected because their length varies.
const CALENDAR: [&str; 9] = ["mo", "mon", "mons", "month", "months", "y", "yr", "year", "years"];

/// Maximum digits of a fraction. A week has 2¹⁶·5¹¹·… nanoseconds, so a fraction that gives whole
/// nanoseconds has at most 16 significant digits. Ten to this power still fits.
const MAX_FRACTION: usize = 18;

const FORMS: &str = "write it like 5m, 1h30m, 1.5h, 250ms, 2 days or PT5M";

/// Parses a duration: `5m`, `1h30m`, `1h 30m`, `1.5h`, `2 days`, `1 week`, `250ms`, or in ISO 8601
/// `PT5M` and `P1DT12H`.
///
/// A day has 24 hours, and a week 7 days. Units go from the longest to the shortest, each at most once.
///
/// Fails for months and years, because their length varies; for a number without a unit, except `0`; for
/// `5M`, which means months elsewhere; and for a value that is not a whole number of nanoseconds, because
/// nothing is rounded.
///
/// ```
/// use requeue_http::times::parse_duration;
/// use std::time::Duration;
///
/// assert_eq!(parse_duration("1h 30m")?, Duration::from_secs(5400));
/// assert_eq!(parse_duration("1.5 hours")?, Duration::from_secs(5400));
/// assert_eq!(parse_duration("PT5M")?, Duration::from_secs(300));
/// assert_eq!(
///     parse_duration("5").unwrap_err().to_string(),
///     r#""5" is not a duration: a number without a unit is rejected: write 5s or 5m"#,
/// );
/// # Ok::<(), requeue_http::times::TimeError>(())
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, TimeError> {
    let trimmed = trim_checked(text)?;
    if trimmed == "0" {
        return Ok(Duration::ZERO);
    }
    let nanos = match trimmed.strip_prefix(['P', 'p']) {
        Some(parts) => iso(parts),
        None => parts(trimmed, 0, unit),
    };
    let too_long = || TimeError::DurationTooLong { text: text.to_owned(), limit: Duration::MAX };
    let nanos = match nanos {
        Ok(nanos) => nanos,
        Err(ParseError::TooLong) => return Err(too_long()),
        Err(ParseError::Invalid(reason)) => return Err(TimeError::duration(text, reason)),
    };
    // The remainder of a division by 1,000,000,000 fits into 32 bits.
    let subsec = (nanos % 1_000_000_000) as u32;
    let secs = u64::try_from(nanos / 1_000_000_000).map_err(|_| too_long())?;
    Ok(Duration::new(secs, subsec))
}

/// Formats a duration in days, hours, minutes and seconds, with a fraction if necessary. A duration below
/// one second is formatted in the largest unit that fits. [`parse_duration`] returns exactly the same
/// duration for the result.
///
/// ```
/// use requeue_http::times::show_duration;
/// use std::time::Duration;
///
/// assert_eq!(show_duration(Duration::from_secs(300)), "5m");
/// assert_eq!(show_duration(Duration::from_secs(86_400 + 90)), "1d1m30s");
/// assert_eq!(show_duration(Duration::from_micros(1500)), "1.5ms");
/// assert_eq!(show_duration(Duration::ZERO), "0s");
/// ```
pub fn show_duration(duration: Duration) -> String {
    let (secs, nanos) = (duration.as_secs(), duration.subsec_nanos());
    let mut text = String::new();
    for (count, unit) in [(secs / 86_400, 'd'), (secs / 3600 % 24, 'h'), (secs / 60 % 60, 'm')] {
        if count > 0 {
            write!(text, "{count}{unit}").expect("writing to a String cannot fail");
        }
    }
    text += &match (secs, nanos) {
        (0, 1..1000) => decimal(0, nanos, 1, "ns"),
        (0, 1000..1_000_000) => decimal(0, nanos, 1000, "us"),
        (0, 1_000_000..) => decimal(0, nanos, 1_000_000, "ms"),
        (1.., 0) if secs % 60 == 0 => String::new(),
        _ => decimal(secs % 60, nanos, 1_000_000_000, "s"),
    };
    text
}

/// Formats `whole` units plus `nanos` nanoseconds in a unit of `size` nanoseconds.
fn decimal(whole: u64, nanos: u32, size: u32, unit: &str) -> String {
    let whole = whole + u64::from(nanos / size);
    let (rest, width) = (nanos % size, size.ilog10() as usize);
    let fraction = if rest == 0 { String::new() } else { format!(".{rest:0width$}") };
    format!("{whole}{}{unit}", fraction.trim_end_matches('0'))
}

/// Why a duration cannot be parsed.
enum ParseError {
    TooLong,
    Invalid(String),
}

fn invalid<T>(reason: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError::Invalid(reason.into()))
}

/// Parses the part of an ISO 8601 duration after the `P`: weeks and days, then after a `T` hours, minutes
/// and seconds. An `M` before the `T` is a month.
fn iso(text: &str) -> Result<u128, ParseError> {
    let (days, clock) = match text.split_once(['T', 't']) {
        Some((days, clock)) => (days, Some(clock)),
        None => (text, None),
    };
    let of = |allowed: &'static [&'static str]| {
        move |name: &str| match &*name.to_ascii_lowercase() {
            lower if allowed.contains(&lower) => unit(lower),
            "m" | "y" => unit("month"),
            _ => invalid(format!("{name:?} is not a unit at this position; {FORMS}")),
        }
    };
    if text.is_empty() || text.contains(|c: char| c.is_ascii_whitespace()) {
        return invalid(FORMS);
    }
    let mut nanos = 0;
    if !days.is_empty() {
        nanos = parts(days, nanos, of(&["w", "d"]))?;
    }
    if let Some(clock) = clock {
        nanos = parts(clock, nanos, of(&["h", "m", "s"]))?;
    }
    Ok(nanos)
}

/// Adds numbers with units to `nanos`: at least one, longest unit first.
fn parts(
    mut text: &str,
    mut nanos: u128,
    unit: impl Fn(&str) -> Result<u128, ParseError>,
) -> Result<u128, ParseError> {
    if text.starts_with(['-', '\u{2212}']) {
        return invalid("a duration cannot be negative");
    }
    let mut last = u128::MAX;
    loop {
        let (number, rest) = split(text, |c| c.is_ascii_digit() || c == '.');
        let (name, rest) = split(rest.trim_ascii_start(), char::is_alphabetic);
        if number.is_empty() {
            return invalid(FORMS);
        }
        if name.is_empty() {
            return match rest {
                "" => invalid(format!(
                    "a number without a unit is rejected: write {number}s or {}",
                    in_minutes(number)
                )),
                _ => invalid(FORMS),
            };
        }
        let size = unit(name)?;
        if size >= last {
            return invalid("write each unit once, longest unit first, like 1h30m");
        }
        last = size;
        nanos = nanos.checked_add(count(number, size)?).ok_or(ParseError::TooLong)?;
        text = rest.trim_ascii_start();
        if text.is_empty() {
            return Ok(nanos);
        }
    }
}

/// Returns a number as a duration in minutes: if it is whole minutes in seconds, those.
fn in_minutes(number: &str) -> String {
    match number.parse::<u64>() {
        Ok(seconds) if seconds > 0 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        _ => format!("{number}m"),
    }
}

/// Returns the nanoseconds of `number` units of `size` nanoseconds.
fn count(number: &str, size: u128) -> Result<u128, ParseError> {
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (number, None),
    };
    if whole.is_empty() || fraction.is_some_and(|digits| digits.is_empty() || digits.contains('.'))
    {
        return invalid(format!("{number} is not a number; {FORMS}"));
    }
    // All characters are digits, so parsing fails only if the number is too large.
    let whole = whole.parse::<u128>().map_err(|_| ParseError::TooLong)?;
    let nanos = whole.checked_mul(size).ok_or(ParseError::TooLong)?;
    let digits = fraction.unwrap_or_default().trim_end_matches('0');
    if digits.is_empty() {
        return Ok(nanos);
    }
    let scale = 10u128.pow(digits.len().min(MAX_FRACTION) as u32);
    match digits.parse::<u128>() {
        Ok(part) if digits.len() <= MAX_FRACTION && (part * size).is_multiple_of(scale) => {
            nanos.checked_add(part * size / scale).ok_or(ParseError::TooLong)
        }
        _ => invalid(format!("{number} is more precise than nanoseconds; write fewer digits")),
    }
}

/// Returns the nanoseconds of the unit with this name.
fn unit(name: &str) -> Result<u128, ParseError> {
    let called = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    if name == "M" {
        return invalid("M can mean minutes or months; write m for minutes");
    }
    if called(&CALENDAR) {
        return invalid("months and years vary in length; write days, like 30d");
    }
    match UNITS.iter().find(|(names, _)| called(names)) {
        Some((_, nanos)) => Ok(*nanos),
        None => invalid(format!("{name:?} is not a unit; {FORMS}")),
    }
}

/// Splits `text` after its leading characters that satisfy `is`.
fn split(text: &str, is: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !is(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_parsed() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("5m", 300_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1h 30m", 5_400_000_000_000),
            ("  1 h  30 min ", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("90s", 90_000_000_000),
            ("250ms", 250_000_000),
            ("250MS", 250_000_000),
            ("2 days", 172_800_000_000_000),
            ("1 Week", 604_800_000_000_000),
            ("1w2d3h4m5s6ms7us8ns", 788_645_006_007_008),
            ("7µs", 7000),
            ("7 μs", 7000),
            ("0.1s", 100_000_000),
            ("0.000000001s", 1),
            ("1.000000000000000000000000000s", 1_000_000_000),
            // The smallest fraction of a week that is a whole number of nanoseconds: 2^-16.
            ("0.0000152587890625w", 9_228_515_625),
            ("PT5M", 300_000_000_000),
            ("pt1h30m", 5_400_000_000_000),
            ("P1DT12H", 129_600_000_000_000),
            ("P2W", 1_209_600_000_000_000),
            ("PT0.5S", 500_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn errors_tell_what_to_write() {
        for (text, expected) in [
            ("", "write it like 5m"),
            (" ", "write it like 5m"),
            ("5", "a number without a unit is rejected: write 5s or 5m"),
            ("1h30", "write 30s or 30m"),
            ("00", "write 00s or 00m"),
            ("-5m", "negative"),
            ("PT-5M", "negative"),
            ("1 month", "months and years"),
            ("2y", "months and years"),
            ("P1M", "months and years"),
            ("P1Y2M", "months and years"),
            ("5M", "write m for minutes"),
            ("5 parsecs", "\"parsecs\" is not a unit"),
            ("PT5D", "\"D\" is not a unit at"),
            ("P5H", "\"H\" is not a unit at"),
            ("P", "write it like"),
            ("PT", "write it like"),
            ("P1DT", "write it like"),
            ("P 1D", "write it like"),
            ("P1 D", "write it like"),
            ("P1D T2H", "write it like"),
            ("30m1h", "longest unit first"),
            ("1m1m", "longest unit first"),
            (".5s", ".5 is not a number"),
            ("5.s", "5. is not a number"),
            ("1.2.3s", "1.2.3 is not a number"),
            ("1.5ns", "more precise than nanoseconds"),
            ("0.3333333333333333333333h", "more precise than nanoseconds"),
            ("5m!", "write it like"),
            ("5!", "write it like"),
            ("+5m", "write it like"),
            ("five minutes", "write it like"),
        ] {
            let error = parse_duration(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("{text:?} is not a duration: ")), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_longest_duration_is_the_limit() {
        let longest = show_duration(Duration::MAX);
        assert_eq!(longest, "213503982334601d7h15.999999999s");
        assert_eq!(parse_duration(&longest), Ok(Duration::MAX));
        for text in ["18446744073709551616s".to_owned(), "9".repeat(98) + "w", longest + "1ns"] {
            let error = parse_duration(&text).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "{text:?} is too long for a duration; the limit is 213503982334601d7h15.999999999s"
                )
            );
        }
        let (len, limit) = (101, 100);
        assert_eq!(parse_duration(&"5".repeat(101)), Err(TimeError::TooLong { len, limit }));
    }

    #[test]
    fn durations_are_formatted() {
        for (nanos, text) in [
            (1, "1ns"),
            (1000, "1us"),
            (1001, "1.001us"),
            (999_999, "999.999us"),
            (1_500_000, "1.5ms"),
            (250_000_000, "250ms"),
            (1_000_000_000, "1s"),
            (1_050_000_000, "1.05s"),
            (60_000_000_001, "1m0.000000001s"),
            (90_000_000_000, "1m30s"),
            (5_400_000_000_000, "1h30m"),
            (604_800_000_000_000, "7d"),
        ] {
            assert_eq!(show_duration(Duration::from_nanos(nanos)), text);
        }
    }

    proptest! {
        #[test]
        fn formatted_durations_are_parsed_back(secs in any::<u64>(), shift in 0..64u32, nanos in 0..1_000_000_000u32, cut in 0..10u32) {
            let scale = 10u32.pow(cut);
            let duration = Duration::new(secs >> shift, nanos / scale * scale);
            prop_assert_eq!(parse_duration(&show_duration(duration)), Ok(duration));
            let small = Duration::from_nanos(u64::from(nanos / scale));
            prop_assert_eq!(parse_duration(&show_duration(small)), Ok(small));
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = parse_duration(&text);
        }

        #[test]
        fn no_text_like_a_duration_makes_it_panic(text in "[pP]?([0-9.]{0,30}[ Tt]?[a-zµ−-]{0,3}){0,4}") {
            if let Ok(duration) = parse_duration(&text) {
                prop_assert_eq!(parse_duration(&show_duration(duration)), Ok(duration));
            }
        }
    }
}

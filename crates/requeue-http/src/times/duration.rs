//! Durations: numbers with units, counted exactly in nanoseconds.

use super::{TimeError, fitting};
use std::fmt::Write;
use std::time::Duration;

/// Names and nanoseconds of the units, the longest first: parts are written in that order.
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

const CALENDAR: [&str; 9] = ["mo", "mon", "mons", "month", "months", "y", "yr", "year", "years"];

/// Digits of a fraction that can come to whole nanoseconds: a week has 2¹⁶·5¹¹ of them and no more
/// twos, so a fraction whose last digit counts has 16 at most. Ten to this still fits.
const MAX_FRACTION: usize = 18;

const FORMS: &str = "write it like 5m, 1h30m, 1.5h, 250ms, 2 days or PT5M";

/// Reads a duration: `5m`, `1h30m`, `1h 30m`, `1.5h`, `2 days`, `1 week`, `250ms`, or ISO 8601's
/// `PT5M` and `P1DT12H`.
///
/// A day is 24 hours and a week 7 days. Months and years are refused, since none is as long as the
/// next, and so are a number without a unit (only `0` is the same in all of them) and `5M`, which
/// elsewhere is months. The parts go from the longest unit to the shortest, each once. Nothing is rounded: what is no whole number of
/// nanoseconds is refused.
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
///     r#""5" is no duration: 5 of what? write 5s for seconds or 5m for minutes"#,
/// );
/// # Ok::<(), requeue_http::times::TimeError>(())
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, TimeError> {
    let trimmed = fitting(text)?;
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
        Err(Trouble::TooLong) => return Err(too_long()),
        Err(Trouble::Wrong(wrong)) => return Err(TimeError::duration(text, wrong)),
    };
    // The remainder of a division by 1,000,000,000 fits in 32 bits.
    let subsec = (nanos % 1_000_000_000) as u32;
    let secs = u64::try_from(nanos / 1_000_000_000).map_err(|_| too_long())?;
    Ok(Duration::new(secs, subsec))
}

/// Writes `duration` in days, hours, minutes and seconds, with a fraction if there must be one;
/// below a second, in the largest unit that it reaches. [`parse_duration`] reads exactly the same
/// duration back.
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
            write!(text, "{count}{unit}").expect("a string takes all");
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

/// `whole` and `nanos` in a unit of `size` nanoseconds.
fn decimal(whole: u64, nanos: u32, size: u32, unit: &str) -> String {
    let whole = whole + u64::from(nanos / size);
    let (rest, width) = (nanos % size, size.ilog10() as usize);
    let fraction = if rest == 0 { String::new() } else { format!(".{rest:0width$}") };
    format!("{whole}{}{unit}", fraction.trim_end_matches('0'))
}

enum Trouble {
    TooLong,
    Wrong(String),
}

fn wrong<T>(wrong: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Wrong(wrong.into()))
}

/// What follows the P: weeks and days, then after a T hours, minutes and seconds. An M before the
/// T is a month.
fn iso(text: &str) -> Result<u128, Trouble> {
    let (days, clock) = match text.split_once(['T', 't']) {
        Some((days, clock)) => (days, Some(clock)),
        None => (text, None),
    };
    let of = |allowed: &'static [&'static str]| {
        move |name: &str| match &*name.to_ascii_lowercase() {
            lower if allowed.contains(&lower) => unit(lower),
            "m" | "y" => unit("month"),
            _ => wrong(format!("{name:?} is no unit there; {FORMS}")),
        }
    };
    if text.is_empty() || text.contains(|c: char| c.is_ascii_whitespace()) {
        return wrong(FORMS);
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

/// Adds up numbers with units: at least one, the longest unit first.
fn parts(
    mut text: &str,
    mut nanos: u128,
    unit: impl Fn(&str) -> Result<u128, Trouble>,
) -> Result<u128, Trouble> {
    if text.starts_with(['-', '\u{2212}']) {
        return wrong("it is negative, and time does not go back");
    }
    let mut last = u128::MAX;
    loop {
        let (number, rest) = split(text, |c| c.is_ascii_digit() || c == '.');
        let (name, rest) = split(rest.trim_ascii_start(), char::is_alphabetic);
        if number.is_empty() {
            return wrong(FORMS);
        }
        if name.is_empty() {
            return match rest {
                "" => wrong(format!(
                    "{number} of what? write {number}s for seconds or {number}m for minutes"
                )),
                _ => wrong(FORMS),
            };
        }
        let size = unit(name)?;
        if size >= last {
            return wrong("each unit goes once, and the longest first, like 1h30m");
        }
        last = size;
        nanos = nanos.checked_add(count(number, size)?).ok_or(Trouble::TooLong)?;
        text = rest.trim_ascii_start();
        if text.is_empty() {
            return Ok(nanos);
        }
    }
}

/// The nanoseconds of `number` units of `size`.
fn count(number: &str, size: u128) -> Result<u128, Trouble> {
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (number, None),
    };
    if whole.is_empty() || fraction.is_some_and(|digits| digits.is_empty() || digits.contains('.'))
    {
        return wrong(format!("{number} is no number; {FORMS}"));
    }
    // All are digits: what does not parse is too much.
    let whole = whole.parse::<u128>().map_err(|_| Trouble::TooLong)?;
    let nanos = whole.checked_mul(size).ok_or(Trouble::TooLong)?;
    let digits = fraction.unwrap_or_default().trim_end_matches('0');
    if digits.is_empty() {
        return Ok(nanos);
    }
    let scale = 10u128.pow(digits.len().min(MAX_FRACTION) as u32);
    match digits.parse::<u128>() {
        Ok(part) if digits.len() <= MAX_FRACTION && (part * size).is_multiple_of(scale) => {
            nanos.checked_add(part * size / scale).ok_or(Trouble::TooLong)
        }
        _ => wrong(format!("{number} is finer than nanoseconds; write fewer digits")),
    }
}

/// The nanoseconds of the unit called `name`.
fn unit(name: &str) -> Result<u128, Trouble> {
    let called = |names: &[&str]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    if name == "M" {
        return wrong("M may be minutes or months; write m for minutes");
    }
    if called(&CALENDAR) {
        return wrong("months and years are not all as long; write days, like 30d");
    }
    match UNITS.iter().find(|(names, _)| called(names)) {
        Some((_, nanos)) => Ok(*nanos),
        None => wrong(format!("{name:?} is no unit; {FORMS}")),
    }
}

/// What `text` begins with that is all `of` a sort, and the rest.
fn split(text: &str, of: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !of(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
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
            // The finest fraction of a week: 2^-16 of it.
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
    fn what_is_refused_says_what_to_write() {
        for (text, says) in [
            ("", "write it like 5m"),
            (" ", "write it like 5m"),
            ("5", "5 of what? write 5s for seconds or 5m for minutes"),
            ("1h30", "30 of what?"),
            ("00", "00 of what?"),
            ("-5m", "negative"),
            ("PT-5M", "negative"),
            ("1 month", "months and years"),
            ("2y", "months and years"),
            ("P1M", "months and years"),
            ("P1Y2M", "months and years"),
            ("5M", "write m for minutes"),
            ("5 parsecs", "\"parsecs\" is no unit"),
            ("PT5D", "\"D\" is no unit there"),
            ("P5H", "\"H\" is no unit there"),
            ("P", "write it like"),
            ("PT", "write it like"),
            ("P1DT", "write it like"),
            ("P 1D", "write it like"),
            ("P1 D", "write it like"),
            ("P1D T2H", "write it like"),
            ("30m1h", "longest first"),
            ("1m1m", "longest first"),
            (".5s", ".5 is no number"),
            ("5.s", "5. is no number"),
            ("1.2.3s", "1.2.3 is no number"),
            ("1.5ns", "finer than nanoseconds"),
            ("0.3333333333333333333333h", "finer than nanoseconds"),
            ("5m!", "write it like"),
            ("5!", "write it like"),
            ("+5m", "write it like"),
            ("five minutes", "write it like"),
        ] {
            let error = parse_duration(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("{text:?} is no duration: ")), "{error}");
            assert!(error.contains(says), "{error}");
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
                    "{text:?} is too long a duration; the limit is 213503982334601d7h15.999999999s"
                )
            );
        }
        let (len, limit) = (101, 100);
        assert_eq!(parse_duration(&"5".repeat(101)), Err(TimeError::TooLong { len, limit }));
    }

    #[test]
    fn durations_are_shown_plainly() {
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
        fn what_is_shown_is_read_back(secs in any::<u64>(), shift in 0..64u32, nanos in 0..1_000_000_000u32, cut in 0..10u32) {
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

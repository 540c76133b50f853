//! Tests of parsing and formatting times.

use super::*;
use proptest::prelude::*;
use requeue_jobs::Timestamp;

fn berlin() -> Zone {
    "Europe/Berlin".parse().unwrap()
}

/// Parses an instant in RFC 3339 independently, for comparison.
fn at(text: &str) -> Timestamp {
    Timestamp::from(std::time::SystemTime::from(text.parse::<jiff::Timestamp>().unwrap()))
}

/// Parses `text` in Berlin at this time, and formats the result.
fn read(text: &str, now: &str) -> String {
    match parse_time(text, at(now), Some(&berlin())) {
        Ok(time) => show_time(time),
        Err(error) => panic!("{error}"),
    }
}

fn error_of(text: &str) -> String {
    let error = parse_time(text, at("2026-11-15T12:00:00Z"), Some(&berlin()));
    error.map(show_time).expect_err(text).to_string()
}

/// Valid texts of each form, and their meaning.
const GOOD: [(&str, &str); 38] = [
    ("2026-12-01T09:00:00+01:00", "2026-12-01T08:00:00.000Z"),
    ("2026-12-01 09:00:00+01:00", "2026-12-01T08:00:00.000Z"),
    ("2026-12-01t09:00:00z", "2026-12-01T09:00:00.000Z"),
    ("2026-12-01T09:00:00-0330", "2026-12-01T12:30:00.000Z"),
    ("2026-12-01T09:00Z", "2026-12-01T09:00:00.000Z"),
    ("2026-12-01T09:00:00.25Z", "2026-12-01T09:00:00.250Z"),
    ("2026-12-01T09:00:00+01:00[Europe/Berlin]", "2026-12-01T08:00:00.000Z"),
    ("2026-12-01T09:00:00+01:00[!europe/berlin]", "2026-12-01T08:00:00.000Z"),
    ("2026-12-01T09:00:00Z[Europe/Berlin]", "2026-12-01T09:00:00.000Z"),
    ("2026-12-01T09:00:00-00:00[Europe/Berlin]", "2026-12-01T09:00:00.000Z"),
    ("2026-12-01T09:00:00[America/New_York]", "2026-12-01T14:00:00.000Z"),
    ("2026-12-01T09:00:00+01:00[+01:00]", "2026-12-01T08:00:00.000Z"),
    ("2026-12-01 09:00 America/New_York", "2026-12-01T14:00:00.000Z"),
    ("2026-12-01 9:00 UTC", "2026-12-01T09:00:00.000Z"),
    ("2026-12-01 09:00 -05:00", "2026-12-01T14:00:00.000Z"),
    ("  2026-12-01   09:00  ", "2026-12-01T08:00:00.000Z"),
    ("2026-12-01T09:00", "2026-12-01T08:00:00.000Z"),
    ("2026-12-01 at 09:00", "2026-12-01T08:00:00.000Z"),
    ("2026-12-01", "2026-11-30T23:00:00.000Z"),
    ("2026-12-01 UTC", "2026-12-01T00:00:00.000Z"),
    ("13:00", "2026-11-15T12:00:00.000Z"),
    ("12:59", "2026-11-16T11:59:00.000Z"),
    ("9:00", "2026-11-16T08:00:00.000Z"),
    ("at 23:59:59.999", "2026-11-15T22:59:59.999Z"),
    ("09:00 Asia/Tokyo", "2026-11-16T00:00:00.000Z"),
    ("09:00Z", "2026-11-16T09:00:00.000Z"),
    ("today", "2026-11-14T23:00:00.000Z"),
    ("today 18:00", "2026-11-15T17:00:00.000Z"),
    ("Today 08:00", "2026-11-15T07:00:00.000Z"),
    ("TOMORROW", "2026-11-15T23:00:00.000Z"),
    ("tomorrow at 09:00 Pacific/Kiritimati", "2026-11-16T19:00:00.000Z"),
    ("yesterday", "2026-11-13T23:00:00.000Z"),
    ("monday 08:30", "2026-11-16T07:30:00.000Z"),
    ("mon 08:30 UTC", "2026-11-16T08:30:00.000Z"),
    ("now", "2026-11-15T12:00:00.000Z"),
    ("in 1h 30min", "2026-11-15T13:30:00.000Z"),
    ("1h 30 min ago", "2026-11-15T10:30:00.000Z"),
    ("@1796112000s", "2026-12-01T08:00:00.000Z"),
];

#[test]
fn times_are_parsed() {
    for (text, means) in GOOD {
        assert_eq!(read(text, "2026-11-15T12:00:00Z"), means, "{text}");
        let upper = text.to_ascii_uppercase();
        assert_eq!(read(&upper, "2026-11-15T12:00:00Z"), means, "{upper}");
    }
}

#[test]
fn fractions_of_a_millisecond_are_rounded_up() {
    for (fraction, millis) in [
        (".000", "000"),
        (".0000000000000000000000000000000000000000000000000001", "001"),
        (".1", "100"),
        (".0019", "002"),
        (".001000000", "001"),
    ] {
        let text = format!("2026-12-01T08:00:00{fraction}Z");
        let means = format!("2026-12-01T08:00:00.{millis}Z");
        assert_eq!(read(&text, "2026-11-15T12:00:00Z"), means);
    }
    let now = "2026-11-15T12:00:00Z";
    assert_eq!(read("2026-12-31T23:59:59.9991Z", now), "2027-01-01T00:00:00.000Z");
    assert_eq!(read("in 1ns", now), "2026-11-15T12:00:00.001Z");
    assert_eq!(read("1ns ago", now), "2026-11-15T12:00:00.000Z");
    assert_eq!(read("1.5ms ago", now), "2026-11-15T11:59:59.999Z");
}

#[test]
fn a_time_of_day_is_the_next_one_and_may_be_now() {
    assert_eq!(read("09:00", "2026-12-01T08:00:00Z"), "2026-12-01T08:00:00.000Z");
    assert_eq!(read("09:00", "2026-12-01T08:00:00.001Z"), "2026-12-02T08:00:00.000Z");
    // In Berlin it is already the 2nd.
    assert_eq!(read("00:10", "2026-12-01T23:30:00Z"), "2026-12-02T23:10:00.000Z");
    assert_eq!(read("tomorrow", "2026-12-01T23:30:00Z"), "2026-12-02T23:00:00.000Z");
    assert_eq!(read("tomorrow UTC", "2026-12-01T23:30:00Z"), "2026-12-02T00:00:00.000Z");
}

#[test]
fn a_weekday_is_the_next_one_and_today_only_if_the_time_has_not_passed() {
    // A Tuesday.
    let now = "2026-12-01T08:00:00Z";
    for (text, means) in [
        ("tuesday 09:00", "2026-12-01T08:00:00.000Z"),
        ("tuesday 08:59", "2026-12-08T07:59:00.000Z"),
        ("tuesday", "2026-12-07T23:00:00.000Z"),
        ("wed", "2026-12-01T23:00:00.000Z"),
        ("thursday", "2026-12-02T23:00:00.000Z"),
        ("friday", "2026-12-03T23:00:00.000Z"),
        ("saturday", "2026-12-04T23:00:00.000Z"),
        ("sunday", "2026-12-05T23:00:00.000Z"),
        ("monday", "2026-12-06T23:00:00.000Z"),
    ] {
        assert_eq!(read(text, now), means, "{text}");
    }
}

#[test]
fn a_time_that_does_not_exist_comes_after_the_change() {
    let now = "2026-03-28T12:00:00Z";
    for (text, means) in [
        ("2026-03-29 01:59:59", "2026-03-29T00:59:59.000Z"),
        ("2026-03-29 02:00", "2026-03-29T01:00:00.000Z"),
        ("2026-03-29 02:30", "2026-03-29T01:30:00.000Z"),
        ("2026-03-29 03:00", "2026-03-29T01:00:00.000Z"),
        ("02:30", "2026-03-29T01:30:00.000Z"),
        // Midnight does not exist there: the day starts at one.
        ("2018-11-04 America/Sao_Paulo", "2018-11-04T03:00:00.000Z"),
        // The whole day does not exist.
        ("2011-12-30 12:00 Pacific/Apia", "2011-12-30T22:00:00.000Z"),
    ] {
        assert_eq!(read(text, now), means, "{text}");
    }
}

#[test]
fn a_time_that_exists_twice_is_the_first() {
    let now = "2026-10-24T12:00:00Z";
    for (text, means) in [
        ("2026-10-25 01:59", "2026-10-24T23:59:00.000Z"),
        ("2026-10-25 02:30", "2026-10-25T00:30:00.000Z"),
        ("2026-10-25 03:00", "2026-10-25T02:00:00.000Z"),
        ("02:30", "2026-10-25T00:30:00.000Z"),
        ("2026-10-25T02:30:00+02:00[Europe/Berlin]", "2026-10-25T00:30:00.000Z"),
        ("2026-10-25T02:30:00+01:00[Europe/Berlin]", "2026-10-25T01:30:00.000Z"),
    ] {
        assert_eq!(read(text, now), means, "{text}");
    }
    // 02:45, the first time: the next 02:30 is the second one.
    assert_eq!(read("02:30", "2026-10-25T00:45:00Z"), "2026-10-25T01:30:00.000Z");
    assert_eq!(read("02:30", "2026-10-25T01:45:00Z"), "2026-10-26T01:30:00.000Z");
}

#[test]
fn a_leap_second_is_the_start_of_the_next_minute() {
    let now = "2016-12-31T12:00:00Z";
    assert_eq!(read("2016-12-31T23:59:60Z", now), "2017-01-01T00:00:00.000Z");
    assert_eq!(read("2017-01-01T05:29:60.5+05:30", now), "2017-01-01T00:00:00.500Z");
    assert!(error_of("2016-12-31T23:58:60Z").contains("write seconds from 00 to 59"));
}

#[test]
fn errors_tell_what_to_write() {
    for (text, expected) in [
        ("", "it is empty; write it like 2026-12-01T09:00:00+01:00"),
        (" ", "it is empty"),
        ("soon", "write it like"),
        ("1796112000", "write @1796112000s or @1796112000ms"),
        ("9", "write @9s or @9ms for Unix time"),
        ("5m", "it is a duration; use it as a delay, or write in 5m"),
        ("PT5M", "write in PT5M"),
        ("next monday 08:30", "write the date"),
        ("9am", "write hours from 0 to 23"),
        ("tomorrow 9", "\"9\" is not a time of day"),
        ("tomorrow 9am", "\"9am\" is not a time of day"),
        ("T09:00", "write it like"),
        ("24:00", "\"24:00\" is not a time of day"),
        ("09:60", "\"09:60\" is not a time of day"),
        ("09:00:61", "is not a time of day"),
        ("09:0", "is not a time of day"),
        ("009:00", "is not a time of day"),
        ("09:00.5", "is not a time of day"),
        ("09:00:00.", "is not a time of day"),
        ("09:00:00:00", "is not a time of day"),
        ("at", "\"\" is not a time of day"),
        ("2026-12-01T", "\"\" is not a time of day"),
        ("2026-12-01T Europe/Berlin", "is not a time of day"),
        ("2026-02-29", "2026-02-29 is not a date"),
        ("2026-13-01", "2026-13-01 is not a date"),
        ("2026-1-1", "2026-1-1 is not a date; write year-month-day, like 2026-12-01"),
        ("2026-12-01-05:00", "is not a date"),
        ("2026-12-01Europe/Berlin", "write it like"),
        ("09:00Europe/Berlin", "\"Europe/Berlin\" is not allowed at this position"),
        ("2026-12-01T09:00Z foo", "\"Z foo\" is not allowed at this position"),
        ("09:00 tomorrow", "write the day before the time"),
        (
            "2026-12-01T09:00:00+02:00[Europe/Berlin]",
            "the time zone does not have this offset at that time",
        ),
        (
            "2026-03-29T02:30:00+01:00[Europe/Berlin]",
            "the time zone does not have this offset at that time",
        ),
        ("@", "write Unix time as @1796112000s"),
        ("@5", "@1796112000s"),
        ("@5m", "@1796112000s"),
        ("@-5s", "@1796112000s"),
        ("@5s!", "@1796112000s"),
        ("12/01/2026 09:00", "write it like"),
        ("+12026-12-01T00:00:00Z", "write it like"),
        ("12026-12-01T00:00:00Z", "write it like"),
    ] {
        let error = error_of(text);
        assert!(error.starts_with(&format!("{text:?} is not a time: ")), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    for (text, name) in [
        ("2026-12-01T09:00 Z foo", "Z foo"),
        ("tomorrow 09:00 Berlin", "Berlin"),
        ("tomorrow foo", "foo"),
        ("2026-12-01T09:00:00+25:00", "+25:00"),
        ("2026-12-01T09:00:00Z[Europe/Berlin", "Z[Europe/Berlin"),
        ("2026-12-01T09:00:00Z[]", ""),
        ("2026-12-01T09:00:00+01:00[Europe/Berlin] foo", "+01:00[Europe/Berlin] foo"),
        ("09:00 Europe/Berlin[UTC]", "Europe/Berlin[UTC]"),
    ] {
        assert!(error_of(text).starts_with(&format!("{name:?} is not a time zone: ")), "{text}");
    }
    for (text, expected) in [
        ("in 5", "write 5s or 5m"),
        ("in", "\"\" is not a duration"),
        ("in 1 month", "months and years"),
        ("in 5m Europe/Berlin", "\"5m Europe/Berlin\" is not a duration"),
        ("five minutes ago", "\"five minutes\" is not a duration"),
    ] {
        assert!(error_of(text).contains(expected), "{text}: {}", error_of(text));
    }
    let long = "9".repeat(101);
    assert_eq!(
        error_of(&long),
        "the text of a time, duration or time zone has 101 bytes; the limit is 100"
    );
}

#[test]
fn without_a_default_a_time_needs_a_zone() {
    let now = at("2026-11-15T12:00:00Z");
    for (text, instead) in [
        ("2026-12-01T09:00:00", "2026-12-01T09:00:00Z"),
        ("2026-12-01T09:00:00.123456", "2026-12-01T09:00:00.123456+01:00"),
        ("2026-12-01 09:00", "2026-12-01 09:00 Europe/Berlin"),
        ("2026-12-01", "2026-12-01 UTC"),
        ("today", "today UTC"),
        (" tomorrow  ", "tomorrow +01:00"),
        ("yesterday 10:00", "yesterday 10:00 Europe/Berlin"),
        ("monday 08:30", "monday 08:30 UTC"),
        ("mon", "mon +01:00"),
        ("09:00", "09:00 UTC"),
        ("at 9:00", "at 9:00 +01:00"),
    ] {
        let error = parse_time(text, now, None).expect_err(text).to_string();
        let start = format!("{:?} has no time zone; write ", text.trim());
        let hint = error.strip_prefix(&start).unwrap_or_else(|| panic!("{error}"));
        let forms: Vec<_> = hint.split(" or ").flat_map(|forms| forms.split(", ")).collect();
        assert!(forms.len() == 3 && forms.contains(&instead), "{error}");
        for form in forms {
            assert!(parse_time(form, now, None).is_ok(), "{error}");
        }
    }
    for text in ["now", "in 5m", "1h ago", "@1796112000s"] {
        assert!(parse_time(text, now, None).is_ok(), "{text}");
    }
    // What is wrong anyway is not about the zone.
    let error = parse_time("2026-02-29T09:00", now, None).unwrap_err().to_string();
    assert!(error.contains("2026-02-29 is not a date"), "{error}");
}

#[test]
fn nothing_is_before_1970() {
    let now = "2026-11-15T12:00:00Z";
    assert_eq!(read("1970-01-01T00:00:00Z", now), "1970-01-01T00:00:00.000Z");
    assert_eq!(read("1969-12-31T23:59:59.9999Z", now), "1970-01-01T00:00:00.000Z");
    for text in ["1969-12-31T23:59:59.999Z", "1970-01-01", "0000-01-01", "3000w ago"] {
        let expected = "is before 1970-01-01T00:00:00Z, the earliest allowed time";
        assert_eq!(error_of(text), format!("{text:?} {expected}"));
    }
}

#[test]
fn the_latest_times_are_parsed_and_formatted() {
    let now = "2026-11-15T12:00:00Z";
    for text in ["9999-12-31T23:59:59.999Z", "@253402300800000ms", "@18446744073709551615ms"] {
        assert_eq!(read(text, now), text);
    }
    assert_eq!(read("9999-12-31T23:59:59-01:00", now), "@253402304399000ms");
    assert_eq!(read("9999-12-31 23:59:59.9999 America/New_York", now), "@253402318800000ms");
    for text in ["@18446744073709551616ms", "@18446744073709552s", "in 18446744073709551s"] {
        let expected = "is too far in the future; the limit is @18446744073709551615ms";
        assert_eq!(error_of(text), format!("{text:?} {expected}"));
    }
}

#[test]
fn a_clock_after_the_year_9999_rejects_only_days() {
    let now = Timestamp::from_millis(u64::MAX);
    assert_eq!(parse_time("now", now, Some(&Zone::UTC)), Ok(now));
    assert_eq!(parse_time("in 0s", now, Some(&Zone::UTC)), Ok(now));
    for text in ["today", "09:00", "monday"] {
        let error = parse_time(text, now, Some(&Zone::UTC)).unwrap_err().to_string();
        assert!(error.contains("after the year 9999"), "{error}");
    }
    let last = at("9999-12-30T22:00:00Z");
    assert!(parse_time("tomorrow", last, Some(&Zone::UTC)).is_ok());
    for text in ["sunday", "tomorrow +14:00"] {
        let error = parse_time(text, last, Some(&Zone::UTC)).unwrap_err().to_string();
        assert!(error.contains("after the year 9999"), "{error}");
    }
}

/// One of [`GOOD`], with a few characters changed, removed or added.
fn nearly_good() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        3 => proptest::char::range(' ', '~'),
        1 => any::<char>(),
    ];
    let change = (any::<prop::sample::Index>(), 0..3, character);
    let changes = prop::collection::vec(change, 1..4);
    (prop::sample::select(&GOOD[..]), changes).prop_map(|((text, _), changes)| {
        let mut text: Vec<char> = text.chars().collect();
        for (place, what, character) in changes {
            let place = place.index(text.len().max(1));
            match what {
                0 => text.insert(place, character),
                1 if !text.is_empty() => text[place] = character,
                _ if !text.is_empty() => drop(text.remove(place)),
                _ => {}
            }
        }
        text.into_iter().collect()
    })
}

/// Times of all magnitudes.
fn any_time() -> impl Strategy<Value = Timestamp> {
    (any::<u64>(), 0..64u32).prop_map(|(millis, shift)| Timestamp::from_millis(millis >> shift))
}

proptest! {
    #[test]
    fn formatted_times_are_parsed_back(time in any_time(), now in any_time()) {
        prop_assert_eq!(parse_time(&show_time(time), now, Some(&berlin())), Ok(time));
    }

    #[test]
    fn years_are_shown_in_order(millis in 0..253_402_300_799_999u64) {
        let [one, next] = [millis, millis + 1].map(|at| show_time(Timestamp::from_millis(at)));
        prop_assert!(one < next, "{} {}", one, next);
        prop_assert_eq!(one.len(), 24);
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), now in any_time()) {
        let _ = parse_time(&text, now, Some(&berlin()));
        let _ = text.parse::<Zone>();
    }

    #[test]
    fn no_text_like_a_time_makes_it_panic(text in nearly_good(), now in any_time()) {
        match parse_time(&text, now, Some(&berlin())) {
            Ok(time) => prop_assert_eq!(parse_time(&show_time(time), now, Some(&Zone::UTC)), Ok(time)),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn the_next_time_of_day_is_within_a_day_or_so(
        now in 0..4_000_000_000_000u64,
        hour in 0..24,
        minute in 0..60,
    ) {
        let now = Timestamp::from_millis(now);
        let time = parse_time(&format!("{hour}:{minute:02}"), now, Some(&berlin())).unwrap();
        prop_assert!(time >= now);
        // A day on which clocks go back has 25 hours.
        prop_assert!(time.saturating_since(now).as_secs() <= 25 * 3600);
    }
}

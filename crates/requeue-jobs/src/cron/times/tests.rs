#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use super::*;
use jiff::Zoned;
use jiff::tz::Offset;
use requeue_testkit::{Random, check_seeds};

fn at(text: &str) -> Timestamp {
    let zoned: Zoned = text.parse().unwrap();
    Timestamp::from_millis(u64::try_from(zoned.timestamp().as_millisecond()).unwrap())
}

/// The next times, as local times with the offset.
fn next(expression: &str, after: &str, count: usize) -> Vec<String> {
    let zoned: Zoned = after.parse().unwrap();
    let zone = zoned.time_zone().iana_name().unwrap();
    let times = CronTimes::parse(expression, zone).unwrap();
    let mut last = at(after);
    let mut found = Vec::new();
    for _ in 0..count {
        last = times.next_after(last).unwrap();
        let millis = i64::try_from(last.as_millis()).unwrap();
        let zoned = jiff::Timestamp::from_millisecond(millis).unwrap().in_tz(zone).unwrap();
        found.push(zoned.strftime("%a %F %T %:z").to_string());
    }
    found
}

#[test]
fn known_expressions_have_known_times() {
    let from = "2026-11-16T12:00:00+00:00[UTC]";
    for (expression, expected) in [
        ("5 0 * * *", "Tue 2026-11-17 00:05:00 +00:00"),
        ("15 14 1 * *", "Tue 2026-12-01 14:15:00 +00:00"),
        ("0 22 * * 1-5", "Mon 2026-11-16 22:00:00 +00:00"),
        ("23 0-23/2 * * *", "Mon 2026-11-16 12:23:00 +00:00"),
        ("5 4 * * sun", "Sun 2026-11-22 04:05:00 +00:00"),
        ("0 0 * * 7", "Sun 2026-11-22 00:00:00 +00:00"),
        ("0 0 1,15 * 3", "Wed 2026-11-18 00:00:00 +00:00"),
        ("0 0 L * *", "Mon 2026-11-30 00:00:00 +00:00"),
        ("0 0 15W * *", "Tue 2026-12-15 00:00:00 +00:00"),
        ("0 9 * * MON#1", "Mon 2026-12-07 09:00:00 +00:00"),
        ("0 9 * * FRI#L", "Fri 2026-11-27 09:00:00 +00:00"),
        ("0 0 29 2 *", "Tue 2028-02-29 00:00:00 +00:00"),
        ("*/15 * * * * *", "Mon 2026-11-16 12:00:15 +00:00"),
        ("30 5 9 * jan *", "Fri 2027-01-01 09:05:30 +00:00"),
        ("@hourly", "Mon 2026-11-16 13:00:00 +00:00"),
        ("@daily", "Tue 2026-11-17 00:00:00 +00:00"),
        ("@weekly", "Sun 2026-11-22 00:00:00 +00:00"),
        ("@monthly", "Tue 2026-12-01 00:00:00 +00:00"),
        ("@yearly", "Fri 2027-01-01 00:00:00 +00:00"),
        ("  0  6 * * *  ", "Tue 2026-11-17 06:00:00 +00:00"),
    ] {
        assert_eq!(next(expression, from, 1), [expected], "{expression}");
    }
}

#[test]
fn a_skipped_time_fires_after_the_gap_and_a_repeated_one_once() {
    let spring = "2026-03-28T12:00:00+01:00[Europe/Berlin]";
    let autumn = "2026-10-24T12:00:00+02:00[Europe/Berlin]";
    assert_eq!(
        next("30 2 * * *", spring, 2),
        ["Sun 2026-03-29 03:00:00 +02:00", "Mon 2026-03-30 02:30:00 +02:00"]
    );
    assert_eq!(
        next("30 2 * * *", autumn, 2),
        ["Sun 2026-10-25 02:30:00 +02:00", "Mon 2026-10-26 02:30:00 +01:00"]
    );
    // A list of fixed times, of which two are skipped.
    assert_eq!(
        next("0,30 2,14 * * *", spring, 3),
        [
            "Sat 2026-03-28 14:00:00 +01:00",
            "Sat 2026-03-28 14:30:00 +01:00",
            "Sun 2026-03-29 03:00:00 +02:00"
        ]
    );
    assert_eq!(
        next("0 2,3 * * *", autumn, 2),
        ["Sun 2026-10-25 02:00:00 +02:00", "Sun 2026-10-25 03:00:00 +01:00"]
    );
}

#[test]
fn an_expression_with_a_wildcard_follows_the_clock() {
    let spring = "2026-03-29T01:10:00+01:00[Europe/Berlin]";
    let autumn = "2026-10-25T01:50:00+02:00[Europe/Berlin]";
    assert_eq!(
        next("*/30 * * * *", spring, 2),
        ["Sun 2026-03-29 01:30:00 +01:00", "Sun 2026-03-29 03:00:00 +02:00"]
    );
    assert_eq!(
        next("0 * * * *", autumn, 3),
        [
            "Sun 2026-10-25 02:00:00 +02:00",
            "Sun 2026-10-25 02:00:00 +01:00",
            "Sun 2026-10-25 03:00:00 +01:00"
        ]
    );
}

#[test]
fn what_is_wrong_is_named() {
    for (expression, zone, expected) in [
        ("0 25 * * *", "UTC", "the hour \"25\""),
        ("61 * * * *", "UTC", "the minute \"61\""),
        ("0 0 * foo *", "UTC", "the month \"foo\""),
        ("0 0 * * 8", "UTC", "the day of the week \"8\""),
        ("x 0 0 * * *", "UTC", "the second \"x\""),
        ("* * * *", "UTC", "it has 4 fields, expected 5, or 6 with seconds first"),
        ("", "UTC", "it has 0 fields"),
        ("every full moon", "UTC", "it has 3 fields"),
        ("@fortnightly", "UTC", "expected @hourly"),
        ("0 0 31 2 *", "UTC", "never fires"),
        ("0 0 31 4,6,9,11 *", "UTC", "never fires"),
        ("0 0 * * *", "Mars/Olympus", "unknown time zone \"Mars/Olympus\""),
    ] {
        let error = CronTimes::parse(expression, zone).unwrap_err().to_string();
        assert!(error.contains(expected), "{expression:?} in {zone}: {error}");
    }
}

/// A second implementation: looks at every minute, and only knows numbers, lists, ranges and steps.
struct Naive {
    /// Allowed minutes, hours, days of the month, months and days of the week.
    fields: [Vec<i8>; 5],
    any_day: [bool; 2],
    follows_the_clock: bool,
}

impl Naive {
    fn parse(expression: &str) -> Naive {
        let texts: Vec<&str> = expression.split(' ').collect();
        let ranges = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
        let field = |number: usize| {
            let (low, high): (i8, i8) = ranges[number];
            let mut values = Vec::new();
            for part in texts[number].split(',') {
                let (range, step) = part.split_once('/').unwrap_or((part, "1"));
                let (from, to) = match range.split_once('-') {
                    _ if range == "*" => (low, high),
                    Some((from, to)) => (from.parse().unwrap(), to.parse().unwrap()),
                    None => (range.parse().unwrap(), range.parse().unwrap()),
                };
                values.extend((from..=to).step_by(step.parse().unwrap()));
            }
            values
        };
        Naive {
            fields: [0, 1, 2, 3, 4].map(field),
            any_day: [texts[2] == "*", texts[4] == "*"],
            follows_the_clock: texts[..2].iter().any(|text| text.contains('*')),
        }
    }

    fn matches(&self, time: DateTime) -> bool {
        let [minutes, hours, days, months, weekdays] = &self.fields;
        let day = days.contains(&time.day());
        let weekday = weekdays.contains(&time.date().weekday().to_sunday_zero_offset());
        let date = match self.any_day {
            [false, false] => day || weekday,
            _ => day && weekday,
        };
        minutes.contains(&time.minute())
            && hours.contains(&time.hour())
            && months.contains(&time.month())
            && date
    }

    /// All times in a span, in seconds since 1970.
    fn times(&self, zone: &TimeZone, from: i64, to: i64) -> Vec<i64> {
        let local = |second: i64| {
            let timestamp = jiff::Timestamp::from_second(second).unwrap();
            zone.to_datetime(timestamp)
        };
        let offset = |second: i64| -> Offset {
            zone.to_offset(jiff::Timestamp::from_second(second).unwrap())
        };
        let mut times = Vec::new();
        for second in (from..to).step_by(60) {
            let (now, before) = (offset(second), offset(second - 60));
            let jump = i64::from(now.seconds() - before.seconds());
            let mut fires = self.matches(local(second));
            if !self.follows_the_clock {
                // Local times that were skipped just now.
                let skipped = (60..=jump).step_by(60).any(|by| {
                    self.matches(
                        local(second).checked_sub(jiff::SignedDuration::from_secs(by)).unwrap(),
                    )
                });
                // Local times that have occurred before, up to a day ago.
                let repeated = fires && {
                    let here = local(second);
                    (1..=4 * 24).map(|quarter| second - 15 * 60 * quarter).any(|earlier| {
                        let step = i64::from(offset(earlier).seconds() - now.seconds());
                        step > 0 && local(second - step) == here
                    })
                };
                fires = (fires && !repeated) || skipped;
            }
            if fires {
                times.push(second);
            }
        }
        times
    }
}

fn random_expression(random: &mut Random) -> String {
    let field = |random: &mut Random, low: usize, high: usize, any: usize| {
        let number = |random: &mut Random| low + random.below(high - low + 1);
        match random.below(100) {
            n if n < any => "*".to_owned(),
            n if n < any + 8 => format!("*/{}", 1 + random.below(high / 2)),
            n if n < any + 16 => {
                let (a, b) = (number(random), number(random));
                format!("{}-{}", a.min(b), a.max(b))
            }
            n if n < any + 30 => format!("{},{}", number(random), number(random)),
            _ => number(random).to_string(),
        }
    };
    let minute = field(random, 0, 59, 10);
    // Clocks mostly change in the first hours of the day.
    let hour = if random.chance(70) { field(random, 0, 4, 20) } else { field(random, 0, 23, 20) };
    let [day, month] =
        [(1, 31, 75), (1, 12, 90)].map(|(low, high, any)| field(random, low, high, any));
    let weekday = field(random, 0, 6, 75);
    format!("{minute} {hour} {day} {month} {weekday}")
}

/// Compares the times of an expression with those of the second implementation, for three days around a
/// change of the clocks.
fn compare(expression: &str, name: &str, zone: &TimeZone, change: Instant) -> Result<(), String> {
    // Whole minutes, also in zones whose offset is not.
    let from = change.as_second().div_euclid(60) * 60 - 36 * 3600;
    let to = from + 72 * 3600;
    let Ok(times) = CronTimes::parse(expression, name) else { return Ok(()) };
    let expected = Naive::parse(expression).times(zone, from, to);
    let mut found = Vec::new();
    let mut last = Timestamp::from_millis((from * 1000 - 1) as u64);
    while let Some(next) = times.next_after(last)
        && (next.as_millis() as i64) < to * 1000
    {
        found.push(next.as_millis() as i64 / 1000);
        last = next;
    }
    match found == expected {
        true => Ok(()),
        false => Err(format!("{expression} in {name} from {from}: {found:?}, not {expected:?}")),
    }
}

fn zones() -> Vec<String> {
    jiff::tz::db().available().map(|name| name.to_string()).collect()
}

/// The beginning of a year in UTC.
fn year(year: i16) -> Instant {
    jiff::civil::date(year, 1, 1).to_zoned(TimeZone::UTC).unwrap().timestamp()
}

/// `REQUEUE_CRON=20000` compares as many expressions.
#[test]
fn times_around_clock_changes_are_those_of_a_second_implementation() {
    let zones = zones();
    check_seeds(&[], "REQUEUE_CRON", 60, |seed| {
        let mut random = Random::new(seed);
        let name = random.pick(&zones);
        let zone = TimeZone::get(name).unwrap();
        let begin = year(2015 + random.below(20) as i16);
        let changes: Vec<_> = zone.following(begin).take(4).map(|it| it.timestamp()).collect();
        let change = match changes.is_empty() {
            true => begin,
            false => *random.pick(&changes),
        };
        compare(&random_expression(&mut random), name, &zone, change)
    });
}

/// All changes of all zones in twenty years. It takes minutes: `scripts/soak` runs it.
#[test]
#[ignore = "it takes minutes"]
fn in_all_zones_and_twenty_years_the_times_are_those_of_a_second_implementation() {
    let (mut changes, mut compared) = (0, 0);
    let mut random = Random::new(1);
    for name in zones() {
        let zone = TimeZone::get(&name).unwrap();
        let all = zone.following(year(2015)).map(|change| change.timestamp());
        for change in all.take_while(|change| *change < year(2035)) {
            changes += 1;
            let fixed = ["30 2 * * *", "0 0 * * *", "0 */2 * * *", "*/30 * * * *", "15 0-4 * * *"];
            let random = [(); 3].map(|()| random_expression(&mut random));
            for expression in fixed.into_iter().chain(random.iter().map(String::as_str)) {
                compare(expression, &name, &zone, change).unwrap();
                compared += 1;
            }
        }
    }
    println!("{compared} comparisons around {changes} changes of the clocks");
    assert!(changes > 1000, "{changes}");
}

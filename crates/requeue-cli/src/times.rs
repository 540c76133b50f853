//! Parses and prints times and durations in the formats that people use.

use jiff::tz::TimeZone;
use requeue_http::times::{TimeError, Zone, parse_time};
use requeue_http::wire::ParseContext;
use requeue_jobs::{Timestamp, WallClock};
use std::time::Duration;

pub(crate) use requeue_http::times::{parse_duration as duration, show_duration, show_time};

/// Parses a point in time. Without a time zone, it is in the zone of this machine.
pub(crate) fn time(text: &str) -> Result<Timestamp, TimeError> {
    parse_time(text, now(), Some(&Zone::local()))
}

/// The context in which requests of the HTTP API are read here.
pub(crate) fn context() -> ParseContext {
    ParseContext { now: now() }
}

pub(crate) fn now() -> Timestamp {
    WallClock::system().now()
}

fn zoned(at: Timestamp, zone: TimeZone) -> Option<jiff::Zoned> {
    let millis = i64::try_from(at.as_millis()).ok()?;
    Some(jiff::Timestamp::from_millisecond(millis).ok()?.to_zoned(zone))
}

/// A time in a zone of the IANA database, in a format of `strftime`. `None` if there is no such zone.
pub(crate) fn in_zone(at: Timestamp, zone: &str, format: &str) -> Option<String> {
    Some(zoned(at, TimeZone::get(zone).ok()?)?.strftime(format).to_string())
}

/// A time in the zone of this machine, in a format of `strftime`. `None` if the calendar has no such time.
pub(crate) fn in_local_zone(at: Timestamp, format: &str) -> Option<String> {
    Some(zoned(at, TimeZone::system())?.strftime(format).to_string())
}

/// The time of a response of a server, which is exact and in UTC. `None` if it is not a time.
pub(crate) fn exact(text: &str) -> Option<Timestamp> {
    parse_time(text, Timestamp::from_millis(0), None).ok()
}

/// The shortest interval between two looks at a store.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The longest interval between two looks at a store.
const MAX_INTERVAL: Duration = Duration::from_secs(86_400);

/// Parses the interval between two looks at a store.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text).map_err(|error| error.to_string())?;
    if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&interval) {
        let (min, max) = (show_duration(MIN_INTERVAL), show_duration(MAX_INTERVAL));
        return Err(format!("the interval must be {min} to {max}"));
    }
    Ok(interval)
}

/// A time in the zone of this machine, with its distance from `now`.
pub(crate) fn local(at: Timestamp, now: Timestamp) -> String {
    match zoned(at, TimeZone::system()) {
        Some(time) => {
            format!("{} ({})", time.strftime("%Y-%m-%d %H:%M:%S %Z"), relative(at, now))
        }
        None => show_time(at),
    }
}

/// The distance of a time from `now`, in its two largest units.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("in {}", rough(at.saturating_since(now)))
    } else if at == now {
        "now".to_owned()
    } else {
        format!("{} ago", rough(now.saturating_since(at)))
    }
}

/// A duration in its two largest units, rounded down.
pub(crate) fn rough(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis < 1000 {
        return format!("{millis}ms");
    }
    if millis < 10_000 {
        return format!("{}.{}s", millis / 1000, millis % 1000 / 100);
    }
    let units = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
    let mut left = millis / 1000;
    let mut parts = units.iter().map(|(name, seconds)| {
        let count = left / seconds;
        left %= seconds;
        (count, name)
    });
    let (first, name) = parts.find(|(count, _)| *count > 0).expect("it is at least 10 seconds");
    match parts.next() {
        Some((second, smaller)) if second > 0 => format!("{first}{name} {second}{smaller}"),
        _ => format!("{first}{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rough_duration_has_two_units_at_most() {
        for (millis, shown) in [
            (0, "0ms"),
            (999, "999ms"),
            (1500, "1.5s"),
            (59_999, "59s"),
            (299_000, "4m 59s"),
            (3_600_000, "1h"),
            (3_605_000, "1h"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(rough(Duration::from_millis(millis)), shown);
        }
    }

    #[test]
    fn a_relative_time_is_the_distance_from_now() {
        let (now, at) = (Timestamp::from_millis(100_000), Timestamp::from_millis);
        assert_eq!(relative(at(399_000), now), "in 4m 59s");
        assert_eq!(relative(at(100_000), now), "now");
        assert_eq!(relative(at(0), now), "1m 40s ago");
        assert!(local(at(0), now).ends_with("(1m 40s ago)"));
        assert_eq!(local(at(u64::MAX), now), format!("@{}ms", u64::MAX));
    }
}

//! Time zones, and the instants of what their clocks show.
//!
//! ```text
//!   clocks go forward   02:30 is skipped: it is the time 30 minutes after the change
//!   clocks go back      02:30 is twice:   it is the first of the two
//! ```

use super::TimeError;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use std::str::FromStr;

/// A time zone: the rules by which its clocks differ from UTC.
///
/// ```
/// use requeue_http::times::Zone;
///
/// let berlin: Zone = "Europe/Berlin".parse()?;
/// assert_eq!(berlin, "europe/berlin".parse()?);
/// assert_eq!(Zone::UTC, "UTC".parse()?);
/// assert!("Europe/Berln".parse::<Zone>().is_err());
/// # Ok::<(), requeue_http::times::TimeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Zone {
    /// The zone of the servers: clocks that never change.
    pub const UTC: Zone = Zone(TimeZone::UTC);

    /// The zone of this machine, by `TZ` or `/etc/localtime`; UTC if neither says.
    ///
    /// ```
    /// use requeue_http::times::Zone;
    ///
    /// let here = Zone::local();
    /// # let _ = here;
    /// ```
    pub fn local() -> Self {
        Zone(TimeZone::try_system().unwrap_or(TimeZone::UTC))
    }

    /// The day that it is there, `now` milliseconds after 1970; none after the year 9999.
    pub(super) fn today(&self, now: u64) -> Option<Date> {
        let now = jiff::Timestamp::from_millisecond(i64::try_from(now).ok()?).ok()?;
        Some(self.0.to_datetime(now).date())
    }

    /// When clocks there show this: seconds since 1970, the first time and the last.
    pub(super) fn instants(&self, shown: DateTime) -> [i64; 2] {
        // What is skipped is counted from before the change: it comes later, and is never early.
        let (first, last) = match self.0.to_ambiguous_timestamp(shown).offset() {
            AmbiguousOffset::Unambiguous { offset } => (offset, offset),
            AmbiguousOffset::Gap { before, .. } => (before, before),
            AmbiguousOffset::Fold { before, after } => (before, after),
        };
        [first, last].map(|offset| instant(shown, offset))
    }

    /// Whether clocks there ever show this at this offset from UTC.
    fn shows(&self, shown: DateTime, at: Offset) -> bool {
        match self.0.to_ambiguous_timestamp(shown).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset == at,
            AmbiguousOffset::Gap { .. } => false,
            AmbiguousOffset::Fold { before, after } => before == at || after == at,
        }
    }
}

impl FromStr for Zone {
    type Err = TimeError;

    /// By its name in the IANA database, or `Z`, or an offset: `+01:00`, `+0100`, `+01`.
    fn from_str(name: &str) -> Result<Self, TimeError> {
        let refused = || TimeError::Zone { name: name.to_owned() };
        let name = super::fitting(name)?;
        if name.eq_ignore_ascii_case("z") {
            return Ok(Zone::UTC);
        }
        if name.starts_with(['+', '-']) {
            return Ok(Zone(TimeZone::fixed(offset(name).ok_or_else(refused)?)));
        }
        // Names may become paths: nothing else gets that far.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '/');
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(plain) {
            return Err(refused());
        }
        let zone = TimeZone::get(name).map_err(|_| refused())?;
        if zone.is_unknown() { Err(refused()) } else { Ok(Zone(zone)) }
    }
}

/// Where a time was said to be: the zone by which it is read, and one that must agree.
#[derive(Debug, PartialEq)]
pub(super) struct Place {
    pub(super) zone: Zone,
    /// From RFC 9557: `+01:00[Europe/Berlin]` is only right while Berlin is at +01:00.
    agrees: Option<(Offset, Zone)>,
}

impl Place {
    pub(super) fn of(zone: &Zone) -> Self {
        Place { zone: zone.clone(), agrees: None }
    }

    /// Reads `Europe/Berlin`, `Z`, `+01:00`, `[Europe/Berlin]` or `+01:00[Europe/Berlin]`.
    pub(super) fn read(text: &str) -> Result<Self, TimeError> {
        let refused = || TimeError::Zone { name: text.to_owned() };
        let Some(tagged) = text.strip_suffix(']') else {
            return Ok(Place::of(&text.parse()?));
        };
        let (at, name) = tagged.split_once('[').ok_or_else(refused)?;
        // "!" asks not to overlook the zone; it never is.
        let zone: Zone = name.strip_prefix('!').unwrap_or(name).parse()?;
        match at {
            "" => Ok(Place::of(&zone)),
            // Says when it is, and not what the zone's clocks show: nothing to agree on.
            "Z" | "z" | "-00:00" => Ok(Place::of(&Zone::UTC)),
            at => {
                let at = offset(at).ok_or_else(refused)?;
                Ok(Place { zone: Zone(TimeZone::fixed(at)), agrees: Some((at, zone)) })
            }
        }
    }

    /// Whether all that was said of the place can be true of this time.
    pub(super) fn agrees(&self, shown: DateTime) -> bool {
        self.agrees.as_ref().is_none_or(|(at, zone)| zone.shows(shown, *at))
    }
}

/// `±hh`, `±hhmm` or `±hh:mm`.
fn offset(text: &str) -> Option<Offset> {
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits.len() {
        2 => (digits, "00"),
        4 => digits.split_at_checked(2)?,
        _ => digits.split_once(':')?,
    };
    let two = |digits: &str| (digits.len() == 2).then(|| super::words::number(digits)).flatten();
    let (hours, minutes) = (i32::from(two(hours)?), i32::from(two(minutes)?));
    if hours > 23 || minutes > 59 {
        return None;
    }
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}

/// Seconds from 1970 to what clocks show at this offset. Not by way of [`jiff::Timestamp`], which
/// ends a day before the year 9999 does.
fn instant(shown: DateTime, offset: Offset) -> i64 {
    let epoch = DateTime::from_parts(Date::constant(1970, 1, 1), Time::midnight());
    shown.duration_since(epoch).as_secs() - i64::from(offset.seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_need_nothing_of_the_machine() {
        for name in ["Europe/Berlin", "america/new_york", "Asia/Kathmandu", "UTC", "Etc/GMT+5"] {
            assert!(name.parse::<Zone>().is_ok(), "{name}");
        }
    }

    #[test]
    fn offsets_are_zones() {
        for (name, seconds) in
            [("Z", 0), ("+01:00", 3600), ("-0530", -19_800), ("+14", 50_400), ("-00:00", 0)]
        {
            let zone: Zone = name.parse().unwrap();
            assert_eq!(zone.instants(DateTime::constant(1970, 1, 1, 0, 0, 0, 0)), [-seconds; 2]);
        }
    }

    #[test]
    fn what_is_no_zone_is_named() {
        for name in [
            "",
            "Berlin",
            "Europe/Berln",
            "Etc/Unknown",
            "../../etc/passwd",
            "/etc/localtime",
            "Europe/Berlin\0",
            "+1",
            "+1:00",
            "+24:00",
            "+01:60",
            "+010",
            "+",
            "+é1",
            "+٠١:٠٠",
            "Europe/Berlin foo",
        ] {
            assert_eq!(name.parse::<Zone>(), Err(TimeError::Zone { name: name.to_owned() }));
        }
    }

    #[test]
    fn the_ends_of_the_calendar_have_instants() {
        for name in ["Pacific/Kiritimati", "America/New_York", "-23:59", "+23:59"] {
            let zone: Zone = name.parse().unwrap();
            for shown in [DateTime::MIN, DateTime::MAX] {
                let [first, last] = zone.instants(shown);
                assert_eq!(first, last);
            }
        }
    }
}

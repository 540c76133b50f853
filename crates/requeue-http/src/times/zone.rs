//! Time zones, and the conversion of local times to instants.
//!
//! ```text
//!   clocks go forward   02:30 does not exist:    it means 30 minutes after the change
//!   clocks go back      02:30 exists twice:      it means the first of the two
//! ```

use super::TimeError;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use requeue_jobs::Timestamp;
use std::str::FromStr;

/// A time zone: an IANA time zone, or a fixed offset from UTC.
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
    /// UTC.
    pub const UTC: Zone = Zone(TimeZone::UTC);

    /// Returns the time zone of this machine, from `TZ` or `/etc/localtime`; UTC if neither is set.
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

    /// Returns a time as it is shown by clocks in this time zone: `2026-12-01 09:00`, with seconds unless they
    /// are 0. `None` after the year 9999.
    ///
    /// ```
    /// use requeue_http::times::Zone;
    /// use requeue_jobs::Timestamp;
    ///
    /// let berlin: Zone = "Europe/Berlin".parse()?;
    /// let at = Timestamp::from_millis(1_796_112_000_000);
    /// assert_eq!(berlin.show(at).as_deref(), Some("2026-12-01 09:00"));
    /// # Ok::<(), requeue_http::times::TimeError>(())
    /// ```
    pub fn show(&self, at: Timestamp) -> Option<String> {
        let at = jiff::Timestamp::from_millisecond(i64::try_from(at.as_millis()).ok()?).ok()?;
        let shown = self.0.to_datetime(at);
        let format = if shown.second() == 0 { "%Y-%m-%d %H:%M" } else { "%Y-%m-%d %H:%M:%S" };
        Some(shown.strftime(format).to_string())
    }

    /// Returns the date in this time zone, `now` milliseconds after 1970; `None` after the year 9999.
    pub(super) fn today(&self, now: u64) -> Option<Date> {
        let now = jiff::Timestamp::from_millisecond(i64::try_from(now).ok()?).ok()?;
        Some(self.0.to_datetime(now).date())
    }

    /// Returns the first and the last instant of a local time, in seconds since 1970.
    pub(super) fn instants(&self, shown: DateTime) -> [i64; 2] {
        // A skipped time uses the offset from before the change, which makes it later, never earlier.
        let (first, last) = match self.0.to_ambiguous_timestamp(shown).offset() {
            AmbiguousOffset::Unambiguous { offset } => (offset, offset),
            AmbiguousOffset::Gap { before, .. } => (before, before),
            AmbiguousOffset::Fold { before, after } => (before, after),
        };
        [first, last].map(|offset| instant(shown, offset))
    }

    /// Returns whether this local time exists with this offset from UTC.
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

    /// Parses an IANA name such as `Europe/Berlin`, or `UTC` or `Z`, or an offset: `+01:00`, `+0100`, `+01`.
    fn from_str(name: &str) -> Result<Self, TimeError> {
        let invalid = || TimeError::Zone { name: name.to_owned() };
        let name = super::trim_checked(name)?;
        if name.eq_ignore_ascii_case("z") {
            return Ok(Zone::UTC);
        }
        if name.starts_with(['+', '-']) {
            return Ok(Zone(TimeZone::fixed(offset(name).ok_or_else(invalid)?)));
        }
        // The name may be used as a file path, so only harmless characters are allowed.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '/');
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(plain) {
            return Err(invalid());
        }
        let zone = TimeZone::get(name).map_err(|_| invalid())?;
        if zone.is_unknown() { Err(invalid()) } else { Ok(Zone(zone)) }
    }
}

/// The time zone of a text: the zone to use, and optionally another one that must agree.
#[derive(Debug, PartialEq)]
pub(super) struct ZoneSpec {
    pub(super) zone: Zone,
    /// RFC 9557: `+01:00[Europe/Berlin]` is valid only while Berlin has the offset +01:00.
    agrees: Option<(Offset, Zone)>,
}

impl ZoneSpec {
    pub(super) fn of(zone: &Zone) -> Self {
        ZoneSpec { zone: zone.clone(), agrees: None }
    }

    /// Parses `Europe/Berlin`, `Z`, `+01:00`, `[Europe/Berlin]` or `+01:00[Europe/Berlin]`.
    pub(super) fn read(text: &str) -> Result<Self, TimeError> {
        let invalid = || TimeError::Zone { name: text.to_owned() };
        let Some(tagged) = text.strip_suffix(']') else {
            return Ok(ZoneSpec::of(&text.parse()?));
        };
        let (at, name) = tagged.split_once('[').ok_or_else(invalid)?;
        // "!" means that the zone must not be ignored. It never is.
        let zone: Zone = name.strip_prefix('!').unwrap_or(name).parse()?;
        match at {
            "" => Ok(ZoneSpec::of(&zone)),
            // These give the instant in UTC and say nothing about the offset of the zone.
            "Z" | "z" | "-00:00" => Ok(ZoneSpec::of(&Zone::UTC)),
            at => {
                let at = offset(at).ok_or_else(invalid)?;
                Ok(ZoneSpec { zone: Zone(TimeZone::fixed(at)), agrees: Some((at, zone)) })
            }
        }
    }

    /// Returns whether offset and zone agree for this local time.
    pub(super) fn agrees(&self, shown: DateTime) -> bool {
        self.agrees.as_ref().is_none_or(|(at, zone)| zone.shows(shown, *at))
    }
}

/// Parses `±hh`, `±hhmm` or `±hh:mm`.
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
    let two = |digits: &str| (digits.len() == 2).then(|| super::calendar::number(digits)).flatten();
    let (hours, minutes) = (i32::from(two(hours)?), i32::from(two(minutes)?));
    if hours > 23 || minutes > 59 {
        return None;
    }
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}

/// Returns the seconds from 1970 to a local time with this offset. [`jiff::Timestamp`] is not used
/// because its range ends a day before the year 9999 does.
fn instant(shown: DateTime, offset: Offset) -> i64 {
    let epoch = DateTime::from_parts(Date::constant(1970, 1, 1), Time::midnight());
    shown.duration_since(epoch).as_secs() - i64::from(offset.seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_do_not_need_the_database_of_the_machine() {
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
    fn invalid_zones_are_named_in_the_error() {
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

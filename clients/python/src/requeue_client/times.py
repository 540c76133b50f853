"""Times and durations, as the API writes them.

A time needs a time zone and a duration a unit. Otherwise `datetime.now()`, sent from New York,
would be due five hours early, and `delay=300` would be seconds for one reader and milliseconds for
another. Both are rejected before a request is sent.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

Duration = timedelta | str
"""A duration: a `timedelta`, or text with units such as `"5m"`, `"1h30m"` or `"250ms"`."""

_UNITS = {
    **dict.fromkeys(["ns", "nanosecond", "nanoseconds"], 1e-9),
    **dict.fromkeys(["us", "µs", "microsecond", "microseconds"], 1e-6),
    **dict.fromkeys(["ms", "millisecond", "milliseconds"], 1e-3),
    **dict.fromkeys(["s", "sec", "secs", "second", "seconds"], 1.0),
    **dict.fromkeys(["m", "min", "mins", "minute", "minutes"], 60.0),
    **dict.fromkeys(["h", "hr", "hrs", "hour", "hours"], 3600.0),
    **dict.fromkeys(["d", "day", "days"], 86400.0),
    **dict.fromkeys(["w", "week", "weeks"], 604800.0),
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]+)")


def duration_text(value: Duration, field: str = "the duration") -> str:
    """Returns a duration as the API expects it. A `timedelta` is rounded up to milliseconds.

    Raises `TypeError` for a number, and `ValueError` for a negative duration. Both name `field`.
    """
    _reject_number(value, field)
    if isinstance(value, str):
        return value
    if value < timedelta(0):
        raise ValueError(f"{field} is {value!r}, which is negative; it must be at least 0")
    return f"{-(-value // timedelta(milliseconds=1))}ms"


def seconds(value: Duration, field: str = "the duration") -> float:
    """Returns a duration in seconds.

    Raises `TypeError` for a number, and `ValueError` for text that is not a duration. Both name
    `field`.
    """
    _reject_number(value, field)
    if isinstance(value, timedelta):
        return value.total_seconds()
    total, position = 0.0, 0
    while match := _PART.match(value, position):
        number, unit = match.groups()
        if unit not in _UNITS:
            break
        total += float(number) * _UNITS[unit]
        position = match.end()
    if position == 0 or value[position:].strip():
        raise ValueError(
            f"{field} is {value!r}, which is not a duration: write numbers with units, such as "
            "'30s', '5m' or '1h30m'"
        )
    return total


def rate_fields(text: str, field: str = "the rate") -> dict[str, Any]:
    """Returns a rate such as `"10/s"` or `"100/1m"` as the API expects it.

    Raises `ValueError`, which names `field`, for any other text.
    """
    jobs, _, per = (part.strip() for part in text.partition("/"))
    per = per if per[:1].isdigit() else f"1{per}"
    try:
        seconds(per)
        return {"jobs": int(jobs), "per": per}
    except ValueError:
        raise ValueError(
            f"{field} is {text!r}, which is not a rate: write jobs per time, such as '10/s' or "
            "'100/1m'"
        ) from None


def parse_duration(text: str) -> timedelta:
    """Returns the duration of a response, such as `1h30m`."""
    return timedelta(seconds=seconds(text))


def time_text(value: datetime, field: str = "the time") -> str:
    """Returns a time in RFC 3339.

    Raises `ValueError` if it has no time zone, and `TypeError` if it is not a `datetime`. Both name
    `field`.
    """
    if not isinstance(value, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{field} is {value!r}; it must be a datetime with a time zone")
    if value.utcoffset() is None:
        raise ValueError(
            f"{field} is {value!r}, which has no time zone: use "
            "datetime.now(timezone.utc), or add one with "
            "value.replace(tzinfo=zoneinfo.ZoneInfo('Europe/Berlin'))"
        )
    return value.astimezone(UTC).isoformat()


def parse_time(text: str) -> datetime:
    """Returns the time of a response, such as `2026-12-01T08:00:00.000Z`, in UTC."""
    return datetime.fromisoformat(text)


def _reject_number(value: object, field: str) -> None:
    if not isinstance(value, (timedelta, str)):
        raise TypeError(
            f"{field} is {value!r}; a duration needs a unit: write timedelta(seconds=…) or '5m'"
        )

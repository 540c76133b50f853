from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from requeue_client.times import duration_text, parse_duration, parse_time, seconds, time_text


@pytest.mark.parametrize("number", [300, 1.5, True, None])
def test_a_number_is_not_a_duration(number: Any) -> None:
    with pytest.raises(TypeError, match="needs a unit"):
        duration_text(number)
    with pytest.raises(TypeError, match="needs a unit"):
        seconds(number)


def test_a_timedelta_is_rounded_up_to_milliseconds() -> None:
    assert duration_text(timedelta(minutes=5)) == "300000ms"
    assert duration_text(timedelta(microseconds=1)) == "1ms"
    assert duration_text(timedelta(0)) == "0ms"


def test_a_negative_duration_is_rejected() -> None:
    with pytest.raises(ValueError, match="negative"):
        duration_text(timedelta(seconds=-1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5m", 300),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("2 days", 172800),
        ("1 week", 604800),
        ("7d", 604800),
    ],
)
def test_a_duration_has_numbers_with_units(text: str, expected: float) -> None:
    assert seconds(text) == pytest.approx(expected)
    assert parse_duration(text) == timedelta(seconds=expected)


@pytest.mark.parametrize("text", ["", "5", "m", "5x", "5m!", "-5m", "5m 3"])
def test_other_text_is_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(text)


def test_a_time_without_a_zone_is_rejected_with_advice() -> None:
    with pytest.raises(ValueError, match=r"has no time zone: use datetime\.now\(timezone\.utc\)"):
        time_text(datetime(2026, 12, 1, 9))


@pytest.mark.parametrize("value", [1796112000, "tomorrow"])
def test_only_a_datetime_is_a_time(value: Any) -> None:
    with pytest.raises(TypeError, match="must be a datetime"):
        time_text(value)


def test_a_time_is_sent_in_utc() -> None:
    local = datetime(2026, 12, 1, 9, tzinfo=ZoneInfo("Europe/Berlin"))
    assert time_text(local) == "2026-12-01T08:00:00+00:00"


def test_a_time_of_a_response_is_in_utc() -> None:
    expected = datetime(2026, 12, 1, 8, 0, 0, 123000, tzinfo=UTC)
    assert parse_time("2026-12-01T08:00:00.123Z") == expected

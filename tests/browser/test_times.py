"""Times are in the zone of the browser, with UTC as the title; schedules also in their own zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from conftest import NewContext
from pages import open_page
from playwright.sync_api import Page, expect
from server import Server

ZONE = "America/New_York"


def _local(time: str, zone: str = ZONE) -> str:
    return datetime.fromisoformat(time).astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S")


def _utc(time: str) -> str:
    return datetime.fromisoformat(time).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


@pytest.fixture
def page(new_context: NewContext, server: Server) -> Page:
    return new_context(server.url, timezone_id=ZONE).new_page()


def test_a_time_is_local_and_its_title_is_utc(page: Page, server: Server) -> None:
    server.api.put("times", "a", delay="5h")
    due = server.api.job("times", "a")["due"]
    open_page(page, "job", kind="times", id="a")
    expect(page.locator("#zone")).to_have_text(f"Times in {ZONE}")
    shown = page.locator("#timeline time[data-exact]").last
    expect(shown).to_have_text(_local(due))
    assert shown.get_attribute("title") == _utc(due)
    relative = page.locator(".facts time").first
    expect(relative).to_have_text(re.compile("^in (4h 59m|5h 0m)$"))
    assert relative.get_attribute("title") == f"{_local(due)} here, {_utc(due)}"
    # Updates of the page keep it so.
    expect(page.locator("#live-status")).to_have_text("Live")
    server.api.put("times", "a", delay="9h")
    due = server.api.job("times", "a")["due"]
    expect(page.locator("#timeline time[data-exact]").last).to_have_text(_local(due))


def test_without_script_a_time_is_utc(new_context: NewContext, server: Server) -> None:
    server.api.put("times", "utc", delay="5h")
    due = server.api.job("times", "utc")["due"]
    page = new_context(server.url, timezone_id=ZONE, java_script_enabled=False).new_page()
    open_page(page, "job", kind="times", id="utc")
    assert page.locator("#timeline time[data-exact]").last.inner_text() == _utc(due)
    assert page.locator("#zone").inner_text() == "Times in UTC"


@pytest.mark.parametrize("zone", [ZONE, "Europe/Berlin"])
def test_runs_of_a_schedule_are_also_in_its_zone(new_context: NewContext, server: Server, zone: str) -> None:
    schedule = {"cron": "0 6 * * *", "time_zone": "Europe/Berlin"}
    server.api.call("PUT", "/v1/kinds/report/schedules/daily", schedule)
    times = server.api.get("/v1/kinds/report/schedules/daily")["next_times"]
    page = new_context(server.url, timezone_id=zone).new_page()
    open_page(page, "schedules")
    berlin = [f"{_local(time, 'Europe/Berlin')[:16]} Europe/Berlin" for time in times]
    assert all("06:00 Europe/Berlin" in time for time in berlin)
    runs = page.locator("#schedules .times li")
    for run, time, there in zip(runs.all(), times[1:], berlin[1:], strict=True):
        same = zone == "Europe/Berlin"
        assert run.inner_text() == (_local(time, zone)[:16] if same else f"{_local(time)[:16]} · {there}")
    expect(page.locator("#schedules td[data-label='Next run']")).to_contain_text(_local(times[0], zone)[:16])


def test_events_have_the_local_time_of_day(page: Page, server: Server) -> None:
    open_page(page, "events")
    expect(page.locator("#live-status")).to_have_text("Live")
    server.api.put("times", "event", delay="1h")
    at = page.locator("#events time").first
    expect(at).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
    time = at.get_attribute("datetime")
    expect(at).to_have_text(_local(time)[11:])
    assert at.get_attribute("title") == _utc(time)

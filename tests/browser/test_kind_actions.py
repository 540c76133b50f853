"""The actions on kinds and schedules do what they say."""

from __future__ import annotations

import pytest
from pages import follow, heading, notice, open_page, press, problem
from playwright.sync_api import Page, expect
from server import Api, Server
from watch import Watch


def test_pause_and_resume(page: Page, server: Server) -> None:
    server.api.put("pause", "a")
    open_page(page, "kind", kind="pause")
    press(page, "Pause")
    assert notice(page) == "Paused pause. Its jobs are not handed out."
    expect(page.locator("h1 .badge")).to_have_text("paused")
    assert server.api.kind("pause")["paused"]
    press(page, "Resume")
    assert notice(page) == "Resumed pause."
    assert not server.api.kind("pause")["paused"]


# Of each field of the form: what is written, where it is in the settings, and what it is there.
SETTINGS = {
    "Lease": ("45s", "lease", "45s"),
    "Attempts": ("7", "max_attempts", 7),
    "First backoff": ("2s", "backoff.base", "2s"),
    "Longest backoff": ("90m", "backoff.max", "1h30m"),
    "Jitter in percent": ("5", "backoff.jitter_percent", 5),
    "Concurrency": ("12", "concurrency", 12),
    "Rate": ("1,000 / 1m", "rate.jobs", 1000),
    "Rate: burst": ("30", "rate.burst", 30),
    "Ageing": ("1h", "ageing", "1h"),
    "Keep dead jobs for": ("3d", "retention.age", "3d"),
    "Keep dead jobs, at most": ("500", "retention.count", 500),
    "Keep done jobs for": ("2d", "keep_done.for", "2d"),
    "Keep done jobs, at most": ("600", "keep_done.count", 600),
}


def _setting(api: Api, kind: str, path: str) -> object:
    value = api.get(f"/v1/kinds/{kind}/settings")
    for name in path.split("."):
        value = value and value[name]
    return value


def test_each_setting_is_saved_and_shown(page: Page, server: Server) -> None:
    server.api.put("settings", "a", delay="1h")
    open_page(page, "settings", kind="settings")
    assert page.locator("form.fields input:not([type=hidden])").count() == len(SETTINGS)
    for label, (written, _, _) in SETTINGS.items():
        page.get_by_label(label, exact=True).fill(written)
    press(page, "Save")
    assert notice(page).startswith("Saved the settings of settings.")
    for label, (_, path, expected) in SETTINGS.items():
        assert _setting(server.api, "settings", path) == expected, label
    assert _setting(server.api, "settings", "rate.per") == "1m"
    open_page(page, "settings", kind="settings")
    for label, (_, _, expected) in SETTINGS.items():
        shown = "1000/1m" if label == "Rate" else str(expected)
        assert page.get_by_label(label, exact=True).input_value() == shown, label


def test_an_empty_field_removes_a_limit(page: Page, server: Server) -> None:
    server.api.set_kind("unlimited", concurrency=5, rate={"jobs": 1, "per": "1s"}, ageing="1m", keep_done={"for": "1d"})
    open_page(page, "settings", kind="unlimited")
    for label in ["Concurrency", "Rate", "Rate: burst", "Ageing", "Keep done jobs for"]:
        page.get_by_label(label, exact=True).fill("")
    press(page, "Save")
    settings = server.api.get("/v1/kinds/unlimited/settings")
    assert [settings[name] for name in ("concurrency", "rate", "ageing", "keep_done")] == [None] * 4


@pytest.mark.parametrize(
    ("label", "written", "message"),
    [
        ("Lease", "5", "without a unit"),
        ("Attempts", "many", "is not a whole number"),
        ("Rate", "5", "is not a rate: write jobs per time, such as 10/s or 100/1m"),
        ("Jitter in percent", "101", "100"),
    ],
)
def test_an_invalid_setting_changes_nothing(
    page: Page, server: Server, watch: Watch, label: str, written: str, message: str
) -> None:
    watch.allow_status(422)
    server.api.set_kind("invalid", max_attempts=3)
    before = server.api.get("/v1/kinds/invalid/settings")
    open_page(page, "settings", kind="invalid")
    page.get_by_label("Longest backoff").fill("2h")
    page.get_by_label(label, exact=True).fill(written)
    press(page, "Save")
    assert message in problem(page)
    assert server.api.get("/v1/kinds/invalid/settings") == before


def test_delete_kind_asks_first_and_then_removes_everything(page: Page, server: Server) -> None:
    server.api.put_many("gone", [{"id": str(n), "delay": "1h"} for n in range(3)])
    server.api.set_kind("gone", max_attempts=3)
    open_page(page, "settings", kind="gone")
    follow(page, "Delete kind…")
    assert heading(page) == "Delete gone and 3 jobs?"
    follow(page, "Back")
    assert server.api.kind("gone")["pending"] == 3
    open_page(page, "delete-kind", kind="gone")
    press(page, "Delete 3 jobs")
    assert notice(page) == "Deleted gone with 3 jobs."
    assert "gone" not in [kind["kind"] for kind in server.api.get("/v1/kinds")["kinds"]]
    expect(page.locator("#kinds")).not_to_contain_text("gone")


def test_a_schedule_is_run_paused_and_resumed(page: Page, server: Server) -> None:
    path = "/v1/kinds/report/schedules/daily"
    server.api.call("PUT", path, {"cron": "0 6 * * *", "body": {"of": "sales"}})
    server.api.call("PUT", "/v1/kinds/report/schedules/hourly", {"every": "1h"})
    open_page(page, "schedules")

    def row():
        return page.locator("#schedules tbody tr", has_text="daily")

    assert server.api.job("report", "daily") is None
    press(page, "Run now", row())
    assert notice(page) == "Started a run of report/daily."
    assert server.api.job("report", "daily")["body"] == {"of": "sales"}
    press(page, "Pause", row())
    assert notice(page) == "Paused the schedule report/daily."
    assert server.api.get(path)["paused"]
    expect(row().locator(".badge")).to_have_text("paused")
    press(page, "Resume", row())
    assert not server.api.get(path)["paused"]
    assert not server.api.get("/v1/kinds/report/schedules/hourly")["paused"]


def test_a_webhook_is_shown_with_its_target(page: Page, server: Server) -> None:
    server.api.set_kind("hook", paused=True, push={"url": "https://example.com/hook"})
    open_page(page, "push")
    row = page.locator("#push tbody tr", has_text="hook")
    expect(row).to_contain_text("https://example.com/hook")
    expect(row).to_contain_text("the kind is paused")
    open_page(page, "settings", kind="hook")
    expect(page.locator("form.fields")).to_contain_text("https://example.com/hook")

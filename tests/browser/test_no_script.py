"""Everything but live updates works in a browser without JavaScript."""

from __future__ import annotations

import pytest
from conftest import NewContext
from pages import follow, heading, ids, notice, open_page, press
from playwright.sync_api import Page, expect
from server import Server


@pytest.fixture
def page(new_context: NewContext, server: Server) -> Page:
    return new_context(server.url, java_script_enabled=False).new_page()


def test_the_navigation_leads_to_every_page(page: Page) -> None:
    open_page(page, "/")
    for name, title in {
        "Dead": "Dead jobs",
        "Workers": "Workers",
        "Schedules": "Schedules",
        "Webhooks": "Webhooks",
        "Events": "Events",
        "Keys and words": "Help",
        "Overview": "Overview",
    }.items():
        follow(page, name)
        assert heading(page) == title
    follow(page, "Events")
    # Chromium parses `noscript` as if scripts were enabled, if they are disabled by a test.
    assert "Live events need JavaScript" in page.content()


def test_a_search_opens_the_job(page: Page, server: Server) -> None:
    server.api.put("search", "a/b", delay="1h")
    open_page(page, "/")
    page.get_by_role("searchbox", name="Find a kind").fill("search/a/b")
    with page.expect_event("load"):
        page.keyboard.press("Enter")
    assert heading(page).startswith("search / a/b")
    expect(page.locator("#job time").first).to_contain_text("in ")


def test_jobs_are_filtered_paged_and_cancelled(page: Page, server: Server) -> None:
    server.api.put_many("plain", [{"id": f"j{n:03}", "delay": "1h"} for n in range(120)])
    open_page(page, "kind", kind="plain", state="waiting")
    page.get_by_label("Id starts with").fill("j0")
    press(page, "Filter", page.locator("#filter"))
    assert ids(page) == [f"j{n:03}" for n in range(50)]
    follow(page, "Next page")
    assert ids(page) == [f"j{n:03}" for n in range(50, 100)]
    page.get_by_role("checkbox", name="Select j055", exact=True).check()
    press(page, "Cancel…")
    assert heading(page) == "Cancel 1 job?"
    press(page, "Cancel 1 job")
    assert "cancelled" in notice(page)
    assert server.api.job("plain", "j055") is None
    assert server.api.kind("plain")["pending"] == 119

"""The dashboard can be used with the keyboard."""

from __future__ import annotations

import pytest
from pages import heading, open_page
from playwright.sync_api import Page, expect
from server import Server


def test_tab_reaches_the_skip_link_first(page: Page) -> None:
    open_page(page, "/")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_slash_focuses_the_search_and_escape_leaves_it(page: Page) -> None:
    open_page(page, "/")
    page.keyboard.press("/")
    search = page.get_by_role("searchbox", name="Find a kind")
    expect(search).to_be_focused()
    page.keyboard.type("/?gd")
    expect(search).to_have_value("/?gd")
    page.keyboard.press("Escape")
    expect(search).not_to_be_focused()


@pytest.mark.parametrize(
    ("keys", "title"),
    [
        ("?", "Help"),
        ("gd", "Dead jobs"),
        ("gw", "Workers"),
        ("gs", "Schedules"),
        ("gp", "Webhooks"),
        ("ge", "Events"),
        ("go", "Overview"),
    ],
)
def test_keys_lead_to_pages(page: Page, keys: str, title: str) -> None:
    open_page(page, "put")
    with page.expect_event("load"):
        for key in keys:
            page.keyboard.press(key)
    assert heading(page) == title


def test_a_search_finds_jobs_and_kinds(page: Page, server: Server) -> None:
    server.api.put("mail", "orders/42 ü", delay="1h")
    server.api.put("sms", "a", delay="1h")
    open_page(page, "help")
    for wanted, title in [("mail/orders/42 ü", "mail / orders/42 ü"), ("MAI", "Overview"), ("mail/", "Overview")]:
        page.keyboard.press("/")
        page.keyboard.type(wanted)
        with page.expect_event("load"):
            page.keyboard.press("Enter")
        assert heading(page).startswith(title)
        if title == "Overview":
            assert page.locator("#kinds tbody th a").all_inner_texts() == ["mail"]


def test_a_job_is_cancelled_with_the_keyboard_alone(page: Page, server: Server) -> None:
    server.api.put("keys", "a", delay="1h")
    open_page(page, "job", kind="keys", id="a")
    button = page.get_by_role("button", name="Cancel…")
    for _ in range(40):
        page.keyboard.press("Tab")
        if button.evaluate("(button) => button === document.activeElement"):
            break
    expect(button).to_be_focused()
    with page.expect_event("load"):
        page.keyboard.press("Enter")
    page.get_by_role("button", name="Cancel 1 job").focus()
    with page.expect_event("load"):
        page.keyboard.press("Space")
    assert server.api.job("keys", "a") is None

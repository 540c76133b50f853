"""The dashboard works below a path of a reverse proxy, without being configured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import FULL, NewContext
from pages import all_pages, card, heading, log_in, notice, open_page, press
from playwright.sync_api import Page, expect
from server import Server
from sites import Proxy


@pytest.fixture
def proxy(guarded: Server) -> Iterator[Proxy]:
    with Proxy(guarded.url) as proxy:
        yield proxy
        assert proxy.outside == []


@pytest.fixture
def page(new_context: NewContext, proxy: Proxy) -> Page:
    page = new_context(f"{proxy.url}/queue/").new_page()
    page.goto("dead")
    log_in(page, FULL)
    assert page.url == f"{proxy.url}/queue/dead"
    return page


def test_every_page_and_all_of_its_links_are_below_the_path(page: Page, guarded: Server, proxy: Proxy) -> None:
    guarded.api.put("mail", "a", delay="1h")
    base = f"{proxy.url}/queue/"
    for path in all_pages("mail", "a"):
        open_page(page, path)
        links = page.evaluate(
            """() => [
                ...[...document.querySelectorAll("a[href], link[href]")].map((link) => link.href),
                ...[...document.querySelectorAll("[src]")].map((image) => image.src),
                // Not `form.action`, which is the button of that name, if there is one.
                ...[...document.forms].map((form) => new URL(form.getAttribute("action"), document.baseURI).href),
            ]"""
        )
        assert [link for link in links if not link.startswith(base)] == [], path


def test_actions_and_the_message_about_them_work(page: Page, guarded: Server) -> None:
    guarded.api.put("mail", "a", delay="1h")
    open_page(page, "job?kind=mail&id=a")
    press(page, "Run now")
    assert notice(page) == "a is due now."
    assert guarded.api.state("mail", "a") == "ready"
    press(page, "Cancel…")
    press(page, "Cancel 1 job")
    assert guarded.api.job("mail", "a") is None
    press(page, "Log out")
    assert heading(page) == "Log in"
    assert page.context.cookies() == []


def test_pages_are_live(page: Page, guarded: Server) -> None:
    guarded.api.put("live", "a", delay="1h")
    open_page(page, "kind?kind=live")
    expect(page.locator("#live-status")).to_have_text("Live")
    guarded.api.put("live", "b", delay="1h")
    expect(card(page, "Waiting")).to_have_text("2")

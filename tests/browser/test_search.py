"""A job is found by its id alone, and a missing one is explained."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import FULL, NewContext
from hostile import IMAGE, SCRIPT
from pages import follow, heading, link, open_page
from playwright.sync_api import Page, expect
from server import Server
from watch import Watch


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    jobs = [{"kind": f"k{n:04}", "id": f"only-{n}", "delay": "1h"} for n in range(600)]
    server.api.call("POST", "/v1/put", {"jobs": jobs})
    server.api.put("k0001", "twice", delay="1h")
    server.api.put("k0003", "twice", delay="1h")
    server.api.put("k0001", "k0005", delay="1h")
    server.api.put("k0001", "orders/42 ü", delay="1h")
    server.api.put("k0001", SCRIPT, delay="1h")
    yield server
    server.stop()


def _search(page: Page, text: str) -> None:
    open_page(page, "help")
    page.get_by_role("searchbox", name="Find a kind").fill(text)
    with page.expect_event("load"):
        page.keyboard.press("Enter")


@pytest.mark.parametrize("text", ["only-7", " only-7 ", "k0007/only-7"])
def test_an_id_is_enough_to_open_a_job(page: Page, text: str) -> None:
    _search(page, text)
    if heading(page).startswith("Search"):
        # There are more kinds than one request looks into.
        follow(page, "only-7")
    assert heading(page).startswith("k0007 / only-7")


def test_an_id_may_contain_a_slash_and_markup(page: Page) -> None:
    for id in ("orders/42 ü", SCRIPT):
        _search(page, id)
        page.locator(".found .id").click()
        page.wait_for_url("**/job?*")
        assert page.locator("h1 bdi").inner_text() == id
        assert not page.evaluate("'hacked' in window")
    _search(page, IMAGE)
    expect(page.locator("h1")).to_contain_text("onerror")
    assert not page.evaluate("'hacked' in window")


def test_the_search_says_how_far_it_looked_and_goes_on(page: Page) -> None:
    _search(page, "only-599")
    expect(page.locator("main")).to_contain_text("Looked for the job in 500 of 600 kinds.")
    expect(page.locator("main")).to_contain_text("No job has exactly this id, in the kinds that were examined.")
    with page.expect_event("load"):
        page.get_by_role("link", name="Search on").click()
    assert heading(page).startswith(("k0599 / only-599", "Search"))
    if heading(page).startswith("Search"):
        expect(page.locator(".found")).to_contain_text("k0599 / only-599")


def test_several_jobs_and_kinds_are_listed(page: Page) -> None:
    _search(page, "twice")
    assert page.locator(".found li").all_inner_texts() == ["k0001 / twice waiting", "k0003 / twice waiting"]
    _search(page, "k0005")
    assert page.locator(".found li").all_inner_texts() == ["k0001 / k0005 waiting", "k0005"]


def test_what_cannot_be_an_id_is_no_error(page: Page) -> None:
    for text in ["x" * 600, "k0007/", "/only-7", "a b/c d", "..", "."]:
        _search(page, text)
        assert heading(page).startswith(("Search", "Overview")), text


def test_a_missing_job_is_explained(page: Page, server: Server, watch: Watch) -> None:
    watch.allow_status(404)
    server.api.put("acked", "a")
    server.api.settle("ack", server.api.claim("acked", 1))
    assert page.goto(link("job", kind="acked", id="a")).status == 404
    expect(page.locator("main")).to_contain_text("A job is removed when a worker acks it")
    assert page.goto(link("job", kind="elsewhere", id="only-7")).status == 404
    with page.expect_event("load"):
        page.get_by_role("link", name="Look for this id in all kinds").click()
    expect(page.locator("main")).to_contain_text("only-7")


def test_the_search_needs_a_token(new_context: NewContext, guarded: Server) -> None:
    guarded.api.put("secret", "known-id", delay="1h")
    page = new_context(guarded.url).new_page()
    page.goto("go?q=known-id")
    assert heading(page) == "Log in"
    page.get_by_label("Access token").fill(FULL)
    with page.expect_event("load"):
        page.get_by_role("button", name="Log in").click()
    assert heading(page).startswith("secret / known-id")

"""axe-core finds no serious problem on any page, in light and dark, wide and narrow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import FULL, TOKENS, NewContext, remember
from pages import all_pages, card, link, log_in, open_page, press
from playwright.sync_api import Page
from server import REPOSITORY, Server
from watch import Watch

AXE = Path(os.environ.get("AXE_CORE", REPOSITORY / "target/browser/node_modules/axe-core/axe.min.js"))
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 800}
KIND, ID = "mail.with-a-long-name", "a-rather-long-id-of-a-job-without-any-spaces-in-it-0123456789"
DEAD = "another-long-id-of-a-job-that-is-dead-0123456789"
PAGES = [*all_pages(KIND, ID), link("job", kind=KIND, id=DEAD), "job?kind=nobody&id=nobody", "?due=week"]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    server = Server(tokens=TOKENS)
    server.api.token = FULL
    _fill(server)
    yield server
    server.stop()


def _fill(server: Server) -> None:
    """Something on every page: a long error, a paused kind, a successor, a schedule, a webhook."""
    api = server.api
    error = "connect to https://example.com/a/very/long/path?with=parameters: " + "x" * 200
    api.put(KIND, DEAD, body_text="y" * 300)
    api.settle("bury", api.claim(KIND, 1, worker="worker-with-a-rather-long-name-0123456789"), error=error)
    api.set_kind(KIND, keep_done={"for": "1d"}, rate={"jobs": 100, "per": "1m"})
    api.put(KIND, "done")
    api.settle("ack", api.claim(KIND, 1), result={"body": {"pages": 3}})
    api.put(KIND, "leased")
    api.claim(KIND, 1)
    api.put(KIND, "leased", body={"again": True})
    api.put(KIND, ID, body={"to": ["ann", 1, None, {"deep": "z" * 100}]}, delay="10m")
    api.put(KIND, "ready", priority=5)
    api.put("paused", "a")
    api.call("POST", "/v1/kinds/paused/pause")
    api.call("PUT", "/v1/kinds/report/schedules/daily", {"cron": "0 6 * * *", "time_zone": "Europe/Berlin"})
    api.set_kind("hook", paused=True, push={"url": "https://example.com/a/rather/long/path/of/a/webhook"})


@pytest.fixture
def page(new_context: NewContext, guarded: Server) -> Page:
    # Colours that are still changing would be measured in between.
    context = new_context(guarded.url, bypass_csp=True, reduced_motion="reduce")
    remember(context, guarded.url, FULL)
    return context.new_page()


def _check(page: Page) -> list[str]:
    """Checks the open page in all four variants. Returns what is wrong."""
    page.evaluate(AXE.read_text())
    found = []
    for viewport in (WIDE, NARROW):
        page.set_viewport_size(viewport)
        width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        if width[0] > width[1]:
            found.append(f"{viewport['width']} px: the page is {width[0]} px wide and scrolls")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            violations = page.evaluate(
                "axe.run(document, { resultTypes: ['violations'] }).then((result) => result.violations)"
            )
            for violation in violations:
                if violation["impact"] in ("serious", "critical"):
                    nodes = [f"{node['html'][:150]} {node['failureSummary'][:300]}" for node in violation["nodes"][:3]]
                    found.append(f"{viewport['width']} px, {scheme}: {violation['id']}: {nodes}")
    return found


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_serious_problem(page: Page, watch: Watch, path: str) -> None:
    if "nobody" in path:
        watch.allow_status(404)
    page.goto(path)
    assert _check(page) == []


def test_the_login_has_no_serious_problem(page: Page, watch: Watch) -> None:
    watch.allow_status(401)
    page.context.clear_cookies()
    open_page(page, "login")
    assert _check(page) == []
    log_in(page, "wrong")
    assert _check(page) == []


def test_a_confirmation_and_a_message_have_no_serious_problem(page: Page) -> None:
    open_page(page, f"job?kind={KIND}&id={ID}")
    press(page, "Cancel…")
    assert _check(page) == []
    open_page(page, f"job?kind={KIND}&id={ID}")
    press(page, "Run now")
    assert page.locator(".notice").count() == 1
    assert _check(page) == []


def test_the_lateness_fits_into_its_card(page: Page) -> None:
    """It is the longest of the numbers: two durations."""
    for path in ("./", f"kind?kind={KIND}"):
        open_page(page, path)
        for width in (1280, 1024, 768, 390):
            page.set_viewport_size({"width": width, "height": 800})
            value = card(page, "Lateness")
            needed, available = value.evaluate(
                """(value) => {
                    value.textContent = "318 ms / 595 ms";
                    return [value.scrollWidth, value.clientWidth];
                }"""
            )
            assert needed <= available, f"{path} at {width} px"

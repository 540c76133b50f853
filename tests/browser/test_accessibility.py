"""axe-core finds no serious problem on any page, in light and dark, wide and narrow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import FULL, TOKENS, NewContext, remember
from example import ID, KIND, PAGES, fill_every_page
from pages import card, log_in, open_page, press
from playwright.sync_api import Page
from server import REPOSITORY, Server
from watch import Watch

AXE = Path(os.environ.get("AXE_CORE", REPOSITORY / "target/browser/node_modules/axe-core/axe.min.js"))
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 800}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    server = Server(tokens=TOKENS)
    server.api.token = FULL
    fill_every_page(server.api)
    yield server
    server.stop()


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

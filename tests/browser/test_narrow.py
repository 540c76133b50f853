"""Everything can be reached, also on a phone: pages do not scroll sideways, and every button is on the screen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import FULL, TOKENS, NewContext, remember
from example import ID, KIND, PAGES, fill_every_page
from pages import open_page, press
from playwright.sync_api import Page
from server import Server
from watch import Watch

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}

# What can be pressed or filled in and is not on the screen. `.skip` appears when it has the focus, and an element of
# one pixel is for screen readers.
OUTSIDE = """() => {
    const found = [];
    for (const one of document.querySelectorAll("a[href], button, input, select, textarea, summary")) {
        if (!one.checkVisibility({ visibilityProperty: true }) || one.matches(".skip")) continue;
        const { left, right, width, height } = one.getBoundingClientRect();
        if (width <= 1 || height <= 1 || (left >= 0 && right <= innerWidth)) continue;
        found.push(`${one.outerHTML.slice(0, 120)} from ${left} to ${right}`);
    }
    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth > clientWidth) found.push(`the page is ${scrollWidth} px wide`);
    // What scrolls sideways hides what is on its right. Texts as they were written may do that.
    for (const one of document.querySelectorAll("main *:not(pre, pre *, svg, svg *, .hidden)")) {
        const scrolls = /auto|scroll/.test(getComputedStyle(one).overflowX);
        if (scrolls && one.scrollWidth > one.clientWidth + 1) found.push(`${one.outerHTML.slice(0, 80)} scrolls`);
    }
    return found;
}"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    server = Server(tokens=TOKENS)
    server.api.token = FULL
    fill_every_page(server.api)
    yield server
    server.stop()


@pytest.fixture(params=["phone", "phone-without-script", "desktop"])
def page(request: pytest.FixtureRequest, new_context: NewContext, guarded: Server) -> Page:
    viewport = DESKTOP if request.param == "desktop" else PHONE
    with_script = request.param != "phone-without-script"
    context = new_context(guarded.url, viewport=viewport, java_script_enabled=with_script)
    remember(context, guarded.url, FULL)
    return context.new_page()


# On a phone, the cells whose title is not that of their column.
WRONG_TITLES = """() => [...document.querySelectorAll(".scroll table")].flatMap((table) => {
    const titles = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
    return [...table.tBodies[0].rows].flatMap((row) => [...row.cells].flatMap((cell, n) => {
        if (cell.nodeName === "TH" || cell.matches(".check, [colspan], :has(.actions)")) return [];
        const shown = getComputedStyle(cell, "::before").content;
        return shown === JSON.stringify(titles[n]) ? [] : [`${shown} is ${titles[n]}`];
    }));
})"""


@pytest.mark.parametrize("path", PAGES)
def test_every_button_and_link_is_on_the_screen(page: Page, watch: Watch, path: str) -> None:
    if "nobody" in path:
        watch.allow_status(404)
    page.goto(path)
    assert page.evaluate(OUTSIDE) == []
    if page.viewport_size == PHONE:
        assert page.evaluate(WRONG_TITLES) == []


def test_the_login_and_the_confirmations_fit(page: Page) -> None:
    open_page(page, "dead")
    press(page, "Revive all…")
    assert page.evaluate(OUTSIDE) == []
    open_page(page, "job", kind=KIND, id=ID)
    press(page, "Cancel…")
    assert page.evaluate(OUTSIDE) == []
    page.context.clear_cookies()
    open_page(page, "login")
    assert page.evaluate(OUTSIDE) == []


def test_rows_can_be_sorted_and_selected(page: Page) -> None:
    open_page(page, "./")
    page.get_by_role("link", name="Dead", exact=True).last.click()
    page.wait_for_url("**sort=dead*")
    open_page(page, "kind", kind=KIND, state="waiting")
    page.get_by_role("checkbox", name=f"Select {ID}").check()
    press(page, "Run now…")
    assert page.locator("h1").inner_text() == "Run now 1 job?"

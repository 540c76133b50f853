"""The log of the server says who did what in the dashboard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import FULL, TOKENS, NewContext
from pages import log_in, open_page, press
from playwright.sync_api import Page
from server import Server
from watch import Watch


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    server = Server(tokens=TOKENS, log="info")
    server.api.token = FULL
    yield server
    server.stop()


@pytest.fixture
def page(new_context: NewContext, guarded: Server) -> Page:
    page = new_context(guarded.url).new_page()
    open_page(page, "login")
    log_in(page, FULL)
    return page


def _lines(server: Server, *parts: str) -> list[str]:
    """The lines of the log that contain all of these texts."""
    lines = server.stderr().splitlines()
    return [line for line in lines if all(part in line for part in parts)]


def test_an_action_is_logged_with_the_name_of_the_token(page: Page, guarded: Server) -> None:
    guarded.api.put("mail", "a", delay="1h")
    open_page(page, "job?kind=mail&id=a")
    press(page, "Run now")
    assert len(_lines(guarded, "dashboard", "ann", "run now", "mail/a")) == 1
    press(page, "Cancel…")
    assert _lines(guarded, "dashboard", "cancel") == []
    press(page, "Cancel 1 job")
    assert len(_lines(guarded, "dashboard", "ann", "cancel", "mail/", "1 changed")) == 1
    open_page(page, "kind?kind=mail")
    press(page, "Pause")
    assert len(_lines(guarded, "dashboard", "ann", "pause", "mail")) == 1


def test_a_failed_action_is_logged_with_its_reason(page: Page, guarded: Server, watch: Watch) -> None:
    watch.allow_status(422)
    guarded.api.put("mail", "b", delay="1h")
    open_page(page, "job?kind=mail&id=b")
    page.get_by_label("Due").fill("soon")
    press(page, "Change due time")
    assert len(_lines(guarded, "WARN", "ann", "reschedule", "mail/b", "soon")) == 1


def test_the_login_is_logged_and_no_token_is(page: Page, guarded: Server) -> None:
    assert _lines(guarded, "login to the dashboard", "ann", "full")
    assert FULL not in guarded.stderr()


def test_an_id_cannot_forge_a_line_of_the_log(page: Page, guarded: Server, watch: Watch) -> None:
    watch.allow_status(404)
    fields = {"kind": "mail", "id": "x\nINFO dashboard who=eve \x1b[31m"}
    page.evaluate(
        "(fields) => fetch('run-now', { method: 'POST', body: new URLSearchParams(fields) }).then((r) => r.status)",
        fields,
    )
    assert _lines(guarded, "run now", "who=eve")
    assert not [line for line in guarded.stderr().splitlines() if line.startswith("INFO dashboard who=eve")]
    assert "\x1b[31m" not in guarded.stderr()

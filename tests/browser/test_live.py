"""Pages follow the server without being loaded again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pages import card, ids, open_page
from playwright.sync_api import Page, Request, expect
from server import Server
from watch import Watch


def _is_stream(request: Request) -> bool:
    return request.resource_type == "eventsource"


def _status(page: Page):
    return page.locator("#live-status")


@pytest.fixture
def stays(page: Page) -> Iterator[Callable[[], None]]:
    """Marks the document that is open. The test fails if another one was loaded in the meantime."""

    def mark() -> None:
        page.evaluate("window.marked = true")

    yield mark
    assert page.evaluate("window.marked === true"), "the page was loaded again"


def test_numbers_follow_what_happens(page: Page, server: Server, stays: Callable[[], None]) -> None:
    open_page(page, "/")
    stays()
    expect(_status(page)).to_have_text("Live")
    before = server.api.get("/v1/stats")["pending"]
    server.api.put("live", "a", delay="1h")
    expect(page.locator("#kind-live td").first).to_have_text("1")
    expect(card(page, "Waiting")).to_have_text(str(before + 1))


def test_the_list_of_jobs_follows_what_happens(page: Page, server: Server, stays: Callable[[], None]) -> None:
    server.api.put("rows", "b", delay="2h")
    open_page(page, "kind", kind="rows", state="waiting")
    stays()
    server.api.put("rows", "a", delay="1h")
    expect(page.locator("#jobs tbody th")).to_have_text(["a", "b"])
    server.api.call("DELETE", "/v1/kinds/rows/jobs/b")
    expect(page.locator("#jobs tbody th")).to_have_text(["a"])


def test_a_job_follows_its_state(page: Page, server: Server, stays: Callable[[], None]) -> None:
    server.api.put("one", "a", delay="1h")
    open_page(page, "job", kind="one", id="a")
    stays()
    expect(page.locator(".state")).to_have_text("waiting")
    server.api.call("POST", "/v1/kinds/one/run-now", {"ids": ["a"]})
    expect(page.locator(".state")).to_have_text("ready")
    jobs = server.api.claim("one", 1, worker="carl")
    expect(page.locator(".facts")).to_contain_text("carl")
    server.api.settle("bury", jobs, error="no such number")
    expect(page.locator("#timeline pre")).to_have_text("no such number")


def test_events_appear_as_rows(page: Page, server: Server, stays: Callable[[], None]) -> None:
    with page.expect_event("response", _is_stream_response):
        open_page(page, "events", kinds="shown")
    stays()
    expect(_status(page)).to_have_text("Live")
    server.api.put("other", "a")
    server.api.put("shown", "a", delay="1h")
    expect(page.locator("#events tr")).to_have_count(1)
    expect(page.locator("#events tr")).to_contain_text("shown / a")


def _is_stream_response(response) -> bool:
    return _is_stream(response.request)


def _set_hidden(page: Page, hidden: bool) -> None:
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            const state = hidden ? "hidden" : "visible";
            Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_the_stream_is_closed_while_the_page_is_hidden(page: Page, server: Server, stays: Callable[[], None]) -> None:
    streams: list[Request] = []
    page.on("request", lambda request: _is_stream(request) and streams.append(request))
    server.api.put("hidden", "a", delay="1h")
    open_page(page, "kind", kind="hidden")
    stays()
    expect(_status(page)).to_have_text("Live")
    with page.expect_event("requestfailed", _is_stream) as ended:
        _set_hidden(page, True)
    assert ended.value == streams[0]
    expect(_status(page)).to_have_text("Paused while hidden")
    server.api.put("hidden", "b", delay="1h")
    with page.expect_request(_is_stream):
        _set_hidden(page, False)
    expect(card(page, "Waiting")).to_have_text("2")
    expect(_status(page)).to_have_text("Live")
    assert len(streams) == 2


def test_rows_do_not_move_while_they_are_selected(page: Page, server: Server, stays: Callable[[], None]) -> None:
    server.api.put("still", "b", delay="2h")
    open_page(page, "kind", kind="still", state="waiting")
    stays()
    expect(_status(page)).to_have_text("Live")
    box = page.get_by_role("checkbox", name="Select b", exact=True)
    box.check()
    server.api.put("still", "a", delay="1h")
    # The number is live, the rows are not.
    expect(card(page, "Waiting")).to_have_text("2")
    expect(_status(page)).to_have_text("Live, but not the rows in use")
    assert ids(page) == ["b"] and box.is_checked()


def test_rows_catch_up_when_nothing_is_selected_anymore(page: Page, server: Server, stays: Callable[[], None]) -> None:
    server.api.put("caught-up", "b", delay="2h")
    open_page(page, "kind", kind="caught-up", state="waiting")
    stays()
    box = page.get_by_role("checkbox", name="Select b", exact=True)
    box.check()
    server.api.put("caught-up", "a", delay="1h")
    expect(_status(page)).to_have_text("Live, but not the rows in use")
    box.uncheck()
    box.evaluate("(box) => box.blur()")
    expect(page.locator("#jobs tbody th")).to_have_text(["a", "b"])
    expect(_status(page)).to_have_text("Live")


def test_after_a_restart_of_the_server_the_page_is_live_again(
    page: Page, watch: Watch, stays: Callable[[], None], server: Server
) -> None:
    watch.allow("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET")
    server.api.put("restart", "a", delay="1h")
    open_page(page, "kind", kind="restart")
    stays()
    expect(_status(page)).to_have_text("Live")
    address = server.address
    server.halt()
    expect(_status(page)).to_contain_text("Not connected")
    server.start(address)
    server.api.put("restart", "b", delay="1h")
    expect(card(page, "Waiting")).to_have_text("2", timeout=30_000)
    expect(_status(page)).to_have_text("Live")

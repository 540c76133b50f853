"""Trouble is shown as trouble: late kinds, targets that cannot be reached, workers whose leases expire."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from conftest import NewContext
from pages import follow, open_page
from playwright.sync_api import Page, expect
from server import Server


def _put_late(server: Server, kind: str, minutes: int) -> None:
    """Puts a job that has been due for a while, as an import of a store would."""
    server.api.put("template", "a", delay="1h")
    job = server.api.job("template", "a")
    due = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
    job.update(kind=kind, state="waiting", due=due, created_at=due, updated_at=due)
    restore = {"generation": job["generation"], "fence": 0, "jobs": [job]}
    server.api.call("POST", f"/v1/kinds/{kind}/restore", restore)
    server.api.call("DELETE", "/v1/kinds/template")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("--push-allow", "127.0.0.1:9")
    api = server.api
    api.put("a.fresh", "a")
    _put_late(server, "late", 40)
    _put_late(server, "paused.late", 40)
    api.call("POST", "/v1/kinds/paused.late/pause")
    # Nothing listens on this port.
    backoff = {"base": "10ms", "max": "10ms"}
    api.set_kind("hook", push={"url": "http://127.0.0.1:9/hook"}, max_attempts=100, backoff=backoff)
    api.put_many("hook", [{"id": str(n)} for n in range(8)])
    api.set_kind("hang", max_attempts=100, backoff=backoff)
    api.put_many("hang", [{"id": str(n)} for n in range(42)])
    api.claim("hang", 42, worker="hung <worker>", lease="10ms")
    api.put("work", "a")
    api.settle("ack", api.claim("work", 1, worker="good"))
    end = time.monotonic() + 60
    while {"circuit_open", "leases_expire"} - {one["name"] for one in _trouble(server)}:
        assert time.monotonic() < end, _trouble(server)
        time.sleep(0.1)
    yield server
    server.stop()


def _trouble(server: Server) -> list[dict]:
    return server.api.get("/v1/stats").get("trouble", [])


def test_the_overview_lists_it_and_marks_the_kinds(page: Page) -> None:
    open_page(page, "/")
    trouble = page.locator(".trouble li")
    expect(trouble).to_have_count(3)
    texts = trouble.all_inner_texts()
    assert texts[0].startswith("hook target not reachable http://127.0.0.1:9")
    assert texts[1].startswith("worker hung <worker> leases expire 42 leases have expired")
    assert texts[2].startswith("late late jobs have been ready for long") and "40m ago" in texts[2]
    assert page.locator("#kind-hook .badge.bad").inner_text() == "target not reachable"
    assert page.locator("#kind-late .badge.bad").inner_text() == "late"
    assert page.locator("#kind-a\\.fresh .badge.bad, #kind-paused\\.late .badge.bad").count() == 0


def test_kinds_in_trouble_are_first_if_asked_for(page: Page) -> None:
    open_page(page, "/")
    names = page.locator("#kinds tbody th a")
    assert names.first.inner_text() == "a.fresh"
    follow(page, "Sort these kinds first")
    assert names.all_inner_texts()[:3] == ["hook", "late", "a.fresh"]


def test_the_pages_of_kind_worker_and_webhooks_say_it(page: Page) -> None:
    open_page(page, "kind", kind="late")
    expect(page.get_by_role("alert")).to_contain_text("nobody claims them")
    open_page(page, "kind", kind="hook")
    expect(page.get_by_role("alert")).to_contain_text("127.0.0.1:9 cannot be reached")
    open_page(page, "workers")
    first = page.locator("#workers tbody tr").first
    expect(first).to_contain_text("hung <worker> leases expire")
    assert first.locator("td.number").all_inner_texts()[2:] == ["42", "0", "0", "42"]
    open_page(page, "push")
    expect(page.locator("#push .badge.bad, #push .badge.warn")).to_have_count(1)


def test_it_is_shown_without_script_and_ends_with_its_cause(new_context: NewContext, server: Server) -> None:
    page = new_context(server.url, java_script_enabled=False).new_page()
    open_page(page, "/")
    assert page.locator(".trouble li").count() == 3
    server.api.settle("ack", server.api.claim("late", 1))
    server.api.put("work", "b")
    server.api.settle("ack", server.api.claim("work", 1, worker="hung <worker>"))
    page.reload()
    assert page.locator(".trouble li").count() == 1
    assert [one["name"] for one in _trouble(server)] == ["circuit_open"]

"""The pages with as many jobs as REQUEUE_BROWSER_JOBS says: scripts/soak runs this with a million."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from pages import all_pages, card, follow, ids, open_page
from playwright.sync_api import Page
from server import Server

JOBS = int(os.environ.get("REQUEUE_BROWSER_JOBS", "0"))
KIND, DEAD = "mail", 200

pytestmark = pytest.mark.skipif(JOBS == 0, reason="for scripts/soak: set REQUEUE_BROWSER_JOBS")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """JOBS waiting jobs, due within a week, and few that are dead or leased."""
    server = Server()
    server.api.put_many("mail", [{"id": f"early-{n:04}"} for n in range(DEAD + 1)])
    claimed = server.api.claim("mail", DEAD + 1)
    server.api.settle("bury", claimed[:DEAD], error="no such address")
    for start in range(0, JOBS, 10_000):
        # Not in the order of the ids.
        jobs = [{"id": f"job-{n:08}", "delay": f"{3600 + n * 7919 % 600_000}s"} for n in range(start, min(JOBS, start + 10_000))]
        server.api.put_many(KIND, jobs)
    yield server
    server.stop()


@pytest.mark.parametrize("path", all_pages(KIND, "job-00000000"))
def test_a_page_exists_however_many_jobs_there_are(page: Page, path: str) -> None:
    open_page(page, path)


def test_the_numbers_are_exact(page: Page) -> None:
    open_page(page, "kind", kind=KIND, state="waiting")
    shown = [card(page, name).inner_text() for name in ("Waiting", "Leased", "Dead")]
    assert shown == [f"{JOBS:,}", "1", str(DEAD)]


def test_the_few_dead_jobs_are_found_among_all_others(page: Page) -> None:
    open_page(page, "kind", kind=KIND, state="dead")
    found = ids(page)
    while page.get_by_role("link", name="Next page").count():
        follow(page, "Next page")
        found += ids(page)
    assert sorted(found) == [f"early-{n:04}" for n in range(DEAD)]


def test_the_next_page_continues_with_the_next_due_jobs(page: Page) -> None:
    open_page(page, "kind", kind=KIND, state="waiting")
    first = ids(page)
    follow(page, "Next page")
    both = first + ids(page)
    due = {n: 3600 + n * 7919 % 600_000 for n in (int(id.removeprefix("job-")) for id in both)}
    # A delay counts from when its job was put, which took less than ten minutes for all.
    assert len(due) == len(both) == 100
    assert max(due.values()) - min(due.values()) < 700

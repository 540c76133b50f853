"""Every page, with no job, one job and 10,000 jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from example import ERRORS, fill
from pages import card, heading, ids, open_page
from playwright.sync_api import Page, expect
from server import Server
from watch import Watch

EMPTY, ONE, MANY = 0, 1, 10_000


@pytest.fixture(scope="module", params=[EMPTY, ONE, MANY], ids=lambda number: f"{number}-jobs")
def filled(request: pytest.FixtureRequest) -> Iterator[tuple[Server, int]]:
    server = Server()
    fill(server.api, request.param)
    yield server, request.param
    server.stop()


@pytest.fixture
def server(filled: tuple[Server, int]) -> Server:
    return filled[0]


@pytest.fixture
def number(filled: tuple[Server, int]) -> int:
    return filled[1]


@pytest.fixture(autouse=True)
def _missing_jobs_are_expected(watch: Watch, number: int) -> None:
    if number == EMPTY:
        watch.allow_status(404)


def test_the_overview_shows_the_numbers_of_all_jobs(page: Page, number: int) -> None:
    open_page(page, "/")
    assert heading(page) == "Overview"
    names = ["Waiting", "Ready", "Leased", "Dead"]
    expected = {EMPTY: ["0"] * 4, ONE: ["1", "0", "0", "0"], MANY: ["4,500", "2,000", "500", "2,000"]}
    assert [card(page, name).inner_text() for name in names] == expected[number]
    kinds = page.locator("#kinds tbody th a").all_inner_texts()
    assert kinds == {EMPTY: [], ONE: ["mail"], MANY: ["invoice", "mail", "report", "sms"]}[number]
    if number == EMPTY:
        expect(page.locator("#kinds")).to_contain_text("There are no jobs yet.")
    if number == MANY:
        row = page.locator("#kind-invoice td").all_inner_texts()
        assert row[:5] == ["0", "0", "500", "2,000", "0"]
        assert page.locator("#kind-report td").all_inner_texts()[4] == "1,000"


def test_a_kind_shows_its_numbers_and_the_first_jobs(page: Page, number: int) -> None:
    if number == EMPTY:
        open_page(page, "kind", kind="mail")
        expect(page.locator("#jobs")).to_contain_text("No jobs in this state.")
        return
    open_page(page, "kind", kind="mail")
    assert heading(page) == "mail"
    counts = [card(page, name).inner_text() for name in ("Waiting", "Ready", "Leased", "Dead")]
    tabs = page.locator("nav[aria-label=State] a").all_inner_texts()
    if number == ONE:
        assert counts == ["1", "0", "0", "0"]
        assert ids(page) == ["only"]
        return
    assert counts == ["3,000", "2,000", "0", "0"]
    assert tabs == ["ready 2,000", "waiting 3,000", "leased 0", "dead 0", "all, by id"]
    assert len(ids(page)) == 50
    # Ready jobs are shown first, in the order of their due times.
    assert sorted(ids(page)) == [f"r{n:04}" for n in range(50)]


def test_a_job_shows_its_body_and_its_facts(page: Page, server: Server, number: int) -> None:
    if number == EMPTY:
        assert page.goto("job?kind=mail&id=only").status == 404
        return
    kind, id = ("mail", "only") if number == ONE else ("mail", "w0007")
    open_page(page, "job", kind=kind, id=id)
    assert heading(page).startswith(f"{kind} / {id}")
    expect(page.locator(".state")).to_have_text("waiting")
    expect(page.locator("#body .tree")).to_contain_text("to" if number == ONE else "n: 7")
    if number == MANY:
        dead = server.api.jobs("invoice", state="dead", error=ERRORS[2])[0]["id"]
        open_page(page, "job", kind="invoice", id=dead)
        expect(page.locator("#timeline pre")).to_have_text(ERRORS[2])


def test_dead_jobs_are_grouped_by_their_error(page: Page, number: int) -> None:
    open_page(page, "dead")
    assert heading(page) == "Dead jobs"
    if number != MANY:
        expect(page.locator("main")).to_contain_text("No job is dead.")
        return
    expect(page.locator("#numbers")).to_contain_text("2,000 jobs of 1 kind.")
    rows = page.locator("#groups tbody tr")
    assert [row.locator("td.number").inner_text() for row in rows.all()] == ["1,000", "600", "400"]
    shown = [row.locator("td.error").inner_text() for row in rows.all()]
    assert "declined" in shown[0] and "timeout" in shown[1] and shown[2] == ERRORS[2]


def test_workers_are_shown_with_the_jobs_they_hold(page: Page, number: int) -> None:
    open_page(page, "workers")
    assert heading(page) == "Workers"
    if number != MANY:
        expect(page.locator("main")).to_contain_text("No worker has claimed jobs")
        expect(page.locator("main")).to_contain_text("No worker holds a job.")
        return
    rows = {row.locator("th").inner_text(): row for row in page.locator("#workers tbody tr").all()}
    assert sorted(rows) == ["billing", "reports"]
    assert rows["billing"].locator("td.number").all_inner_texts() == ["500", "0", "2,500", "0", "2,000", "0"]
    assert page.locator("#leases tbody tr").count() == 100
    expect(page.locator("#leases")).to_contain_text("The 100 whose leases end first.")


def test_other_pages_have_a_heading_and_an_explanation(page: Page, number: int) -> None:
    kind = "mail"
    expected = {
        "put": "Put a job",
        "schedules": "Schedules",
        "push": "Webhooks",
        "events": "Events",
        "help": "Help",
        f"settings?kind={kind}": f"Settings of {kind}",
        f"delete-kind?kind={kind}": f"Delete {kind} and",
    }
    for path, title in expected.items():
        open_page(page, path)
        assert heading(page).startswith(title), path
        assert title.split()[0] in page.title()
    if number == MANY:
        open_page(page, "schedules")
        row = page.locator("#schedules tbody tr")
        assert row.count() == 1
        expect(row).to_contain_text("0 6 * * *")
        expect(row).to_contain_text("Europe/Berlin")
    else:
        open_page(page, "schedules")
        expect(page.locator("main")).to_contain_text("There are no schedules.")

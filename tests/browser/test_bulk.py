"""Actions on many jobs: those that are selected, all that match, and groups of dead jobs."""

from __future__ import annotations

import time

from pages import heading, ids, notice, open_page, press, problem
from playwright.sync_api import Page, expect
from server import Server
from watch import Watch


def _select(page: Page, *wanted: str) -> None:
    for id in wanted:
        page.get_by_role("checkbox", name=f"Select {id}", exact=True).check()


def _waiting(server: Server, kind: str, number: int) -> None:
    server.api.put_many(kind, [{"id": f"j{n:04}", "delay": "1h"} for n in range(number)])


def _states(server: Server, kind: str) -> dict[str, str]:
    return {job["id"]: job["state"] for job in server.api.jobs(kind)}


def test_selected_jobs_are_run_now_and_no_others(page: Page, server: Server) -> None:
    _waiting(server, "selected", 5)
    open_page(page, "kind", kind="selected", state="waiting")
    _select(page, "j0001", "j0003")
    expect(page.locator("[data-selected]")).to_have_text("(2)")
    press(page, "Run now…")
    assert heading(page) == "Run now 2 jobs?"
    assert page.locator("main .ids li").all_inner_texts() == ["j0001", "j0003"]
    assert server.api.kind("selected")["ready"] == 0
    press(page, "Run now 2 jobs")
    assert notice(page) == "2 jobs are due now."
    ready = [id for id, state in _states(server, "selected").items() if state == "ready"]
    assert ready == ["j0001", "j0003"]


def test_all_jobs_of_a_page_can_be_selected_together(page: Page, server: Server) -> None:
    _waiting(server, "whole-page", 60)
    open_page(page, "kind", kind="whole-page", state="waiting")
    page.get_by_role("checkbox", name="Select all jobs on this page").check()
    expect(page.locator("[data-selected]")).to_have_text("(50)")
    press(page, "Cancel…")
    assert heading(page) == "Cancel 50 jobs?"
    expect(page.locator("main .ids")).to_contain_text("and 30 more")
    press(page, "Cancel 50 jobs")
    assert notice(page) == "50 jobs were cancelled."
    assert list(_states(server, "whole-page")) == [f"j{n:04}" for n in range(50, 60)]


def test_without_a_selection_nothing_happens(page: Page, server: Server, watch: Watch) -> None:
    watch.allow_status(422)
    _waiting(server, "none", 2)
    open_page(page, "kind", kind="none", state="waiting")
    press(page, "Cancel…")
    assert problem(page) == "No job is selected"
    assert len(_states(server, "none")) == 2


def test_all_that_match_a_filter_are_changed(page: Page, server: Server) -> None:
    _waiting(server, "matching", 1500)
    open_page(page, "kind", kind="matching", state="waiting", prefix="j12")
    assert len(ids(page)) == 50
    page.get_by_label("all that match").check()
    press(page, "Run now…")
    assert heading(page) == "Run now 100 jobs?"
    expect(page.locator("main .facts")).to_contain_text("j12")
    press(page, "Run now 100 jobs")
    assert notice(page) == "100 jobs are due now."
    ready = [id for id, state in _states(server, "matching").items() if state == "ready"]
    assert ready == [f"j12{n:02}" for n in range(100)]


def test_all_jobs_in_a_state_are_changed(page: Page, server: Server) -> None:
    _waiting(server, "state", 1200)
    server.api.put("state", "ready")
    open_page(page, "kind", kind="state", state="waiting")
    page.get_by_label("all that match").check()
    press(page, "Cancel…")
    assert heading(page) == "Cancel 1,200 jobs?"
    press(page, "Cancel 1,200 jobs")
    assert notice(page) == "1,200 jobs were cancelled."
    assert _states(server, "state") == {"ready": "ready"}


def test_all_that_match_an_error_and_a_priority_are_changed(page: Page, server: Server) -> None:
    api = server.api
    api.put_many("errors", [{"id": f"j{n}", "priority": n % 2} for n in range(8)])
    claimed = api.claim("errors", 8)
    api.settle("bury", [job for job in claimed if job["id"] < "j4"], error="no such address")
    api.settle("bury", [job for job in claimed if job["id"] >= "j4"], error="timeout")
    open_page(page, "kind", kind="errors", state="dead", error="address", priority=1)
    assert sorted(ids(page)) == ["j1", "j3"]
    page.get_by_label("all that match").check()
    press(page, "Revive…")
    assert heading(page) == "Revive 2 jobs?"
    press(page, "Revive 2 jobs")
    assert notice(page) == "2 jobs were revived."
    ready = [id for id, state in _states(server, "errors").items() if state == "ready"]
    assert ready == ["j1", "j3"]


def test_jobs_that_changed_meanwhile_are_counted(page: Page, server: Server) -> None:
    _waiting(server, "meanwhile", 2)
    open_page(page, "kind", kind="meanwhile", state="waiting")
    _select(page, "j0000", "j0001")
    press(page, "Run now…")
    server.api.call("DELETE", "/v1/kinds/meanwhile/jobs/j0000")
    press(page, "Run now 2 jobs")
    assert notice(page).startswith("1 job ")
    assert "1 job could not be changed" in notice(page)
    assert _states(server, "meanwhile") == {"j0001": "ready"}


def _dead(server: Server, kind: str) -> None:
    """5 dead jobs: 3 orders that were not found, 2 whose leases expired."""
    api = server.api
    api.set_kind(kind, max_attempts=1)
    api.put_many(kind, [{"id": f"lost{n}"} for n in range(2)])
    api.claim(kind, 2, lease="10ms")
    while api.kind(kind)["dead"] < 2:
        time.sleep(0.05)
    for n in range(3):
        api.bury(kind, f"order{n}", f"order {4000 + n} not found")


def test_a_group_of_dead_jobs_is_revived(page: Page, server: Server) -> None:
    _dead(server, "group.revive")
    open_page(page, "dead", kind="group.revive")
    row = page.locator("#groups tbody tr", has_text="not found")
    assert row.locator("td.number").inner_text() == "3"
    press(page, "Revive…", row)
    assert heading(page) == "Revive 3 jobs?"
    press(page, "Revive 3 jobs")
    assert notice(page) == "3 jobs were revived."
    states = _states(server, "group.revive")
    assert {id for id, state in states.items() if state == "ready"} == {"order0", "order1", "order2"}
    assert {id for id, state in states.items() if state == "dead"} == {"lost0", "lost1"}


def test_a_group_of_dead_jobs_is_dropped(page: Page, server: Server) -> None:
    _dead(server, "group.drop")
    open_page(page, "dead", kind="group.drop")
    row = page.locator("#groups tbody tr", has_text="The lease expired")
    assert row.locator("td.number").inner_text() == "2"
    press(page, "Drop…", row)
    assert heading(page) == "Cancel 2 jobs?"
    press(page, "Cancel 2 jobs")
    assert set(_states(server, "group.drop")) == {"order0", "order1", "order2"}

"""Actions on many jobs: those that are selected, all that match, and groups of dead jobs."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from urllib.parse import urlencode

import pytest
from conftest import READ, NewContext, remember
from pages import follow, heading, ids, notice, open_page, press, problem
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


def test_all_groups_of_a_kind_are_revived(page: Page, server: Server) -> None:
    _dead(server, "groups.of-a-kind")
    _dead(server, "groups.of-another")
    open_page(page, "dead", kind="groups.of-a-kind")
    press(page, "Revive all…")
    assert heading(page) == "Revive 5 jobs?"
    press(page, "Revive 5 jobs")
    assert notice(page) == "5 jobs were revived."
    assert set(_states(server, "groups.of-a-kind").values()) == {"ready"}
    assert set(_states(server, "groups.of-another").values()) == {"dead"}


def test_the_dead_jobs_of_all_kinds_are_revived(new_context: NewContext, watch: Watch) -> None:
    watch.allow("ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_REFUSED")
    server = Server()
    try:
        for kind in ("b", "a", "c"):
            _dead(server, kind)
        server.api.put("a", "waits", delay="1h")
        page = new_context(server.url).new_page()
        open_page(page, "dead")
        press(page, "Revive all kinds…")
        assert heading(page) == "Revive 15 jobs?"
        assert page.locator("main .ids li").all_inner_texts() == ["a, 5", "b, 5", "c, 5"]
        follow(page, "Back")
        assert server.api.kind("b")["dead"] == 5
        press(page, "Revive all kinds…")
        press(page, "Revive 15 jobs")
        assert heading(page) == "Dead jobs"
        assert notice(page) == "15 jobs were revived."
        for kind in ("a", "b", "c"):
            assert (server.api.kind(kind)["dead"], server.api.kind(kind)["ready"]) == (0, 5)
        assert server.api.state("a", "waits") == "waiting"
    finally:
        server.stop()


@pytest.mark.parametrize("action", ["cancel", "run-now"])
def test_nothing_but_revive_is_done_to_all_kinds(server: Server, action: str) -> None:
    server.api.bury("kept", "a", "no such number")
    for path in ("confirm", "bulk"):
        form = urlencode({"scope": "every-kind", "action": action, "state": "dead"}).encode()
        request = urllib.request.Request(f"{server.url}/{path}", form, {"Origin": server.url})
        with pytest.raises(urllib.error.HTTPError) as rejected:
            urllib.request.urlopen(request, timeout=30)
        assert rejected.value.code == 422
    assert server.api.state("kept", "a") == "dead"


def test_a_read_token_revives_nothing(new_context: NewContext, guarded: Server) -> None:
    guarded.api.bury("kept", "a", "no such number")
    context = new_context(guarded.url)
    remember(context, guarded.url, READ)
    page = context.new_page()
    open_page(page, "dead")
    assert page.locator("main button").count() == 0
    form = {"scope": "every-kind", "action": "revive", "state": "dead"}
    for path in ("confirm", "bulk"):
        response = context.request.post(path, form=form, headers={"Origin": guarded.url})
        assert response.status == 403
    assert guarded.api.state("kept", "a") == "dead"

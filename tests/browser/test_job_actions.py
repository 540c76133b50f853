"""The actions on one job do what they say. The API tells what they did."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pages import follow, heading, notice, open_page, press, problem
from playwright.sync_api import Page, expect
from server import Server
from watch import Watch


def _due(server: Server, kind: str, id: str) -> datetime:
    return datetime.fromisoformat(server.api.job(kind, id)["due"])


def test_run_now_makes_a_waiting_job_ready(page: Page, server: Server) -> None:
    server.api.put("run", "a", delay="1h")
    open_page(page, "job", kind="run", id="a")
    press(page, "Run now")
    assert notice(page) == "a is due now."
    assert server.api.state("run", "a") == "ready"
    # The message is shown once.
    page.reload()
    expect(page.locator(".notice")).to_have_count(0)


def test_change_due_time_moves_the_job_and_keeps_its_body(page: Page, server: Server) -> None:
    server.api.put("due", "a", body={"to": "ann"}, delay="1h", priority=3)
    open_page(page, "job", kind="due", id="a")
    page.get_by_label("Due").fill("in 5h")
    press(page, "Change due time")
    assert notice(page) == "Changed the due time of a."
    job = server.api.job("due", "a")
    assert (job["body"], job["priority"]) == ({"to": "ann"}, 3)
    in_five_hours = datetime.now(UTC) + timedelta(hours=5)
    assert abs(_due(server, "due", "a") - in_five_hours) < timedelta(minutes=5)


def test_a_due_time_that_cannot_be_read_changes_nothing(page: Page, server: Server, watch: Watch) -> None:
    watch.allow_status(422)
    server.api.put("due", "bad", delay="1h")
    before = server.api.job("due", "bad")
    for time in ["tomorrow 09:00", "soon", "5"]:
        open_page(page, "job", kind="due", id="bad")
        page.get_by_label("Due").fill(time)
        press(page, "Change due time")
        assert heading(page) == "Invalid request"
        assert time in problem(page)
        follow(page, "Back")
        assert heading(page).startswith("due / bad")
    assert server.api.job("due", "bad") == before


def test_a_job_that_changed_meanwhile_is_not_moved(page: Page, server: Server, watch: Watch) -> None:
    watch.allow_status(409)
    server.api.put("due", "race", body=1, delay="1h")
    open_page(page, "job", kind="due", id="race")
    field = page.get_by_label("Due")
    # While the field has the focus, the live page does not replace the generation that the person saw.
    field.fill("in 5h")
    server.api.put("due", "race", body=2, delay="2h")
    before = server.api.job("due", "race")
    press(page, "Change due time")
    assert "generation" in problem(page)
    assert server.api.job("due", "race") == before


def test_a_due_time_for_a_dead_job_revives_it_then(page: Page, server: Server) -> None:
    server.api.bury("due.dead", "a", "no such number", body={"to": "ann"}, priority=4)
    open_page(page, "job", kind="due.dead", id="a")
    page.get_by_label("Due").fill("in 5h")
    press(page, "Revive then")
    assert notice(page) == "Revived a. It is due at that time."
    job = server.api.job("due.dead", "a")
    assert (job["state"], job["attempts"], job["body"], job["priority"]) == ("waiting", 0, {"to": "ann"}, 4)
    assert _due(server, "due.dead", "a") > datetime.now(UTC) + timedelta(hours=4)


def test_a_due_time_for_a_leased_job_is_that_of_its_successor(page: Page, server: Server) -> None:
    server.api.put("due.leased", "a", body={"to": "ann"})
    server.api.claim("due.leased", 1)
    for hours, button in [(5, "Run again then"), (9, "Change due time of the successor")]:
        open_page(page, "job", kind="due.leased", id="a")
        page.get_by_label("Due").fill(f"in {hours}h")
        press(page, button)
        assert notice(page) == "a is leased. It runs again at that time."
        job = server.api.job("due.leased", "a")
        assert (job["state"], job["next"]["body"]) == ("leased", {"to": "ann"})
        due = datetime.fromisoformat(job["next"]["due"])
        assert abs(due - datetime.now(UTC) - timedelta(hours=hours)) < timedelta(minutes=5)


def test_a_new_due_time_keeps_what_a_put_would_reset(page: Page, server: Server) -> None:
    """It is one change of the API, and no put of what the page has read."""
    server.api.put("due.keep", "a", body_base64="AP9B", content_type="image/x", priority=7)
    server.api.settle("retry", server.api.claim("due.keep", 1), error="no such number", delay="1h")
    before = server.api.job("due.keep", "a")
    open_page(page, "job", kind="due.keep", id="a")
    page.get_by_label("Due").fill("in 5h")
    press(page, "Change due time")
    after = server.api.job("due.keep", "a")
    same = ["body_base64", "content_type", "priority", "created_at"]
    assert [after[name] for name in same] == [before[name] for name in same]
    assert after["generation"] > before["generation"] and after["due"] > before["due"]


def test_cancel_asks_first_and_then_removes_the_job(page: Page, server: Server) -> None:
    server.api.put("cancel", "a", delay="1h")
    open_page(page, "job", kind="cancel", id="a")
    press(page, "Cancel…")
    assert heading(page) == "Cancel 1 job?"
    assert server.api.state("cancel", "a") == "waiting"
    follow(page, "Back")
    assert heading(page).startswith("cancel / a")
    press(page, "Cancel…")
    press(page, "Cancel 1 job")
    assert notice(page) == "1 job was cancelled."
    assert server.api.job("cancel", "a") is None


def test_a_leased_job_that_is_cancelled_ends_with_its_lease(page: Page, server: Server) -> None:
    server.api.put("cancel.leased", "a")
    (leased,) = server.api.claim("cancel.leased", 1)
    open_page(page, "job", kind="cancel.leased", id="a")
    press(page, "Cancel…")
    press(page, "Cancel 1 job")
    assert server.api.job("cancel.leased", "a")["lease"]["cancelled"]
    open_page(page, "job", kind="cancel.leased", id="a")
    expect(page.locator(".facts")).to_contain_text("It is removed when the lease ends.")


def test_revive_makes_a_dead_job_ready(page: Page, server: Server) -> None:
    server.api.bury("revive", "a", "no such number")
    open_page(page, "job", kind="revive", id="a")
    expect(page.locator("#timeline pre")).to_have_text("no such number")
    press(page, "Revive")
    assert notice(page) == "Revived a. It is due now."
    job = server.api.job("revive", "a")
    assert (job["state"], job["attempts"]) == ("ready", 0)


def test_run_now_on_a_leased_job_makes_its_successor_ready(page: Page, server: Server) -> None:
    server.api.put("next", "a")
    server.api.claim("next", 1)
    server.api.put("next", "a", delay="1h")
    open_page(page, "job", kind="next", id="a")
    press(page, "Run now")
    due = datetime.fromisoformat(server.api.job("next", "a")["next"]["due"])
    assert due < datetime.now(UTC) + timedelta(minutes=1)


BODIES = {
    "JSON": ('{"a": [1,  2], "b": "ü"}', {"body": {"a": [1, 2], "b": "ü"}}),
    "text": (" two\nlines ", {"body_text": " two\nlines "}),
    "bytes in base64": ("AP9B", {"body_base64": "AP9B"}),
}


@pytest.mark.parametrize("form", BODIES)
def test_put_stores_the_body_in_the_chosen_form(page: Page, server: Server, form: str) -> None:
    written, expected = BODIES[form]
    kind = f"put.{form.split()[0]}"
    open_page(page, "put", kind=kind)
    page.get_by_label("Id", exact=True).fill("order 42/ü")
    page.get_by_label("Due").fill("in 1d")
    page.get_by_label("Priority").fill("4")
    page.get_by_label("Body is").select_option(label=form)
    page.get_by_label("Body", exact=True).fill(written)
    press(page, "Put")
    assert notice(page) == f"Created {kind}/order 42/ü."
    assert heading(page).startswith(f"{kind} / order 42/ü")
    job = server.api.job(kind, "order 42/ü")
    assert (job["state"], job["priority"]) == ("waiting", 4)
    assert {field: job.get(field) for field in expected} == expected


@pytest.mark.parametrize(("form", "body"), [("JSON", "{"), ("bytes in base64", "!")])
def test_put_rejects_a_body_that_is_not_valid(page: Page, server: Server, watch: Watch, form: str, body: str) -> None:
    watch.allow_status(422)
    open_page(page, "put", kind="put.invalid")
    page.get_by_label("Id", exact=True).fill("a")
    page.get_by_label("Body is").select_option(label=form)
    page.get_by_label("Body", exact=True).fill(body)
    press(page, "Put")
    assert heading(page) == "Invalid request"
    assert "JSON" in problem(page) or "base64" in problem(page)
    assert server.api.job("put.invalid", "a") is None


def test_put_only_if_absent_leaves_an_existing_job_alone(page: Page, server: Server, watch: Watch) -> None:
    watch.allow_status(409)
    server.api.put("put.absent", "a", body=1, delay="1h")
    before = server.api.job("put.absent", "a")
    open_page(page, "put", kind="put.absent", id="a")
    page.get_by_label("Only if there is no job with this id").check()
    press(page, "Put")
    assert "already exists" in problem(page)
    assert server.api.job("put.absent", "a") == before


def test_put_a_copy_starts_with_the_body_of_the_job(page: Page, server: Server) -> None:
    cases = {
        "json": {"body": {"a": "<textarea></textarea>\n"}},
        "text": {"body_text": "\nfirst line is empty </textarea>"},
        "bytes": {"body_base64": "AP9B"},
    }
    for id, body in cases.items():
        server.api.put("copy", id, delay="1h", priority=2, **body)
        open_page(page, "job", kind="copy", id=id)
        follow(page, "Put a copy")
        assert page.get_by_label("Id", exact=True).input_value() == f"{id}-copy"
        press(page, "Put")
        copy = server.api.job("copy", f"{id}-copy")
        assert {field: copy.get(field) for field in body} == body, id
        assert (copy["priority"], copy["state"]) == (2, "ready")

"""Lists of 10,000 jobs: states, pages, sorting and filters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from example import ERRORS, fill
from pages import follow, ids, open_page, press
from playwright.sync_api import Page, expect
from server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server()
    fill(server.api, 10_000)
    yield server
    server.stop()


def test_each_state_has_a_list(page: Page) -> None:
    lists = {
        ("mail", "waiting"): [f"w{n:04}" for n in range(50)],
        ("mail", "all"): [f"r{n:04}" for n in range(50)],
        ("invoice", "leased"): None,
        ("invoice", "dead"): None,
        ("report", "done"): None,
    }
    for (kind, state), expected in lists.items():
        open_page(page, "kind", kind=kind, state=state)
        shown = ids(page)
        assert len(shown) == len(set(shown)) == 50, state
        assert expected is None or shown == expected
        assert page.locator("nav[aria-label=State] a[aria-current]").inner_text().startswith(state)


def test_a_leased_job_shows_its_worker_and_its_successor(page: Page, server: Server) -> None:
    leased = [job for job in server.api.jobs("invoice", state="leased") if "next" in job]
    assert len(leased) == 1
    open_page(page, "job", kind="invoice", id=leased[0]["id"])
    expect(page.locator("#job .facts")).to_contain_text("billing")
    expect(page.locator("#job .facts")).to_contain_text("Successor")
    expect(page.locator("#body")).to_contain_text("Put again while it was leased")
    expect(page.locator("#body .tree")).to_contain_text("again")


def test_each_job_is_on_exactly_one_page(page: Page, server: Server) -> None:
    """Follows the links without loading the pages in the browser, which would take long."""
    for kind, state, number in [("sms", "waiting", 1500), ("invoice", "dead", 2000)]:
        open_page(page, "kind", kind=kind, state=state)
        seen = page.evaluate(
            """async () => {
                const seen = [], pages = [];
                let root = document;
                for (;;) {
                    const ids = [...root.querySelectorAll("#jobs tbody th")];
                    seen.push(...ids.map((id) => id.textContent));
                    pages.push(ids.length);
                    const next = root.querySelector("#jobs a[rel=next]");
                    if (!next) return { seen, pages };
                    const response = await fetch(next.getAttribute("href"));
                    root = new DOMParser().parseFromString(await response.text(), "text/html");
                }
            }"""
        )
        expected = [job["id"] for job in server.api.jobs(kind, state=state)]
        assert len(expected) == number
        assert sorted(seen["seen"]) == sorted(expected)
        assert len(seen["pages"]) in (number // 50, number // 50 + 1)


def test_pages_lead_forward_and_back_to_the_first(page: Page) -> None:
    open_page(page, "kind", kind="mail", state="waiting")
    assert page.get_by_role("link", name="First page").count() == 0
    follow(page, "Next page")
    assert ids(page) == [f"w{n:04}" for n in range(50, 100)]
    follow(page, "First page")
    assert ids(page) == [f"w{n:04}" for n in range(50)]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("Pending", ["mail", "sms", "invoice", "report"]),
        ("Ready", ["mail", "invoice", "report", "sms"]),
        ("Leased", ["invoice", "mail", "report", "sms"]),
        ("Dead", ["invoice", "mail", "report", "sms"]),
        ("Done kept", ["report", "invoice", "mail", "sms"]),
        ("Oldest ready", ["mail"]),
        ("Kind", ["invoice", "mail", "report", "sms"]),
    ],
)
def test_kinds_are_sorted_by_a_column(page: Page, column: str, expected: list[str]) -> None:
    open_page(page, "/?sort=dead")
    follow(page, column, page.locator("#kinds thead"))
    kinds = page.locator("#kinds tbody th a").all_inner_texts()
    assert kinds[: len(expected)] == expected
    sorted_by = page.locator("#kinds th[aria-sort]")
    assert sorted_by.all_inner_texts() == [column]


def test_kinds_are_filtered_by_name(page: Page) -> None:
    open_page(page, "/")
    page.get_by_label("Name contains").fill("M")
    press(page, "Filter", page.locator("#filter"))
    assert page.locator("#kinds tbody th a").all_inner_texts() == ["mail", "sms"]
    page.get_by_label("Name contains").fill("nothing")
    press(page, "Filter", page.locator("#filter"))
    expect(page.locator("#kinds")).to_contain_text("No kind has a name that contains this text.")


def _filter(page: Page, kind: str, state: str, **fields: str) -> list[str]:
    open_page(page, "kind", kind=kind, state=state)
    for label, value in fields.items():
        label = label.replace("_", " ")
        if label == "Priority":
            page.get_by_label(label).select_option(value)
        else:
            page.get_by_label(label).fill(value)
    press(page, "Filter", page.locator("#filter"))
    for label, value in fields.items():
        assert page.get_by_label(label.replace("_", " ")).input_value() == value
    return ids(page)


def test_jobs_are_filtered_by_the_start_of_their_id(page: Page) -> None:
    shown = _filter(page, "mail", "waiting", Id_starts_with="w012")
    assert shown == [f"w012{n}" for n in range(10)]
    follow(page, "Clear", page.locator("#filter"))
    assert len(ids(page)) == 50


def test_jobs_are_filtered_by_their_error(page: Page, server: Server) -> None:
    shown = _filter(page, "invoice", "dead", Error_contains="MAILBOX")
    expected = {job["id"] for job in server.api.jobs("invoice", state="dead", error=ERRORS[2])}
    assert len(expected) == 400
    assert len(shown) == 50 and set(shown) <= expected
    assert _filter(page, "invoice", "dead", Error_contains="no such error") == []
    expect(page.locator("#jobs")).to_contain_text("match")


def test_jobs_are_filtered_by_their_priority(page: Page, server: Server) -> None:
    shown = _filter(page, "sms", "waiting", Priority="7")
    assert len(shown) == 50
    assert all(int(id[1:]) % 10 == 7 for id in shown)
    shown = _filter(page, "sms", "waiting", Priority="7", Id_starts_with="s001")
    assert shown == ["s0017"]


def test_a_group_of_dead_jobs_leads_to_its_jobs(page: Page, server: Server) -> None:
    open_page(page, "dead")
    with page.expect_event("load"):
        page.locator("#groups td.error a", has_text="declined").click()
    declined = {job["id"] for job in server.api.jobs("invoice", state="dead", error="declined")}
    shown = ids(page)
    assert len(shown) == 50 and set(shown) <= declined


def test_the_time_ahead_can_be_chosen(page: Page) -> None:
    open_page(page, "/")
    expect(page.locator("#due")).to_contain_text("0 in the next hour, 2,000 ready now")
    follow(page, "day", page.locator("#due"))
    expect(page.locator("#due")).to_contain_text("4,500 in the next day")


def test_the_timeline_of_a_job_has_its_attempts_in_order(page: Page, server: Server) -> None:
    api = server.api
    api.set_kind("line", max_attempts=9, backoff={"base": "1ms", "max": "1ms"}, keep_done={"for": "1d"})
    api.put("line", "a")
    for n in range(7):
        api.settle("retry", api.claim("line", 1, worker=f"w{n}"), error=f"error {n}", delay="1ms")
    open_page(page, "job", kind="line", id="a")
    steps = page.locator("#timeline .what")
    texts = [text.split("\n")[0] for text in steps.all_inner_texts()]
    assert texts[0] == "Put"
    assert texts[1].startswith("2 earlier failed attempts")
    assert [text[:16] for text in texts[2:7]] == [f"Attempt {n} failed" for n in range(3, 8)]
    assert texts[7] == "Next attempt: number 8"
    assert page.locator("#timeline pre").all_inner_texts() == [f"error {n}" for n in range(2, 7)]
    (job,) = api.claim("line", 1, worker="last")
    expect(steps.nth(-2)).to_have_text("Claimed by last: attempt 8")
    expect(steps.last).to_contain_text("The lease ends")
    api.settle("ack", [job])
    expect(steps.last).to_contain_text("Done after")
    server.api.bury("line.dead", "a", "no such number")
    open_page(page, "job", kind="line.dead", id="a")
    expect(steps.last).to_contain_text("Dead: it is not tried again unless it is revived")

"""Nothing that a job, an error or a worker contains becomes markup, and actions work on every id."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hostile import CONTROL, IDS, IMAGE, RIGHT_TO_LEFT, SCRIPT, TEMPLATE, shown
from pages import follow, ids, link, notice, open_page, press
from playwright.sync_api import Page, expect
from server import Server
from watch import Watch

WORKER = f"{IMAGE}{RIGHT_TO_LEFT}"
ERROR = f"{SCRIPT}{IMAGE}\n{CONTROL}{RIGHT_TO_LEFT}"
BODY = {SCRIPT: [IMAGE, {TEMPLATE: RIGHT_TO_LEFT, "n": None}]}


def assert_harmless(page: Page) -> None:
    """No script of a job ran, and none of its elements exist."""
    found = page.evaluate(
        """() => ({
            hacked: "hacked" in window,
            scripts: [...document.scripts].map((script) => script.getAttribute("src").split("?")[0]),
            images: [...document.images].map((image) => image.getAttribute("src")),
            handlers: [...document.querySelectorAll("*")].filter((element) =>
                [...element.attributes].some((attribute) => attribute.name.startsWith("on"))).length,
            hidden: /[\\u0000-\\u0008\\u000b-\\u001f\\u202e\\ufeff]/.test(document.body.textContent),
        })"""
    )
    assert found == {"hacked": False, "scripts": ["app.js"], "images": ["icon.svg"], "handlers": 0, "hidden": False}


@pytest.fixture(scope="module", autouse=True)
def _jobs(server: Server) -> None:
    """Jobs of all states with these ids, errors, workers and bodies."""
    api = server.api
    api.put_many("waiting", [{"id": id, "body": BODY, "delay": "1h"} for id in IDS.values()])
    api.put_many("dead", [{"id": id, "body_text": TEMPLATE} for id in IDS.values()])
    claimed = api.claim("dead", len(IDS), worker=WORKER)
    api.settle("bury", claimed, error=ERROR)
    api.put_many("leased", [{"id": id, "body_base64": "/wA="} for id in IDS.values()])
    api.claim("leased", len(IDS), worker=WORKER)
    api.put("leased", IDS["script"], body_text=TEMPLATE)
    api.set_kind("done", keep_done={"for": "1d"})
    api.put_many("done", [{"id": id} for id in IDS.values()])
    api.settle("ack", api.claim("done", len(IDS), worker=WORKER), result={"body": BODY})
    for name in ("script", "image", "slash", "right-to-left"):
        path = f"/v1/kinds/schedule/schedules/{quote(IDS[name], safe='')}"
        api.call("PUT", path, {"every": "1h", "body_text": TEMPLATE})


@pytest.mark.parametrize("kind", ["waiting", "dead", "leased", "done"])
def test_a_list_shows_them_as_text(page: Page, kind: str) -> None:
    for state in [kind, "all"]:
        open_page(page, "kind", kind=kind, state=state)
        assert_harmless(page)
        texts = page.locator("#jobs tbody th bdi").evaluate_all("(all) => all.map((one) => one.textContent)")
        assert set(texts) == {shown(id) for id in IDS.values()}


@pytest.mark.parametrize("path", ["./", "dead", "workers", "schedules", "events"])
def test_other_pages_show_them_as_text(page: Page, server: Server, path: str) -> None:
    open_page(page, path)
    if path == "events":
        expect(page.locator("#live-status")).to_have_text("Live")
        server.api.put_many("happened", [{"id": id, "delay": "1h"} for id in list(IDS.values())[:15]])
        expect(page.locator("#events")).to_contain_text(SCRIPT)
    else:
        # The script has replaced parts of the page by then.
        expect(page.locator("#live-status")).to_have_text("Live")
        page.evaluate("() => new Promise((done) => setTimeout(done, 300))")
    assert_harmless(page)


@pytest.mark.parametrize("kind", ["waiting", "dead", "leased", "done"])
def test_a_job_shows_them_as_text(page: Page, server: Server, kind: str) -> None:
    for view in ["tree", "text", "hex"]:
        open_page(page, "job", kind=kind, id=SCRIPT, view=view)
        assert_harmless(page)
    if kind == "dead":
        expect(page.locator("#timeline pre")).to_have_text(shown(ERROR))
    if kind == "leased":
        expect(page.locator(".facts")).to_contain_text(shown(WORKER))
    if kind == "waiting":
        open_page(page, "job", kind=kind, id=SCRIPT)
        expect(page.locator("#body .tree .name").first).to_have_text(SCRIPT)
    if kind in ("waiting", "dead"):
        open_page(page, "copy", kind=kind, id=SCRIPT)
        assert_harmless(page)


@pytest.mark.parametrize("name", IDS)
def test_a_job_opens_from_the_list_and_actions_work_on_it(page: Page, server: Server, name: str) -> None:
    id = IDS[name]
    kind = f"act.{name}"
    server.api.put(kind, id, body=1, delay="1h")
    open_page(page, "kind", kind=kind)
    with page.expect_event("load"):
        page.locator("#jobs tbody th a").click()
    assert page.locator("h1 bdi").evaluate("(id) => id.textContent") == shown(id)
    press(page, "Run now")
    assert shown(id)[:100] in page.locator(".notice").evaluate("(notice) => notice.textContent")
    assert server.api.state(kind, id) == "ready"
    # The page of the job is shown again, and leads to the next action.
    press(page, "Cancel…")
    assert_harmless(page)
    press(page, "Cancel 1 job")
    assert server.api.job(kind, id) is None


def test_jobs_can_be_selected_in_the_list(page: Page, server: Server) -> None:
    jobs = [{"id": id, "delay": "1h"} for id in IDS.values()]
    server.api.put_many("select", [*jobs, {"id": "other", "delay": "2h"}])
    open_page(page, "kind", kind="select", state="waiting")
    for box in page.get_by_role("checkbox", name="Select").all()[1:-1]:
        box.check()
    press(page, "Run now…")
    assert_harmless(page)
    press(page, f"Run now {len(IDS)} jobs")
    states = {name: server.api.state("select", id) for name, id in IDS.items()}
    assert states == dict.fromkeys(IDS, "ready")
    assert server.api.state("select", "other") == "waiting"


def test_a_kind_may_be_named_like_a_path(page: Page, server: Server) -> None:
    for kind in [".", "..", "x" * 128]:
        server.api.put(kind, "..", delay="1h")
        open_page(page, "/")
        follow(page, kind, page.locator("#kinds"))
        assert page.locator("h1").inner_text() == kind
        assert ids(page) == [".."]
        follow(page, "..", page.locator("#jobs"))
        press(page, "Run now")
        assert notice(page) == ".. is due now."
        assert server.api.state(kind, "..") == "ready"


def test_a_filter_with_markup_is_text(page: Page, watch: Watch) -> None:
    watch.allow_status(400, 404, 422)
    text = IMAGE + TEMPLATE
    names = ["q", "kind", "id", "prefix", "error", "error_group", "state", "after", "sort", "due", "kinds", "next"]
    for path in ["./", "kind", "job", "go", "login", "dead", "events", "settings", "put", "copy", "delete-kind"]:
        for parameters in [
            dict.fromkeys(names, text),
            dict.fromkeys(names, text) | {"kind": "waiting", "state": "dead"},
        ]:
            page.goto(link(path, **parameters))
            assert not page.evaluate("'hacked' in window"), path
            assert page.locator("img[src=x], svg[onload]").count() == 0, path

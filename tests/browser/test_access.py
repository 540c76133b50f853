"""With tokens, the dashboard shows and does what the token permits, and nothing for other sites."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit

import pytest
from conftest import FULL, READ, NewContext, remember
from pages import all_pages, heading, log_in, open_page, press, problem
from playwright.sync_api import Page, expect
from server import Server
from sites import Site
from watch import Watch

KIND, ID = "mail", "a"
PAGES = all_pages(KIND, ID)


@pytest.fixture(scope="module", autouse=True)
def _jobs(guarded: Server) -> None:
    api = guarded.api
    api.put(KIND, "dead")
    api.settle("bury", api.claim(KIND, 1), error="no such number")
    api.put(KIND, "leased")
    api.claim(KIND, 1)
    api.put(KIND, ID, body={"to": "ann"}, delay="1h")
    api.call("PUT", f"/v1/kinds/{KIND}/schedules/daily", {"cron": "0 6 * * *"})


@pytest.fixture
def page(new_context: NewContext, guarded: Server) -> Page:
    return new_context(guarded.url).new_page()


def _logged_in(page: Page, token: str) -> Page:
    open_page(page, "login")
    log_in(page, token)
    assert heading(page) == "Overview"
    return page


def test_every_page_requires_a_login(page: Page) -> None:
    for path in PAGES:
        page.goto(path)
        url = urlsplit(page.url)
        assert url.path == "/login", path
        wanted = "" if path == "./" else path
        assert url.query == (f"next={quote(wanted, safe='')}" if wanted else ""), path
        assert page.locator("nav").count() == 0


def test_a_wrong_token_is_rejected_with_a_message(page: Page, watch: Watch) -> None:
    watch.allow_status(401)
    open_page(page, "dead")
    for token in ["wrong", FULL + "x", "ü"]:
        log_in(page, token)
        assert "token" in problem(page)
        assert page.context.cookies() == []
    # The page that was wanted is not forgotten.
    log_in(page, FULL)
    assert heading(page) == "Dead jobs"


def test_the_login_leads_to_the_wanted_page(page: Page, guarded: Server) -> None:
    page.goto("job?kind=mail&id=a")
    log_in(page, FULL)
    assert page.url == f"{guarded.url}/job?kind=mail&id=a"
    assert heading(page).startswith("mail / a")
    expect(page.locator(".who")).to_contain_text("ann")


def test_scripts_and_other_sites_cannot_use_the_cookie(page: Page) -> None:
    _logged_in(page, FULL)
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""


def test_log_out_ends_the_session(page: Page) -> None:
    _logged_in(page, FULL)
    press(page, "Log out")
    assert heading(page) == "Log in"
    assert page.context.cookies() == []
    page.goto("dead")
    assert heading(page) == "Log in"


@pytest.mark.parametrize("path", [path for path in PAGES if not path.startswith("delete-kind")])
def test_a_read_token_sees_no_form_that_changes_something(page: Page, guarded: Server, path: str) -> None:
    remember(page.context, guarded.url, READ)
    open_page(page, path)
    expect(page.locator(".who")).to_contain_text("read-only")
    forms = page.locator("form[method=post]:not([action=logout])")
    assert [form.get_attribute("action") for form in forms.all()] == []
    buttons = page.locator("form:not([action=logout]) button").all_inner_texts()
    assert set(buttons) <= {"Filter"}


JOB = {"kind": KIND, "id": ID}
ACTIONS = {
    "pause": {"kind": KIND},
    "resume": {"kind": KIND},
    "delete-kind": {"kind": KIND},
    "run-now": JOB,
    "revive": {"kind": KIND, "id": "dead"},
    "cancel": JOB,
    "reschedule": {**JOB, "due": "now", "generation": "3"},
    "run-schedule": {"kind": KIND, "id": "daily"},
    "pause-schedule": {"kind": KIND, "id": "daily"},
    "resume-schedule": {"kind": KIND, "id": "daily"},
    "put": {"kind": KIND, "id": "new", "form": "json", "body": "{}", "priority": "0"},
    "settings": {
        "kind": KIND, "lease": "1s", "backoff_base": "1s", "backoff_max": "1s", "jitter": "0", "max_attempts": "1",
        "concurrency": "", "rate_jobs": "", "rate_per": "", "rate_burst": "", "ageing": "", "retention_age": "1d",
        "retention_count": "1", "keep_for": "", "keep_count": "",
    },
    "bulk": {**JOB, "action": "cancel", "scope": "selected"},
}  # fmt: skip

# Of a response that names no icon, browsers request one at the root.
NO_ICON = r"status of 401 .*/favicon\.ico"

POST = """async ([action, fields]) => {
    const response = await fetch(action, { method: "POST", body: new URLSearchParams(fields), redirect: "manual" });
    return response.status;
}"""


def _contents(server: Server) -> list[object]:
    return [
        server.api.jobs(KIND),
        server.api.get(f"/v1/kinds/{KIND}/settings"),
        server.api.get(f"/v1/kinds/{KIND}/schedules"),
    ]


def test_a_read_token_cannot_change_anything(page: Page, guarded: Server, watch: Watch) -> None:
    watch.allow_status(403)
    _logged_in(page, READ)
    before = _contents(guarded)
    statuses = {action: page.evaluate(POST, [action, fields]) for action, fields in ACTIONS.items()}
    assert statuses == dict.fromkeys(ACTIONS, 403)
    all_jobs = {"kind": KIND, "action": "cancel", "scope": "all"}
    assert page.evaluate(POST, ["bulk", all_jobs]) == 403
    assert _contents(guarded) == before


def test_a_read_token_is_not_asked_to_confirm(page: Page, watch: Watch) -> None:
    watch.allow_status(403)
    _logged_in(page, READ)
    response = page.goto(f"delete-kind?kind={KIND}")
    assert response is not None and response.status == 403
    assert page.evaluate(POST, ["confirm", {**JOB, "action": "cancel", "scope": "selected"}]) == 403


def test_without_a_login_nothing_can_be_changed(page: Page, guarded: Server) -> None:
    open_page(page, "login")
    before = _contents(guarded)
    for action, fields in ACTIONS.items():
        assert page.evaluate(POST, [action, fields]) in (0, 401, 403), action
    assert _contents(guarded) == before


def test_an_action_after_the_session_ended_leads_to_a_page_after_the_login(page: Page, guarded: Server) -> None:
    """The action is not done: the person sees a page, and can decide again."""
    remember(page.context, guarded.url, FULL)
    open_page(page, f"job?kind={KIND}&id={ID}")
    # A stream that is opened later would notice that the session has ended, and load the login.
    expect(page.locator("#live-status")).to_have_text("Live")
    page.context.clear_cookies()
    press(page, "Run now")
    assert heading(page) == "Log in"
    assert guarded.api.state(KIND, ID) == "waiting"
    log_in(page, FULL)
    assert page.locator("nav[aria-label=Pages]").count() == 1


@pytest.mark.parametrize("action", [*ACTIONS, "confirm", "login", "logout"])
def test_a_form_of_another_origin_is_rejected(
    new_context: NewContext, guarded: Server, watch: Watch, action: str
) -> None:
    """The other origin is another port of the same host, to which browsers send the cookie."""
    watch.allow_status(403)
    watch.allow(NO_ICON)
    watch.allow_origin(guarded.url)
    fields = ACTIONS.get(action, {"token": FULL, **JOB, "action": "cancel"})
    with Site(f"{guarded.url}/{action}", fields) as site:
        page = new_context(site.url).new_page()
        remember(page.context, guarded.url, FULL)
        cookies = page.context.cookies()
        before = _contents(guarded)
        page.goto(site.url)
        with page.expect_response(f"{guarded.url}/{action}") as response:
            page.get_by_role("button").click()
        assert response.value.status == 403
        assert "cross-site" in response.value.text()
        assert _contents(guarded) == before
        assert page.context.cookies() == cookies


def test_a_link_of_another_site_opens_the_page(new_context: NewContext, guarded: Server, watch: Watch) -> None:
    """Browsers do not send the cookie with such a request, although the person is logged in."""
    watch.allow(NO_ICON)
    watch.allow_origin(guarded.url)
    with Site(f"{guarded.url}/dead", {}, host="localhost") as site:
        page = new_context(site.url).new_page()
        page.goto(f"{guarded.url}/login")
        log_in(page, FULL)
        page.goto(site.url)
        page.get_by_role("link").click()
        expect(page.get_by_role("heading", name="Dead jobs")).to_be_visible()


@pytest.mark.parametrize(
    "next",
    ["//evil.example", "https://evil.example/", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)", "kind:x"],
)
def test_the_login_does_not_lead_to_another_site(page: Page, guarded: Server, next: str) -> None:
    page.goto(f"login?next={quote(next, safe='')}")
    log_in(page, FULL)
    assert heading(page) == "Overview"
    assert re.fullmatch(re.escape(guarded.url) + r"/?", page.url)

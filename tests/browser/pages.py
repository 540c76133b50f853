"""How the tests read and use pages."""

from __future__ import annotations

from urllib.parse import urlencode

from playwright.sync_api import Locator, Page, Response, expect

expect.set_options(timeout=20_000)


def link(path: str, **parameters: object) -> str:
    """Returns the relative link to a page."""
    return f"{path}?{urlencode(parameters)}" if parameters else path


def open_page(page: Page, path: str, **parameters: object) -> Response:
    """Opens a page, which must exist."""
    response = page.goto(link(path, **parameters))
    assert response.status == 200, f"{response.status} {page.url}: {page.inner_text('main')}"
    return response


def press(page: Page, name: str, within: Locator | None = None) -> None:
    """Presses a button and waits for the page that it leads to."""
    button = (within or page).get_by_role("button", name=name, exact=True)
    with page.expect_event("load"):
        button.click()


def follow(page: Page, name: str, within: Locator | None = None) -> None:
    """Follows a link and waits for its page."""
    with page.expect_event("load"):
        (within or page).get_by_role("link", name=name, exact=True).click()


def card(page: Page, name: str) -> Locator:
    """The number with this name."""
    heading = page.get_by_role("heading", name=name, exact=True, level=3)
    return page.locator(".card", has=heading).locator(".value")


def heading(page: Page) -> str:
    return page.locator("h1").inner_text()


def ids(page: Page) -> list[str]:
    """The ids of the list of jobs, as they are shown."""
    return page.locator("#jobs tbody th").all_inner_texts()


def notice(page: Page) -> str:
    """The message about the last action."""
    return page.locator(".notice").inner_text()


def problem(page: Page) -> str:
    """The message about an error."""
    return page.locator(".problem[role=alert]").inner_text()


def all_pages(kind: str, id: str) -> list[str]:
    """The links to all pages, for a kind and a job that exist."""
    about_kind = ["kind", "settings", "delete-kind"]
    about_job = ["job", "copy"]
    states = ["ready", "waiting", "leased", "dead", "done", "all"]
    return [
        "./",
        *(link(path, kind=kind) for path in about_kind),
        *(link("kind", kind=kind, state=state) for state in states),
        *(link(path, kind=kind, id=id) for path in about_job),
        *("put", "dead", "workers", "schedules", "push", "events", "help"),
    ]


def log_in(page: Page, token: str) -> None:
    """Fills in the form of the login."""
    page.get_by_label("Access token").fill(token)
    press(page, "Log in")

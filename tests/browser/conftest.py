"""What all tests share: one browser, servers, and pages that report everything that goes wrong in them."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from urllib.parse import urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from server import Server
from watch import CHROMIUM, FLAGS, Watch

FULL, READ = "full-token-of-the-tests", "read-token-of-the-tests"
TOKENS = f"full {FULL} ann\nread {READ} bob\n"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server without tokens. The tests of a module share it, so each uses kinds of its own."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server with tokens. Its `api` has the full token."""
    server = Server(tokens=TOKENS)
    server.api.token = FULL
    yield server
    server.stop()


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Collects what goes wrong in the pages of a test. The test fails at its end if there is anything."""
    watch = Watch()
    yield watch
    assert not watch.problems, "\n".join(watch.problems)


NewContext = Callable[..., BrowserContext]


def remember(context: BrowserContext, url: str, token: str) -> None:
    """Does what the login does, without loading its page."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    connection.request("POST", "/login", urlencode({"token": token}), {"Origin": url})
    cookie = connection.getresponse().headers["Set-Cookie"]
    connection.close()
    name, value = cookie.split(";")[0].split("=", 1)
    context.add_cookies([{"name": name, "value": value, "url": url}])


@pytest.fixture
def new_context(browser: Browser, watch: Watch) -> Iterator[NewContext]:
    contexts = []

    def new(base_url: str, **options: object) -> BrowserContext:
        context = browser.new_context(base_url=base_url, **options)
        context.set_default_timeout(20_000)
        contexts.append(context)
        watch.add(context, base_url)
        return context

    yield new
    for context in contexts:
        context.close()


@pytest.fixture
def page(new_context: NewContext, server: Server) -> Page:
    """A page of the server without tokens."""
    return new_context(server.url).new_page()

"""The first page is small and complete, and all responses have the headers that protect a browser."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest
from conftest import NewContext
from pages import all_pages, open_page
from playwright.sync_api import Page, Request
from server import Server

KINDS = 100


@pytest.fixture(scope="module", autouse=True)
def _kinds(server: Server) -> None:
    jobs = [{"kind": f"department.{n:03}.orders", "id": "a", "delay": "1h"} for n in range(KINDS)]
    server.api.call("POST", "/v1/put", {"jobs": jobs})
    # Some have been worked on, so that their charts are drawn.
    for n in range(0, KINDS, 10):
        kind = f"department.{n:03}.orders"
        server.api.put(kind, "b")
        server.api.settle("ack", server.api.claim(kind, 1))


def test_the_first_page_with_100_kinds_is_below_100_kilobytes(page: Page) -> None:
    requests: list[Request] = []
    page.on("request", lambda request: requests.append(request))
    open_page(page, "/")
    assert page.locator("#kinds tbody tr").count() == KINDS
    kinds = {request.resource_type for request in requests}
    assert kinds <= {"document", "script", "image", "other", "eventsource"}
    loaded = [request for request in requests if request.resource_type != "eventsource"]
    paths = sorted(request.url.split("/")[-1].split("?")[0] for request in loaded)
    assert set(paths) == {"", "app.js", "icon.svg"}
    sizes = {request.url: request.sizes() for request in loaded}
    total = sum(size["responseBodySize"] + size["responseHeadersSize"] for size in sizes.values())
    assert total < 100_000, sizes


def test_the_html_alone_shows_everything(new_context: NewContext, server: Server) -> None:
    context = new_context(server.url, java_script_enabled=False)
    page = context.new_page()
    requested: list[str] = []

    def only_the_document(route) -> None:
        requested.append(route.request.resource_type)
        route.continue_() if route.request.resource_type == "document" else route.fulfill(status=204)

    page.route("**/*", only_the_document)
    open_page(page, "/")
    assert page.locator("#kinds tbody tr").count() == KINDS
    assert page.locator("#kinds").evaluate("(kinds) => getComputedStyle(kinds).display") == "flex"
    assert requested.count("document") == 1


def _headers(server: Server, path: str) -> dict[str, str]:
    request = urllib.request.Request(f"{server.url}/{path}", headers={"Accept": "text/html"})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            headers = response.headers
    except urllib.error.HTTPError as error:
        headers = error.headers
    return {name.lower(): value for name, value in headers.items()}


EXISTING = all_pages("department.000.orders", "a")
FAILING = ["kind", "job?kind=x&id=nobody", "kind?kind=%3Cb%3E", "kind?kind=x&after=%00&state=explode", "pause", "bulk"]


@pytest.mark.parametrize("path", [*EXISTING, "login", "app.js", "icon.svg", *FAILING])
def test_every_response_has_the_security_headers(server: Server, path: str) -> None:
    headers = _headers(server, path.removeprefix("./"))
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["base-uri"] == "'none'"
    assert policy["form-action"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    is_asset = path in ("app.js", "icon.svg")
    assert headers["cache-control"] == ("public, max-age=86400" if is_asset else "no-store")


@pytest.mark.parametrize("path", ["kind", "job?kind=mail", "job?kind=x&id=nobody", "kind?kind=%3Cb%3E", "settings"])
def test_a_wrong_address_is_a_page_with_an_explanation(server: Server, path: str) -> None:
    assert _headers(server, path)["content-type"] == "text/html; charset=utf-8"

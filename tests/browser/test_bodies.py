"""Bodies of up to 1 MiB are shown and copied, whatever they contain."""

from __future__ import annotations

import base64
import json
import urllib.request

import pytest
from pages import follow, ids, open_page, press
from playwright.sync_api import Page, expect
from server import Server

MIB = 1 << 20
DEEP = "[" * 60 + "1" + "]" * 60
BODIES = {
    "text": {"body_text": "<b>" + "x" * (MIB - 3)},
    "line-breaks": {"body_text": "\n" * (MIB // 8) + "x" * (MIB * 7 // 8)},
    "json": {"body": ["<i>" * 1000] * 300},
    "many-values": {"body": list(range(100_000))},
    "deep-json": {"body": json.loads(DEEP)},
    "not-utf-8": {"body_base64": base64.b64encode(b"\xff\xfe\x00<b>" * 100_000).decode()},
}


@pytest.mark.parametrize("name", BODIES)
def test_a_large_body_is_shown_in_every_form(page: Page, server: Server, name: str) -> None:
    server.api.put("large", name, delay="1h", **BODIES[name])
    open_page(page, "kind", kind="large", prefix=name)
    assert ids(page) == [name]
    for view in ["tree", "text", "hex"]:
        open_page(page, "job", kind="large", id=name, view=view)
        assert page.locator("#body pre, #body .tree").count() == 1
        assert page.locator("#body b, #body i").count() == 0
    if "body_text" in BODIES[name]:
        open_page(page, "job", kind="large", id=name, view="text")
        expect(page.locator("#body")).to_contain_text("The first 64.0 KiB of 1.0 MiB.")
        follow(page, "Show all")
        whole = page.locator("#body pre").evaluate("(body) => body.textContent.length")
        assert whole in (MIB, MIB - 1)


def test_a_large_body_can_be_copied(page: Page, server: Server) -> None:
    body = "<&>ü" * (MIB // 5)
    server.api.put("large", "copied", delay="1h", body_text=body)
    open_page(page, "copy", kind="large", id="copied")
    press(page, "Put")
    assert server.api.job("large", "copied-copy")["body_text"] == body


def test_a_tree_shows_values_as_they_are_stored(page: Page, server: Server) -> None:
    """Names in their order, and numbers digit by digit: a person may look for the order 12345678901234567890123."""
    request = urllib.request.Request(
        f"{server.url}/v1/kinds/exact/jobs/a",
        b'{"delay": "1h", "body": {"z": 12345678901234567890123, "a": 1.10, "m": 1e3}}',
        {"Content-Type": "application/json"},
        method="PUT",
    )
    urllib.request.urlopen(request, timeout=30).close()
    open_page(page, "job", kind="exact", id="a")
    assert page.locator("#body .tree .literal").all_inner_texts() == ["12345678901234567890123", "1.10", "1e3"]
    assert page.locator("#body .tree .name").all_inner_texts() == ["z", "a", "m"]

"""What a browser reports while pages are open: messages, errors, and requests to other origins."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Request

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class Watch:
    """Collects problems. What a test provokes, it declares with `allow`."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._allowed: list[str] = []
        self._origins: set[str] = set()

    def allow_origin(self, url: str) -> None:
        """Allows requests to another origin."""
        self._origins.add(urlsplit(url).netloc)

    def allow(self, *patterns: str) -> None:
        """Allows messages on the console that match one of these regular expressions: text, then URL."""
        self._allowed += patterns

    def allow_status(self, *statuses: int) -> None:
        """Allows responses with these statuses, which Chromium reports on the console."""
        self.allow(*(f"status of {status} " for status in statuses))

    def add(self, context: BrowserContext, base_url: str) -> None:
        self.allow_origin(base_url)
        context.on("console", self._console)
        context.on("weberror", lambda error: self.problems.append(f"script error: {error.error}"))
        context.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        text = f"{message.text} {message.location['url']}"
        is_allowed = any(re.search(pattern, text) for pattern in self._allowed)
        if message.type in ("error", "warning") and not is_allowed:
            self.problems.append(f"console: {message.type}: {text}")

    def _request(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme in ("http", "https") and url.netloc not in self._origins:
            self.problems.append(f"request to another origin: {request.url}")

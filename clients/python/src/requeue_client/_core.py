"""What the clients decide without any I/O: how a request looks, what a response means, and whether
and when a request is repeated. `AsyncClient` and `Client` only send, receive and sleep.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import httpx

from ._check import check_name, check_names
from .codec import to_json
from .errors import (
    ConnectionFailed,
    NotDone,
    OutcomeUnknown,
    RequeueError,
    ResponseLost,
    problem_from,
)

T = TypeVar("T")

DEFAULT_SERVER = "http://localhost:7654"

FIRST_PAUSE = 0.1
"""The pause in seconds before a request is repeated for the first time. It doubles each time."""

LONGEST_PAUSE = 5.0


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and how its response is read."""

    method: str
    path: str
    read: Callable[[Any], T]
    """Returns the result from the JSON of the response. May raise the problem of a batch entry."""
    json: Any = None
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    repeat: bool = True
    """Whether the request is repeated if its outcome is unknown."""
    wait: float = 0.0
    """By how many seconds the server may delay its response, in addition to the timeout."""

    @property
    def name(self) -> str:
        """What the request is called in errors."""
        return f"{self.method} {self.path}"

    @property
    def changes(self) -> bool:
        """Whether the request may change something."""
        return self.method != "GET"

    def after(self, cursor: str) -> Call[T]:
        """Returns the request for what follows a cursor."""
        if self.json is None:
            return replace(self, query={**self.query, "after": cursor})
        return replace(self, json={**self.json, "after": cursor})

    def request(self, server: str, headers: httpx.Headers, timeout: httpx.Timeout) -> httpx.Request:
        """Returns the request. A client's `build_request` would merge defaults that are not set."""
        return httpx.Request(
            self.method,
            _url(server + self.path, urlencode(self.query)),
            headers=headers,
            content=None if self.json is None else to_json(self.json),
            extensions={"timeout": timeout.as_dict()},
        )

    def result(self, response: httpx.Response) -> T:
        """Returns what the response means. Raises `RequeueError`."""
        status = response.status_code
        if status >= 400:
            raise problem_from(_problem_details(response), _retry_after(response))
        try:
            return self.read(None if status == 204 else json.loads(response.content))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise ResponseLost(f"the response to {self.name} is invalid") from error


class Repetition:
    """Decides whether and when a failed request is repeated. It never reads a clock."""

    def __init__(self, retry_for: float, now: float) -> None:
        self._ends_at = now + retry_for
        self._pause = FIRST_PAUSE
        self._unknown: OutcomeUnknown | None = None

    def pause(self, error: RequeueError, repeat: bool, now: float) -> float | None:
        """Returns the seconds until the next attempt, or `None` if there is none.

        `repeat` says whether repeating the request is harmless if its outcome is unknown.
        """
        if isinstance(error, OutcomeUnknown):
            self._unknown = error
        if not (isinstance(error, NotDone) or (repeat and isinstance(error, OutcomeUnknown))):
            return None
        pause = max(self._pause * random.uniform(0.5, 1.0), error.retry_after or 0.0)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return None if now + pause > self._ends_at else pause

    def failure(self, last: RequeueError, changes: bool = True) -> RequeueError:
        """Returns the error of the request, whose last attempt failed with `last`.

        If the outcome of an earlier attempt is unknown, it still is after one that was not done or
        was rejected: the job that is absent now may have been rescheduled before. Of a request that
        `changes` nothing, a rejection is the outcome.
        """
        is_rejection = not isinstance(last, (NotDone, OutcomeUnknown))
        if self._unknown is None or self._unknown is last or (is_rejection and not changes):
            return last
        self._unknown.__cause__ = last
        return self._unknown


def transport_error(error: httpx.HTTPError, server: str, request: str) -> RequeueError:
    """Returns what a failure to send a request, or to receive its response, means."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, _NOT_SENT):
        return ConnectionFailed(f"cannot connect to {server}, so {request} was not done: {text}")
    effect = "" if request.startswith("GET ") else ", which may have been done"
    return ResponseLost(f"no response from {server} to {request}{effect}: {text}")


def raise_if_partial(error: RequeueError, count: int, done: str) -> None:
    """Raises `OutcomeUnknown` if the first requests of a call changed `count` jobs.

    It is not true any more that nothing was done.
    """
    if count > 0 and isinstance(error, NotDone):
        raise OutcomeUnknown(f"{count} jobs were {done}, others were not: {error}") from error


_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


def path(*parts: str) -> str:
    """Returns the path of a resource below `/v1`, percent-encoded."""
    return "/v1/" + "/".join(_segment(part) for part in parts)


def kind_path(kind: str, *below: str) -> str:
    """Returns the path of a kind, or of a resource below it. Raises if `kind` is not text."""
    return path("kinds", check_name("kind", kind), *below)


def item_path(kind: str, collection: str, id: str, *below: str) -> str:
    """Returns the path of a job or schedule of a kind. Raises if `kind` or `id` is not text."""
    return kind_path(kind, collection, check_name("id", id), *below)


def query(fields: Mapping[str, Any]) -> dict[str, str]:
    """Returns fields as parameters of a query."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in fields.items()
    }


def headers(token: str | None) -> httpx.Headers:
    """Returns the headers of all requests. `token` defaults to `REQUEUE_TOKEN`."""
    token = token or os.environ.get("REQUEUE_TOKEN")
    if token and not isinstance(token, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the token is of the type {type(token).__name__}; it must be text")
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        # The message must not contain it.
        raise ValueError("the token contains white space or a character that a token cannot have")
    common = {"content-type": "application/json", "accept": "application/json"}
    return httpx.Headers(common | ({"authorization": f"Bearer {token}"} if token else {}))


def server_url(server: str | None) -> str:
    """Returns the URL of the server, without a final slash; default: `REQUEUE_SERVER`.

    Raises `TypeError` or `ValueError` if it is not the URL of a server.
    """
    url = server or os.environ.get("REQUEUE_SERVER") or DEFAULT_SERVER
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"the URL of the server is {url!r}; it must be text, such as {DEFAULT_SERVER!r}"
        )
    # Before all errors that contain the URL.
    if "@" in url:
        raise ValueError("the URL of the server contains a user name; pass a token instead")
    try:
        parsed = httpx.URL(url)
        parsed.host.encode("idna")
    except (httpx.InvalidURL, TypeError, UnicodeError) as error:
        raise ValueError(f"the URL of the server is {url!r}: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(
            f"the URL of the server is {url!r}; it must begin with http:// or https:// and a host,"
            f" such as {'http://' + url.rpartition('//')[2]!r}"
        )
    if parsed.query or parsed.fragment:
        raise ValueError(f"the URL of the server is {url!r}; it must end before '?' and '#'")
    return url.rstrip("/")


def kind_list(kinds: str | Sequence[str]) -> list[str]:
    """Returns one or several kinds as a list."""
    return check_names("kinds", [kinds] if isinstance(kinds, str) else kinds)


@lru_cache(maxsize=64)
def _url(url: str, query: str) -> httpx.URL:
    """Parses a URL: that takes as long as encoding a request, and a worker has only a few."""
    return httpx.URL(f"{url}?{query}" if query else url)


def _segment(part: str) -> str:
    # URL libraries remove the segments `.` and `..`, which are valid ids.
    return part.replace(".", "%2E") if part in (".", "..") else quote(part, safe="")


def _problem_details(response: httpx.Response) -> Mapping[str, Any]:
    try:
        details: Any = json.loads(response.content)
        if isinstance(details, dict) and "type" in details:
            return details  # pyright: ignore[reportUnknownVariableType]
    except ValueError:
        pass
    # Not from the server: a proxy in between, or a request that was not even read.
    detail = f"{response.status_code} {response.reason_phrase}".strip()
    return {"status": response.status_code, "title": detail, "detail": detail}


def _retry_after(response: httpx.Response) -> float | None:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else None

"""What the clients refuse before they send anything, and what they say about it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

import httpx
import pytest

from requeue_client import Ack, AsyncClient, Client, Put, RetryAfter, Worker
from requeue_client.times import rate_fields


def unreachable(request: httpx.Request) -> httpx.Response:
    raise AssertionError(f"{request.method} {request.url} was sent")


@pytest.fixture
def client() -> Client:
    return Client(transport=httpx.MockTransport(unreachable))


def schedule(fields: Any) -> Callable[[Client], Any]:
    return lambda client: client.set_schedule("mail", "daily", fields)


def settings(fields: Any) -> Callable[[Client], Any]:
    return lambda client: client.change_kind("mail", fields)


class NotAwaited:
    def __await__(self) -> Any: ...

    def __repr__(self) -> str:
        return "<not awaited>"


ENDLESS: dict[str, Any] = {}
ENDLESS["self"] = ENDLESS

NONSENSE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an id that is a number": (
        lambda c: c.put("mail", 42, {}),
        "id is 42; it must be text, such as '42'",
    ),
    "an id that is a UUID": (
        lambda c: c.get("mail", uuid.UUID(int=1)),
        "id is UUID('00000000-0000-0000-0000-000000000001'); it must be text, such as "
        "'00000000-0000-0000-0000-000000000001'",
    ),
    "no id": (lambda c: c.cancel("mail", None), "id is None; it must be text"),
    "an empty id": (lambda c: c.get("mail", ""), "id is empty"),
    "no kind": (lambda c: c.put(None, "a"), "kind is None; it must be text"),
    "an empty kind": (lambda c: c.kind(""), "kind is empty"),
    "a kind of a claim": (lambda c: c.claim(["mail", 7]), "kinds[1] is 7; it must be text"),
    "no kinds": (lambda c: c.claim(None), "kinds is None; it must be a list of texts"),
    "an id of a batch of puts": (
        lambda c: c.put_many([Put("mail", "a"), Put("mail", 42)]),  # type: ignore[arg-type]
        "jobs[1].id is 42; it must be text, such as '42'",
    ),
    "a batch of dicts": (
        lambda c: c.put_many([{"kind": "mail", "id": "a"}]),
        "jobs[0] is {'kind': 'mail', 'id': 'a'}; it must be a Put",
    ),
    "an id of a batch of changes": (
        lambda c: c.cancel_many("mail", ["a", None]),
        "ids[1] is None; it must be text",
    ),
    "an id instead of a list of ids": (
        lambda c: c.cancel_many("mail", "order-42"),
        "ids is 'order-42'; it must be a list of texts",
    ),
    "an id of a change": (lambda c: c.run_now("mail", 42), "id is 42; it must be text"),
    "a schedule with an id that is no text": (
        lambda c: c.set_schedule("mail", 1, {"every": "1h"}),
        "id is 1; it must be text, such as '1'",
    ),
    "a batch that is one put": (
        lambda c: c.put_many(Put("mail", "a")),
        "it must be a list of Put",
    ),
    "a delay without a unit": (
        lambda c: c.put("mail", "a", delay=300),
        "delay is 300; a duration needs a unit: write timedelta(seconds=…) or '5m'",
    ),
    "a delay of a batch": (
        lambda c: c.put_many([Put("mail", "a"), Put("mail", "b", delay=300)]),  # type: ignore[arg-type]
        "jobs[1].delay is 300; a duration needs a unit",
    ),
    "a time that is text": (
        lambda c: c.put("mail", "a", due="2026-12-01T09:00:00Z"),
        "due is '2026-12-01T09:00:00Z'; it must be a datetime with a time zone",
    ),
    "a time without a zone": (
        lambda c: c.count("mail", died_before=datetime(2026, 12, 1)),
        "died_before is datetime.datetime(2026, 12, 1, 0, 0), which has no time zone",
    ),
    "a setting without a unit": (
        settings({"retention": {"age": 7}}),
        "settings.retention.age is 7; a duration needs a unit",
    ),
    "a body that was not awaited": (
        lambda c: c.put("mail", "a", {"to": NotAwaited()}),
        "body.to: <not awaited> is not JSON serializable: await it",
    ),
    "a part of a body": (
        lambda c: c.put("mail", "a", {"to": [1, object]}),
        "body.to[1]: <class 'object'> is not JSON serializable: a body consists of",
    ),
    "a number that is none": (
        lambda c: c.put_many([Put("mail", "a", {"sum": float("nan")})]),
        "jobs[0].body.sum is nan, which JSON cannot express",
    ),
    "a key that is not text": (
        lambda c: c.put("mail", "a", {"of": {(1, 2): 3}}),
        "body.of has the key (1, 2); in JSON, keys are text",
    ),
    "a body that contains itself": (
        lambda c: c.put("mail", "a", ENDLESS),
        "body contains itself, or is nested too deeply",
    ),
    "a reschedule of nothing": (
        lambda c: c.reschedule("mail", "a", if_generation=3),
        "nothing to change: specify due, delay, priority or body",
    ),
    "a lease that is none": (
        lambda c: c.ack(42),
        "42 is not a lease; pass a claimed job or its receipt",
    ),
    "a settlement that is none": (
        lambda c: c.settle(["receipt"]),
        "'receipt' is not a settlement, such as Ack(job)",
    ),
    "an unknown setting": (
        settings({"max_attempt": 3}),
        "settings has no field 'max_attempt'; did you mean 'max_attempts'?",
    ),
    "an unknown setting that is like no other": (
        settings({"x": 3}),
        "settings has no field 'x'; known are ageing, backoff, concurrency, keep_done, lease, "
        "max_attempts, paused, push, rate, retention",
    ),
    "an unknown part of a setting": (
        settings({"backoff": {"bas": "1s"}}),
        "settings.backoff has no field 'bas'; did you mean 'base'?",
    ),
    "a setting that has parts": (
        settings({"backoff": "1s"}),
        "settings.backoff is '1s'; it must be a mapping with any of base, jitter_percent, max",
    ),
    "settings that are no mapping": (
        settings("paused"),
        "settings is 'paused'; it must be a mapping with any of ageing, backoff,",
    ),
    "a rate without a time": (
        settings({"rate": "10"}),
        "settings.rate is '10', which is not a rate: write jobs per time, such as '10/s' or ",
    ),
    "a rate that is a number": (
        settings({"rate": 10}),
        "settings.rate is 10; it must be a mapping with any of jobs, per, burst",
    ),
    "an unknown field of a schedule": (
        schedule({"corn": "0 6 * * *"}),
        "schedule has no field 'corn'; did you mean 'cron'?",
    ),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_not_sent_and_the_error_names_it(name: str, client: Client) -> None:
    call, message = NONSENSE[name]
    with pytest.raises((TypeError, ValueError)) as caught:
        call(client)
    assert message in str(caught.value)


URLS = {
    "127.0.0.1:7860": "'127.0.0.1:7860'; it must begin with http:// or https:// and a host, "
    "such as 'http://127.0.0.1:7860'",
    "localhost:7654": "such as 'http://localhost:7654'",
    "queue.example.org": "such as 'http://queue.example.org'",
    "tcp://queue:7654": "such as 'http://queue:7654'",
    "http://": "it must begin with http:// or https:// and a host",
    "http://host:port": "the URL of the server is 'http://host:port'",
    f"http://{'x' * 64}.example.org": "label empty or too long",
    "http://ann:secret@host": "contains a user name; pass a token instead",
    "ann:secret@host": "contains a user name; pass a token instead",
    "tcp://ann:secret@host": "contains a user name; pass a token instead",
    "http://host/?x=1": "it must end before '?' and '#'",
}


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("make", [Client, AsyncClient, Worker])
def test_a_url_that_is_none_is_rejected_at_construction(make: Any, url: str) -> None:
    with pytest.raises(ValueError, match="the URL of the server") as caught:
        make(url)
    assert URLS[url] in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_url_of_the_environment_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUEUE_SERVER", "queue:7654")
    with pytest.raises(ValueError, match="'queue:7654'"):
        Client()


@pytest.mark.parametrize("make", [Client, AsyncClient, Worker])
def test_a_token_that_is_none_is_rejected_and_not_shown(make: Any) -> None:
    for token in ("secret\n", "sec ret", "sécret"):
        with pytest.raises(ValueError, match="the token contains") as caught:
            make(token=token)
        assert "ret" not in str(caught.value)


def test_a_server_or_token_that_is_not_text_is_rejected() -> None:
    for make in (Client, AsyncClient, Worker):
        with pytest.raises(TypeError, match="server is 7860; it must be text, such as 'http://lo"):
            make(7860)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="the token is of the type int; it must be text"):
            make(token=12345)  # type: ignore[arg-type]


def test_a_duration_of_a_client_or_worker_has_a_name() -> None:
    with pytest.raises(ValueError, match="retry_for is '10', which is not a duration"):
        Client(retry_for="10")
    with pytest.raises(TypeError, match="lease is 30; a duration needs a unit"):
        Worker(lease=30)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="delay is 10; a duration needs a unit"):
        RetryAfter(10)  # type: ignore[arg-type]


def test_a_worker_has_handlers_for_kinds_that_are_text() -> None:
    with pytest.raises(TypeError, match="kind is 42; it must be text"):
        Worker().job(42)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"is not a kind: write @worker\.job\('KIND'\)"):
        Worker().job(print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the handler of 'mail' is 5; it must be a function"):
        Worker().job("mail")(5)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="concurrency is '5'; it must be a whole number"):
        Worker(concurrency="5")  # type: ignore[arg-type]


def test_a_receipt_is_text(client: Client) -> None:
    class Held:
        receipt = 7

    with pytest.raises(TypeError, match="is not a lease"):
        client.settle([Ack(Held())])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "jobs", "per"),
    [("10/s", 10, "1s"), ("100/1m", 100, "1m"), ("5 / 30s", 5, "30s"), ("1/h", 1, "1h")],
)
def test_a_rate_can_be_text(text: str, jobs: int, per: str) -> None:
    assert rate_fields(text) == {"jobs": jobs, "per": per}


@pytest.mark.parametrize("text", ["", "10", "/s", "10/", "10/x", "1.5/s", "10/s/s", "ten/s"])
def test_any_other_text_is_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rate"):
        rate_fields(text)

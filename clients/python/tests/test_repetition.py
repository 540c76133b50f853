"""Which requests the clients repeat when the server cannot be reached, or a response is lost."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from support import Proxy, until

from requeue_client import (
    Ack,
    AsyncClient,
    Client,
    ConnectionFailed,
    KindDeleted,
    LeaseLost,
    NotDone,
    OutcomeUnknown,
    Problem,
    Put,
    ResponseLost,
    Unauthorized,
)
from requeue_client.testing import Server

REPEATED: dict[str, Callable[[Client, str], Any]] = {
    "put": lambda c, kind: c.put(kind, "a", delay="1h"),
    "reschedule": lambda c, kind: c.reschedule(kind, "exists", delay="2h"),
    "put_many": lambda c, kind: c.put_many([Put(kind, "a", delay="1h")]),
    "get": lambda c, kind: c.get(kind, "exists"),
    "list": lambda c, kind: [*c.list(kind)],
    "stats": lambda c, kind: c.stats(),
    "change_kind": lambda c, kind: c.change_kind(kind, {"max_attempts": 3}),
    "pause": lambda c, kind: c.pause(kind),
    "set_schedule": lambda c, kind: c.set_schedule(kind, "s", {"every": "1d"}),
}

NOT_REPEATED: dict[str, Callable[[Client, str], Any]] = {
    "put if_absent": lambda c, kind: c.put(kind, "a", if_absent=True),
    "put if_new": lambda c, kind: c.put(kind, "a", if_new=True),
    "put if_generation": lambda c, kind: c.put(kind, "exists", if_generation=1),
    "reschedule if_generation": lambda c, kind: c.reschedule(
        kind, "exists", delay="2h", if_generation=1
    ),
    "put_many if_new": lambda c, kind: c.put_many([Put(kind, "a", if_new=True)]),
    "cancel": lambda c, kind: c.cancel(kind, "exists"),
    "run_now": lambda c, kind: c.run_now(kind, "exists"),
    "revive": lambda c, kind: c.revive(kind, "exists"),
    "claim": lambda c, kind: c.claim(kind),
    "run_schedule": lambda c, kind: c.run_schedule(kind, "s"),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_harmless_request_is_repeated_if_its_response_is_lost(
    name: str, client: Client, kind: str, proxy: Proxy
) -> None:
    client.put(kind, "exists", delay="1h")
    proxy.drop_responses = True

    def repair() -> None:
        until(lambda: len(proxy.requests) >= 2)
        proxy.drop_responses = False

    repairing = threading.Thread(target=repair)
    repairing.start()
    with Client(proxy.url, retry_for="60s") as through_proxy:
        REPEATED[name](through_proxy, kind)
    repairing.join()


@pytest.mark.parametrize("name", NOT_REPEATED)
def test_any_other_request_is_unknown_if_its_response_is_lost(
    name: str, client: Client, kind: str, proxy: Proxy
) -> None:
    client.put(kind, "exists", delay="1h")
    proxy.drop_responses = True
    with Client(proxy.url) as through_proxy, pytest.raises(OutcomeUnknown):
        NOT_REPEATED[name](through_proxy, kind)
    assert len(proxy.requests) == 1


def test_a_settlement_is_repeated_and_then_reports_the_lost_lease(
    client: Client, kind: str, proxy: Proxy
) -> None:
    client.put(kind, "a")
    job = client.claim(kind).jobs[0]
    proxy.drop_responses = True

    def repair() -> None:
        until(lambda: len(proxy.requests) >= 2)
        proxy.drop_responses = False

    repairing = threading.Thread(target=repair)
    repairing.start()
    with Client(proxy.url, retry_for="60s") as through_proxy:
        (result,) = through_proxy.settle([Ack(job)])
    repairing.join()
    assert isinstance(result, LeaseLost)


REJECTED: list[tuple[Callable[[Client], Any], str]] = [
    # The first request has made the job due, and a worker has run it.
    (lambda c: c.reschedule("mail", "a", delay="0s"), "absent"),
    (lambda c: c.reschedule("mail", "a", delay="0s"), "done"),
    (lambda c: c.change_schedule("mail", "s", {"paused": True}), "absent"),
    (lambda c: c.put("mail", "a"), "unauthorized"),
    (lambda c: c.ack("receipt"), "lease-lost"),
]


@pytest.mark.parametrize(("call", "problem"), REJECTED)
def test_a_repeated_request_that_is_rejected_is_unknown(
    call: Callable[[Client], Any], problem: str
) -> None:
    details = {"type": f"/v1/problems/{problem}", "title": problem, "status": 409, "detail": "no"}
    response = httpx.Response(409, json=details)
    if problem == "lease-lost":
        response = httpx.Response(200, json={"results": [{"error": details}]})
    attempts: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        attempts.append(request)
        if len(attempts) == 1:
            raise httpx.ReadError("the connection was closed")
        return response

    transport = httpx.MockTransport(respond)
    with Client("http://server", transport=transport) as client:
        with pytest.raises(OutcomeUnknown) as caught:
            call(client)
        assert isinstance(caught.value.__cause__, Problem)
        assert caught.value.__cause__.name == problem


def test_a_timeout_is_unknown(proxy: Proxy, kind: str) -> None:
    proxy.swallow_requests = True
    done = r"to DELETE \S+, which may have been done: "
    with Client(proxy.url, timeout="50ms") as client, pytest.raises(ResponseLost, match=done):
        client.cancel(kind, "a")


def test_a_server_that_cannot_be_reached_is_not_done() -> None:
    with socket.socket() as not_listening:
        not_listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{not_listening.getsockname()[1]}"
        with Client(url, retry_for="300ms") as client, pytest.raises(ConnectionFailed) as caught:
            client.put("mail", "a", if_absent=True)
    assert isinstance(caught.value, NotDone)
    what = f"cannot connect to {url}, so PUT /v1/kinds/mail/jobs/a was not done: "
    assert what in str(caught.value)


@pytest.mark.parametrize("call", ["cancel_matching", "delete_kind"])
def test_a_call_that_fails_after_it_changed_something_is_unknown(call: str) -> None:
    changed = {"matched": 9, "changed": 7, "failed": 2, "removed": 5, "ending": 2, "cursor": "x"}
    responses = iter([httpx.Response(200, json=changed), httpx.Response(503)])
    transport = httpx.MockTransport(lambda request: next(responses))
    with (
        Client("http://server", transport=transport, retry_for="0s") as client,
        pytest.raises(OutcomeUnknown, match=r"7 jobs were \w+, others were not: 503") as caught,
    ):
        getattr(client, call)("mail")
    assert isinstance(caught.value.__cause__, NotDone)


def test_a_kind_is_deleted_in_several_requests() -> None:
    pages = [
        {"removed": 9_000, "ending": 1_000, "cursor": "x"},
        {"removed": 7, "ending": 2, "cursor": None},
    ]
    responses = iter(httpx.Response(200, json=page) for page in pages)
    transport = httpx.MockTransport(lambda request: next(responses))
    with Client("http://server", transport=transport) as client:
        assert client.delete_kind("mail") == KindDeleted(removed=9_007, ending=1_002)


def test_a_host_that_does_not_exist_is_not_done() -> None:
    url = "http://requeue.invalid:7654"
    with Client(url, retry_for="0s") as client, pytest.raises(ConnectionFailed) as caught:
        client.put("mail", "a", if_absent=True)
    assert url in str(caught.value)


def test_a_request_that_was_not_done_is_repeated_until_the_server_is_back(kind: str) -> None:
    async def put(server: Server) -> None:
        async with AsyncClient(server.url, retry_for="60s") as client:
            putting = asyncio.create_task(client.put(kind, "a", if_absent=True))
            await asyncio.sleep(0.3)
            server.start()
            assert (await putting).outcome == "created"

    with Server() as server:
        server.kill()
        asyncio.run(put(server))


def test_the_environment_names_server_and_token(
    requeue_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUEUE_SERVER", requeue_server.url + "/")
    monkeypatch.setenv("REQUEUE_TOKEN", "any")
    with Client() as client:
        assert client.stats().version


def test_an_invalid_token_is_unauthorized(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("full correct-horse-battery\n")
    with Server("--tokens", str(tokens)) as server:
        with pytest.raises(Unauthorized):
            server.client.stats()
        with Client(server.url, token="correct-horse-battery") as client:
            assert client.stats().version

from __future__ import annotations

import httpx
import pytest

from requeue_client import (
    Absent,
    ConnectionFailed,
    Invalid,
    NotDone,
    OutcomeUnknown,
    Problem,
    RequeueError,
    ResponseLost,
)
from requeue_client._core import Call, Repetition, path, transport_error


def call() -> Call[int]:
    return Call("GET", "/v1/stats", lambda data: int(data["kinds"]))


def test_not_done_is_repeated_with_pauses_that_double() -> None:
    repetition = Repetition(retry_for=10, now=0)
    pauses = [repetition.pause(NotDone(), False, now=0) or 0 for _ in range(5)]
    for n, pause in enumerate(pauses):
        assert 0.05 * 2**n <= pause <= 0.1 * 2**n


def test_unknown_is_repeated_only_if_that_is_harmless() -> None:
    assert Repetition(10, now=0).pause(OutcomeUnknown(), True, now=0) is not None
    assert Repetition(10, now=0).pause(OutcomeUnknown(), False, now=0) is None


def test_a_rejection_is_not_repeated() -> None:
    assert Repetition(10, now=0).pause(Invalid({}), True, now=0) is None


def test_an_unknown_outcome_is_not_hidden_by_a_repetition_that_was_not_done() -> None:
    repetition, unknown, not_done = Repetition(10, now=0), OutcomeUnknown(), NotDone()
    assert repetition.failure(not_done) is not_done
    assert repetition.pause(unknown, True, now=0) is not None
    assert repetition.pause(not_done, True, now=10) is None
    assert repetition.failure(not_done) is unknown


def test_an_unknown_outcome_is_not_hidden_by_a_repetition_that_was_rejected() -> None:
    repetition, unknown, rejected = Repetition(10, now=0), OutcomeUnknown(), Absent({})
    assert repetition.failure(rejected) is rejected
    assert repetition.pause(unknown, True, now=0) is not None
    assert repetition.pause(rejected, True, now=0) is None
    assert repetition.failure(rejected) is unknown
    assert unknown.__cause__ is rejected
    # A job that cannot be read is absent, whatever became of the first attempt to read it.
    assert repetition.failure(rejected, changes=False) is rejected


def test_retry_after_is_the_least_pause() -> None:
    error = NotDone()
    error.retry_after = 3
    assert Repetition(10, now=0).pause(error, True, now=0) == 3


def test_repetitions_end_after_retry_for() -> None:
    assert Repetition(10, now=0).pause(NotDone(), True, now=9.99) is None
    assert Repetition(0, now=0).pause(NotDone(), True, now=0) is None


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (httpx.ConnectError("refused"), ConnectionFailed),
        (httpx.ConnectTimeout("slow"), ConnectionFailed),
        (httpx.PoolTimeout("all in use"), ConnectionFailed),
        (httpx.ProxyError("403 Forbidden"), ConnectionFailed),
        (httpx.ReadTimeout("slow"), ResponseLost),
        (httpx.WriteError("reset"), ResponseLost),
        (httpx.RemoteProtocolError("disconnected"), ResponseLost),
    ],
)
def test_a_failure_before_the_connection_is_not_done_and_after_it_unknown(
    failure: httpx.HTTPError, expected: type[RequeueError]
) -> None:
    assert type(transport_error(failure, "http://x", "GET /v1/stats")) is expected


def test_an_invalid_response_is_unknown() -> None:
    for content in (b"not JSON", b"[]", b"{}", b'{"kinds":"many"}'):
        with pytest.raises(ResponseLost):
            call().result(httpx.Response(200, content=content))


def test_the_response_of_a_proxy_is_a_problem_with_its_status() -> None:
    with pytest.raises(Problem) as caught:
        call().result(httpx.Response(503, content=b"<html>", headers={"retry-after": "7"}))
    assert isinstance(caught.value, NotDone)
    assert (caught.value.status, caught.value.retry_after) == (503, 7)


def test_ids_are_percent_encoded_in_paths() -> None:
    assert path("kinds", "mail", "jobs", "orders/42?#%") == (
        "/v1/kinds/mail/jobs/orders%2F42%3F%23%25"
    )
    assert path("kinds", "mail", "jobs", "..") == "/v1/kinds/mail/jobs/%2E%2E"

"""Handlers with a type of body: what the producer put arrives as that type, or the job is dead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any
from uuid import UUID, uuid4

import pydantic
import pytest
from support import LIMIT, until

from requeue_client import BodyError, Client, Job, Put, Worker
from requeue_client.testing import Server


class Channel(Enum):
    MAIL = "mail"
    SMS = "sms"


@dataclass(frozen=True)
class Address:
    street: str
    number: int | None = None


@dataclass(frozen=True)
class Reminder:
    order: UUID
    at: datetime
    to: Address
    channel: Channel = Channel.MAIL

    def __post_init__(self) -> None:
        if self.to.street == "":
            raise ValueError("the street is empty")


class Invoice(pydantic.BaseModel):
    order: UUID
    total: float = pydantic.Field(gt=0)

    @pydantic.field_validator("order")
    @classmethod
    def _fails_unexpectedly(cls, order: UUID) -> UUID:
        if order.int == 0:
            raise RuntimeError("validators may raise anything")
        return order


REMINDER = Reminder(uuid4(), datetime.now(UTC), Address("Main Street", 7), Channel.SMS)
INVOICE = Invoice(order=uuid4(), total=9.5)


class Running:
    """A worker that keeps the bodies and errors that it sees."""

    def __init__(self, server: Server, kind: str, body: Any) -> None:
        self.bodies: dict[str, Any] = {}
        self.dead: dict[str, BaseException] = {}
        self.worker = Worker(
            server.url,
            on_dead=lambda job, error: self.dead.update({job.id: error}),
        )
        self.worker.job(kind, body=body)(self._handle)
        self._thread = threading.Thread(target=self.worker.run)
        self._thread.start()

    def _handle(self, job: Job) -> Any:
        self.bodies[job.id] = job.body
        return job.body

    def close(self) -> None:
        self.worker.shutdown()
        self._thread.join(LIMIT)


@pytest.fixture(params=[(REMINDER, Reminder), (INVOICE, Invoice)], ids=["dataclass", "pydantic"])
def typed(request: pytest.FixtureRequest, requeue_server: Server, kind: str) -> Iterator[Any]:
    requeue_server.client.change_kind(kind, {"keep_done": {"for": "1h"}})
    value, body = request.param
    running = Running(requeue_server, kind, body)
    yield running, value
    running.close()


def test_a_value_arrives_as_it_was_put_and_can_be_the_result(
    typed: tuple[Running, Any], client: Client, kind: str
) -> None:
    running, value = typed
    client.put(kind, "a", value)
    client.put_many([Put(kind, "b", value)])
    until(lambda: client.count(kind, state="done") == 2)
    assert running.bodies == {"a": value, "b": value}
    done = client.get(kind, "a").done
    assert done is not None
    assert done.result is not None
    assert done.result.body["order"] == str(value.order)


def test_a_body_that_does_not_fit_is_buried_and_not_retried(
    typed: tuple[Running, Any], client: Client, kind: str
) -> None:
    running, value = typed
    name = type(value).__name__
    bodies: dict[str, Any] = {"none": None, "text": "hello", "wrong": {"order": 7}, "bytes": b"\0"}
    for id, body in bodies.items():
        client.put(kind, id, body)
    until(lambda: client.count(kind, state="dead") == len(bodies))
    for job in client.list(kind, state="dead"):
        assert job.attempts == 1
        assert (job.failures[0].error or "").startswith(
            f"job of kind {kind}: the body is not a valid {name}: "
        )
    wrong = client.get(kind, "wrong").failures[0].error or ""
    assert "order: " in wrong or "missing" in wrong
    until(lambda: running.dead.keys() == bodies.keys())
    assert all(isinstance(error, BodyError) for error in running.dead.values())
    assert running.bodies == {}
    # The correction.
    client.put(kind, "wrong", value)
    until(lambda: running.bodies == {"wrong": value})


@pytest.mark.parametrize(
    ("body", "value", "problem"),
    [
        (Reminder, Reminder(uuid4(), REMINDER.at, Address("x")), "the street is empty"),
        (Invoice, INVOICE, "validators may raise anything"),
    ],
)
def test_what_a_type_raises_itself_buries_the_job_too(
    requeue_server: Server, client: Client, kind: str, body: Any, value: Any, problem: str
) -> None:
    plain: dict[str, Any] = (
        {"order": str(UUID(int=0)), "total": 1}
        if body is Invoice
        else {"order": str(value.order), "at": value.at, "to": {"street": ""}}
    )
    running = Running(requeue_server, kind, body)
    client.put(kind, "a", plain)
    until(lambda: client.count(kind, state="dead") == 1)
    running.close()
    assert problem in (client.get(kind, "a").failures[0].error or "")


def test_a_type_that_cannot_be_read_is_rejected_immediately() -> None:
    worker = Worker()
    with pytest.raises(TypeError, match="bodies cannot be read as bytes"):
        worker.job("mail", body=bytes)


def test_without_a_type_the_body_is_what_was_decoded(
    requeue_server: Server, client: Client, kind: str
) -> None:
    running = Running(requeue_server, kind, None)
    client.put(kind, "a", REMINDER)
    until(lambda: running.bodies)
    running.close()
    assert running.bodies["a"]["to"] == {"street": "Main Street", "number": 7}

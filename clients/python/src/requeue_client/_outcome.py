"""How the end of a handler becomes a settlement."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ._body_types import describe, reader
from .codec import BodyError, Codec, body_fields, to_json
from .fields import Ack, Bury, Requeue, Retry, Settlement
from .job import GiveUp, Job, RequeueAfter, RetryAfter, Stopped, StopReason
from .models import ClaimedJob

Function: TypeAlias = Callable[[Job], Any] | Callable[[Job], Awaitable[Any]]
"""A handler: a function, which runs in a thread, or a coroutine function."""

MAX_ERROR = 2048
"""The length of an error in bytes that the server keeps."""

MAX_RESULT = 64 * 1024
"""The length of a result in bytes that the server accepts."""

SHUT_DOWN = "the worker was shut down"


@dataclass(frozen=True, slots=True)
class Handler:
    """A registered handler."""

    function: Function
    is_async: bool
    timeout: float | None
    body: Any = None
    """The type of the bodies, if the handler has one."""

    def read(self, claimed: ClaimedJob) -> Any:
        """Returns the body of a job as the handler expects it. Raises `BodyError`."""
        value = claimed.body
        if self.body is None:
            return value
        try:
            return reader(self.body)(value)
        except Exception as error:
            raise BodyError(f"the body is not a valid {describe(self.body)}: {error}") from error


@dataclass(frozen=True, slots=True)
class Ended:
    """How a handler ended: with a result, or with an error."""

    result: Any = None
    error: BaseException | None = None

    @property
    def is_stop(self) -> bool:
        """Whether the handler ended because it was stopped."""
        return isinstance(self.error, (Stopped, asyncio.CancelledError))


def settlement_of(
    job: Job, ended: Ended, stopped_by: StopReason | None, codec: Codec
) -> tuple[Settlement | None, BaseException | None]:
    """Returns how a job is settled, and the error if its attempt failed.

    `stopped_by` is why the handler was stopped, if it was. There is no settlement if the lease is
    lost.
    """
    receipt, error = job.receipt, ended.error
    if stopped_by == "lease-lost":
        return None, None
    if stopped_by == "cancelled":
        return Ack(receipt), None
    if stopped_by == "timeout":
        late = TimeoutError("timed out")
        return Retry(receipt, error_text(late)), late
    if stopped_by == "shutdown" and ended.is_stop:
        return Retry(receipt, SHUT_DOWN, "0s"), InterruptedError(SHUT_DOWN)
    match error:
        case None:
            return _ack(receipt, ended.result, codec)
        case RequeueAfter(delay=delay):
            return Requeue(receipt, delay), None
        case GiveUp(reason=reason):
            return Bury(receipt, cut(reason)), error
        case RetryAfter(delay=delay):
            return Retry(receipt, error_text(error), delay), error
        case _:
            return Retry(receipt, error_text(error)), error


def error_text(error: BaseException) -> str:
    """Returns type and message of an error, as it is kept with the job."""
    if isinstance(error, RetryAfter):
        if error.error is not None:
            return cut(error.error)
        if error.__cause__ is not None:
            return error_text(error.__cause__)
    try:
        message = str(error)
    except Exception:
        message = "its message cannot be formatted"
    return cut(f"{type(error).__name__}: {message}" if message else type(error).__name__)


def cut(text: str) -> str:
    """Returns valid Unicode of at most 2 KiB."""
    return text.encode(errors="replace")[:MAX_ERROR].decode(errors="ignore")


def _ack(receipt: str, result: Any, codec: Codec) -> tuple[Settlement, BaseException | None]:
    """Returns the ack of a job. A result that cannot be sent is an error of the handler."""
    if result is None:
        return Ack(receipt), None
    try:
        size = len(to_json(body_fields(result, codec)))
        if size > MAX_RESULT:
            raise ValueError(f"the result has {size} bytes; the limit is {MAX_RESULT}")
    except Exception as error:
        return Retry(receipt, error_text(error)), error
    return Ack(receipt, result), None

"""What a handler gets, and the exceptions with which it can end."""

from __future__ import annotations

from typing import Any, Literal

from .models import ClaimedJob, JobFields
from .times import Duration, duration_text

StopReason = Literal["shutdown", "timeout", "cancelled", "lease-lost"]
"""Why a handler is stopped."""


class Stopped(BaseException):
    """The handler is stopped. Raised by `Job.check`.

    It is not an `Exception`, so that a handler that catches those still ends.
    """

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason: StopReason = reason


class RetryAfter(Exception):
    """The attempt failed, and the job is retried after `delay` instead of the backoff of its kind.

    The error that is kept with the job is `error`, or the exception that this one was raised from.
    """

    def __init__(self, delay: Duration, error: str | None = None) -> None:
        duration_text(delay, "delay")
        super().__init__(error or "")
        self.delay = delay
        self.error = error


class GiveUp(Exception):
    """The attempt failed, and trying again is pointless: the job is buried with `reason`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RequeueAfter(Exception):
    """The job is done, and runs again after `delay`, for example to poll."""

    def __init__(self, delay: Duration) -> None:
        duration_text(delay, "delay")
        super().__init__(delay)
        self.delay = delay


class Job(JobFields):
    """A job that a worker runs."""

    __slots__ = ("_reason", "body")

    def __init__(self, claimed: ClaimedJob, body: Any) -> None:
        super().__init__(claimed)
        self._reason: StopReason | None = None
        self.body: Any = body
        """The decoded body, as the type of `Worker.job` if it has one; `None` if it is empty."""

    def __repr__(self) -> str:
        return f"<Job {self.kind}/{self.id}, attempt {self.attempt}>"

    @property
    def content_type(self) -> str:
        """The content type of the body."""
        return self._claimed.content.content_type

    @property
    def idempotency_key(self) -> str:
        """A text that is the same for every attempt at one put of this job.

        Pass it to the systems that the job calls, so that a second attempt has no second effect.
        """
        return self._claimed.idempotency_key

    @property
    def stopped(self) -> bool:
        """Whether the handler should end: see `stop_reason`."""
        return self._reason is not None

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the handler should end; `None` if it should not."""
        return self._reason

    def check(self) -> None:
        """Raises `Stopped` if the handler should end. Call it from time to time in a thread."""
        if self._reason is not None:
            raise Stopped(self._reason)

"""What a worker reports: to the log `requeue`, and to the callbacks of the program."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from .errors import RequeueError
from .job import Job
from .models import SettleResult

log = logging.getLogger("requeue_client")

Next = Literal["retry", "dead", "unknown"]
"""What happens to a job after a failed attempt."""


@dataclass(frozen=True, slots=True)
class Events:
    """Logs an event and calls the callback for it. An error of a callback is logged."""

    on_failure: Callable[[Job, BaseException, Next], object] | None
    on_dead: Callable[[Job, BaseException], object] | None
    on_lost: Callable[[Job], object] | None
    on_error: Callable[[RequeueError], object] | None

    def failure(self, job: Job, error: BaseException, result: SettleResult | None) -> None:
        """An attempt failed. `result` is that of its settlement; `None` if it is unknown."""
        if result == "cancelled":
            log.info("%r failed, and was cancelled", job, exc_info=error)
            return
        next: Next = result if result == "retry" or result == "dead" else "unknown"
        log.warning("%r failed; next: %s", job, next, exc_info=error)
        _call(self.on_failure, job, error, next)
        if next == "dead":
            _call(self.on_dead, job, error)

    def lost(self, job: Job) -> None:
        """The lease of a job is lost."""
        log.warning("the lease of %r is lost: it may run again", job)
        _call(self.on_lost, job)

    def error(self, error: RequeueError) -> None:
        """A request of the worker failed, and will be repeated."""
        log.warning("a request failed and will be repeated: %s", error)
        _call(self.on_error, error)

    def abandoned(self, job: Job) -> None:
        """The handler of a job did not end at shutdown."""
        log.error("the handler of %r does not end: its lease is left to expire", job)


def _call(callback: Callable[..., object] | None, *arguments: Any) -> None:
    if callback is not None:
        try:
            callback(*arguments)
        except Exception:
            log.exception("a callback of the worker failed")

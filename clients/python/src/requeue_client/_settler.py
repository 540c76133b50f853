"""Settles jobs in batches: while one request is in flight, the jobs that end are collected for the
next. A settlement that fails is repeated for the length of a lease.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from ._core import FIRST_PAUSE
from ._outcome import MAX_RESULT, cut
from .async_client import AsyncClient
from .errors import (
    Invalid,
    LeaseLost,
    Malformed,
    NotDone,
    OutcomeUnknown,
    Problem,
    RequeueError,
    TooLarge,
)
from .fields import Ack, Retry, Settlement
from .models import SettleDone

MAX_BATCH = 1000
MAX_BATCH_RESULTS = 16 * 1024 * 1024 // MAX_RESULT
"""The number of results of any length that fit into a request."""

LONGEST_PAUSE = 1.0

Final = SettleDone | Literal["lost", "unknown"]
"""How a settlement ended. `unknown`: it was most likely done, but its response was lost."""


@dataclass(slots=True)
class Pending:
    """A settlement that is not confirmed yet."""

    settlement: Settlement
    done: Callable[[Final, RequeueError | None], None]
    """Called at the end, with the rejection if the attempt failed because of one."""
    ends_at: float | None = None
    """When the worker gives up: a lease after the first request."""
    unknown: bool = False
    """Whether an earlier request may have been executed."""
    alone: bool = False
    """Whether a request with this and other settlements was rejected."""
    rejection: RequeueError | None = None
    """Why the settlement was replaced."""

    def entry_ended(self, result: SettleDone | Problem, now: float) -> Final | None:
        """Returns how the settlement ended after its result, or `None` if it is repeated."""
        if isinstance(result, SettleDone):
            return result
        if isinstance(result, LeaseLost):
            return "unknown" if self.unknown else "lost"
        if not isinstance(result, (NotDone, OutcomeUnknown)):
            self._fail_instead(result)
        return self._again(result, now)

    def request_failed(self, error: RequeueError, size: int, now: float) -> Final | None:
        """The same after a request with `size` settlements failed as a whole."""
        if isinstance(error, (Malformed, Invalid, TooLarge)):
            # One settlement must not keep the others from being settled.
            self.alone = True
            if size == 1:
                self._fail_instead(error)
        return self._again(error, now)

    def _again(self, error: RequeueError, now: float) -> Final | None:
        self.unknown = self.unknown or isinstance(error, OutcomeUnknown)
        return "lost" if self.ends_at is not None and now >= self.ends_at else None

    def _fail_instead(self, error: RequeueError) -> None:
        """Replaces a settlement that the server never accepts, such as a delay of 100 years."""
        self.rejection = error
        self.settlement = Retry(self.settlement.job, cut(f"the settlement was rejected: {error}"))


class Settler:
    """Sends settlements until each of them is confirmed, lost, or too late."""

    def __init__(
        self,
        client: AsyncClient,
        lease: float,
        report: Callable[[RequeueError], None],
        gather: Callable[[], Awaitable[None]],
    ) -> None:
        """Creates a settler. It reports requests that failed, and calls `gather` before each."""
        self._client = client
        self._lease = lease
        self._report = report
        self._gather = gather
        self._queue: deque[Pending] = deque()
        self._added = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(
        self, settlement: Settlement, done: Callable[[Final, RequeueError | None], None]
    ) -> None:
        """Settles a job soon, and then calls `done`."""
        self._queue.append(Pending(settlement, done))
        self._added.set()
        self._idle.clear()

    async def drain(self) -> None:
        """Waits until nothing is left to settle."""
        await self._idle.wait()

    async def run(self) -> None:
        """Settles jobs until it is cancelled."""
        pause = FIRST_PAUSE
        while True:
            await self._added.wait()
            self._added.clear()
            while self._queue:
                await self._gather()
                if await self._send(self._take_batch()):
                    pause = FIRST_PAUSE
                else:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
            self._idle.set()

    def _take_batch(self) -> list[Pending]:
        batch = [self._queue.popleft()]
        results = 0
        while self._queue and len(batch) < MAX_BATCH and results < MAX_BATCH_RESULTS:
            if batch[0].alone or self._queue[0].alone:
                break
            pending = self._queue.popleft()
            results += isinstance(pending.settlement, Ack) and pending.settlement.result is not None
            batch.append(pending)
        return batch

    async def _send(self, batch: list[Pending]) -> bool:
        """Sends a batch. Returns whether all of it is settled; otherwise the rest is queued."""
        now = time.monotonic()
        for pending in batch:
            pending.ends_at = pending.ends_at or now + self._lease
        finals: list[Final | None]
        try:
            results = await self._client.settle([pending.settlement for pending in batch])
        except RequeueError as error:
            self._report(error)
            now = time.monotonic()
            finals = [pending.request_failed(error, len(batch), now) for pending in batch]
        else:
            now = time.monotonic()
            finals = [
                pending.entry_ended(result, now)
                for pending, result in zip(batch, results, strict=True)
            ]
        again: list[Pending] = []
        for pending, final in zip(batch, finals, strict=True):
            if final is None:
                again.append(pending)
            else:
                pending.done(final, pending.rejection)
        self._queue.extendleft(reversed(again))
        return not again

"""Extends leases while handlers run, and reports those that have ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ._leases import LeaseTable
from .async_client import AsyncClient
from .errors import LeaseLost, OutcomeUnknown, RequeueError
from .fields import Extend
from .job import StopReason
from .models import SettleDone

K = TypeVar("K")

MAX_BATCH = 1000
"""The number of leases in one request."""


class LeaseKeeper(Generic[K]):
    """Extends the leases that are due in one request.

    `stop` is called with the key of a lease that has ended, was lost, or whose job was cancelled.
    """

    def __init__(
        self,
        client: AsyncClient,
        lease: float,
        stop: Callable[[K, StopReason], None],
        report: Callable[[RequeueError], None],
    ) -> None:
        self._client = client
        self._table: LeaseTable[K] = LeaseTable(lease)
        self._receipts: dict[K, str] = {}
        self._stop = stop
        self._report = report
        self._lease_text = f"{lease * 1000:.0f}ms"

    def add(self, key: K, receipt: str, claimed_at: float) -> None:
        """Adds a lease that was claimed by a request sent at `claimed_at`."""
        self._receipts[key] = receipt
        self._table.add(key, claimed_at)

    def remove(self, key: K) -> None:
        """Leaves a lease alone. Removing it twice has no effect."""
        self._receipts.pop(key, None)
        self._table.remove(key)

    async def run(self) -> None:
        """Extends leases until it is cancelled."""
        requests: set[asyncio.Task[None]] = set()
        while True:
            now = time.monotonic()
            for key in self._table.take_expired(now):
                self._end(key, "lease-lost")
            due = self._table.take_due(now)
            for start in range(0, len(due), MAX_BATCH):
                keys = due[start : start + MAX_BATCH]
                entries = [Extend(self._receipts[key], self._lease_text) for key in keys]
                # Not awaited here: leases still end if there is no response.
                task = asyncio.create_task(self._extend(keys, entries))
                requests.add(task)
                task.add_done_callback(requests.discard)
            await asyncio.sleep(self._table.pause(time.monotonic()))

    async def _extend(self, keys: list[K], entries: list[Extend]) -> None:
        sent_at = time.monotonic()
        results: Sequence[SettleDone | RequeueError]
        try:
            # A connection that is dead, but not closed, must leave time for another attempt.
            results = await asyncio.wait_for(self._client.settle(entries), self._table.length / 3)
        except TimeoutError:
            results = [OutcomeUnknown("no response to the extension of a lease")] * len(keys)
        except RequeueError as error:
            results = [error] * len(keys)
        reported: set[str] = set()
        for key, result in zip(keys, results, strict=True):
            if key not in self._receipts:
                continue  # Its handler ended meanwhile, and the lease may be settled.
            if isinstance(result, LeaseLost):
                self._end(key, "lease-lost")
            elif isinstance(result, RequeueError):
                self._table.failed(key, time.monotonic())
                if str(result) not in reported:
                    reported.add(str(result))
                    self._report(result)
            elif result.result == "cancelled":
                self._end(key, "cancelled")
            else:
                self._table.extended(key, sent_at)

    def _end(self, key: K, reason: StopReason) -> None:
        self.remove(key)
        self._stop(key, reason)

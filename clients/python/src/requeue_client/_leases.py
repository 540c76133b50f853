"""When leases are extended, and when they have ended by the clock of the worker.

A lease is extended when a third of it has passed, and after a failure every tenth of its length.
It counts from the moment before the request was sent, so the worker considers it over a little
earlier than the server does. This module never reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")


@dataclass(slots=True)
class _Times:
    ends_at: float
    extend_at: float | None
    """`None` while a request to extend the lease is in flight."""


class LeaseTable(Generic[K]):
    """The leases that a worker holds."""

    def __init__(self, length: float) -> None:
        self.length = length
        self._times: dict[K, _Times] = {}

    def add(self, key: K, claimed_at: float) -> None:
        """Adds a lease that was claimed by a request sent at `claimed_at`."""
        self._times[key] = _Times(claimed_at + self.length, claimed_at + self.length / 3)

    def remove(self, key: K) -> None:
        """Removes a lease that ended. Removing it twice has no effect."""
        self._times.pop(key, None)

    def take_expired(self, now: float) -> list[K]:
        """Removes and returns the leases that have ended."""
        expired = [key for key, times in self._times.items() if times.ends_at <= now]
        for key in expired:
            del self._times[key]
        return expired

    def take_due(self, now: float) -> list[K]:
        """Returns the leases to extend now. `extended` or `failed` must follow for each."""
        due: list[K] = []
        for key, times in self._times.items():
            if times.extend_at is not None and times.extend_at <= now:
                times.extend_at = None
                due.append(key)
        return due

    def extended(self, key: K, sent_at: float) -> None:
        """Records that a request sent at `sent_at` has extended the lease, if it is still held."""
        if key in self._times:
            self.add(key, sent_at)

    def failed(self, key: K, now: float) -> None:
        """Records that a lease could not be extended."""
        if times := self._times.get(key):
            times.extend_at = now + self.length / 10

    def pause(self, now: float) -> float:
        """Returns the seconds until something is to be done.

        Leases that are added meanwhile need nothing before that: their third begins later.
        """
        next_at = now + self.length / 3
        for times in self._times.values():
            next_at = min(next_at, times.ends_at)
            if times.extend_at is not None:
                next_at = min(next_at, times.extend_at)
        return max(next_at - now, 0.0)

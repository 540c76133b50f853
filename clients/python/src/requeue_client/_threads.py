"""Threads for handlers that are plain functions.

They are daemon threads, so that a handler that does not end cannot keep the process from ending;
the threads of `concurrent.futures` can.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue


class Threads:
    """Runs functions in up to `limit` threads, and their callbacks on the event loop."""

    def __init__(self, limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._count = 0
        self._work: SimpleQueue[Callable[[], Callable[[], None]] | None] = SimpleQueue()
        self._callbacks: deque[Callable[[], None]] = deque()
        self._wakeup_sent = False

    def submit(self, work: Callable[[], Callable[[], None]]) -> None:
        """Calls `work` in a thread, and then what it returned on the event loop."""
        self._work.put(work)
        if self._count < self._limit:
            self._count += 1
            name = f"requeue-{self._count}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def close(self) -> None:
        """Ends all threads that are idle, and the others when their work is done."""
        for _ in range(self._count):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            self._callbacks.append(work())
            # One wakeup for all that end until the event loop runs: it costs more than the rest.
            if not self._wakeup_sent:
                self._wakeup_sent = True
                try:
                    self._loop.call_soon_threadsafe(self._call_back)
                except RuntimeError:
                    return  # The event loop is closed: the worker did not wait for this handler.

    def _call_back(self) -> None:
        # First, so that a thread that adds a callback after the loop below sends a wakeup.
        self._wakeup_sent = False
        while self._callbacks:
            self._callbacks.popleft()()

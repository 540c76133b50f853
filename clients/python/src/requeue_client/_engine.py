"""What a worker does while it runs, on asyncio: it claims jobs, starts handlers, extends leases,
and settles jobs when their handlers have ended.

```text
   claim ──▶ running ── handler ends ──▶ Settler ──▶ settled, or lost
                │  │
                │  └─ a third of the lease: extend ──▶ extended, cancelled or lost
                └─ timeout, cancelled, lost, shutdown: the handler is stopped, and ends when it can
```
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from ._events import Events
from ._keeper import LeaseKeeper
from ._outcome import Ended, Handler, cut, settlement_of
from ._settler import Final, Settler
from ._threads import Threads
from .async_client import AsyncClient
from .codec import BodyError, Codec
from .errors import NotDone, OutcomeUnknown, RequeueError
from .fields import Bury, Release
from .job import Job, StopReason
from .models import ClaimedJob, SettleDone

MAX_BATCH = 1000
"""The number of jobs in one claim."""

CLAIM_PAUSE = 1.0
"""The pause in seconds after a claim that failed."""

LONGEST_WAIT = "30s"
"""How long one request waits for jobs. Proxies may drop connections that are silent for longer."""

GATHER_PAUSE = 0.001
"""How long a claim or settlement waits for other handlers that are about to end, in seconds.
A request takes as long. With short handlers, it is then one for many jobs instead of one."""

STOP_LIMIT = 5.0
"""How long handlers may take to end at shutdown after they were stopped, in seconds."""

# Of two reasons to stop a handler, the later entry decides how the job is settled.
_SEVERITY: tuple[StopReason | None, ...] = (None, "shutdown", "timeout", "cancelled", "lease-lost")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a worker, in seconds."""

    name: str
    concurrency: int
    lease: float
    grace: float


@dataclass(slots=True, eq=False)
class Running:
    """A job whose handler has not ended."""

    job: Job
    stopped_by: StopReason | None = None
    task: asyncio.Task[Ended] | None = None
    timer: asyncio.TimerHandle | None = None


class Engine:
    """One run of a worker. All methods are called on the event loop."""

    def __init__(
        self,
        client: AsyncClient,
        codec: Codec,
        handlers: Mapping[str, Handler],
        options: Options,
        events: Events,
    ) -> None:
        self._client = client
        self._codec = codec
        self._handlers = handlers
        self._kinds = sorted(handlers)
        self._options = options
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._threads = Threads(options.concurrency)
        self._settler = Settler(client, options.lease, events.error, self._gather)
        self._keeper: LeaseKeeper[Running] = LeaseKeeper(
            client, options.lease, self._stop, events.error
        )
        self._running: set[Running] = set()
        self._ended = asyncio.Event()
        """Set when a handler has ended."""
        self._closing = asyncio.Event()
        """Set by the first shutdown: no more claims."""
        self._stopping = asyncio.Event()
        """Set by the second shutdown: handlers are stopped."""

    def shutdown(self) -> None:
        """Ends the run after the running handlers; called again, it stops the handlers."""
        if self._closing.is_set():
            self._stopping.set()
        self._closing.set()

    async def run(self) -> int:
        """Runs jobs until `shutdown`. Returns the number of handlers that had to be stopped.

        Raises the error of the first claim if the server rejects it.
        """
        claims = self._loop.create_task(self._claim_jobs())
        limit = self._loop.create_task(self._grace_period())
        background = [
            self._loop.create_task(self._settler.run()),
            self._loop.create_task(self._keeper.run()),
        ]
        try:
            try:
                await asyncio.wait(
                    [claims, limit, *background], return_when=asyncio.FIRST_COMPLETED
                )
                for task in (claims, *background):
                    if task.done():
                        task.result()  # Raises its error.
                return await self._finish(claims, limit)
            except asyncio.CancelledError:
                # The caller cannot wait for handlers, but their jobs are still settled.
                self.shutdown()
                self.shutdown()
                await self._finish(claims, limit)
                raise
        finally:
            for task in (limit, *background):
                task.cancel()
            self._threads.close()

    async def _grace_period(self) -> None:
        """Returns when handlers must be stopped."""
        await self._closing.wait()
        await _first_of([self._stopping], self._options.grace)

    async def _finish(self, claims: asyncio.Task[None], limit: asyncio.Task[None]) -> int:
        """Waits for the end of the claims and of the handlers, and settles their jobs."""
        while self._running and not limit.done():
            await self._wait_for_end(limit, None)
        stopped = len(self._running)
        for running in list(self._running):
            self._stop(running, "shutdown")
        ends_at = self._loop.time() + STOP_LIMIT
        while self._running and self._loop.time() < ends_at:
            await self._wait_for_end(None, ends_at - self._loop.time())
        for running in self._running:
            self._keeper.remove(running)
            self._events.abandoned(running.job)
        # Jobs that a claim returns now are released. A claim that was cancelled may lease some.
        await asyncio.wait([claims], timeout=max(ends_at - self._loop.time(), 0))
        claims.cancel()
        await self._settler.drain()
        return stopped

    async def _wait_for_end(self, unless: asyncio.Task[None] | None, limit: float | None) -> None:
        """Waits until a handler ends, a task ends, or the limit in seconds is over."""
        self._ended.clear()
        ended = self._loop.create_task(self._ended.wait())
        tasks: list[asyncio.Task[Any]] = [ended] if unless is None else [ended, unless]
        await asyncio.wait(tasks, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()

    # Claims

    async def _claim_jobs(self) -> None:
        accepted = False
        while not self._closing.is_set():
            if len(self._running) >= self._options.concurrency:
                self._ended.clear()
                await _first_of([self._ended, self._closing])
                continue
            await self._gather()
            free = self._options.concurrency - len(self._running)
            claimed_at = time.monotonic()
            try:
                claim = await self._client.claim(
                    self._kinds,
                    worker=self._options.name,
                    max=min(free, MAX_BATCH),
                    lease=f"{self._options.lease * 1000:.0f}ms",
                )
            except RequeueError as error:
                if not accepted and not isinstance(error, (NotDone, OutcomeUnknown)):
                    raise
                self._events.error(error)
                await _first_of([self._closing], CLAIM_PAUSE)
                continue
            accepted = True
            for job in claim.jobs:
                self._start(job, claimed_at)
            for problem in claim.errors.values():
                self._events.error(problem)
            if not claim.jobs:
                await self._wait_for_jobs(failed=bool(claim.errors))

    async def _gather(self) -> None:
        """Lets handlers that are about to end do so before a request is sent for the others."""
        if self._running:
            await asyncio.sleep(GATHER_PAUSE)

    async def _wait_for_jobs(self, failed: bool) -> None:
        """Waits until a claim may return a job, or the worker is shut down."""
        if not failed:
            waiting = self._loop.create_task(self._client.wait(self._kinds, LONGEST_WAIT))
            closing = self._loop.create_task(self._closing.wait())
            await asyncio.wait([waiting, closing], return_when=asyncio.FIRST_COMPLETED)
            closing.cancel()
            waiting.cancel()
            try:
                await waiting
                return
            except asyncio.CancelledError:
                return
            except RequeueError as error:
                self._events.error(error)
        await _first_of([self._closing], CLAIM_PAUSE)

    # Handlers

    def _start(self, claimed: ClaimedJob, claimed_at: float) -> None:
        """Starts the handler of a job.

        The job is released if the worker is shut down, and buried if it cannot be handled.
        """
        if self._closing.is_set():
            self._settler.add(Release(claimed.receipt), lambda final, rejection: None)
            return
        handler = self._handlers.get(claimed.kind)
        try:
            if handler is None:
                raise LookupError(f"there is no handler for jobs of kind {claimed.kind}")
            job = Job(claimed, handler.read(claimed))
        except (LookupError, BodyError) as error:
            self._bury(claimed, error)
            return
        running = Running(job)
        self._running.add(running)
        self._keeper.add(running, claimed.receipt, claimed_at)
        if handler.timeout is not None:
            running.timer = self._loop.call_later(handler.timeout, self._stop, running, "timeout")
        if handler.is_async:
            running.task = self._loop.create_task(_run_coroutine(handler, job))
            # Not in the coroutine: a task that is cancelled before it starts never runs any of it.
            running.task.add_done_callback(partial(self._end_task, running))
        else:
            self._threads.submit(lambda: self._run_function(handler, running))

    def _bury(self, claimed: ClaimedJob, error: BaseException) -> None:
        job = Job(claimed, None)
        reason = cut(f"job of kind {claimed.kind}: {error}")
        self._settler.add(Bury(claimed.receipt, reason), partial(self._settled, job, error))

    def _end_task(self, running: Running, task: asyncio.Task[Ended]) -> None:
        cancelled = Ended(error=asyncio.CancelledError())
        self._end(running, cancelled if task.cancelled() else task.result())

    def _run_function(self, handler: Handler, running: Running) -> Callable[[], None]:
        """Runs in a thread."""
        try:
            ended = Ended(result=handler.function(running.job))
        except BaseException as error:
            ended = Ended(error=error)
        return lambda: self._end(running, ended)

    def _stop(self, running: Running, reason: StopReason) -> None:
        """Asks a handler to end, as far as that is possible."""
        if _SEVERITY.index(reason) > _SEVERITY.index(running.stopped_by):
            running.stopped_by = reason
        if not running.job.stopped:
            running.job._reason = reason  # pyright: ignore[reportPrivateUsage]
            if running.task is not None:
                running.task.cancel()
        if reason == "lease-lost":
            self._events.lost(running.job)

    def _end(self, running: Running, ended: Ended) -> None:
        """Settles a job whose handler has ended, and frees its slot."""
        self._running.discard(running)
        self._keeper.remove(running)
        self._ended.set()
        if running.timer is not None:
            running.timer.cancel()
        job = running.job
        settlement, error = settlement_of(job, ended, running.stopped_by, self._codec)
        if settlement is not None:
            self._settler.add(settlement, partial(self._settled, job, error))

    def _settled(
        self,
        job: Job,
        error: BaseException | None,
        final: Final,
        rejection: RequeueError | None,
    ) -> None:
        error = error or rejection
        if final == "lost":
            self._events.lost(job)
        elif error is not None:
            result = final.result if isinstance(final, SettleDone) else None
            self._events.failure(job, error, result)


async def _run_coroutine(handler: Handler, job: Job) -> Ended:
    function = cast("Callable[[Job], Awaitable[Any]]", handler.function)
    try:
        return Ended(result=await function(job))
    except BaseException as error:
        return Ended(error=error)


async def _first_of(events: list[asyncio.Event], limit: float | None = None) -> None:
    """Waits until one of the events is set, at most for the limit in seconds."""
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    _, pending = await asyncio.wait(tasks, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()

"""The worker: claims jobs and runs your handlers."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType
from typing import Any, TypeVar

from ._body_types import check_type
from ._check import check_name
from ._core import headers, server_url
from ._engine import Engine, Options
from ._events import Events, Next
from ._outcome import Function, Handler
from ._transport import worker_transport
from .async_client import AsyncClient
from .codec import Codec, JsonCodec
from .errors import RequeueError
from .job import Job
from .times import Duration, seconds

F = TypeVar("F", bound=Function)

SIGNALS = (signal.SIGTERM, signal.SIGINT)

CLOSE_LIMIT = 0.1
"""How long tasks that are left at the end of a run may take to be cancelled, in seconds."""


class Worker:
    """Claims jobs and runs handlers, up to `concurrency` of them concurrently.

    ```python
    worker = Worker()

    @worker.job("order.remind")
    def remind(job: Job) -> None:
        send_mail(job.body["to"])

    worker.run()
    ```

    A handler that is an `async def` runs on asyncio, and any other in a thread. If it returns, the
    job is done; a value that it returns is the result. If it raises, the job is retried later.
    `RetryAfter`, `GiveUp` and `RequeueAfter` change that.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        name: str | None = None,
        concurrency: int = 10,
        lease: Duration = "30s",
        grace: Duration = "30s",
        codec: Codec | None = None,
        verify: ssl.SSLContext | bool = True,
        on_failure: Callable[[Job, BaseException, Next], object] | None = None,
        on_dead: Callable[[Job, BaseException], object] | None = None,
        on_lost: Callable[[Job], object] | None = None,
        on_error: Callable[[RequeueError], object] | None = None,
    ) -> None:
        """Creates a worker. `server`, `token`, `codec` and `verify` are those of `Client`.

        - `name`: shown with the jobs that the worker holds; default: host name and process id.
        - `concurrency`: how many handlers run concurrently.
        - `lease`: how soon another worker takes over the jobs of this one if it dies. Leases are
          extended while handlers run.
        - `grace`: how long `shutdown` waits for running handlers before it stops them.
        - `on_failure`: called after a failed attempt was settled, with the job, the error, and
          what is next: `retry`, `dead`, or `unknown` if the response was lost.
        - `on_dead`: called in addition if the job is dead.
        - `on_lost`: called when the lease of a job is lost. The job may run elsewhere.
        - `on_error`: called when a request failed that the worker will repeat.

        Callbacks are called on the event loop, and should return quickly.
        """
        if not isinstance(concurrency, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"concurrency is {concurrency!r}; it must be a whole number")
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}; it must be at least 1")
        self._server = server_url(server)
        headers(token)  # Raises if it is not a token.
        self._token = token
        self._verify = verify
        self._codec: Codec = codec or JsonCodec()
        self._options = Options(
            name or f"{socket.gethostname()}-{os.getpid()}"[-128:],
            concurrency,
            seconds(lease, "lease"),
            seconds(grace, "grace"),
        )
        # A response that arrives after the end of the leases is of no use.
        self._timeout = timedelta(seconds=min(max(5.0, self._options.lease), 30.0))
        self._events = Events(on_failure, on_dead, on_lost, on_error)
        self._handlers: dict[str, Handler] = {}
        self._lock = threading.Lock()
        self._shutdowns = 0
        """How often `shutdown` was called since the last run. Guarded by `_lock`."""
        self._engine: tuple[Engine, asyncio.AbstractEventLoop] | None = None
        """Guarded by `_lock`."""

    def job(
        self, kind: str, *, body: Any = None, timeout: Duration | None = None
    ) -> Callable[[F], F]:
        """Registers the decorated function as the handler of a kind.

        - `body`: the type of `job.body`: a dataclass, a pydantic model, or a type of them such as
          `list[Item]`. A job whose body does not fit is dead, with an error that names the field.
          Default: the body is as it was decoded.
        - `timeout`: a handler that takes longer is stopped, and its job is retried; default: no
          limit.

        Raises `ValueError` if the kind already has a handler, and `TypeError` for a type of body
        that cannot be read.
        """
        if callable(kind):
            raise TypeError(f"{kind!r} is not a kind: write @worker.job('KIND') above the function")
        check_name("kind", kind)
        limit = None if timeout is None else seconds(timeout, "timeout")
        if body is not None:
            check_type(body)

        def register(function: F) -> F:
            if not callable(function):
                raise TypeError(f"the handler of {kind!r} is {function!r}; it must be a function")
            if kind in self._handlers:
                raise ValueError(f"the kind {kind!r} already has a handler")
            self._handlers[kind] = Handler(function, _is_async(function), limit, body)
            return function

        return register

    def run(self) -> int:
        """Runs jobs until SIGTERM, SIGINT or `shutdown`. Returns how many jobs were stopped.

        The first signal ends the run when the running handlers have ended, at most after `grace`.
        The second stops the handlers. The third ends the process. In a thread other than the main
        one, signals are not handled.

        Raises the error of the first claim if the server rejects it, such as `Unauthorized`.
        """
        loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            with self._handled_signals(loop):
                return loop.run_until_complete(self.run_async())
        finally:
            _close(loop)

    async def run_async(self) -> int:
        """Runs jobs on the current event loop until `shutdown`, without handling signals.

        Returns how many jobs were stopped. If it is cancelled, the handlers are stopped first, as
        by a second `shutdown`.
        """
        if not self._handlers:
            raise ValueError("the worker has no handlers: register one with @worker.job(kind)")
        async with AsyncClient(
            self._server,
            token=self._token,
            codec=self._codec,
            verify=self._verify,
            transport=worker_transport(self._server, self._verify),
            timeout=self._timeout,
            retry_for="0s",
        ) as client:
            engine = Engine(client, self._codec, self._handlers, self._options, self._events)
            with self._lock:
                if self._engine is not None:
                    raise RuntimeError("the worker is already running")
                self._engine = engine, asyncio.get_running_loop()
                for _ in range(self._shutdowns):
                    engine.shutdown()
            try:
                return await engine.run()
            finally:
                with self._lock:
                    self._engine = None
                    self._shutdowns = 0

    def shutdown(self) -> None:
        """Ends the run, as a signal does. Can be called from any thread.

        Called a second time, it stops the handlers. A call before the run ends the run as soon as
        it begins.
        """
        with self._lock:
            self._shutdowns += 1
            if self._engine is not None:
                engine, loop = self._engine
                loop.call_soon_threadsafe(engine.shutdown)

    @contextmanager
    def _handled_signals(self, loop: asyncio.AbstractEventLoop) -> Generator[None, None, None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        counter = itertools.count(1)

        def handle(number: int, frame: FrameType | None) -> None:
            # This may interrupt any code, and itself: it must not take a lock.
            loop.call_soon_threadsafe(self.shutdown)
            if next(counter) >= 2:
                for number in SIGNALS:
                    signal.signal(number, signal.SIG_DFL)

        previous = {number: signal.signal(number, handle) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _is_async(function: Function) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Closes an event loop.

    `asyncio.run` would wait for handlers that do not end although they were cancelled.
    """
    if left := asyncio.all_tasks(loop):
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.wait(left, timeout=CLOSE_LIMIT))
    loop.run_until_complete(loop.shutdown_asyncgens())
    asyncio.set_event_loop(None)
    loop.close()

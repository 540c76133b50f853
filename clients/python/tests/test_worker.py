"""What a worker does with jobs, with handlers in threads and on asyncio, against a real server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import LIMIT, until

from requeue_client import (
    Client,
    GiveUp,
    Job,
    Put,
    RequeueError,
    RetryAfter,
    StoredJob,
    Unauthorized,
    Worker,
)
from requeue_client.testing import Server

Events = list[tuple[Any, ...]]


class Run:
    """A worker that runs in a thread, and what it reported."""

    def __init__(self, url: str, mode: str, **options: Any) -> None:
        self.events: Events = []
        self.mode = mode
        self.stopped: int | None = None
        self.error: BaseException | None = None
        self.worker = Worker(
            url,
            on_failure=lambda job, error, next: self.add("failed", job.id, str(error), next),
            on_dead=lambda job, error: self.add("dead", job.id),
            on_lost=lambda job: self.add("lost", job.id),
            on_error=lambda error: self.add("error", type(error).__name__),
            **options,
        )
        self._thread = threading.Thread(target=self._run)

    def add(self, *event: Any) -> None:
        self.events.append(event)

    def has(self, *event: Any) -> bool:
        return any(e[: len(event)] == event for e in self.events)

    def job(self, kind: str, handler: Callable[[Job], Any], **options: Any) -> None:
        """Registers a plain function as a handler in the mode of the test."""

        async def on_loop(job: Job) -> Any:
            return handler(job)

        self.worker.job(kind, **options)(handler if self.mode == "threads" else on_loop)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> int:
        """Waits for the end of the run, and returns what it returned."""
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()
        assert self.stopped is not None
        return self.stopped

    def shutdown(self) -> int:
        self.worker.shutdown()
        return self.finish()

    def close(self) -> None:
        for _ in range(2):
            if self._thread.is_alive():
                self.worker.shutdown()
        if self._thread.ident is not None:
            self._thread.join(LIMIT)

    def _run(self) -> None:
        try:
            self.stopped = self.worker.run()
        except BaseException as error:
            self.error = error


Start = Callable[..., Run]


@pytest.fixture(params=["threads", "asyncio"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start(mode: str, requeue_server: Server) -> Iterator[Start]:
    runs: list[Run] = []

    def run(url: str = requeue_server.url, **options: Any) -> Run:
        runs.append(Run(url, mode, **options))
        return runs[-1]

    yield run
    for started in runs:
        started.close()


def block_until_stopped(run: Run, kind: str, **options: Any) -> None:
    """Registers a handler that runs until it is stopped, in the way of the mode."""

    def in_thread(job: Job) -> None:
        run.add("start", job.id, job.attempt)
        while True:
            time.sleep(0.01)
            if job.stopped:
                run.add("stopped", job.id, job.stop_reason)
            job.check()

    async def on_loop(job: Job) -> None:
        run.add("start", job.id, job.attempt)
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            run.add("stopped", job.id, job.stop_reason)
            raise

    run.worker.job(kind, **options)(in_thread if run.mode == "threads" else on_loop)


def is_gone(client: Client, kind: str) -> bool:
    stats = client.kind(kind)
    return stats.pending + stats.leased + stats.dead == 0


def only_job(client: Client, kind: str) -> StoredJob:
    (job,) = client.list(kind)
    return job


def test_every_job_runs_once_and_is_acked(start: Start, client: Client, kind: str) -> None:
    client.put_many(Put(kind, str(n), {"n": n}) for n in range(100))
    run = start(concurrency=7)
    run.job(kind, lambda job: run.add("ran", job.id, job.body["n"], job.attempt))
    run.start()
    until(lambda: is_gone(client, kind))
    assert run.shutdown() == 0
    assert sorted(run.events, key=lambda e: int(e[1])) == [
        ("ran", str(n), n, 1) for n in range(100)
    ]


def test_a_job_that_is_put_later_wakes_the_worker(start: Start, client: Client, kind: str) -> None:
    run = start()
    run.job(kind, lambda job: run.add("ran", job.id))
    run.start()
    until(lambda: client.stats().waiting_claims > 0)
    client.put(kind, "a")
    until(lambda: run.has("ran", "a"))


def test_the_job_has_what_the_claim_returned(start: Start, client: Client, kind: str) -> None:
    generation = client.put(kind, "a", "text", priority=3).generation
    jobs: list[Job] = []
    run = start(name=f"w-{kind}")
    run.job(kind, jobs.append)
    run.start()
    until(lambda: jobs)
    (job,) = jobs
    assert (job.kind, job.id, job.body, job.priority) == (kind, "a", "text", 3)
    assert (job.attempt, job.generation) == (1, generation)
    assert job.content_type.startswith("text/plain")
    assert job.idempotency_key == f"{kind}/a/{generation}"
    assert job.fence > 0
    assert job.receipt
    assert job.due == job.created_at
    assert not job.stopped
    job.check()
    until(lambda: [w for w in client.workers() if w.name == f"w-{kind}"])


def test_an_exception_retries_the_job_with_its_type_and_message(
    start: Start, client: Client, kind: str
) -> None:
    client.put(kind, "a")
    run = start()

    def handle(job: Job) -> None:
        raise ValueError("x" * 5000)

    run.job(kind, handle)
    run.start()
    until(lambda: run.has("failed"))
    run.shutdown()
    assert run.events[0][3] == "retry"
    job = only_job(client, kind)
    assert (job.state, job.attempts) == ("waiting", 1)
    assert job.failures[0].error == "ValueError: " + "x" * (2048 - len("ValueError: "))


def test_exceptions_that_are_no_errors_fail_the_job_only(
    start: Start, client: Client, kind: str
) -> None:
    errors = {"exit": SystemExit("end"), "interrupt": KeyboardInterrupt(), "gen": GeneratorExit()}
    client.put_many(Put(kind, id) for id in errors)
    run = start()

    def handle(job: Job) -> None:
        raise errors[job.id]

    run.job(kind, handle)
    run.start()
    until(lambda: all(run.has("failed", id) for id in errors))
    assert run.shutdown() == 0


def test_retry_after_determines_the_delay(start: Start, client: Client, kind: str) -> None:
    client.put(kind, "a")
    run = start()

    def handle(job: Job) -> None:
        try:
            raise OSError("no route")
        except OSError as error:
            raise RetryAfter("2h") from error

    run.job(kind, handle)
    run.start()
    until(lambda: run.has("failed", "a"))
    job = only_job(client, kind)
    assert (job.due - job.updated_at).total_seconds() == pytest.approx(7200, abs=1)
    assert job.failures[0].error == "OSError: no route"


def test_a_settlement_that_the_server_rejects_is_a_failure(
    start: Start, client: Client, kind: str
) -> None:
    client.put_many([Put(kind, "late"), Put(kind, "deep"), Put(kind, "good")])
    run = start()

    def handle(job: Job) -> Any:
        if job.id == "late":
            raise RetryAfter("4000 days")
        deep: list[Any] = []
        for _ in range(100 if job.id == "deep" else 0):
            deep = [deep]
        return deep

    run.job(kind, handle)
    run.start()
    until(lambda: run.has("failed", "late") and run.has("failed", "deep"))
    until(lambda: {job.id for job in client.list(kind)} == {"late", "deep"})
    errors = {job.id: job.failures[0].error or "" for job in client.list(kind)}
    assert "rejected" in errors["late"]
    assert "nesting" in errors["deep"]


def test_a_result_that_is_too_large_is_a_failure(start: Start, client: Client, kind: str) -> None:
    client.put(kind, "a")
    run = start()
    run.job(kind, lambda job: "x" * 70000)
    run.start()
    until(lambda: run.has("failed", "a"))
    assert "limit is 65536" in (only_job(client, kind).failures[0].error or "")


def test_a_body_that_cannot_be_decoded_buries_the_job(
    start: Start, client: Client, kind: str
) -> None:
    class Broken:
        content_type = "text/plain"

        def encode(self, value: Any) -> bytes:
            raise NotImplementedError

        def decode(self, data: bytes) -> Any:
            raise LookupError("no such field")

    client.put(kind, "bad", "text")
    client.put(kind, "good", {"n": 1})
    run = start(codec=Broken())
    run.job(kind, lambda job: run.add("ran", job.id))
    run.start()
    until(lambda: run.has("dead", "bad") and run.has("ran", "good"))
    error = client.get(kind, "bad").failures[0].error or ""
    assert kind in error
    assert "no such field" in error
    client.put(kind, "bad", {"n": 2})
    until(lambda: run.has("ran", "bad"))


def test_a_handler_whose_lease_is_lost_is_stopped_and_not_settled(
    start: Start, client: Client, kind: str
) -> None:
    client.put(kind, "a")
    run = start(lease="2s", name=f"w-{kind}")
    block_until_stopped(run, kind)
    run.start()
    until(lambda: run.has("start", "a"))
    client.pause(kind)
    # Another client ends the lease: it has the same receipt.
    client.release(run_receipt(run))
    until(lambda: run.has("stopped", "a", "lease-lost"))
    assert run.has("lost", "a")
    assert run.shutdown() == 0
    assert client.get(kind, "a").state == "ready"
    assert client.get(kind, "a").attempts == 0


def run_receipt(run: Run) -> str:
    """Returns the receipt of the only running job."""
    engine = run.worker._engine  # pyright: ignore[reportPrivateUsage]
    assert engine is not None
    (running,) = engine[0]._running  # pyright: ignore[reportPrivateUsage]
    return running.job.receipt


def test_the_worker_starts_before_the_server(start: Start, kind: str) -> None:
    with Server() as server:
        server.kill()
        run = start(server.url)
        run.job(kind, lambda job: run.add("ran", job.id))
        run.start()
        until(lambda: run.has("error", "ConnectionFailed"))
        server.start()
        server.client.put(kind, "a")
        until(lambda: run.has("ran", "a"))
        assert run.shutdown() == 0


def test_a_first_claim_that_is_rejected_ends_the_worker(
    start: Start, kind: str, tmp_path: Any
) -> None:
    (tmp_path / "tokens").write_text("full correct-horse-battery\n")
    with Server("--tokens", str(tmp_path / "tokens")) as server:
        run = start(server.url, token="wrong")
        run.job(kind, lambda job: None)
        run.start()
        until(lambda: run.error)
        assert isinstance(run.error, Unauthorized)


def test_a_worker_can_run_again(start: Start, client: Client, kind: str) -> None:
    run = start()
    run.job(kind, lambda job: run.add("ran", job.id))
    run.worker.shutdown()
    assert run.worker.run() == 0
    client.put(kind, "a")
    run.start()
    until(lambda: run.has("ran", "a"))


def test_handlers_in_threads_and_on_asyncio_share_a_worker(
    requeue_server: Server, client: Client, kind: str
) -> None:
    threads: list[str] = []
    worker = Worker(requeue_server.url)

    @worker.job(kind)
    def in_thread(job: Job) -> None:
        threads.append(threading.current_thread().name)

    @worker.job(f"{kind}-async")
    async def on_loop(job: Job) -> None:
        threads.append(threading.current_thread().name)

    client.put(kind, "a")
    client.put(f"{kind}-async", "a")
    run = threading.Thread(target=worker.run, name="loop")
    run.start()
    until(lambda: len(threads) == 2)
    worker.shutdown()
    run.join(LIMIT)
    assert sorted(threads) == ["loop", "requeue-1"]


def test_a_cancelled_run_settles_its_jobs(
    requeue_server: Server, client: Client, kind: str
) -> None:
    worker = Worker(requeue_server.url)
    started = asyncio.Event()

    @worker.job(kind)
    async def handle(job: Job) -> None:
        started.set()
        await asyncio.sleep(1000)

    async def main() -> None:
        run = asyncio.create_task(worker.run_async())
        await asyncio.wait_for(started.wait(), LIMIT)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    client.put(kind, "a")
    asyncio.run(main())
    assert only_job(client, kind).state == "ready"


def test_a_coroutine_that_is_stopped_before_it_starts_frees_its_slot(
    requeue_server: Server, client: Client, kind: str
) -> None:
    worker = Worker(requeue_server.url, concurrency=1)

    @worker.job(kind, timeout="0s")
    async def handle(job: Job) -> None:
        await asyncio.sleep(1000)

    client.set_kind(kind, {"backoff": {"base": "1ms", "max": "1ms"}, "max_attempts": 3})
    client.put(kind, "a")
    run = threading.Thread(target=worker.run)
    run.start()
    until(lambda: client.kind(kind).dead == 1)
    worker.shutdown()
    run.join(LIMIT)


def test_a_callback_that_fails_does_not_disturb_the_worker(
    requeue_server: Server, client: Client, kind: str
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("callback")

    worker = Worker(requeue_server.url, on_failure=fail)
    ran: list[str] = []

    @worker.job(kind)
    def handle(job: Job) -> None:
        ran.append(job.id)
        raise GiveUp("enough")

    client.put_many([Put(kind, "a"), Put(kind, "b")])
    run = threading.Thread(target=worker.run)
    run.start()
    until(lambda: client.kind(kind).dead == 2)
    worker.shutdown()
    run.join(LIMIT)
    assert sorted(ran) == ["a", "b"]


def test_a_kind_has_one_handler() -> None:
    worker = Worker()
    worker.job("mail")(print)
    with pytest.raises(ValueError, match="already has a handler"):
        worker.job("mail")(print)


def test_invalid_options_are_rejected() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Worker(concurrency=0)
    with pytest.raises(TypeError, match="needs a unit"):
        Worker(lease=30)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="no handlers"):
        Worker().run()
    assert issubclass(Unauthorized, RequeueError)

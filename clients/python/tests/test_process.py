"""Workers as processes: signals, and what remains of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import LIMIT, until

from requeue_client import Client
from requeue_client.testing import Server

PROGRAM = Path(__file__).with_name("scenario_worker.py")


class Process:
    """A scenario worker, and the events that it printed."""

    def __init__(self, url: str, threads: bool, **options: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(options)],
            env=os.environ | {"REQUEUE_SERVER": url, "SCENARIO_THREADS": str(int(threads))},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._events: list[dict[str, Any]] = []
        self._seen = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            self._events.extend(map(json.loads, lines))

    def wait_for(self, event: str, **fields: Any) -> dict[str, Any]:
        """Waits for an event after those that were waited for before."""

        def matches(event_data: dict[str, Any]) -> bool:
            return event_data["event"] == event and fields.items() <= event_data.items()

        until(lambda: any(map(matches, self._events[self._seen :])))
        while not matches(self._events[self._seen]):
            self._seen += 1
        self._seen += 1
        return self._events[self._seen - 1]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Waits for the end of the process, and returns its exit code."""
        return self._process.wait(LIMIT)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(params=["threads", "asyncio"])
def threads(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "threads")


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.close()


@pytest.fixture
def worker(requeue_server: Server, kind: str, threads: bool, processes: list[Process]) -> Process:
    process = Process(requeue_server.url, threads, kind=kind, lease="30s", grace="1000s")
    processes.append(process)
    return process


def test_the_first_signal_waits_for_running_handlers(
    client: Client, kind: str, worker: Process
) -> None:
    client.put(kind, "a", {"do": "sleep", "for": "500ms"})
    worker.wait_for("start", id="a")
    worker.signal(signal.SIGTERM)
    worker.wait_for("end", id="a", how="return")
    assert worker.wait_for("exit") == {"event": "exit", "stopped": 0}
    assert worker.end() == 0
    assert client.kind(kind).leased == 0


def test_the_second_signal_stops_handlers_and_retries_their_jobs(
    client: Client, kind: str, worker: Process
) -> None:
    client.put(kind, "a", {"do": "block"})
    worker.wait_for("start", id="a")
    worker.signal(signal.SIGINT)
    worker.signal(signal.SIGTERM)
    assert worker.wait_for("stopped", id="a")["why"] == "shutdown"
    assert worker.wait_for("failed", id="a")["next"] == "retry"
    worker.wait_for("exit", stopped=1)
    assert worker.end() == 1
    job = client.get(kind, "a")
    assert (job.state, job.attempts) == ("ready", 1)


def test_the_third_signal_ends_the_process(client: Client, kind: str, worker: Process) -> None:
    client.put(kind, "a", {"do": "stubborn", "for": "1000s"})
    worker.wait_for("start", id="a")
    worker.signal(signal.SIGTERM)
    worker.signal(signal.SIGINT)
    worker.wait_for("stopped", id="a")
    worker.signal(signal.SIGTERM)
    assert worker.end() == -signal.SIGTERM


def test_a_handler_that_does_not_end_keeps_its_lease_and_does_not_delay_the_exit_forever(
    requeue_server: Server, client: Client, kind: str, processes: list[Process]
) -> None:
    ids = ["threads", "asyncio"]
    for id in ids:
        worker = Process(requeue_server.url, id == "threads", kind=kind, concurrency=1)
        processes.append(worker)
        client.put(kind, id, {"do": "stubborn", "for": "1000s"})
        worker.wait_for("start", id=id)
    for worker in processes:
        worker.signal(signal.SIGTERM)
        worker.signal(signal.SIGINT)
    for worker in processes:
        worker.wait_for("exit", stopped=1)
        assert worker.end() == 1
    assert [client.get(kind, id).state for id in ids] == ["leased", "leased"]


def test_another_worker_takes_over_the_job_of_a_killed_worker(
    requeue_server: Server, client: Client, kind: str, threads: bool, processes: list[Process]
) -> None:
    client.put(kind, "a", {"do": "fail_before", "attempt": 2})
    client.put(kind, "b", {"do": "block"})
    first = Process(requeue_server.url, threads, kind=kind, lease="500ms")
    processes.append(first)
    first.wait_for("start", id="b")
    first.signal(signal.SIGKILL)
    first.end()
    second = Process(requeue_server.url, threads, kind=kind, lease="5s")
    processes.append(second)
    assert second.wait_for("start", id="b")["attempt"] >= 2
    client.cancel(kind, "b")
    second.wait_for("stopped", id="b", why="cancelled")
    until(lambda: client.kind(kind).leased + client.kind(kind).pending == 0)
    second.signal(signal.SIGTERM)
    second.wait_for("exit", stopped=0)
    assert second.end() == 0

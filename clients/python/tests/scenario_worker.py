"""A worker for the scenarios that all clients share: it does what the bodies of its jobs say.

    scenario_worker.py '{"kind": "scenario-3", "concurrency": 2, "lease": "600ms"}'

It prints what happens as JSON lines. `SCENARIO_THREADS=1` selects handlers in threads.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Generator
from typing import Any

from requeue_client import Client, GiveUp, Job, Problem, RequeueAfter, RetryAfter, Worker
from requeue_client.times import seconds

POLL = 0.02

printing = threading.Lock()
requeued: set[str] = set()


def emit(event: str, **fields: Any) -> None:
    with printing:
        print(json.dumps({"event": event, **fields}), flush=True)


def end(job: Job, how: str) -> None:
    emit("end", id=job.id, how=how)


def work(job: Job) -> Generator[None, None, Any]:
    """Does what the body says. Yields where it would sleep; its last value is the result."""
    emit("start", id=job.id, attempt=job.attempt, generation=job.generation, fence=job.fence)
    body = job.body
    match body["do"]:
        case "fail":
            end(job, "fail")
            raise RuntimeError(body["error"])
        case "fail_before" if job.attempt < body["attempt"]:
            end(job, "fail")
            raise RuntimeError(f"attempt {job.attempt}")
        case "panic":
            end(job, "fail")
            sys.exit("panic")
        case "give_up":
            end(job, "give_up")
            raise GiveUp(body["reason"])
        case "requeue_after" if job.id not in requeued:
            requeued.add(job.id)
            end(job, "requeue_after")
            raise RequeueAfter(body["delay"])
        case "retry_after" if job.attempt == 1:
            end(job, "retry_after")
            raise RetryAfter(body["delay"], body["error"])
        case "reschedule":
            emit("rescheduled", id=body["id"], result=reschedule(job))
        case "sleep" | "block" | "stubborn":
            ends_at = time.monotonic() + seconds(body.get("for", "1000000s"))
            while time.monotonic() < ends_at:
                yield
        case _:
            pass
    end(job, "return")
    return body.get("result")


def reschedule(job: Job) -> str:
    """Reschedules another job. Returns the outcome, or the name of the problem."""
    change = {name: job.body[name] for name in ("delay", "priority", "body") if name in job.body}
    if job.body.get("if_own_generation"):
        change["if_generation"] = job.generation
    with Client() as client:
        try:
            return client.reschedule(job.kind, job.body["id"], **change).outcome
        except Problem as problem:
            return problem.name


def is_stubborn(job: Job) -> bool:
    return bool(job.body["do"] == "stubborn")


def in_thread(job: Job) -> Any:
    steps = work(job)
    told = False
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value
        time.sleep(POLL)
        if job.stopped and not told:
            told = True
            emit("stopped", id=job.id, why=job.stop_reason)
            if not is_stubborn(job):
                job.check()


async def on_loop(job: Job) -> Any:
    steps = work(job)
    told = False
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value
        try:
            await asyncio.sleep(POLL)
        except asyncio.CancelledError:
            # The end of the event loop cancels a handler that continues a second time.
            if not told:
                emit("stopped", id=job.id, why=job.stop_reason)
            told = True
            if not is_stubborn(job):
                raise


def main() -> int:
    options = json.loads(sys.argv[1])
    worker = Worker(
        name=options.get("name"),
        concurrency=options.get("concurrency", 10),
        lease=options.get("lease", "30s"),
        grace=options.get("grace", "30s"),
        on_failure=lambda job, error, next: emit(
            "failed", id=job.id, attempt=job.attempt, next=next
        ),
        on_lost=lambda job: emit("lost", id=job.id),
        on_error=lambda error: emit("error", message=str(error)),
    )
    handler = in_thread if os.environ.get("SCENARIO_THREADS") == "1" else on_loop
    worker.job(options["kind"], timeout=options.get("timeout"))(handler)
    emit("ready")
    stopped = worker.run()
    emit("exit", stopped=stopped)
    return 1 if stopped else 0


if __name__ == "__main__":
    sys.exit(main())

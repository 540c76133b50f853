"""Measures how fast a Python worker finishes empty jobs.

    drain.py --system requeue-async --jobs 10000 --concurrency 10

The jobs are put first. Then the worker is started as a process of its own, as it is normally run.
The time begins when the first job is done, and ends when all of them are removed from the queue.
Prints one JSON line: `cpu_seconds` is what the worker and its child processes used in that time.

REQUEUE_SERVER and REDIS_URL name servers that are running already. The queues must be empty.

| system | worker |
|---|---|
| requeue-async, requeue-threads | one process, C coroutines or threads; `requeue` is the first |
| rq | `rq worker-pool` with C processes, each of which forks for every job |
| celery | `celery worker` with C processes (prefork, its default) |
| celery-threads | the same with one process and C threads |
| dramatiq | one process with C threads |
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

HERE = Path(__file__).parent
POLL = 0.01
"""Seconds between two looks at the queue."""

LIMIT = 600.0
"""Seconds after which the measurement fails."""


class System(ABC):
    """A queue with a worker."""

    @abstractmethod
    def put(self, jobs: int) -> None:
        """Puts empty jobs."""

    @abstractmethod
    def left(self) -> int:
        """Returns the number of jobs that are not done and removed."""

    @abstractmethod
    def worker(self, concurrency: int) -> list[str]:
        """Returns the command line of the worker."""


class Requeue(System):
    def __init__(self, mode: str) -> None:
        import requeue_client as requeue
        from requeue_jobs import KIND

        self._mode, self._kind, self._requeue = mode, KIND, requeue
        self._client = requeue.Client()

    def put(self, jobs: int) -> None:
        for start in range(0, jobs, 1000):
            ids = range(start, min(start + 1000, jobs))
            self._client.put_many(self._requeue.Put(self._kind, str(id)) for id in ids)

    def left(self) -> int:
        stats = self._client.kind(self._kind)
        return stats.pending + stats.leased

    def worker(self, concurrency: int) -> list[str]:
        return [sys.executable, "requeue_jobs.py", self._mode, str(concurrency)]


class Rq(System):
    def __init__(self) -> None:
        import rq
        from redis import Redis

        self._redis = Redis.from_url(os.environ["REDIS_URL"])
        self._queue = rq.Queue("bench", connection=self._redis)

    def put(self, jobs: int) -> None:
        import rq

        data = [rq.Queue.prepare_data("rq_jobs.empty", result_ttl=0) for _ in range(jobs)]
        for start in range(0, jobs, 1000):
            self._queue.enqueue_many(data[start : start + 1000])

    def left(self) -> int:
        return self._queue.count + self._queue.started_job_registry.get_job_count(cleanup=False)

    def worker(self, concurrency: int) -> list[str]:
        options = ["--url", os.environ["REDIS_URL"], "--num-workers", str(concurrency)]
        return ["rq", "worker-pool", "bench", *options, "--logging-level", "ERROR", "--quiet"]


class Celery(System):
    def __init__(self, pool: str) -> None:
        import celery_jobs
        from redis import Redis

        self._pool, self._jobs = pool, celery_jobs
        self._redis = Redis.from_url(os.environ["REDIS_URL"])

    def put(self, jobs: int) -> None:
        with self._jobs.app.producer_pool.acquire(block=True) as producer:
            for _ in range(jobs):
                self._jobs.empty.apply_async(producer=producer)

    def left(self) -> int:
        return int(self._redis.llen("celery")) + int(self._redis.hlen("unacked"))

    def worker(self, concurrency: int) -> list[str]:
        options = ["--pool", self._pool, "--concurrency", str(concurrency), "--loglevel", "ERROR"]
        return ["celery", "--app", "celery_jobs", "--quiet", "worker", *options]


class Dramatiq(System):
    def __init__(self) -> None:
        import dramatiq_jobs
        from redis import Redis

        self._jobs = dramatiq_jobs
        self._redis = Redis.from_url(os.environ["REDIS_URL"])

    def put(self, jobs: int) -> None:
        for _ in range(jobs):
            self._jobs.empty.send()

    def left(self) -> int:
        return int(self._redis.hlen("dramatiq:default.msgs"))

    def worker(self, concurrency: int) -> list[str]:
        return ["dramatiq", "dramatiq_jobs", "--processes", "1", "--threads", str(concurrency)]


SYSTEMS = {
    "requeue": lambda: Requeue("async"),
    "requeue-async": lambda: Requeue("async"),
    "requeue-threads": lambda: Requeue("threads"),
    "rq": Rq,
    "celery": lambda: Celery("prefork"),
    "celery-threads": lambda: Celery("threads"),
    "dramatiq": Dramatiq,
}


def cpu_seconds(session: int) -> float:
    """Returns the CPU time of all processes of a session, and of their children that ended."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # The process has ended.
        if int(fields[3]) == session:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def wait_until_left(system: System, at_most: int, worker: subprocess.Popen[bytes]) -> None:
    ends_at = time.monotonic() + LIMIT
    while system.left() > at_most:
        if worker.poll() is not None:
            sys.exit(f"the worker ended with code {worker.returncode}")
        if time.monotonic() > ends_at:
            sys.exit(f"jobs are left after {LIMIT:.0f} seconds")
        time.sleep(POLL)


def drain(system: System, jobs: int, concurrency: int) -> tuple[float, float]:
    """Returns the seconds and the CPU seconds until the worker has finished the jobs."""
    if left := system.left():
        sys.exit(f"the queue is not empty: {left} jobs")
    system.put(jobs)
    worker = subprocess.Popen(
        system.worker(concurrency),
        cwd=HERE,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        start_new_session=True,
    )
    try:
        wait_until_left(system, jobs - 1, worker)
        began, cpu_before = time.monotonic(), cpu_seconds(worker.pid)
        wait_until_left(system, 0, worker)
        return time.monotonic() - began, cpu_seconds(worker.pid) - cpu_before
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures how fast a worker finishes empty jobs.")
    parser.add_argument("--system", choices=SYSTEMS, required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--concurrency", type=int, required=True)
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    seconds, cpu = drain(SYSTEMS[options.system](), options.jobs, options.concurrency)
    result = {"system": options.system, "jobs": options.jobs, "seconds": round(seconds, 3)}
    print(json.dumps(result | {"cpu_seconds": round(cpu, 3)}))


if __name__ == "__main__":
    main()

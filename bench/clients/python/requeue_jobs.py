"""A requeue worker with an empty handler: `requeue_jobs.py threads|async CONCURRENCY`."""

import sys

from requeue_client import Job, Worker

KIND = "bench-python"


def main() -> None:
    worker = Worker(concurrency=int(sys.argv[2]))

    def in_thread(job: Job) -> None:
        pass

    async def on_loop(job: Job) -> None:
        pass

    worker.job(KIND)(on_loop if sys.argv[1] == "async" else in_thread)
    worker.run()


if __name__ == "__main__":
    main()

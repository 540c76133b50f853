"""The examples of docs/python.md run as they are."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

from support import LIMIT, until

from requeue_client.testing import Server

PACKAGE = Path(__file__).parents[1]


def programs(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.S)


PRODUCER, WORKER, TYPED, SETUP, TEST = programs(PACKAGE.parents[1] / "docs/python.md")


def run(program: str, server: Server) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-c", program],
        env=os.environ | {"REQUEUE_SERVER": server.url},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_start_has_at_most_15_lines() -> None:
    lines = [line for block in (PRODUCER, WORKER) for line in block.splitlines() if line]
    assert len(lines) <= 15


def test_the_producer_puts_a_job_that_the_worker_runs() -> None:
    with Server() as server:
        with run(PRODUCER, server) as producer:
            assert producer.wait(LIMIT) == 0
        assert server.client.get("order.remind", "order-42").state == "waiting"
        server.client.run_now("order.remind", "order-42")
        worker = run(WORKER, server)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "mail to ann@example.org about order-42\n"
        until(lambda: server.client.kind("order.remind").leased == 0)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(LIMIT) == 0
        worker.stdout.close()
        server.client.delete_kind("order.remind")


def test_the_typed_bodies_are_put_and_run() -> None:
    with Server() as server:
        with run(TYPED, server) as producer:
            assert producer.wait(LIMIT) == 0
        order = server.client.get("order.remind", "order-43").body["order"]
        worker = run(TYPED + "worker.run()\n", server)
        assert worker.stdout is not None
        assert worker.stdout.readline().startswith("mail to ann@example.org about ")
        assert UUID(order)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(LIMIT) == 0
        worker.stdout.close()
        server.client.delete_kind("order.remind")


def test_the_settings_and_the_schedule_are_set() -> None:
    with Server() as server:
        with run(SETUP, server) as setup:
            assert setup.wait(LIMIT) == 0
        assert server.client.settings("order.remind").max_attempts == 5
        assert server.client.schedule("report", "daily").time_zone == "Europe/Berlin"
        server.client.delete_kind("order.remind")
        server.client.delete_kind("report")


def test_the_program_in_the_readme_of_the_project_runs() -> None:
    [program] = programs(PACKAGE.parents[1] / "README.md")
    with Server() as server:
        server.client.change_kind("order.close", {"keep_done": {"for": "1h"}})
        worker = run(program, server)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "closing order-43 not paid\n"
        until(lambda: server.client.get("order.close", "order-43").state == "done")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(LIMIT) == 0
        worker.stdout.close()
        server.client.delete_kind("order.close")


def test_the_fixture_works_in_a_project_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(TEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr

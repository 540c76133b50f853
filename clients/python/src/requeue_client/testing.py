"""A pytest fixture that starts a real server.

```python
def test_an_order_is_reminded(requeue_server):
    requeue_server.client.put("order.remind", "order-42", {"to": "ann@example.org"})
    worker = Worker(requeue_server.url)
    …
```

The program is the one that `REQUEUE_BIN` names, or `requeue` in the `PATH`. The plugin is loaded
by pytest if this package is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pytest

from .client import Client

START_ATTEMPTS = 50
START_PAUSE = 0.1
"""Pause between two attempts in seconds. After a restart, the port may be in use for a moment."""


class Server:
    """A server that listens on a free port of this machine.

    It keeps its jobs in a temporary directory, which is removed at the end. If
    `REQUEUE_TEST_STORE` is the URL of a Redis, it keeps them there, under a prefix of its own.
    """

    def __init__(self, *options: str) -> None:
        """Starts the server with options of `requeue serve`. Returns when it accepts requests.

        Raises `RuntimeError` if the program is missing, or the server does not start.
        """
        self._directory = tempfile.TemporaryDirectory(prefix="requeue-")
        self._log = Path(self._directory.name) / "log"
        self._options = options
        self._listen = "127.0.0.1:0"
        self.url = ""
        """The URL of the server."""
        try:
            self.start()
        except BaseException:
            self._directory.cleanup()
            raise
        self.client = Client(self.url)
        """A client of the server. It is closed with the server."""

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Starts the server again after `kill`, on the same port and with the same jobs."""
        for _ in range(START_ATTEMPTS):
            if self._started():
                return
            time.sleep(START_PAUSE)
        raise RuntimeError(f"the server did not start: {self._log.read_text()}")

    def _started(self) -> bool:
        program = os.environ.get("REQUEUE_BIN") or shutil.which("requeue")
        if program is None:
            raise RuntimeError("there is no requeue program: set REQUEUE_BIN to its path")
        with self._log.open("w") as stderr:
            self._process = subprocess.Popen(
                [
                    *(program, "serve", "--listen", self._listen, "--log", "warn"),
                    *self._store(),
                    *self._options,
                ],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                # Neither the variables of the tests nor their signals are meant for the server.
                env={k: v for k, v in os.environ.items() if not k.startswith("REQUEUE_")},
                start_new_session=True,
            )
        assert self._process.stdout is not None
        match = re.search(r"(https?)://([^\s,]+)", self._process.stdout.readline())
        if match is None:
            self.kill()
            return False
        self._listen = match[2]
        self.url = match[0]
        return True

    def kill(self) -> None:
        """Ends the server as `kill -9` does."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def close(self) -> None:
        """Ends the server, and removes its directory."""
        self.client.close()
        self.kill()
        self._directory.cleanup()

    def _store(self) -> list[str]:
        store = os.environ.get("REQUEUE_TEST_STORE", "")
        if store.startswith("redis"):
            prefix = Path(self._directory.name).name
            return ["--store", store, "--redis-prefix", prefix]
        return ["--data", str(Path(self._directory.name) / "data")]


@pytest.fixture(scope="session")
def requeue_server() -> Iterator[Server]:
    """A server for all tests of the session. Use a kind of its own in each test."""
    with Server() as server:
        yield server

"""A server process for tests, and the HTTP API to fill it and to check what the dashboard did."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote, urlencode

REPOSITORY = Path(__file__).resolve().parents[2]
REQUEUE = os.environ.get("REQUEUE_BIN") or str(REPOSITORY / "target/debug/requeue")

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Runs in a new process: the kernel kills it if the tests are killed and cannot stop it."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ApiError(Exception):
    def __init__(self, status: int, problem: dict) -> None:
        super().__init__(f"{status}: {problem}")
        self.status = status
        self.problem = problem


class Api:
    """The HTTP API, without a client that could hide something."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url
        self.token = token

    def call(self, method: str, path: str, body: object = None) -> object:
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.loads(response.read() or "null")
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, json.loads(error.read() or "null")) from None

    def get(self, path: str, **parameters: object) -> dict:
        return self.call("GET", f"{path}?{urlencode(parameters)}" if parameters else path)

    def kind(self, kind: str) -> dict:
        return self.get(f"/v1/kinds/{quote(kind, safe='')}")

    def set_kind(self, kind: str, **settings: object) -> dict:
        return self.call("PATCH", f"/v1/kinds/{quote(kind, safe='')}", settings)

    def put(self, kind: str, id: str, **job: object) -> dict:
        return self.call("PUT", _job_path(kind, id), job)

    def put_many(self, kind: str, jobs: list[dict]) -> None:
        """Puts any number of jobs, 1000 per request."""
        for start in range(0, len(jobs), 1000):
            batch = {"jobs": jobs[start : start + 1000]}
            results = self.call("POST", f"/v1/kinds/{kind}/jobs", batch)["results"]
            errors = [result for result in results if "error" in result]
            assert not errors, errors[0]

    def job(self, kind: str, id: str) -> dict | None:
        """Returns the job, or None if it does not exist."""
        try:
            return self.get(_job_path(kind, id))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def state(self, kind: str, id: str) -> str | None:
        job = self.job(kind, id)
        return job and job["state"]

    def jobs(self, kind: str, **filter: object) -> list[dict]:
        """Returns all jobs of a kind."""
        jobs, after = [], {}
        while True:
            page = self.get(f"/v1/kinds/{kind}/jobs", limit=1000, **filter, **after)
            jobs += page["jobs"]
            if not page["cursor"]:
                return jobs
            after = {"after": page["cursor"]}

    def claim(self, kind: str, number: int, worker: str = "ann", lease: str = "1h") -> list[dict]:
        """Claims exactly this number of jobs."""
        jobs = []
        while len(jobs) < number:
            wanted = min(1000, number - len(jobs))
            claim = {"kinds": [kind], "max": wanted, "worker": worker, "lease": lease, "wait": "5s"}
            more = self.call("POST", "/v1/claim", claim)["jobs"]
            assert more, f"{kind} has {len(jobs)} ready jobs; {number} are wanted"
            jobs += more
        return jobs

    def settle(self, verb: str, jobs: list[dict], **fields: object) -> None:
        for start in range(0, len(jobs), 1000):
            leases = [{"receipt": job["receipt"], **fields} for job in jobs[start : start + 1000]]
            results = self.call("POST", f"/v1/{verb}", {"leases": leases})["results"]
            errors = [result for result in results if "error" in result]
            assert not errors, errors[0]

    def bury(self, kind: str, id: str, error: str, **job: object) -> None:
        """Puts a job that is dead. No other job of the kind may be ready."""
        self.put(kind, id, **job)
        self.settle("bury", self.claim(kind, 1), error=error)


def _job_path(kind: str, id: str) -> str:
    # A segment `..` would be resolved by proxies and clients, so dots are encoded, too.
    return f"/v1/kinds/{quote(kind, safe='')}/jobs/{quote(id, safe='').replace('.', '%2E')}"


class Server:
    """A server with a directory of its own. It ends with `stop`, or with this process."""

    def __init__(self, *options: str, tokens: str | None = None, log: str = "error") -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="requeue-browser-")
        self._root = Path(self._directory.name)
        self._options = list(options)
        self._log = log
        if tokens is not None:
            path = self._root / "tokens"
            path.write_text(tokens)
            path.chmod(0o600)
            self._options += ["--tokens", str(path)]
        self.start("127.0.0.1:0")
        self.api = Api(self.url)

    def start(self, listen: str) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("REQUEUE_")}
        command = [REQUEUE, "serve", "--listen", listen, "--data", str(self._root / "data")]
        command += ["--json", "--log", self._log, *self._options]
        with open(self._root / "stderr", "ab") as stderr:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                preexec_fn=end_with_parent,
            )
        line = self._process.stdout.readline()
        assert line, f"the server did not start: {self.stderr()}"
        self.url = json.loads(line)["listening"]

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")

    def stderr(self) -> str:
        return (self._root / "stderr").read_text()

    def halt(self) -> None:
        """Stops the process and keeps the data. `start(address)` continues."""
        self._process.terminate()
        self._process.wait(timeout=40)
        self._process.stdout.close()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(timeout=40)
            self._process.stdout.close()
        self._directory.cleanup()

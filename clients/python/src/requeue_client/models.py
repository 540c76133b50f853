"""What the server returns, as frozen dataclasses. Unknown fields of a response are ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from .codec import Body
from .errors import Problem

State = Literal["waiting", "ready", "leased", "dead", "done"]
"""The state of a job. A waiting job is not due yet; a ready job can be claimed."""

PutOutcome = Literal["created", "updated", "kept", "coalesced", "revived"]
ChangeResult = Literal["removed", "ending", "ready", "revived", "other"]
SettleResult = Literal["done", "retry", "dead", "released", "extended", "cancelled", "other"]


@dataclass(frozen=True, slots=True)
class PutDone:
    """The result of a put. `coalesced` means that the put runs after the leased job."""

    outcome: PutOutcome
    generation: int
    """The number of this put, or of the existing job if the outcome is `kept`."""


@dataclass(frozen=True, slots=True)
class SettleDone:
    """The result of settling a lease. `cancelled`: the job was cancelled, and is removed."""

    result: SettleResult
    at: datetime | None = None
    """With `retry`, when the job is due again; with `extended`, when the lease ends."""


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job that is leased to the caller until `lease_ends_at`."""

    kind: str
    id: str
    receipt: str
    """Proves the lease: pass it, or the job, to settle the job."""
    attempt: int
    """1, plus one for each failure."""
    generation: int
    fence: int
    """A fencing token, which increases with every lease of the kind."""
    due: datetime
    lease_ends_at: datetime
    created_at: datetime
    content: Body
    priority: int = 0

    @property
    def body(self) -> Any:
        """The decoded body. Raises `BodyError` if it cannot be decoded."""
        return self.content.value()

    @property
    def idempotency_key(self) -> str:
        """A text that is the same for every attempt at one put of this job."""
        return f"{self.kind}/{self.id}/{self.generation}"


@dataclass(frozen=True, slots=True)
class Claim:
    """The response to a claim."""

    jobs: tuple[ClaimedJob, ...]
    errors: Mapping[str, Problem]
    """The kinds that failed, for example because their Redis node is down."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt."""

    worker: str
    started_at: datetime
    ended_at: datetime
    error: str | None = None
    """`None` if the lease expired."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a job that a worker is running."""

    worker: str
    claimed_at: datetime
    ends_at: datetime
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Successor:
    """The put that runs after the leased job."""

    due: datetime
    generation: int
    content: Body
    priority: int = 0

    @property
    def body(self) -> Any:
        """The decoded body. Raises `BodyError` if it cannot be decoded."""
        return self.content.value()


@dataclass(frozen=True, slots=True)
class Result:
    """The result that a worker returned for a job."""

    content: Body

    @property
    def body(self) -> Any:
        """The decoded result. Raises `BodyError` if it cannot be decoded."""
        return self.content.value()


@dataclass(frozen=True, slots=True)
class Completion:
    """How a job was done, if its kind keeps done jobs."""

    worker: str
    started_at: datetime
    done_at: datetime
    result: Result | None = None


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as the server stores it."""

    kind: str
    id: str
    state: State
    due: datetime
    generation: int
    attempts: int
    """The number of failures since the attempts were last reset."""
    created_at: datetime
    updated_at: datetime
    content: Body
    priority: int = 0
    failures: tuple[Failure, ...] = ()
    """The last five failed attempts, oldest first."""
    deaths: int = 0
    died_at: datetime | None = None
    lease: Lease | None = None
    next: Successor | None = None
    done: Completion | None = None

    @property
    def body(self) -> Any:
        """The decoded body. Raises `BodyError` if it cannot be decoded."""
        return self.content.value()


@dataclass(frozen=True, slots=True)
class BulkChange:
    """The result of changing all jobs that match a filter."""

    matched: int
    changed: int
    failed: int
    """Matching jobs that could not be changed, for example because they are leased."""


@dataclass(frozen=True, slots=True)
class ErrorExample:
    """A job of an error group: the one that died last."""

    id: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """The dead jobs of a kind whose last errors differ only in numbers and ids."""

    count: int
    example: ErrorExample
    first_died_at: datetime
    last_died_at: datetime
    error_group: str | None = None
    """The text of the group, with `*` for numbers and ids; `None` if the leases expired."""


@dataclass(frozen=True, slots=True)
class ErrorGroups:
    """The dead jobs of a kind, grouped by their last error."""

    groups: tuple[ErrorGroup, ...]
    """The largest first."""
    other: int
    """The number of dead jobs in further groups."""
    scanned: int


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delay after a failure: `base`, doubled with each failure up to `max`, with jitter."""

    base: timedelta
    max: timedelta
    jitter_percent: int


@dataclass(frozen=True, slots=True)
class Rate:
    """How many jobs are claimed per time, over all workers."""

    jobs: int
    per: timedelta
    burst: int | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """How long dead jobs are kept, and how many."""

    age: timedelta
    count: int


@dataclass(frozen=True, slots=True)
class KeepDone:
    """How long done jobs are kept, and how many."""

    age: timedelta = field(metadata={"name": "for"})
    count: int


@dataclass(frozen=True, slots=True)
class Push:
    """Where the server sends the jobs of the kind."""

    url: str
    timeout: timedelta | None = None
    concurrency: int | None = None
    format: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a kind."""

    lease: timedelta
    backoff: Backoff
    max_attempts: int
    paused: bool
    retention: Retention
    concurrency: int | None = None
    rate: Rate | None = None
    ageing: timedelta | None = None
    keep_done: KeepDone | None = None
    push: Push | None = None


@dataclass(frozen=True, slots=True)
class KindStats:
    """The counts of a kind, and its settings if it was asked for alone."""

    kind: str
    pending: int
    """The number of waiting and ready jobs."""
    ready: int
    """Counted up to 10,000; then `ready_capped` is true."""
    ready_capped: bool
    leased: int
    dead: int
    paused: bool
    generation: int
    fence: int
    done: int = 0
    oldest_ready: datetime | None = None
    throttled_until: datetime | None = None
    push: bool = False
    settings: Settings | None = None


@dataclass(frozen=True, slots=True)
class KindDeleted:
    """The result of deleting a kind. Leased jobs (`ending`) are removed when their leases end."""

    removed: int
    ending: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule, with its next times."""

    kind: str
    id: str
    content: Body
    jitter: timedelta
    missed: Literal["one", "skip", "all"]
    overlap: Literal["none", "allow"] = "none"
    cron: str | None = None
    every: timedelta | None = None
    time_zone: str | None = None
    priority: int = 0
    catch_up: timedelta | None = None
    paused: bool = False
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    next: datetime | None = None
    """The next run; `None` if the schedule is paused, over, or has a `problem`."""
    next_times: tuple[datetime, ...] = ()
    problem: str | None = None

    @property
    def body(self) -> Any:
        """The decoded body of its jobs. Raises `BodyError` if it cannot be decoded."""
        return self.content.value()


@dataclass(frozen=True, slots=True)
class Upcoming:
    """How many pending jobs become due in each span of time."""

    start: datetime = field(metadata={"name": "from"})
    span: timedelta
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """What is wrong at the node, although it serves requests at least in part."""

    name: str
    since: datetime
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """Totals of all kinds."""

    version: str
    uptime_seconds: int
    kinds: int
    pending: int
    ready: int
    leased: int
    dead: int
    done: int
    waiting_claims: int
    problems: tuple[NodeProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker that has recently claimed jobs from this node."""

    name: str
    kinds: tuple[str, ...]
    first_seen: datetime
    last_seen: datetime
    waiting: int
    claimed: int
    acked: int
    failed: int
    held: int

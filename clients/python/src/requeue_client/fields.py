"""What requests contain: puts, settlements, settings and schedules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Literal, TypedDict

from ._check import check_fields, check_name, check_names
from .codec import Codec, body_fields
from .models import ClaimedJob, State
from .times import Duration, duration_text, rate_fields, time_text

Mode = Literal["replace", "earliest", "keep", "debounce"]
"""What a put does to a job that is already pending."""

Order = Literal["id", "time", "newest"]
"""The order of a list: by id, or by time with the earliest or the latest first."""

Receipt = str | ClaimedJob
"""A lease: its receipt, or the claimed job."""


class Unchanged(Enum):
    """The type of `UNCHANGED`."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED
"""The body of `reschedule` by default: the job keeps the body that it has."""


@dataclass(frozen=True, slots=True)
class Put:
    """A job to put, for `put_many`."""

    kind: str
    id: str
    body: Any = None
    _: KW_ONLY
    due: datetime | None = None
    """The due time, with a time zone; default: now."""
    delay: Duration | None = None
    """The delay until the job is due, instead of `due`."""
    priority: int | None = None
    """0 (default) to 9: ready jobs with a higher priority are claimed first."""
    mode: Mode | None = None
    """What happens if the job is already pending; default: `replace`."""
    max_wait: Duration | None = None
    """Required with `debounce`: how long puts can postpone the job."""
    if_absent: bool = False
    """Fail with `Exists` if the job exists in any state but done."""
    if_new: bool = False
    """Fail with `Exists` if the job exists in any state, including done."""
    if_generation: int | None = None
    """Fail with `OtherGeneration` unless this is the newest generation of the job."""

    @property
    def has_condition(self) -> bool:
        """Whether the put has a condition, so that repeating it may fail."""
        return self.if_absent or self.if_new or self.if_generation is not None


@dataclass(frozen=True, slots=True)
class Ack:
    """The job is done. The result is kept if the kind keeps done jobs."""

    job: Receipt
    result: Any = None


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed: the job is due again after the delay, or the backoff of its kind."""

    job: Receipt
    error: str | None = None
    delay: Duration | None = None


@dataclass(frozen=True, slots=True)
class Bury:
    """The attempt failed, and trying again is pointless: the job is dead."""

    job: Receipt
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Requeue:
    """The job is done, and runs again after the delay."""

    job: Receipt
    delay: Duration


@dataclass(frozen=True, slots=True)
class Release:
    """The job was not started: it returns to the queue, and no attempt is counted."""

    job: Receipt


@dataclass(frozen=True, slots=True)
class Extend:
    """The job takes longer: its lease ends `lease` from now."""

    job: Receipt
    lease: Duration | None = None


Settlement = Ack | Retry | Bury | Requeue | Release | Extend
"""What to do with a lease."""


class BackoffFields(TypedDict, total=False):
    """The backoff of a kind; see `SettingsFields`."""

    base: Duration
    max: Duration
    jitter_percent: int


class RateFields(TypedDict, total=False):
    """The rate limit of a kind; see `SettingsFields`."""

    jobs: int
    per: Duration
    burst: int


class RetentionFields(TypedDict, total=False):
    """How long dead jobs are kept, and how many."""

    age: Duration
    count: int


# In this form, because `for` is a keyword.
KeepDoneFields = TypedDict("KeepDoneFields", {"for": Duration, "count": int}, total=False)
"""How long done jobs are kept, and how many."""


class PushFields(TypedDict, total=False):
    """Where the server sends the jobs of a kind."""

    url: str
    secrets: Sequence[str] | None
    headers: Mapping[str, str | None] | None
    timeout: Duration | None
    concurrency: int | None
    format: Literal["plain", "cloudevents"] | None


class SettingsFields(TypedDict, total=False):
    """The settings of a kind that a request contains.

    `set_kind` gives a missing field its default, `change_kind` does not change it.
    """

    lease: Duration
    backoff: BackoffFields
    max_attempts: int
    concurrency: int | None
    rate: RateFields | str | None
    """Also as text, such as `"10/s"` or `"100/1m"`."""
    ageing: Duration | None
    paused: bool
    retention: RetentionFields
    keep_done: KeepDoneFields | None
    push: PushFields | None


class ScheduleFields(TypedDict, total=False):
    """The fields of a schedule. Either `cron` or `every` is required.

    With `change_schedule`, a missing field stays, and `None` resets a field to its default.
    """

    cron: str | None
    every: Duration | None
    time_zone: str | None
    body: Any
    priority: int | None
    jitter: Duration | None
    missed: Literal["one", "skip", "all"] | None
    catch_up: Duration | None
    overlap: Literal["none", "allow"] | None
    paused: bool | None
    starts_at: datetime | None
    ends_at: datetime | None


def put_fields(put: Put, codec: Codec, within: str = "") -> dict[str, Any]:
    """Returns the object of a put, without its kind and id. `within` is its name in errors."""
    fields = body_fields(put.body, codec)
    if put.due is not None:
        fields["due"] = time_text(put.due, f"{within}due")
    if put.delay is not None:
        fields["delay"] = duration_text(put.delay, f"{within}delay")
    if put.priority is not None:
        fields["priority"] = put.priority
    if put.mode is not None:
        fields["mode"] = put.mode
    if put.max_wait is not None:
        fields["max_wait"] = duration_text(put.max_wait, f"{within}max_wait")
    if put.if_absent:
        fields["if_absent"] = True
    if put.if_new:
        fields["if_new"] = True
    if put.if_generation is not None:
        fields["if_generation"] = put.if_generation
    return fields


def put_list(jobs: Iterable[Put]) -> list[Put]:
    """Returns the puts of a batch as a list. Raises `TypeError` if they are none."""
    if not isinstance(jobs, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"jobs is {jobs!r}; it must be a list of Put")
    return list(jobs)


def batch_fields(puts: Iterable[Put], codec: Codec) -> list[dict[str, Any]]:
    """Returns the objects of a batch of puts."""
    entries: list[dict[str, Any]] = []
    for position, put in enumerate(puts):
        if not isinstance(put, Put):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"jobs[{position}] is {put!r}; it must be a Put")
        check_name(f"jobs[{position}].kind", put.kind)
        check_name(f"jobs[{position}].id", put.id)
        entries.append(
            {"kind": put.kind, "id": put.id, **put_fields(put, codec, f"jobs[{position}].")}
        )
    return entries


def reschedule_fields(
    codec: Codec,
    *,
    due: datetime | None,
    delay: Duration | None,
    priority: int | None,
    body: Any,
    if_generation: int | None,
) -> dict[str, Any]:
    """Returns the object that changes a job."""
    fields: dict[str, Any] = {}
    if due is not None:
        fields["due"] = time_text(due, "due")
    if delay is not None:
        fields["delay"] = duration_text(delay, "delay")
    if priority is not None:
        fields["priority"] = priority
    if body is not UNCHANGED:
        # A missing body is the one that the job has.
        fields |= body_fields(body, codec) or {"body_base64": ""}
    if not fields:
        raise ValueError("nothing to change: specify due, delay, priority or body")
    if if_generation is not None:
        fields["if_generation"] = if_generation
    return fields


def settle_fields(settlement: Settlement, codec: Codec) -> dict[str, Any]:
    """Returns the object of a lease to settle."""
    if not isinstance(settlement, Settlement):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{settlement!r} is not a settlement, such as Ack(job)")
    receipt = getattr(settlement.job, "receipt", settlement.job)
    if not isinstance(receipt, str):
        raise TypeError(f"{settlement.job!r} is not a lease; pass a claimed job or its receipt")
    fields: dict[str, Any] = {"receipt": receipt}
    match settlement:
        case Ack(result=result):
            fields["how"] = "ack"
            if result is not None:
                fields["result"] = body_fields(result, codec)
        case Retry(error=error, delay=delay):
            fields["how"] = "retry"
            if error is not None:
                fields["error"] = error
            if delay is not None:
                fields["delay"] = duration_text(delay, "delay")
        case Bury(error=error):
            fields["how"] = "bury"
            if error is not None:
                fields["error"] = error
        case Requeue(delay=delay):
            fields |= {"how": "requeue", "delay": duration_text(delay, "delay")}
        case Release():
            fields["how"] = "release"
        case Extend(lease=lease):
            fields["how"] = "extend"
            if lease is not None:
                fields["lease"] = duration_text(lease, "lease")
    return fields


def settings_fields(settings: SettingsFields) -> dict[str, Any]:
    """Returns the object of settings."""
    return _object("settings", settings, SettingsFields)


def schedule_fields(schedule: ScheduleFields, codec: Codec) -> dict[str, Any]:
    """Returns the object of a schedule."""
    fields = _object("schedule", schedule, ScheduleFields)
    if "body" in fields:
        fields |= body_fields(fields.pop("body"), codec) or {"body": None}
    return fields


def filter_fields(
    *,
    state: State | None,
    prefix: str | None,
    priority: int | None,
    error: str | None,
    error_group: str | None,
    expired: bool | None,
    died_before: datetime | None,
) -> dict[str, Any]:
    """Returns the fields that select jobs, without those that are `None`."""
    fields = {
        "state": state,
        "prefix": prefix,
        "priority": priority,
        "error": error,
        "error_group": error_group,
        "expired": expired,
        "died_before": None if died_before is None else time_text(died_before, "died_before"),
    }
    return {name: value for name, value in fields.items() if value is not None}


def id_list(ids: Iterable[str]) -> list[str]:
    """Returns ids as a list. Raises `TypeError` or `ValueError` if they are none."""
    return check_names("ids", ids)


_DURATIONS = frozenset(
    [
        "lease",
        "ageing",
        "base",
        "max",
        "per",
        "age",
        "for",
        "timeout",
        "every",
        "jitter",
        "catch_up",
    ]
)
_TIMES = frozenset(["starts_at", "ends_at"])
_OBJECTS = {
    "backoff": BackoffFields,
    "rate": RateFields,
    "retention": RetentionFields,
    "keep_done": KeepDoneFields,
    "push": PushFields,
}


def _object(what: str, values: object, known: Any) -> dict[str, Any]:
    """Returns settings, or the fields of a schedule, with times and durations as text."""
    fields: dict[str, Any] = {}
    for name, value in check_fields(what, values, known.__annotations__).items():
        if value is None:
            fields[name] = None
        elif name in _DURATIONS:
            fields[name] = duration_text(value, f"{what}.{name}")
        elif name in _TIMES:
            fields[name] = time_text(value, f"{what}.{name}")
        elif name == "rate" and isinstance(value, str):
            fields[name] = rate_fields(value, f"{what}.{name}")
        elif name in _OBJECTS:
            fields[name] = _object(f"{what}.{name}", value, _OBJECTS[name])
        else:
            fields[name] = value
    return fields

"""What requests contain: puts, settlements, settings and schedules, as the API expects them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Literal

from ._check import check_fields, check_name, check_names
from .codec import Codec, body_fields
from .models import (
    ClaimedJob,
    Filter,
    Put,
    RescheduleOptions,
    ScheduleFields,
    SettingsFields,
)
from .times import Duration, duration_text, rate_fields, time_text

Order = Literal["id", "time", "newest"]
"""The order of a list: by id, or by time with the earliest or the latest first."""

Receipt = str | ClaimedJob
"""A lease: its receipt, or the claimed job."""


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


def put_fields(put: Put, codec: Codec, within: str = "") -> dict[str, Any]:
    """Returns the object of a put, without its kind and id. `within` is its name in errors."""
    fields = body_fields(put.body, codec)
    for name, default in _put_options():
        value = getattr(put, name)
        if value != default:
            fields[name] = _writers(Put)[name](f"{within}{name}", value)
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


def reschedule_fields(change: RescheduleOptions, codec: Codec) -> dict[str, Any]:
    """Returns the object that changes a job."""
    fields = arguments(RescheduleOptions, {**change, "body": None})
    if "body" in change:
        # A missing body is the one that the job has.
        fields |= body_fields(change["body"], codec) or {"body_base64": ""}
    if fields.keys() <= {"if_generation"}:
        raise ValueError("nothing to change: specify due, delay, priority or body")
    return fields


def settle_fields(settlement: Settlement, codec: Codec) -> dict[str, Any]:
    """Returns the object of a lease to settle."""
    if not isinstance(settlement, Settlement):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{settlement!r} is not a settlement, such as Ack(job)")
    receipt = getattr(settlement.job, "receipt", settlement.job)
    if not isinstance(receipt, str):
        raise TypeError(f"{settlement.job!r} is not a lease; pass a claimed job or its receipt")
    fields: dict[str, Any] = {"receipt": receipt, "how": type(settlement).__name__.lower()}
    if isinstance(settlement, Ack):
        if settlement.result is not None:
            fields["result"] = body_fields(settlement.result, codec)
        return fields
    cls: Any = type(settlement)
    for name, write in _writers(cls).items():
        value = getattr(settlement, name)
        if name != "job" and (value is not None or isinstance(settlement, Requeue)):
            fields[name] = write(name, value)
    return fields


def settings_fields(settings: SettingsFields) -> dict[str, Any]:
    """Returns the object of settings."""
    return _object(SettingsFields, "settings", settings)


def schedule_fields(schedule: ScheduleFields, codec: Codec) -> dict[str, Any]:
    """Returns the object of a schedule."""
    fields = _object(ScheduleFields, "schedule", schedule)
    if "body" in fields:
        fields |= body_fields(fields.pop("body"), codec) or {"body": None}
    return fields


def filter_fields(filter: Filter) -> dict[str, Any]:
    """Returns the fields that select jobs."""
    return arguments(Filter, filter)


def id_list(ids: Iterable[str]) -> list[str]:
    """Returns ids as a list. Raises `TypeError` or `ValueError` if they are none."""
    return check_names("ids", ids)


def arguments(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a call as fields, without those that are `None`."""
    writers = _writers(cls)
    try:
        check_fields("the call", values, writers)
    except ValueError as error:
        raise TypeError(str(error)) from None
    given = {name: value for name, value in values.items() if value is not None}
    return {name: writers[name](name, value) for name, value in given.items()}


Write = Callable[[str, Any], Any]
"""Returns a value as the API expects it. The text is its name in errors."""


def _object(cls: Any, what: str, values: object) -> dict[str, Any]:
    """Returns an object of a request. A field that is `None` is reset."""
    writers = _writers(cls)
    return {
        name: None if value is None else writers[name](f"{what}.{name}", value)
        for name, value in check_fields(what, values, writers).items()
    }


@cache
def _writers(cls: Any) -> dict[str, Write]:
    """Returns how the fields of a class are written, by their types."""
    return {name: _writer(hint) for name, hint in typing.get_type_hints(cls).items()}


def _writer(hint: Any) -> Write:
    types = typing.get_args(hint) or (hint,)
    for inner in types:
        if typing.is_typeddict(inner):
            return lambda what, value: (
                rate_fields(value, what)
                if isinstance(value, str) and str in types
                else _object(inner, what, value)
            )
    if timedelta in types:
        return lambda what, value: duration_text(value, what)
    if datetime in types:
        return lambda what, value: time_text(value, what)
    return lambda what, value: value


@cache
def _put_options() -> list[tuple[str, Any]]:
    """Returns the names and defaults of the options of a put."""
    return [(field.name, field.default) for field in dataclasses.fields(Put) if field.kw_only]

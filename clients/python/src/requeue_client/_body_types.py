"""Bodies with types: what Python values become in JSON, and how JSON becomes a value of a type.

Both directions know the same types. pydantic is not imported: its models are recognised by their
methods.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import cache
from typing import Any, cast
from uuid import UUID

from .times import parse_time

Read = Callable[[Any], Any]
"""Returns a value of JSON as a value of a type. Raises `ValueError` if it is none."""

_SEQUENCES: dict[Any, Callable[[list[Any]], Any]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.Iterable: list,
    collections.abc.Set: frozenset,
}
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def to_plain(value: Any) -> Any:
    """Returns a value that `json` does not know as one that it knows. Raises `TypeError`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if callable(getattr(value, "model_dump", None)) and not isinstance(value, type):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return [*cast("set[Any]", value)]
    if inspect.isawaitable(value):
        raise TypeError(f"{value!r} is not JSON serializable: await it")
    raise TypeError(
        f"{value!r} is not JSON serializable: a body consists of the types of JSON, dataclasses, "
        "pydantic models, UUID, datetime, date, time, Decimal, Enum and sets"
    )


MAX_DEPTH = 200
"""Deeper values contain themselves, or are nested more deeply than any server accepts."""


def json_problem(value: Any, place: str = "", depth: int = 0) -> str | None:
    """Returns what JSON cannot express of a value, with its place, such as `body.items[2]`."""
    name = place.removeprefix(".") or "the value"
    if depth > MAX_DEPTH:
        return f"{name.partition('.')[0]} contains itself, or is nested too deeply"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{name} is {value!r}, which JSON cannot express"
    if value is None or isinstance(value, (str, int, float)):
        return None
    items: Iterable[tuple[str, Any]]
    if isinstance(value, dict):
        entries: dict[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]
        for key in entries:
            if key is not None and not isinstance(key, (str, int, float)):
                return f"{name} has the key {key!r}; in JSON, keys are text"
        items = ((f"{place}.{key}", item) for key, item in entries.items())
    elif isinstance(value, (list, tuple)):
        values = cast("Sequence[Any]", value)
        items = ((f"{place}[{n}]", item) for n, item in enumerate(values))
    else:
        try:
            items = [(place, to_plain(value))]
        except (TypeError, ValueError) as error:
            return f"{name}: {error}"
    problems = (json_problem(item, where, depth + 1) for where, item in items)
    return next((problem for problem in problems if problem is not None), None)


@cache
def reader(hint: Any) -> Read:
    """Returns how values of the type are read. Raises `TypeError` if that is not known."""
    for name, known in _SCALARS.items():
        if hint is known.type:
            return _scalar(name, known)
    if hint is Any or hint is object:
        return lambda value: value
    if callable(getattr(hint, "model_validate_json", None)):
        return _model(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value: _enum(hint, value)
    if isinstance(hint, type) and dataclasses.is_dataclass(cast("Any", hint)):
        return _dataclass(hint)
    if isinstance(hint, typing.NewType):
        return reader(hint.__supertype__)
    return _generic(hint, typing.get_origin(hint) or hint, typing.get_args(hint))


def describe(hint: Any) -> str:
    """Returns the name of a type in messages."""
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


@dataclasses.dataclass(frozen=True, slots=True)
class _Scalar:
    type: Any
    accepts: tuple[type, ...]
    convert: Callable[[Any], Any] | None = None


def _decimal(value: Any) -> Decimal:
    try:
        return Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is not a number") from error


_SCALARS = {
    "text": _Scalar(str, (str,)),
    "an integer": _Scalar(int, (int,)),
    "a number": _Scalar(float, (int, float), float),
    "true or false": _Scalar(bool, (bool,)),
    "null": _Scalar(types.NoneType, (types.NoneType,)),
    "a UUID": _Scalar(UUID, (str,), UUID),
    "a time in ISO 8601": _Scalar(datetime, (str,), parse_time),
    "a date in ISO 8601": _Scalar(date, (str,), date.fromisoformat),
    "a time of day in ISO 8601": _Scalar(time, (str,), time.fromisoformat),
    "a decimal number": _Scalar(Decimal, (str, int, float), _decimal),
}


def _scalar(name: str, scalar: _Scalar) -> Read:
    def read(value: Any) -> Any:
        # For Python, `True` is an integer.
        if not isinstance(value, scalar.accepts) or (
            isinstance(value, bool) and bool not in scalar.accepts
        ):
            raise ValueError(f"{_shown(value)} is not {name}")
        if scalar.convert is None:
            return value
        try:
            return scalar.convert(value)
        except ValueError as error:
            raise ValueError(f"{_shown(value)} is not {name}") from error

    return read


def _model(model: Any) -> Read:
    def read(value: Any) -> Any:
        try:
            # As JSON, so that a strict model accepts the text of a UUID or of a time.
            text = json.dumps(value)
        except TypeError:
            # From a codec for another format.
            text = None
        try:
            return model.model_validate(value) if text is None else model.model_validate_json(text)
        except ValueError as error:
            # A list of what is wrong, in a line, instead of three lines for each field.
            errors = getattr(error, "errors", None)
            if not callable(errors):
                raise
            problems = cast("list[dict[str, Any]]", errors())
            texts = [str(_Mismatch(p["loc"], p["msg"])) if p["loc"] else p["msg"] for p in problems]
            raise ValueError("; ".join(texts)) from error

    return read


def _enum(cls: type[Enum], value: Any) -> Enum:
    for member in cls:
        if member.value == value and isinstance(member.value, bool) == isinstance(value, bool):
            return member
    raise ValueError(f"{_shown(value)} is none of {', '.join(repr(m.value) for m in cls)}")


def _dataclass(cls: Any) -> Read:
    names = [field for field in dataclasses.fields(cls) if field.init]
    required = {
        field.name
        for field in names
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    readers: dict[str, Read] = {}

    def read(value: Any) -> Any:
        if not readers:
            readers.update(_field_readers(cls))
        if not isinstance(value, dict):
            raise ValueError(f"{_shown(value)} is not an object with the fields of {cls.__name__}")
        fields = cast("dict[str, Any]", value)
        if missing := sorted(required - fields.keys()):
            raise _Mismatch((missing[0],), "missing")
        return cls(
            **{
                field.name: _read_at(field.name, readers[field.name], fields[field.name])
                for field in names
                if field.name in fields
            }
        )

    return read


def check_type(hint: Any) -> None:
    """Raises `TypeError` if values of the type, or of one that it contains, cannot be read."""
    seen: set[Any] = set()

    def check(hint: Any) -> None:
        reader(hint)
        if hint in seen:
            return
        seen.add(hint)
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            if extra := _required_beside_fields(hint):
                raise TypeError(
                    f"{describe(hint)}.{extra} has no default, and a body does not contain it: it "
                    "is not a field but an InitVar or another parameter of __init__"
                )
            for name, inner in typing.get_type_hints(hint).items():
                if name in {field.name for field in dataclasses.fields(hint) if field.init}:
                    try:
                        check(inner)
                    except TypeError as error:
                        raise TypeError(f"{describe(hint)}.{name}: {error}") from None
        elif typing.get_origin(hint) is not typing.Literal:
            for inner in typing.get_args(hint):
                if inner is not Ellipsis:
                    check(inner)

    check(hint)


def _required_beside_fields(cls: type) -> str | None:
    """Returns a parameter that must be passed to a dataclass, and that is not one of its fields."""
    fields = {field.name for field in dataclasses.fields(cast("Any", cls)) if field.init}
    for name, parameter in inspect.signature(cls).parameters.items():
        has_value = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is parameter.empty and not has_value and name not in fields:
            return name
    return None


def _field_readers(cls: Any) -> dict[str, Read]:
    # Not before the first value: a dataclass may contain itself.
    hints = typing.get_type_hints(cls)
    return {f.name: reader(hints[f.name]) for f in dataclasses.fields(cls) if f.init}


def _generic(hint: Any, origin: Any, arguments: tuple[Any, ...]) -> Read:
    if origin is typing.Union or origin is types.UnionType:
        return _union(hint, [reader(argument) for argument in arguments])
    if origin is typing.Literal:
        return _literal(arguments)
    if origin is tuple and arguments[-1:] != (Ellipsis,) and arguments:
        return _tuple([reader(argument) for argument in arguments])
    if origin is tuple or origin in _SEQUENCES:
        return _sequence(reader(arguments[0] if arguments else Any), _SEQUENCES.get(origin, tuple))
    if origin in _MAPPINGS:
        key, item = arguments or (str, Any)
        if key is str:
            return _mapping(reader(item))
    raise TypeError(
        f"bodies cannot be read as {describe(hint)}; use a dataclass, a pydantic model, or a type "
        "of them such as list[Item]"
    )


def _union(hint: Any, readers: list[Read]) -> Read:
    def read(value: Any) -> Any:
        problems: list[str] = []
        for reader in readers:
            try:
                return reader(value)
            except ValueError as error:
                problems.append(str(error))
        raise ValueError(", and ".join(dict.fromkeys(problems)))

    return read


def _literal(values: tuple[Any, ...]) -> Read:
    def read(value: Any) -> Any:
        for known in values:
            if known == value and type(known) is type(value):
                return known
        raise ValueError(f"{_shown(value)} is none of {', '.join(map(repr, values))}")

    return read


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{_shown(value)} is not a list")
    return value  # pyright: ignore[reportUnknownVariableType]


def _sequence(read_item: Read, make: Callable[[list[Any]], Any]) -> Read:
    return lambda value: make([_read_at(n, read_item, v) for n, v in enumerate(_items(value))])


def _tuple(readers: list[Read]) -> Read:
    def read(value: Any) -> Any:
        items = _items(value)
        if len(items) != len(readers):
            raise ValueError(f"a list of {len(items)} items is not one of {len(readers)}")
        pairs = zip(readers, items, strict=True)
        return tuple(_read_at(n, reader, item) for n, (reader, item) in enumerate(pairs))

    return read


def _mapping(read_item: Read) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{_shown(value)} is not an object")
        entries = cast("dict[str, Any]", value)
        return {key: _read_at(key, read_item, item) for key, item in entries.items()}

    return read


class _Mismatch(ValueError):
    """A value that is not of its type, with its place in the body: `("items", 0, "price")`."""

    def __init__(self, place: tuple[str | int, ...], problem: str) -> None:
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
        super().__init__(f"{path.removeprefix('.')}: {problem}")
        self.place = place
        self.problem = problem


def _read_at(place: str | int, read: Read, value: Any) -> Any:
    try:
        return read(value)
    except _Mismatch as error:
        raise _Mismatch((place, *error.place), error.problem) from error
    except ValueError as error:
        raise _Mismatch((place,), str(error)) from error


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

"""Decodes responses into the dataclasses of `models`, by the types of their fields."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar, cast

from .codec import Body, Codec
from .errors import Problem, problem_from
from .times import parse_duration, parse_time

T = TypeVar("T")
Convert = Callable[[Any, Codec], Any]


def decode(cls: type[T], data: Mapping[str, Any], codec: Codec) -> T:
    """Returns `data` as a `cls`. Raises `LookupError`, `TypeError` or `ValueError` otherwise."""
    values: dict[str, Any] = {}
    for name, key, convert in _fields(cast(Any, cls)):
        if key is None:
            values[name] = Body(data["content_type"], data, codec)
        elif (value := data.get(key)) is not None:
            values[name] = value if convert is None else convert(value, codec)
    return cls(**values)


def decode_entry(cls: type[T], data: Mapping[str, Any], codec: Codec) -> T | Problem:
    """Returns an entry of the response to a batch: its result, or its problem."""
    error = data.get("error")
    return decode(cls, data, codec) if error is None else problem_from(error)


@cache
def _fields(cls: Any) -> list[tuple[str, str | None, Convert | None]]:
    """Returns name, name in JSON and conversion of each field. A body has no name of its own."""
    hints = typing.get_type_hints(cls)
    return [
        (
            field.name,
            None if hints[field.name] is Body else field.metadata.get("name", field.name),
            _conversion(hints[field.name]),
        )
        for field in dataclasses.fields(cls)
    ]


def _conversion(hint: Any) -> Convert | None:
    """Returns how a JSON value becomes a value of type `hint`, or `None` if it is one."""
    arguments = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return _conversion(next(a for a in arguments if a is not types.NoneType))
    if typing.get_origin(hint) is tuple:
        convert = _conversion(arguments[0])
        if convert is None:
            return lambda value, codec: tuple(value)
        return lambda value, codec: tuple(convert(item, codec) for item in value)
    if hint is datetime:
        return lambda value, codec: parse_time(value)
    if hint is timedelta:
        return lambda value, codec: parse_duration(value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return lambda value, codec: decode(hint, value, codec)
    return None

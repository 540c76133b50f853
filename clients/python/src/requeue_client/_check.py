"""Checks of what a program passes, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, cast
from uuid import UUID


def check_name(what: str, value: object) -> str:
    """Returns a kind or id. Raises `TypeError` or `ValueError` if it is none."""
    if not isinstance(value, str):
        hint = f", such as {str(value)!r}" if isinstance(value, (int, float, UUID)) else ""
        raise TypeError(f"{what} is {value!r}; it must be text{hint}")
    if not value:
        raise ValueError(f"{what} is empty")
    return value


def check_names(what: str, values: Iterable[object]) -> list[str]:
    """Returns kinds or ids as a list. Raises `TypeError` or `ValueError` if they are none."""
    # Text is a list of its characters, which would be ids.
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{what} is {values!r}; it must be a list of texts")
    return [check_name(f"{what}[{position}]", value) for position, value in enumerate(values)]


def check_fields(what: str, values: object, known: Iterable[str]) -> Mapping[str, Any]:
    """Returns the fields of an object. Raises `TypeError` or `ValueError` if one is unknown."""
    names = [*known]
    if not isinstance(values, Mapping):
        raise TypeError(
            f"{what} is {values!r}; it must be a mapping with any of {', '.join(names)}"
        )
    fields = cast("Mapping[str, Any]", values)
    for name in fields:
        if name not in names:
            similar = get_close_matches(str(name), names, 1)
            hint = f"did you mean {similar[0]!r}?" if similar else f"known are {', '.join(names)}"
            raise ValueError(f"{what} has no field {name!r}; {hint}")
    return fields

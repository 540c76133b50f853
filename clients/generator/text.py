"""Descriptions of the document, as comments of a language."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable


def client_text(text: str, values: dict[str, str], rename: Callable[[str], str]) -> str:
    """Returns a description for a client, whose times and durations are no text.

    `values` are the names of `null`, `true` and `false`; `rename` returns the name of a field.
    """
    text = re.sub(r",? in RFC 3339( \(UTC, milliseconds\))?|,? In RFC 3339\.", "", text).strip()

    def word(match: re.Match[str]) -> str:
        name = match[1]
        return f"`{values.get(name) or rename(name)}`"

    return re.sub(r"`(\w+)`", word, text)


def says_more(text: str) -> bool:
    """Returns whether the description of a field says more than its name: "The name of the worker." does not."""
    return len(text.split()) > 5 or "`" in text


def camel(name: str) -> str:
    """Returns `max_wait` as `maxWait`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def table(entries: list[str], width: int = 120) -> str:
    """Returns the entries of an object, as many per line as fit."""
    return "".join(f"{line}\n" for line in wrapped(", ".join(entries) + ",", width, "  ", "", "", ""))


def wrapped(text: str, width: int, indent: str, first: str, rest: str, last: str) -> list[str]:
    """Returns the lines of a comment that begins and ends with these texts."""
    return textwrap.wrap(
        first + text + last,
        width,
        initial_indent=indent,
        subsequent_indent=indent + rest,
        break_long_words=False,
        break_on_hyphens=False,
    )

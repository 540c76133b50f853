"""One result of several responses: each of them groups a part of the dead jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .models import ErrorGroup, ErrorGroups


def merged(pages: Iterable[ErrorGroups]) -> ErrorGroups:
    """Returns the groups of all pages, the largest first."""
    groups: dict[str | None, ErrorGroup] = {}
    other = scanned = 0
    for page in pages:
        other += page.other
        scanned += page.scanned
        for group in page.groups:
            known = groups.get(group.error_group)
            groups[group.error_group] = group if known is None else _sum(known, group)
    ordered = sorted(groups.values(), key=lambda group: (-group.count, group.error_group or ""))
    return ErrorGroups(groups=tuple(ordered), other=other, scanned=scanned)


def _sum(a: ErrorGroup, b: ErrorGroup) -> ErrorGroup:
    newest = max(a, b, key=lambda group: group.last_died_at)
    return replace(
        newest,
        count=a.count + b.count,
        first_died_at=min(a.first_died_at, b.first_died_at),
    )

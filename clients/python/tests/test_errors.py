from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from requeue_client import (
    PROBLEMS,
    LeaseLost,
    NotDone,
    OutcomeUnknown,
    Problem,
)
from requeue_client.errors import problem_from

API = Path(__file__).parents[2] / "openapi.json"


def documented_problems() -> dict[str, int]:
    text = json.loads(API.read_text())["components"]["schemas"]["ProblemType"]["description"]
    rows = re.findall(r"`/v1/problems/([a-z-]+)`: .* \(status (\d+)\)", text)
    return {name: int(status) for name, status in rows}


def test_every_documented_problem_has_a_class() -> None:
    assert set(documented_problems()) == set(PROBLEMS)


@pytest.mark.parametrize(("name", "status"), sorted(documented_problems().items()))
def test_the_status_decides_whether_a_problem_was_not_done_or_is_unknown(
    name: str, status: int
) -> None:
    problem = PROBLEMS[name]
    assert issubclass(problem, NotDone) == (status in (408, 503))
    assert issubclass(problem, OutcomeUnknown) == (status in (500, 504))


def test_a_problem_has_its_context_as_attributes() -> None:
    problem = problem_from(
        {
            "type": "/v1/problems/invalid",
            "title": "invalid request",
            "status": 422,
            "detail": "delay: too long",
            "field": "delay",
            "value": "4000d",
            "min": "0s",
            "limit": "3660d",
            "what": "the delay",
        }
    )
    assert type(problem) is PROBLEMS["invalid"]
    assert str(problem) == "delay: too long"
    assert (problem.name, problem.status, problem.title) == ("invalid", 422, "invalid request")
    assert (problem.field, problem.value, problem.what) == ("delay", "4000d", "the delay")
    assert (problem.min, problem.limit, problem.generation) == ("0s", "3660d", None)


@pytest.mark.parametrize(
    ("status", "not_done", "unknown"),
    [(418, False, False), (408, True, False), (503, True, False), (502, False, True)],
)
def test_a_problem_that_is_not_known_is_classified_by_its_status(
    status: int, not_done: bool, unknown: bool
) -> None:
    problem = problem_from({"type": "/v1/problems/new", "status": status})
    assert isinstance(problem, Problem)
    assert problem.name == "new"
    assert isinstance(problem, NotDone) == not_done
    assert isinstance(problem, OutcomeUnknown) == unknown


def test_a_lost_lease_is_a_rejection() -> None:
    assert not issubclass(LeaseLost, (NotDone, OutcomeUnknown))

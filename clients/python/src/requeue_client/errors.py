"""What can go wrong with a request.

Errors are of three classes, which decide what to do next:

- *rejected*: a `Problem` that is neither of the other two. Nothing was done, and the same request
  fails again.
- `NotDone`: nothing was done. The client has repeated the request for `retry_for`.
- `OutcomeUnknown`: the operation may have been done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class RequeueError(Exception):
    """Base class of all errors of requests."""

    retry_after: float | None = None
    """The number of seconds after which the server asks to try again, if it does."""


class NotDone(RequeueError):
    """Nothing was done. The request can be repeated."""


class OutcomeUnknown(RequeueError):
    """The operation may or may not have been done."""


class ConnectionFailed(NotDone):
    """No connection to the server could be established."""


class ResponseLost(OutcomeUnknown):
    """The request was sent, but no valid response arrived: a broken connection, or a timeout."""


class Problem(RequeueError):
    """An error response of the server: problem details as in RFC 9457.

    There is a subclass for every problem that this version knows. A problem that it does not know
    is a `Problem`, a `ProblemNotDone` or a `ProblemOutcomeUnknown`, depending on its status.
    """

    slug: ClassVar[str] = ""
    """The name of the problem that the class stands for, such as `lease-lost`."""

    def __init__(self, details: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.details = details
        """All fields of the response."""
        self.retry_after = retry_after
        super().__init__(self.detail or self.title)

    @property
    def name(self) -> str:
        """The name of the problem as the server sent it, such as `lease-lost`."""
        return slug_of(self.details)

    @property
    def status(self) -> int:
        """The HTTP status. In a batch: the status that the entry would have alone."""
        return int(self.details.get("status", 0))

    @property
    def title(self) -> str:
        """A summary of the type of problem, such as `lease lost`."""
        return str(self.details.get("title", ""))

    @property
    def detail(self) -> str:
        """What is wrong with this request."""
        return str(self.details.get("detail", ""))

    @property
    def field(self) -> str | None:
        """The field that is wrong, such as `jobs[2].delay`."""
        return self.details.get("field")

    @property
    def value(self) -> Any:
        """The value of that field, or its length."""
        return self.details.get("value")

    @property
    def min(self) -> Any:
        """The lowest allowed value."""
        return self.details.get("min")

    @property
    def limit(self) -> Any:
        """The highest allowed value, length or number."""
        return self.details.get("limit")

    @property
    def what(self) -> str | None:
        """What the limit applies to."""
        return self.details.get("what")

    @property
    def generation(self) -> int | None:
        """With `Exists` and `OtherGeneration`: the newest generation of the job."""
        return self.details.get("generation")


class BatchFailed(RequeueError):
    """Some puts of a batch failed. `results` tells what became of each of them."""

    def __init__(self, puts: Sequence[Any], results: Sequence[Any]) -> None:
        self.results = list(results)
        """A result or a `Problem` for each put, in order."""
        failed = [n for n, result in enumerate(results) if isinstance(result, Problem)]
        first = puts[failed[0]]
        super().__init__(
            f"{len(failed)} of {len(self.results)} puts failed; the first: jobs[{failed[0]}] "
            f"({first.id!r} of kind {first.kind}): {results[failed[0]]}"
        )

    @property
    def problems(self) -> dict[int, Problem]:
        """The problems, by the positions of their puts in the batch."""
        return {n: result for n, result in enumerate(self.results) if isinstance(result, Problem)}


class ProblemNotDone(Problem, NotDone):
    """A problem that this version does not know, with status 503 or 408: nothing was done."""


class ProblemOutcomeUnknown(Problem, OutcomeUnknown):
    """A problem that this version does not know, with another status of 500 and above."""


class Malformed(Problem):
    """The request is not valid JSON, lacks a required field, or has an unknown one."""

    slug = "malformed"


class Unauthorized(Problem):
    """The request has no valid token."""

    slug = "unauthorized"


class Forbidden(Problem):
    """The token is read-only, or the server accepts no requests for this host name."""

    slug = "forbidden"


class NoSuchPath(Problem):
    """No resource has this path. The server may be older than this client."""

    slug = "no-such-path"


class Absent(Problem):
    """The job or schedule does not exist: it was never created, is done, or was removed."""

    slug = "absent"


class WrongMethod(Problem):
    """The path does not support this method. The server may be older than this client."""

    slug = "wrong-method"


class TooSlow(Problem, NotDone):
    """The request was sent too slowly. Nothing was done."""

    slug = "too-slow"


class Exists(Problem):
    """`if_absent` or `if_new`, and the job exists, with `generation`."""

    slug = "exists"


class OtherGeneration(Problem):
    """`if_generation`, and the job does not exist, or has another `generation`."""

    slug = "other-generation"


class LeaseLost(Problem):
    """The receipt no longer leases a job. Stop working on it, and do not undo completed work."""

    slug = "lease-lost"


class Leased(Problem):
    """A worker is running the job, and it has no successor that could be made due."""

    slug = "leased"


class JobDone(Problem):
    """The job is done, and its body is no longer there. Put it again to run it again."""

    slug = "done"


class NotDead(Problem):
    """Only a dead job can be revived."""

    slug = "not-dead"


class NotAllowed(Problem):
    """The operator must start the server with the option that `detail` names."""

    slug = "not-allowed"


class Reserved(Problem):
    """The server uses the kind for itself. Its jobs can be read, but not put or claimed."""

    slug = "reserved"


class Pushed(Problem):
    """The server sends the jobs of this kind to a URL, so workers cannot claim them."""

    slug = "pushed"


class TooLarge(Problem):
    """The request exceeds a limit. Send smaller batches or bodies."""

    slug = "too-large"


class NotJson(Problem):
    """The server did not get the request as JSON. A proxy may have changed it."""

    slug = "not-json"


class Invalid(Problem):
    """The value of `field` is invalid."""

    slug = "invalid"


class Bug(Problem, OutcomeUnknown):
    """An error inside of the server. Please report it, with what the server logged."""

    slug = "bug"


class Busy(Problem, NotDone):
    """Too many requests are in flight. Nothing was done."""

    slug = "busy"


class Stopping(Problem, NotDone):
    """The server is shutting down. Nothing was done."""

    slug = "stopping"


class Unavailable(Problem, NotDone):
    """The store is unavailable. Nothing was done."""

    slug = "unavailable"


class Unknown(Problem, OutcomeUnknown):
    """The store did not confirm the operation, which may or may not have been done."""

    slug = "unknown"


PROBLEMS: Mapping[str, type[Problem]] = {
    problem.slug: problem
    for problem in (
        *(Malformed, Unauthorized, Forbidden, NoSuchPath, Absent, WrongMethod, TooSlow, Exists),
        *(OtherGeneration, LeaseLost, Leased, JobDone, NotDead, NotAllowed, Reserved, Pushed),
        *(TooLarge, NotJson, Invalid, Bug, Busy, Stopping, Unavailable, Unknown),
    )
}
"""The class of each problem, by its name."""


def slug_of(details: Mapping[str, Any]) -> str:
    """Returns the name of a problem from its `type`, such as `/v1/problems/lease-lost`."""
    return str(details.get("type", "")).rpartition("/")[2]


def problem_from(details: Mapping[str, Any], retry_after: float | None = None) -> Problem:
    """Returns the error that problem details describe."""
    known = PROBLEMS.get(slug_of(details))
    if known is not None:
        return known(details, retry_after)
    status = int(details.get("status", 0))
    if status in (408, 503):
        return ProblemNotDone(details, retry_after)
    if status >= 500:
        return ProblemOutcomeUnknown(details, retry_after)
    return Problem(details, retry_after)

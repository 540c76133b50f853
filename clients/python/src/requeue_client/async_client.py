"""The client for asyncio. `client.py` is generated from this file by `scripts/generate`."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, TypeVar, Unpack, overload

import httpx

from . import _core
from ._check import check_name
from ._core import Call, item_path, kind_path, path, query
from ._decode import decode, decode_entry
from ._error_groups import merged
from .codec import Codec, JsonCodec
from .errors import BatchFailed, Problem, RequeueError, problem_from
from .fields import (
    Ack,
    Bury,
    Extend,
    Order,
    Receipt,
    Release,
    Requeue,
    Retry,
    Settlement,
    arguments,
    batch_fields,
    filter_fields,
    id_list,
    put_fields,
    put_list,
    reschedule_fields,
    schedule_fields,
    settings_fields,
    settle_fields,
)
from .models import (
    BulkChange,
    ChangeResult,
    Claim,
    ClaimedJob,
    ClaimOptions,
    ErrorGroups,
    Filter,
    KindDeleted,
    KindStats,
    Put,
    PutDone,
    PutOptions,
    RescheduleOptions,
    Schedule,
    ScheduleFields,
    Settings,
    SettingsFields,
    SettleDone,
    Stats,
    StoredJob,
    Upcoming,
    WorkerInfo,
)
from .times import Duration, duration_text, seconds, time_text

T = TypeVar("T")

PutDones = list[PutDone]
PutResults = list[PutDone | Problem]
SettleResults = list[SettleDone | Problem]
ChangeResults = list[ChangeResult | Problem]
Kinds = list[KindStats]
Schedules = list[Schedule]
Workers = list[WorkerInfo]


class AsyncClient:
    """A client of a requeue server, with the calls of its HTTP API for jobs, kinds and schedules.

    All calls raise a `RequeueError`. A request that was not done is repeated for `retry_for`; one
    whose outcome is unknown only if that is harmless. A client can be shared by any number of
    callers. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        timeout: Duration = "30s",
        retry_for: Duration = "10s",
        codec: Codec | None = None,
        verify: ssl.SSLContext | bool = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Creates a client. It connects when it sends its first request.

        - `server`: the URL, with `http://` or `https://`; default: `REQUEUE_SERVER`, or
          `http://localhost:7654`.
        - `token`: the bearer token; default: `REQUEUE_TOKEN`, or none.
        - `timeout`: how long a response may take.
        - `retry_for`: for how long a request is repeated.
        - `codec`: how bodies are encoded; default: JSON.
        - `verify`: an `ssl.SSLContext` with the certificates to trust; default: those of `httpx`.
        - `transport`: how requests are sent, for example through a Unix socket; `verify` then has
          no effect.
        """
        self._timeout = seconds(timeout, "timeout")
        self._retry_for = seconds(retry_for, "retry_for")
        self._codec: Codec = codec or JsonCodec()
        self._server = _core.server_url(server)
        self._headers = _core.headers(token)
        self._transport = transport
        self._http = httpx.AsyncClient(verify=verify, transport=transport)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        await self._http.aclose()

    async def put(
        self, kind: str, id: str, body: Any = None, **options: Unpack[PutOptions]
    ) -> PutDone:
        """Creates a job, or replaces its body, due time and priority if it exists.

        To change only some of them, use `reschedule`. `Put` describes the options. Raises `Exists`
        or `OtherGeneration` if the condition fails, `Invalid`, `ValueError` if `due` has no time
        zone, and `TypeError` if `delay` is a number or `id` is not text.
        """
        put = Put(kind, id, body, **options)
        return await self._send(
            Call(
                "PUT",
                item_path(kind, "jobs", id),
                self._reader(PutDone),
                json=put_fields(put, self._codec),
                repeat=not put.has_condition,
            )
        )

    @overload
    async def put_many(
        self, jobs: Iterable[Put], *, return_problems: Literal[False] = False
    ) -> PutDones: ...

    @overload
    async def put_many(
        self, jobs: Iterable[Put], *, return_problems: Literal[True]
    ) -> PutResults: ...

    async def put_many(
        self, jobs: Iterable[Put], *, return_problems: bool = False
    ) -> PutDones | PutResults:
        """Puts up to 1000 jobs of any kinds. Returns a result for each of them, in order.

        Raises `BatchFailed` if any of them failed; it contains the results of all. With
        `return_problems`, the result of a put that failed is its `Problem`, and nothing is raised.
        """
        puts = put_list(jobs)
        results: PutResults = await self._send(
            Call(
                "POST",
                path("put"),
                self._entries(PutDone),
                json={"jobs": batch_fields(puts, self._codec)},
                repeat=not any(put.has_condition for put in puts),
            )
        )
        if not return_problems and any(isinstance(result, Problem) for result in results):
            raise BatchFailed(puts, results)
        return results

    async def reschedule(self, kind: str, id: str, **change: Unpack[RescheduleOptions]) -> PutDone:
        """Changes due time, priority or body of a job, and keeps what is not named.

        A waiting or ready job is `updated`. If it is leased, its successor is changed or created:
        `coalesced`. A dead job with a new due time is `revived`. `body=None` is an empty body.
        Raises `Absent`, `JobDone`, `OtherGeneration` or `Invalid`.
        """
        return await self._send(
            Call(
                "PATCH",
                item_path(kind, "jobs", id),
                self._reader(PutDone),
                json=reschedule_fields(change, self._codec),
                repeat=change.get("if_generation") is None,
            )
        )

    async def get(self, kind: str, id: str) -> StoredJob:
        """Returns a job. Raises `Absent` if there is none."""
        return await self._send(Call("GET", item_path(kind, "jobs", id), self._reader(StoredJob)))

    async def list(
        self,
        kind: str,
        *,
        order: Order | None = None,
        page_size: int = 100,
        **filter: Unpack[Filter],
    ) -> AsyncIterator[StoredJob]:
        """Iterates over the jobs of a kind that match every given filter, page by page.

        `Filter` describes the filters. `order` is `id` (default), or with a `state` also `time`
        (earliest first) or `newest`.
        """
        fields = filter_fields(filter)
        if order is not None:
            fields["order"] = order
        fields["limit"] = page_size
        call = Call("GET", kind_path(kind, "jobs"), self._page, query=query(fields))
        async for jobs in self._pages(call):
            for job in jobs:
                yield job

    async def count(self, kind: str, **filter: Unpack[Filter]) -> int:
        """Returns how many jobs `list` returns with this filter.

        With a filter other than `state`, the server examines all jobs of the kind, 10,000 at a
        time.
        """
        fields = query(filter_fields(filter))
        call = Call("GET", kind_path(kind, "count"), _counted, query=fields)
        return sum([matched async for matched in self._pages(call)])

    async def error_groups(self, kind: str) -> ErrorGroups:
        """Groups the dead jobs of a kind by their last error, the largest group first.

        Errors that differ only in numbers and ids are in the same group. Select the jobs of a group
        with `error_group`, or with `expired` if it has no error.
        """
        call = Call("GET", kind_path(kind, "errors"), self._part(ErrorGroups))
        return merged([page async for page in self._pages(call)])

    async def cancel(self, kind: str, id: str) -> ChangeResult:
        """Cancels a job: it is `removed`, or `ending` if a worker is running it.

        Raises `Absent` if there is none.
        """
        return await self._send(
            Call("DELETE", item_path(kind, "jobs", id), _change_result, repeat=False)
        )

    async def run_now(self, kind: str, id: str) -> ChangeResult:
        """Makes a job due now. Raises `Absent`, `Leased` or `JobDone`."""
        return await self._change_one(kind, "run-now", id)

    async def revive(self, kind: str, id: str) -> ChangeResult:
        """Makes a dead job due now and resets its attempts. Raises `Absent` or `NotDead`."""
        return await self._change_one(kind, "revive", id)

    async def cancel_many(self, kind: str, ids: Iterable[str]) -> ChangeResults:
        """Cancels up to 1000 jobs. Returns a result or a `Problem` for each of them."""
        return await self._change_many(kind, "cancel", ids)

    async def run_now_many(self, kind: str, ids: Iterable[str]) -> ChangeResults:
        """Makes up to 1000 jobs due now. Returns a result or a `Problem` for each of them."""
        return await self._change_many(kind, "run-now", ids)

    async def revive_many(self, kind: str, ids: Iterable[str]) -> ChangeResults:
        """Revives up to 1000 dead jobs. Returns a result or a `Problem` for each of them."""
        return await self._change_many(kind, "revive", ids)

    async def cancel_matching(self, kind: str, **filter: Unpack[Filter]) -> BulkChange:
        """Cancels all jobs that `list` returns with this filter."""
        return await self._change_matching(kind, "cancel", filter)

    async def run_now_matching(self, kind: str, **filter: Unpack[Filter]) -> BulkChange:
        """Makes all jobs due now that `list` returns with this filter."""
        return await self._change_matching(kind, "run-now", filter)

    async def revive_matching(self, kind: str, **filter: Unpack[Filter]) -> BulkChange:
        """Revives all dead jobs that `list` returns with this filter."""
        return await self._change_matching(kind, "revive", filter)

    async def claim(self, kinds: str | Sequence[str], **options: Unpack[ClaimOptions]) -> Claim:
        """Leases up to `max` ready jobs (default: 1) to the caller, under the name `worker`.

        `lease` is the duration of the leases; default: the setting of the kind. If no job is
        ready, the call waits up to `wait`; default: it does not wait. It is not repeated if its
        outcome is unknown: jobs may then be leased until their leases expire. `Worker` claims,
        extends and settles for you.
        """
        fields = {"kinds": _core.kind_list(kinds), **arguments(ClaimOptions, options)}
        wait = seconds(options.get("wait") or "0s")
        call = Call("POST", path("claim"), self._claim, json=fields, repeat=False, wait=wait)
        return await self._send(call)

    async def wait(self, kinds: str | Sequence[str], wait: Duration) -> None:
        """Waits until a claim may return a job, at most for `wait`. Claims nothing."""
        fields = {"kinds": _core.kind_list(kinds), "wait": duration_text(wait, "wait")}
        await self._send(Call("POST", path("wait"), _nothing, json=fields, wait=seconds(wait)))

    async def ack(self, job: Receipt, result: Any = None) -> SettleDone:
        """Reports that a job is done. The result is kept if the kind keeps done jobs."""
        return await self._settle_one(Ack(job, result))

    async def retry(
        self, job: Receipt, error: str | None = None, *, delay: Duration | None = None
    ) -> SettleDone:
        """Reports that an attempt failed. The job is due again later, or dead."""
        return await self._settle_one(Retry(job, error, delay))

    async def bury(self, job: Receipt, error: str | None = None) -> SettleDone:
        """Reports that an attempt failed, and that trying again is pointless: the job is dead."""
        return await self._settle_one(Bury(job, error))

    async def requeue(self, job: Receipt, delay: Duration) -> SettleDone:
        """Reports that a job is done, and runs again after the delay."""
        return await self._settle_one(Requeue(job, delay))

    async def release(self, job: Receipt) -> SettleDone:
        """Returns a job that was not started to the queue. No attempt is counted."""
        return await self._settle_one(Release(job))

    async def extend(self, job: Receipt, lease: Duration | None = None) -> SettleDone:
        """Extends a lease: it ends `lease` from now; default: the setting of the kind."""
        return await self._settle_one(Extend(job, lease))

    async def settle(self, settlements: Iterable[Settlement]) -> SettleResults:
        """Settles up to 1000 leases. Returns a result or a `Problem` for each of them.

        The request is repeated if its outcome is unknown. `LeaseLost` may then mean that the first
        one has settled the job.
        """
        leases = [settle_fields(settlement, self._codec) for settlement in settlements]
        return await self._send(
            Call("POST", path("settle"), self._entries(SettleDone), json={"leases": leases})
        )

    async def kinds(self) -> Kinds:
        """Returns the counts of all kinds."""
        return await self._send(Call("GET", path("kinds"), self._items("kinds", KindStats)))

    async def kind(self, kind: str) -> KindStats:
        """Returns the counts and the settings of a kind."""
        return await self._send(Call("GET", kind_path(kind), self._reader(KindStats)))

    async def settings(self, kind: str) -> Settings:
        """Returns the settings of a kind."""
        return await self._send(Call("GET", kind_path(kind, "settings"), self._reader(Settings)))

    async def set_kind(self, kind: str, settings: SettingsFields) -> Settings:
        """Sets all settings of a kind; a missing field gets its default. Returns the settings."""
        fields = settings_fields(settings)
        return await self._send(Call("PUT", kind_path(kind), self._reader(Settings), json=fields))

    async def change_kind(self, kind: str, settings: SettingsFields) -> Settings:
        """Changes only the given settings of a kind. Returns all settings."""
        fields = settings_fields(settings)
        return await self._send(Call("PATCH", kind_path(kind), self._reader(Settings), json=fields))

    async def pause(self, kind: str) -> None:
        """Pauses a kind: no job of it is claimed."""
        await self._send(Call("POST", kind_path(kind, "pause"), _nothing))

    async def resume(self, kind: str) -> None:
        """Ends the pause of a kind."""
        await self._send(Call("POST", kind_path(kind, "resume"), _nothing))

    async def delete_kind(self, kind: str) -> KindDeleted:
        """Removes the schedules, jobs and settings of a kind."""
        removed = ending = 0
        call = Call("DELETE", kind_path(kind), self._part(KindDeleted), repeat=False)
        try:
            async for page in self._pages(call):
                removed += page.removed
                ending += page.ending
        except RequeueError as error:
            _core.raise_if_partial(error, removed + ending, "removed")
            raise
        return KindDeleted(removed=removed, ending=ending)

    async def set_schedule(self, kind: str, id: str, schedule: ScheduleFields) -> Schedule:
        """Creates or replaces a schedule. If its times are the same, its next run stays."""
        fields = schedule_fields(schedule, self._codec)
        return await self._send(
            Call("PUT", item_path(kind, "schedules", id), self._reader(Schedule), json=fields)
        )

    async def change_schedule(self, kind: str, id: str, schedule: ScheduleFields) -> Schedule:
        """Changes only the given fields of a schedule. Raises `Absent` if there is none."""
        fields = schedule_fields(schedule, self._codec)
        return await self._send(
            Call("PATCH", item_path(kind, "schedules", id), self._reader(Schedule), json=fields)
        )

    async def schedule(self, kind: str, id: str) -> Schedule:
        """Returns a schedule. Raises `Absent` if there is none."""
        return await self._send(
            Call("GET", item_path(kind, "schedules", id), self._reader(Schedule))
        )

    async def schedules(self, kind: str) -> Schedules:
        """Returns the schedules of a kind."""
        return await self._send(
            Call("GET", kind_path(kind, "schedules"), self._items("schedules", Schedule))
        )

    async def all_schedules(self) -> Schedules:
        """Returns the schedules of all kinds, sorted by kind and id."""
        call = Call("GET", path("schedules"), self._schedule_page)
        return [schedule async for page in self._pages(call) for schedule in page]

    async def delete_schedule(self, kind: str, id: str) -> None:
        """Removes a schedule; its jobs stay. Raises `Absent` if there is none."""
        await self._send(Call("DELETE", item_path(kind, "schedules", id), _nothing, repeat=False))

    async def run_schedule(self, kind: str, id: str) -> PutDone:
        """Starts a run of a schedule now, in addition to those at its times."""
        target = item_path(kind, "schedules", id, "run")
        return await self._send(Call("POST", target, self._reader(PutDone), repeat=False))

    async def upcoming(
        self,
        kind: str,
        *,
        start: datetime | None = None,
        span: Duration | None = None,
        count: int | None = None,
    ) -> Upcoming:
        """Returns how many jobs become due in each of `count` spans (default: 60 minutes)."""
        fields: dict[str, Any] = {}
        if start is not None:
            fields["from"] = time_text(start, "start")
        if span is not None:
            fields["span"] = duration_text(span, "span")
        if count is not None:
            fields["count"] = count
        target = kind_path(kind, "upcoming")
        return await self._send(Call("GET", target, self._reader(Upcoming), query=query(fields)))

    async def stats(self) -> Stats:
        """Returns totals of all kinds, and the problems of the node."""
        return await self._send(Call("GET", path("stats"), self._reader(Stats)))

    async def workers(self) -> Workers:
        """Returns the workers that have recently claimed jobs from this node."""
        return await self._send(Call("GET", path("workers"), self._items("workers", WorkerInfo)))

    async def _settle_one(self, settlement: Settlement) -> SettleDone:
        fields = settle_fields(settlement, self._codec)
        read = self._only_entry(SettleDone)
        return await self._send(Call("POST", path("settle"), read, json={"leases": [fields]}))

    async def _change_one(self, kind: str, verb: str, id: str) -> ChangeResult:
        def read(data: Any) -> ChangeResult:
            return _change_result(_raise_error(data["results"][0]))

        fields = {"ids": [check_name("id", id)]}
        return await self._send(
            Call("POST", kind_path(kind, verb), read, json=fields, repeat=False)
        )

    async def _change_many(self, kind: str, verb: str, ids: Iterable[str]) -> ChangeResults:
        def read(data: Any) -> ChangeResults:
            return [
                problem_from(entry["error"]) if "error" in entry else entry["result"]
                for entry in data["results"]
            ]

        fields = {"ids": id_list(ids)}
        return await self._send(
            Call("POST", kind_path(kind, verb), read, json=fields, repeat=False)
        )

    async def _change_matching(self, kind: str, verb: str, filter: Filter) -> BulkChange:
        matched = changed = failed = 0
        fields = {"all": filter_fields(filter)}
        target = kind_path(kind, verb)
        call = Call("POST", target, self._part(BulkChange), json=fields, repeat=False)
        try:
            async for page in self._pages(call):
                matched += page.matched
                changed += page.changed
                failed += page.failed
        except RequeueError as error:
            _core.raise_if_partial(error, changed, "changed")
            raise
        return BulkChange(matched=matched, changed=changed, failed=failed)

    def _claim(self, data: Any) -> Claim:
        return Claim(
            tuple(decode(ClaimedJob, job, self._codec) for job in data["jobs"]),
            {entry["kind"]: problem_from(entry["error"]) for entry in data.get("errors", ())},
        )

    def _reader(self, cls: type[T]) -> Callable[[Any], T]:
        return lambda data: decode(cls, data, self._codec)

    def _part(self, cls: type[T]) -> Callable[[Any], tuple[T, str | None]]:
        """Reads one of several responses, which has a cursor unless it is the last."""
        return lambda data: (decode(cls, data, self._codec), data.get("cursor"))

    def _page(self, data: Any) -> tuple[Sequence[StoredJob], str | None]:
        return [decode(StoredJob, job, self._codec) for job in data["jobs"]], data.get("cursor")

    def _schedule_page(self, data: Any) -> tuple[Sequence[Schedule], str | None]:
        return self._items("schedules", Schedule)(data), data.get("cursor")

    def _items(self, name: str, cls: type[T]) -> Callable[[Any], Any]:
        return lambda data: [decode(cls, item, self._codec) for item in data[name]]

    def _entries(self, cls: type[T]) -> Callable[[Any], Any]:
        return lambda data: [decode_entry(cls, entry, self._codec) for entry in data["results"]]

    def _only_entry(self, cls: type[T]) -> Callable[[Any], T]:
        return lambda data: decode(cls, _raise_error(data["results"][0]), self._codec)

    async def _pages(self, call: Call[tuple[T, str | None]]) -> AsyncIterator[T]:
        """Sends a request, and again with the cursor of each response that has one."""
        while True:
            part, cursor = await self._send(call)
            yield part
            if cursor is None:
                return
            call = call.after(cursor)

    async def _send(self, call: Call[T]) -> T:
        """Sends a request until it is done, or until it must not be repeated any more."""
        timeout = httpx.Timeout(self._timeout, read=self._timeout + call.wait)
        repetition = _core.Repetition(self._retry_for, time.monotonic())
        while True:
            request = call.request(self._server, self._headers, timeout)
            try:
                return call.result(await self._exchange(request))
            except httpx.HTTPError as failure:
                error = _core.transport_error(failure, self._server, call.name)
            except RequeueError as failure:
                error = failure
            pause = repetition.pause(error, call.repeat, time.monotonic())
            if pause is None:
                raise repetition.failure(error, call.changes)
            await asyncio.sleep(pause)

    async def _exchange(self, request: httpx.Request) -> httpx.Response:
        if self._transport is None:
            return await self._http.send(request)
        # Directly: redirects, cookies and the like would take a quarter of the CPU time.
        response = await self._transport.handle_async_request(request)
        await response.aread()
        return response


def _counted(data: Any) -> tuple[int, str | None]:
    return data["matched"], data.get("cursor")


def _nothing(data: Any) -> None:
    return None


def _change_result(data: Any) -> ChangeResult:
    result: ChangeResult = data["result"]
    return result


def _raise_error(entry: Any) -> Any:
    """Returns an entry of a batch. Raises its problem if it failed."""
    if "error" in entry:
        raise problem_from(entry["error"])
    return entry

"""Every call of both clients, against a real server."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from requeue_client import (
    Absent,
    Ack,
    AsyncClient,
    BatchFailed,
    Client,
    Exists,
    Extend,
    Invalid,
    JobDone,
    Leased,
    LeaseLost,
    NotDead,
    OtherGeneration,
    Put,
    Release,
    Reserved,
)
from requeue_client.testing import Server


class Blocking:
    """An `AsyncClient` whose calls wait for their result, to run one test with both clients."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = AsyncClient(url)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = getattr(self._client, name)(*arguments, **options)
            if inspect.isasyncgen(result):

                async def collect() -> list[Any]:
                    return [item async for item in result]

                return self._loop.run_until_complete(collect())
            return self._loop.run_until_complete(result)

        return call

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


@pytest.fixture(params=["sync", "async"])
def api(request: pytest.FixtureRequest, requeue_server: Server) -> Iterator[Any]:
    api: Any = (Client if request.param == "sync" else Blocking)(requeue_server.url)
    yield api
    api.close()


def test_both_clients_have_the_same_calls() -> None:
    def calls(cls: type) -> set[str]:
        return {name for name in vars(cls) if not name.startswith("_")}

    assert calls(Client) == calls(AsyncClient)


def test_a_job_is_put_claimed_and_acked(api: Any, kind: str) -> None:
    assert api.put(kind, "order-42", {"to": "ann"}, priority=3).outcome == "created"
    assert api.put(kind, "order-42", {"to": "bob"}, priority=4).outcome == "updated"
    (job,) = api.claim([kind], worker="w", max=10, lease="1m").jobs
    assert (job.kind, job.id, job.body, job.attempt) == (kind, "order-42", {"to": "bob"}, 1)
    assert (job.generation, job.priority) == (2, 4)
    assert job.idempotency_key == f"{kind}/order-42/2"
    assert job.fence > 0
    assert job.due.tzinfo is not None
    assert api.get(kind, "order-42").lease.worker == "w"
    assert api.ack(job).result == "done"
    with pytest.raises(Absent):
        api.get(kind, "order-42")
    with pytest.raises(LeaseLost):
        api.ack(job.receipt)


def test_a_put_is_due_at_its_time_or_after_its_delay(api: Any, kind: str) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    api.put(kind, "a", due=due)
    api.put(kind, "b", delay=timedelta(hours=2))
    api.put(kind, "c", delay="3h")
    first, second, third = list(api.list(kind))
    assert abs(first.due - due) <= timedelta(milliseconds=1)
    assert [job.state for job in (first, second, third)] == ["waiting"] * 3
    assert first.due < second.due < third.due


def test_a_put_without_a_zone_or_unit_is_not_sent(api: Any, kind: str) -> None:
    with pytest.raises(ValueError, match="no time zone"):
        api.put(kind, "a", due=datetime(2030, 1, 1))
    with pytest.raises(TypeError, match="needs a unit"):
        api.put(kind, "a", delay=300)
    with pytest.raises(TypeError, match="id is 42; it must be text"):
        api.put(kind, 42, {})
    with pytest.raises(TypeError, match="needs a unit"):
        api.put_many([Put(kind, "a", delay=1.5)])  # type: ignore[arg-type]
    assert api.kind(kind).pending == 0


def test_a_condition_that_fails_reports_the_generation(api: Any, kind: str) -> None:
    generation = api.put(kind, "a", if_absent=True).generation
    with pytest.raises(Exists) as exists:
        api.put(kind, "a", if_absent=True)
    assert exists.value.generation == generation
    with pytest.raises(Exists):
        api.put(kind, "a", if_new=True)
    with pytest.raises(OtherGeneration) as other:
        api.put(kind, "a", if_generation=generation + 5)
    assert other.value.generation == generation
    assert api.put(kind, "a", if_generation=generation).outcome == "updated"


def test_a_mode_decides_what_happens_to_a_pending_job(api: Any, kind: str) -> None:
    api.put(kind, "a", 1, delay="1h")
    assert api.put(kind, "a", 2, mode="keep").outcome == "kept"
    assert api.put(kind, "a", 3, delay="2h", mode="earliest").outcome == "updated"
    assert api.get(kind, "a").body == 3
    api.put(kind, "a", 4, delay="1h", mode="debounce", max_wait="2h")
    assert api.get(kind, "a").body == 4


def test_an_invalid_put_names_field_value_and_limit(api: Any, kind: str) -> None:
    with pytest.raises(Invalid) as caught:
        api.put(kind, "a", delay="4000 days")
    assert caught.value.field == "delay"
    assert (caught.value.value, caught.value.limit) == ("4000d", "3660d")


def test_a_batch_of_puts_has_a_result_or_problem_for_each(api: Any, kind: str) -> None:
    puts = [Put(kind, "a", {"n": 1}), Put(kind, "b", delay="5"), Put(kind, "c", if_absent=True)]
    first, second, third = api.put_many(puts, return_problems=True)
    assert (first.outcome, third.outcome) == ("created", "created")
    assert isinstance(second, Invalid)
    assert second.field == "jobs[1].delay"


def test_a_batch_of_puts_raises_if_one_of_them_failed(api: Any, kind: str) -> None:
    puts = [Put(kind, "a"), Put(kind, "b", delay="5"), Put(kind, "c"), Put(kind, "d", delay="6")]
    with pytest.raises(BatchFailed) as caught:
        api.put_many(puts)
    first, second, third, _ = caught.value.results
    assert (first.outcome, third.outcome) == ("created", "created")
    assert isinstance(second, Invalid)
    assert [*caught.value.problems] == [1, 3]
    assert str(caught.value).startswith(
        f"2 of 4 puts failed; the first: jobs[1] ('b' of kind {kind}): jobs[1].delay: "
    )
    assert [result.outcome for result in api.put_many([Put(kind, "e")])] == ["created"]


def test_a_list_iterates_over_all_pages(api: Any, kind: str) -> None:
    api.put_many(Put(kind, f"{n:03}", delay="1h") for n in range(25))
    api.put(kind, "other")
    jobs = list(api.list(kind, state="waiting", prefix="0", page_size=10))
    assert [job.id for job in jobs] == [f"{n:03}" for n in range(25)]


def test_a_list_selects_jobs_by_error_and_time_of_death(api: Any, kind: str) -> None:
    api.put_many([Put(kind, "a"), Put(kind, "b")])
    a, b = api.claim(kind, max=2).jobs
    api.bury(a, "mailbox full")
    api.bury(b, "no such address")
    later = datetime.now(UTC) + timedelta(days=1)
    (job,) = api.list(kind, error="ADDRESS", died_before=later)
    assert (job.id, job.failures[0].error) == ("b", "no such address")
    assert not list(api.list(kind, died_before=later - timedelta(days=2)))


def test_jobs_are_selected_counted_and_changed_by_the_same_filters(api: Any, kind: str) -> None:
    api.put_many([Put(kind, "a"), Put(kind, "b", priority=3), Put(kind, "later", delay="1h")])
    for job in api.claim(kind, max=2).jobs:
        api.bury(job, f"order {job.id}1 not found")
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["a", "b", "later"]),
        ({"state": "dead"}, ["a", "b"]),
        ({"prefix": "l"}, ["later"]),
        ({"priority": 3}, ["b"]),
        ({"priority": 0, "state": "dead"}, ["a"]),
        ({"error_group": "order b1 not found"}, ["b"]),
        ({"expired": False}, ["a", "b", "later"]),
        ({"expired": True}, []),
    ]
    for fields, ids in cases:
        assert [job.id for job in api.list(kind, page_size=1, **fields)] == ids, fields
        assert api.count(kind, **fields) == len(ids), fields
    times = [job.id for job in api.list(kind, state="dead", order="time")]
    assert [job.id for job in api.list(kind, state="dead", order="newest")] == times[::-1]
    assert api.revive_matching(kind, priority=3).changed == 1
    assert api.cancel_matching(kind, error_group="order a1 not found").changed == 1
    assert api.cancel_matching(kind, expired=True).matched == 0


def test_dead_jobs_are_grouped_by_their_errors(api: Any, kind: str) -> None:
    api.put_many(Put(kind, f"{n}") for n in range(3))
    for job in api.claim(kind, max=3).jobs:
        api.bury(job, "mailbox full" if job.id == "1" else f"order {job.id} not found")
    found = api.error_groups(kind)
    groups = [(group.error_group, group.count) for group in found.groups]
    assert groups == [("order * not found", 2), ("mailbox full", 1)]
    assert (found.groups[1].example.id, found.other, found.scanned) == ("1", 0, 3)
    assert found.groups[0].first_died_at <= found.groups[0].last_died_at


def test_each_verb_settles_a_lease(api: Any, kind: str) -> None:
    api.put_many(Put(kind, id) for id in ("retry", "bury", "requeue", "release", "extend"))
    jobs = {job.id: job for job in api.claim(kind, max=5).jobs}
    retry = api.retry(jobs["retry"], "mailbox full", delay="10m")
    assert retry.result == "retry"
    assert retry.at > datetime.now(UTC)
    assert api.bury(jobs["bury"], "no such address").result == "dead"
    assert api.requeue(jobs["requeue"], "1d").result == "done"
    assert api.release(jobs["release"]).result == "released"
    extended = api.extend(jobs["extend"], "5m")
    assert extended.result == "extended"
    assert extended.at > jobs["extend"].lease_ends_at
    failed = api.get(kind, "retry")
    assert (failed.attempts, failed.failures[0].error) == (1, "mailbox full")
    assert api.get(kind, "bury").state == "dead"
    assert api.get(kind, "requeue").state == "waiting"
    assert api.get(kind, "release").state == "ready"


def test_a_batch_of_settlements_has_a_result_or_problem_for_each(api: Any, kind: str) -> None:
    api.put_many([Put(kind, "a"), Put(kind, "b")])
    a, b = api.claim(kind, max=2).jobs
    results = api.settle([Ack(a), Release(b.receipt), Extend(a)])
    assert [getattr(result, "result", None) for result in results] == ["done", "released", None]
    assert isinstance(results[2], LeaseLost)


def test_a_result_is_kept_with_the_done_job(api: Any, kind: str) -> None:
    api.change_kind(kind, {"keep_done": {"for": timedelta(days=1)}})
    api.put(kind, "a", if_new=True)
    api.ack(api.claim(kind, worker="w").jobs[0], {"sent": 1})
    done = api.get(kind, "a")
    assert done.state == "done"
    assert (done.done.worker, done.done.result.body) == ("w", {"sent": 1})
    with pytest.raises(Exists):
        api.put(kind, "a", if_new=True)
    with pytest.raises(JobDone):
        api.run_now(kind, "a")


def test_a_put_of_a_leased_job_is_its_successor(api: Any, kind: str) -> None:
    api.put(kind, "a", 1)
    api.claim(kind)
    assert api.put(kind, "a", 2, priority=7).outcome == "coalesced"
    successor = api.get(kind, "a").next
    assert (successor.body, successor.priority) == (2, 7)


def test_single_jobs_are_changed(api: Any, kind: str) -> None:
    api.put(kind, "a", delay="1h")
    assert api.run_now(kind, "a") == "ready"
    with pytest.raises(NotDead):
        api.revive(kind, "a")
    job = api.claim(kind).jobs[0]
    with pytest.raises(Leased):
        api.run_now(kind, "a")
    api.bury(job)
    assert api.revive(kind, "a") == "revived"
    assert api.cancel(kind, "a") == "removed"
    with pytest.raises(Absent):
        api.cancel(kind, "a")


def test_a_cancelled_job_is_reported_to_its_worker(api: Any, kind: str) -> None:
    api.put(kind, "a")
    job = api.claim(kind).jobs[0]
    assert api.cancel(kind, "a") == "ending"
    assert api.get(kind, "a").lease.cancelled
    assert api.extend(job).result == "cancelled"


def test_batches_of_jobs_are_changed(api: Any, kind: str) -> None:
    api.put_many([Put(kind, "a", delay="1h"), Put(kind, "b", delay="1h")])
    assert api.run_now_many(kind, ["a", "b"]) == ["ready", "ready"]
    for job in api.claim(kind, max=2).jobs:
        api.bury(job)
    revived = api.revive_many(kind, ["a", "b", "c"])
    assert revived[:2] == ["revived", "revived"]
    assert isinstance(revived[2], Absent)
    assert api.cancel_many(kind, ["a", "b"]) == ["removed", "removed"]


def test_matching_jobs_are_changed(api: Any, kind: str) -> None:
    api.put_many(Put(kind, f"{n}", delay="1h") for n in range(5))
    assert api.run_now_matching(kind, prefix="1").changed == 1
    api.bury(api.claim(kind).jobs[0], "mailbox full")
    assert api.revive_matching(kind, state="dead", error="mailbox").changed == 1
    cancelled = api.cancel_matching(kind)
    assert (cancelled.matched, cancelled.changed, cancelled.failed) == (5, 5, 0)


def test_a_claim_waits_for_a_job(api: Any, kind: str) -> None:
    api.put(kind, "a", delay="100ms")
    assert len(api.claim(kind, wait="30s").jobs) == 1
    assert api.claim(kind, wait="10ms").jobs == ()


def test_wait_claims_nothing(api: Any, kind: str) -> None:
    api.put(kind, "a")
    api.wait([kind], timedelta(seconds=30))
    assert api.kind(kind).leased == 0


def test_settings_are_set_and_changed(api: Any, kind: str) -> None:
    changed = api.set_kind(kind, {"lease": "1m", "rate": "100/m"})
    assert changed.lease == timedelta(minutes=1)
    assert (changed.rate.jobs, changed.rate.per) == (100, timedelta(minutes=1))
    changed = api.change_kind(
        kind, {"max_attempts": 5, "backoff": {"base": timedelta(seconds=10)}, "rate": None}
    )
    assert (changed.lease, changed.max_attempts) == (timedelta(minutes=1), 5)
    assert (changed.backoff.base, changed.rate) == (timedelta(seconds=10), None)
    assert changed.ageing == timedelta(minutes=10)
    assert api.settings(kind) == api.kind(kind).settings == changed
    changed = api.change_kind(kind, {"rate": {"jobs": 10, "per": timedelta(seconds=1)}})
    assert (changed.rate.jobs, changed.rate.per) == (10, timedelta(seconds=1))
    with pytest.raises(TypeError, match="needs a unit"):
        api.change_kind(kind, {"backoff": {"base": 10}})


def test_a_kind_is_paused_and_resumed(api: Any, kind: str) -> None:
    api.put(kind, "a")
    api.pause(kind)
    assert api.kind(kind).paused
    assert api.claim(kind).jobs == ()
    api.resume(kind)
    assert len(api.claim(kind).jobs) == 1


def test_a_kind_is_counted_and_deleted(api: Any, kind: str) -> None:
    api.put_many([Put(kind, "a"), Put(kind, "b"), Put(kind, "c", delay="1h")])
    api.claim(kind)
    (stats,) = [stats for stats in api.kinds() if stats.kind == kind]
    assert (stats.pending, stats.ready, stats.leased, stats.dead) == (2, 1, 1, 0)
    deleted = api.delete_kind(kind)
    assert (deleted.removed, deleted.ending) == (2, 1)


def test_schedules_are_set_changed_run_and_deleted(api: Any, kind: str) -> None:
    starts_at = datetime(2030, 1, 1, tzinfo=UTC)
    schedule = api.set_schedule(
        kind,
        "daily",
        {"cron": "0 6 * * *", "time_zone": "Europe/Berlin", "body": {"of": "sales"}},
    )
    assert (schedule.cron, schedule.body) == ("0 6 * * *", {"of": "sales"})
    assert len(schedule.next_times) == 5
    assert schedule.next == schedule.next_times[0]
    changed = api.change_schedule(kind, "daily", {"paused": True, "starts_at": starts_at})
    assert (changed.paused, changed.next, changed.starts_at) == (True, None, starts_at)
    assert api.schedule(kind, "daily") == changed
    api.set_schedule(kind, "often", {"every": timedelta(hours=1), "body": "text"})
    assert [schedule.id for schedule in api.schedules(kind)] == ["daily", "often"]
    assert api.schedule(kind, "often").every == timedelta(hours=1)
    everywhere = [(s.kind, s.id) for s in api.all_schedules() if s.kind == kind]
    assert everywhere == [(kind, "daily"), (kind, "often")]
    assert api.run_schedule(kind, "daily").outcome == "created"
    api.delete_schedule(kind, "daily")
    with pytest.raises(Absent):
        api.delete_schedule(kind, "daily")
    with pytest.raises(ValueError, match="no time zone"):
        api.change_schedule(kind, "often", {"starts_at": datetime(2030, 1, 1)})


def test_upcoming_jobs_are_counted_by_time(api: Any, kind: str) -> None:
    api.put(kind, "a", delay="90m")
    upcoming = api.upcoming(kind, span="1h", count=3)
    assert upcoming.counts == (0, 1, 0)
    assert upcoming.span == timedelta(hours=1)
    assert api.upcoming(kind, start=upcoming.start, span="2h", count=1).counts == (1,)


def test_statistics_and_workers_are_returned(api: Any, kind: str) -> None:
    api.put(kind, "a")
    api.claim(kind, worker=f"w-{kind}")
    stats = api.stats()
    assert stats.kinds >= 1
    assert stats.leased >= 1
    (worker,) = [worker for worker in api.workers() if worker.name == f"w-{kind}"]
    assert (worker.kinds, worker.claimed, worker.held) == ((kind,), 1, 1)


def test_a_rejected_request_raises_the_class_of_its_problem(api: Any, kind: str) -> None:
    with pytest.raises(Reserved):
        api.put("requeue.schedules", "a")
    with pytest.raises(Invalid):
        api.claim(kind, lease="1ms")


@pytest.mark.parametrize("id", ["a/b", "..", ".", "ü ✓", "%2F", "?x=1#y", "+"])
def test_any_text_is_an_id(api: Any, kind: str, id: str) -> None:
    api.put(kind, id)
    assert api.get(kind, id).id == id
    assert api.run_now(kind, id) == "ready"
    assert api.cancel(kind, id) == "removed"


def test_a_reschedule_keeps_what_is_not_named(api: Any, kind: str) -> None:
    first = api.put(kind, "a", {"to": "ann"}, delay="1h", priority=3).generation
    due = datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2)))
    moved = api.reschedule(kind, "a", due=due)
    assert moved.outcome == "updated"
    job = api.get(kind, "a")
    assert (job.due, job.priority, job.body) == (due, 3, {"to": "ann"})
    assert job.generation == moved.generation > first

    api.reschedule(kind, "a", body=None)
    job = api.get(kind, "a")
    assert (job.due, job.priority, job.body) == (due, 3, None)
    api.reschedule(kind, "a", priority=5, body=[1], if_generation=job.generation)
    job = api.get(kind, "a")
    assert (job.due, job.priority, job.body) == (due, 5, [1])

    with pytest.raises(OtherGeneration) as caught:
        api.reschedule(kind, "a", delay="1h", if_generation=first)
    assert caught.value.generation == job.generation
    with pytest.raises(Absent):
        api.reschedule(kind, "b", delay="1h")
    with pytest.raises(ValueError, match="no time zone"):
        api.reschedule(kind, "a", due=datetime(2030, 1, 1))


def test_leased_dead_and_done_jobs_are_rescheduled(api: Any, kind: str) -> None:
    api.change_kind(kind, {"keep_done": {}})
    api.put(kind, "a", "body")
    job = api.claim(kind).jobs[0]
    assert api.reschedule(kind, "a", delay="0s").outcome == "coalesced"
    api.ack(job)
    job = api.claim(kind).jobs[0]
    assert job.body == "body"
    api.bury(job, "no such address")
    assert api.reschedule(kind, "a", priority=9).outcome == "updated"
    assert api.get(kind, "a").state == "dead"
    assert api.reschedule(kind, "a", delay="0s").outcome == "revived"
    job = api.claim(kind).jobs[0]
    assert (job.body, job.attempt) == ("body", 1)
    api.ack(job)
    with pytest.raises(JobDone):
        api.reschedule(kind, "a", delay="1h")

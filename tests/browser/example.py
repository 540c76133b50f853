"""Example data: 0, 1 or 10,000 jobs."""

from __future__ import annotations

from pages import all_pages, link
from server import Api

ERRORS = [
    "card 4711 was declined",
    "timeout after 30s",
    "<b>mailbox full</b>",
]

KIND, ID = "mail.with-a-long-name", "a-rather-long-id-of-a-job-without-any-spaces-in-it-0123456789"
DEAD = "another-long-id-of-a-job-that-is-dead-0123456789"
# Every page of what `fill_every_page` puts.
PAGES = [
    *all_pages(KIND, ID),
    *(link("job", kind=KIND, id=id) for id in (DEAD, "leased", "done", "attempted")),
    "job?kind=nobody&id=nobody",
    "?due=week",
    "?sort=trouble",
    *(link("go", q=text) for text in ("nothing-has-this-name", "a")),
]


def fill_every_page(api: Api) -> None:
    """Something on every page: a long error, a paused kind, a successor, a schedule, a webhook."""
    error = "connect to https://example.com/a/very/long/path?with=parameters: " + "x" * 200
    api.put(KIND, DEAD, body_text="y" * 300)
    api.settle("bury", api.claim(KIND, 1, worker="worker-with-a-rather-long-name-0123456789"), error=error)
    api.set_kind(KIND, keep_done={"for": "1d"}, rate={"jobs": 100, "per": "1m"})
    api.put(KIND, "done")
    api.settle("ack", api.claim(KIND, 1), result={"body": {"pages": 3}})
    api.put(KIND, "leased")
    api.claim(KIND, 1)
    api.put(KIND, "leased", body={"again": True})
    api.put(KIND, ID, body={"to": ["ann", 1, None, {"deep": "z" * 100}]}, delay="10m")
    api.put(KIND, "attempted")
    api.settle("retry", api.claim(KIND, 1), error="timeout after 30s", delay="1h")
    api.put(KIND, "ready", priority=5)
    # A worker whose leases expire.
    api.set_kind("hang", max_attempts=9, backoff={"base": "1ms", "max": "1ms"})
    api.put_many("hang", [{"id": str(n)} for n in range(3)])
    api.claim("hang", 3, worker="worker-that-hangs-0123456789", lease="10ms")
    api.put("paused", "a")
    api.call("POST", "/v1/kinds/paused/pause")
    api.call("PUT", "/v1/kinds/report/schedules/daily", {"cron": "0 6 * * *", "time_zone": "Europe/Berlin"})
    api.set_kind("hook", paused=True, push={"url": "https://example.com/a/rather/long/path/of/a/webhook"})


def fill(api: Api, number: int) -> None:
    if number == 1:
        api.put("mail", "only", body={"to": "ann"}, delay="1h")
    elif number == 10_000:
        _ten_thousand(api)


def _ten_thousand(api: Api) -> None:
    """10,000 jobs: 4500 waiting, 2000 ready, 500 leased, 2000 dead, 1000 done."""
    # In three to four hours.
    waiting = [{"id": f"w{n:04}", "body": {"n": n}, "delay": f"{n + 10_800}s"} for n in range(3000)]
    api.put_many("mail", waiting)
    api.put_many("mail", [{"id": f"r{n:04}", "body_text": f"text {n}"} for n in range(2000)])
    api.put_many("sms", [{"id": f"s{n:04}", "priority": n % 10, "delay": "3h"} for n in range(1500)])

    api.set_kind("invoice", backoff={"base": "1h"})
    api.put_many("invoice", [{"id": f"i{n:04}"} for n in range(2500)])
    claimed = api.claim("invoice", 2500, worker="billing")
    for n, error in enumerate(ERRORS):
        # 1000, 600 and 400 jobs.
        start, end = [(0, 1000), (1000, 1600), (1600, 2000)][n]
        api.settle("bury", claimed[start:end], error=error)
    # A job that was put again while a worker holds it.
    api.put("invoice", claimed[2000]["id"], body={"again": True})

    api.set_kind("report", keep_done={"for": "1d"})
    api.put_many("report", [{"id": f"d{n:04}"} for n in range(1000)])
    done = api.claim("report", 1000, worker="reports")
    api.settle("ack", done, result={"body": {"pages": 3}})
    api.call("PUT", "/v1/kinds/report/schedules/daily", {"cron": "0 6 * * *", "time_zone": "Europe/Berlin"})

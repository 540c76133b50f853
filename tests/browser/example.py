"""Example data: 0, 1 or 10,000 jobs."""

from __future__ import annotations

from server import Api

ERRORS = [
    "card 4711 was declined",
    "timeout after 30s",
    "<b>mailbox full</b>",
]


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

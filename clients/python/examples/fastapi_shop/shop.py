"""A shop with FastAPI: a customer is reminded of an order that was not paid.

uvicorn shop:app        the web application
python shop.py          the worker
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from requeue_client import Absent, AsyncClient, Job, Worker

REMIND_AFTER = os.environ.get("REMIND_AFTER", "5m")


class Order(BaseModel):
    """An order of the shop."""

    customer: str
    amount: float
    paid: bool = False


class Reminder(BaseModel):
    """The body of a job: whom to remind of an order. The id of the job is that of the order."""

    to: str


orders: dict[str, Order] = {}
"""Stands for a database. Web application and worker would share a real one."""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncClient() as client:
        app.state.jobs = client
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{id}", status_code=201)
async def place(id: str, order: Order) -> Order:
    orders[id] = order
    # With the id of the order, placing it twice moves the reminder instead of adding one.
    reminder = Reminder(to=order.customer)
    await app.state.jobs.put("order.remind", id, reminder, delay=REMIND_AFTER)
    return order


@app.post("/orders/{id}/payment")
async def pay(id: str) -> Order:
    if id not in orders:
        raise HTTPException(404, "no such order")
    orders[id].paid = True
    with suppress(Absent):  # The reminder was sent already.
        await app.state.jobs.cancel("order.remind", id)
    return orders[id]


worker = Worker()
sent: list[tuple[str, str]] = []
"""The mails that were sent: to whom, and about which order."""


@worker.job("order.remind", body=Reminder, timeout="30s")
async def remind(job: Job) -> None:
    reminder: Reminder = job.body
    sent.append((reminder.to, job.id))
    print(f"mail to {reminder.to}: please pay order {job.id}")


if __name__ == "__main__":
    raise SystemExit(1 if worker.run() else 0)

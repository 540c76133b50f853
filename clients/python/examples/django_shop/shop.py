"""A shop with Django in one file: a customer is reminded of an order that was not paid.

python shop.py migrate --run-syncdb
python shop.py runserver
python shop.py runworker
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any

import django
from django.conf import settings

if not settings.configured:
    settings.configure(
        SECRET_KEY=os.environ.get("SECRET_KEY", "only for the example"),
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        INSTALLED_APPS=[],
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": os.environ.get("SHOP_DATABASE", "shop.sqlite3"),
            }
        },
        USE_TZ=True,
    )
    django.setup()

from django.db import close_old_connections, models, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from django.views.decorators.http import require_POST

from requeue_client import Absent, Client, Job, Worker

REMIND_AFTER = os.environ.get("REMIND_AFTER", "5m")

client = Client()


class Order(models.Model):
    """An order of the shop."""

    number = models.CharField(max_length=40, primary_key=True)
    customer = models.EmailField()
    paid = models.BooleanField(default=False)
    reminded = models.BooleanField(default=False)

    class Meta:
        app_label = "shop"


@require_POST
def place(request: HttpRequest, number: str) -> HttpResponse:
    customer = json.loads(request.body)["customer"]
    with transaction.atomic():
        Order.objects.update_or_create(number=number, defaults={"customer": customer})
        # In the transaction: if the put fails, there is no order without a reminder. If the
        # commit fails, the handler finds no order, and has nothing to do.
        client.put("order.remind", number, delay=REMIND_AFTER)
    return JsonResponse({"number": number}, status=201)


@require_POST
def pay(request: HttpRequest, number: str) -> HttpResponse:
    order = get_object_or_404(Order, pk=number)
    order.paid = True
    order.save(update_fields=["paid"])
    with suppress(Absent):  # The reminder was sent already.
        client.cancel("order.remind", number)
    return JsonResponse({"number": number, "paid": True})


urlpatterns = [
    path("orders/<number>/", place),
    path("orders/<number>/payment/", pay),
]

worker = Worker(concurrency=4)


@worker.job("order.remind", timeout="30s")
def remind(job: Job) -> None:
    close_old_connections()
    order = Order.objects.filter(pk=job.id, paid=False).first()
    if order is not None:
        print(f"mail to {order.customer}: please pay order {order.number}")
        order.reminded = True
        order.save(update_fields=["reminded"])


def main(arguments: list[str]) -> Any:
    if arguments[1:2] == ["runworker"]:
        return 1 if worker.run() else 0
    from django.core.management import execute_from_command_line

    return execute_from_command_line(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv))

"""The example shops, with the test clients of their frameworks and a real server."""

from __future__ import annotations

import importlib.util
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from support import LIMIT, until

from requeue_client import Client
from requeue_client.testing import Server

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / name / "shop.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    __import__("sys").modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def own_server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The examples read the address of their server from the environment."""
    with Server() as server:
        server.client.delete_kind("order.remind")
        monkeypatch.setenv("REQUEUE_SERVER", server.url)
        yield server


class RunningWorker:
    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._thread = threading.Thread(target=worker.run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._worker.shutdown()
        self._thread.join(LIMIT)


def is_done(client: Client, id: str) -> bool:
    return all(job.id != id for job in client.list("order.remind"))


def test_the_fastapi_shop_reminds_of_unpaid_orders_only(own_server: Server) -> None:
    from fastapi.testclient import TestClient

    shop = load("fastapi_shop")
    with TestClient(shop.app) as web:
        for id in ("paid", "unpaid"):
            order = {"customer": f"{id}@example.org", "amount": 9.5}
            assert web.post(f"/orders/{id}", json=order).status_code == 201
        assert web.post("/orders/paid/payment").json()["paid"] is True
        assert web.post("/orders/nothing/payment").status_code == 404
    assert [job.id for job in own_server.client.list("order.remind")] == ["unpaid"]
    own_server.client.run_now("order.remind", "unpaid")
    with RunningWorker(shop.worker):
        until(lambda: is_done(own_server.client, "unpaid"))
    assert shop.sent == [("unpaid@example.org", "unpaid")]


def test_the_django_shop_reminds_of_unpaid_orders_only(
    own_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_DATABASE", str(tmp_path / "shop.sqlite3"))
    shop = load("django_shop")
    from django.db import connection
    from django.test import Client as WebClient

    with connection.schema_editor() as editor:
        editor.create_model(shop.Order)
    web = WebClient()
    for number in ("paid", "unpaid"):
        body = json.dumps({"customer": f"{number}@example.org"})
        response = web.post(f"/orders/{number}/", body, content_type="application/json")
        assert response.status_code == 201
    assert web.post("/orders/paid/payment/").json()["paid"] is True
    assert web.post("/orders/nothing/payment/").status_code == 404
    assert [job.id for job in own_server.client.list("order.remind")] == ["unpaid"]
    own_server.client.run_now("order.remind", "unpaid")
    with RunningWorker(shop.worker):
        until(lambda: is_done(own_server.client, "unpaid"))
    assert shop.Order.objects.get(pk="unpaid").reminded
    assert not shop.Order.objects.get(pk="paid").reminded
    shop.client.close()

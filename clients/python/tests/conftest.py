"""What the tests share: a client, kinds of their own, and a proxy that fails."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterator

import pytest
from support import Proxy

from requeue_client import Client
from requeue_client.testing import Server

_numbers = itertools.count()
_run = uuid.uuid4().hex[:8]


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUEUE_SERVER", raising=False)
    monkeypatch.delenv("REQUEUE_TOKEN", raising=False)


@pytest.fixture
def client(requeue_server: Server) -> Client:
    return requeue_server.client


@pytest.fixture
def kind(client: Client) -> Iterator[str]:
    """A kind that no other test uses."""
    name = f"test-{_run}-{os.getpid()}-{next(_numbers)}"
    yield name
    client.delete_kind(name)


@pytest.fixture
def proxy(requeue_server: Server) -> Iterator[Proxy]:
    proxy = Proxy(requeue_server.url)
    yield proxy
    proxy.close()

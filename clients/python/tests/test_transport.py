"""The transport of the worker, with responses that a server or proxy may send."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from support import LIMIT, until

from requeue_client import AsyncClient, Client, ConnectionFailed, Job, ResponseLost, Worker
from requeue_client._transport import StreamTransport, worker_transport
from requeue_client.testing import Server

TLS = Path(__file__).with_name("tls")

JSON = b'{"ok": true}'
RESPONSES = {
    "length": b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n" + JSON,
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'5\r\n{"ok"\r\n7;x=y\r\n: true}\r\n0\r\nTrailer: x\r\n\r\n',
    "end of the connection": b"HTTP/1.0 200 OK\r\n\r\n" + JSON,
    "interim response": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length:12\r\n\r\n"
    + JSON,
    "close": b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 12\r\n\r\n" + JSON,
}


class Peer:
    """A server that sends the same response to each request, and counts connections."""

    def __init__(self, response: bytes, keep_open: bool = False) -> None:
        self._response = response
        self._keep_open = keep_open
        self.connections = 0

    async def __aenter__(self) -> Peer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response)
                if not self._keep_open:
                    break
        except asyncio.IncompleteReadError:
            pass
        writer.close()


async def request(client: httpx.AsyncClient, peer: Peer) -> httpx.Response:
    return await client.get(peer.url, timeout=LIMIT)


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=StreamTransport(verify=True))


@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_is_read(name: str) -> None:
    async def main() -> None:
        keep_open = name not in ("end of the connection", "close")
        async with Peer(RESPONSES[name], keep_open) as peer, client() as http:
            for _ in range(2):
                response = await request(http, peer)
                assert (response.status_code, response.json()) == (200, {"ok": True})

    asyncio.run(main())


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{",
        b"SSH-2.0\r\n\r\n",
        b"HTTP/1.1 x\r\n\r\n",
    ],
)
def test_an_invalid_response_is_an_error(response: bytes) -> None:
    async def main() -> None:
        async with Peer(response) as peer, client() as http:
            with pytest.raises(httpx.ReadError):
                await request(http, peer)

    asyncio.run(main())


def test_a_connection_is_used_again() -> None:
    async def main() -> None:
        async with Peer(RESPONSES["length"], keep_open=True) as peer, client() as http:
            for _ in range(3):
                await request(http, peer)
            assert peer.connections == 1

    asyncio.run(main())


def test_without_a_response_the_outcome_is_unknown() -> None:
    async def main() -> None:
        async with Peer(b"", keep_open=True) as peer:
            options: dict[str, Any] = {"timeout": "50ms", "retry_for": "0s"}
            async with AsyncClient(
                peer.url, transport=StreamTransport(verify=True), **options
            ) as requeue:
                with pytest.raises(ResponseLost):
                    await requeue.stats()

    asyncio.run(main())


def test_without_a_connection_nothing_is_done() -> None:
    async def main() -> None:
        async with AsyncClient(
            url, transport=StreamTransport(verify=True), retry_for="0s"
        ) as requeue:
            with pytest.raises(ConnectionFailed):
                await requeue.stats()

    with socket.socket() as not_listening:
        not_listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{not_listening.getsockname()[1]}"
        asyncio.run(main())


def test_a_proxy_is_left_to_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example.org:3128")
    monkeypatch.setenv("no_proxy", "localhost")
    assert worker_transport("http://requeue.example.org", True) is None
    assert worker_transport("http://localhost:7654", True) is not None


def test_client_and_worker_trust_the_given_certificate(kind: str) -> None:
    trusted = ssl.create_default_context(cafile=str(TLS / "cert.pem"))
    files = ("--tls-cert", str(TLS / "cert.pem"), "--tls-key", str(TLS / "key.pem"))
    with Server(*files) as server:
        ran: list[str] = []
        worker = Worker(server.url, verify=trusted)

        @worker.job(kind)
        def handle(job: Job) -> None:
            ran.append(job.id)

        run = threading.Thread(target=worker.run)
        run.start()
        with Client(server.url, verify=trusted) as client:
            client.put(kind, "a")
            until(lambda: ran == ["a"])
            until(lambda: client.kind(kind).leased == 0)
        worker.shutdown()
        run.join(LIMIT)
        with Client(server.url, retry_for="0s") as distrustful, pytest.raises(ConnectionFailed):
            distrustful.stats()

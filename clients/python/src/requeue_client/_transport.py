"""HTTP/1.1 on asyncio streams, for the requests of a worker.

The transport of `httpx` takes three times the CPU time for a request: with short handlers, that was
most of what a worker used. This one does only what a worker needs. It is not used if a proxy is
configured.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.request import getproxies, proxy_bypass

import httpx

KEEP_ALIVE = 5.0
"""For how many seconds a connection that is not in use is kept."""

Header = tuple[bytes, bytes]


def worker_transport(url: str, verify: ssl.SSLContext | bool) -> httpx.AsyncBaseTransport | None:
    """Returns the transport for requests to `url`, or `None` if they must go through a proxy."""
    target = httpx.URL(url)
    proxies = getproxies()
    if (target.scheme in proxies or "all" in proxies) and not proxy_bypass(target.host):
        return None
    return StreamTransport(verify)


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used_at: float = 0.0

    @property
    def is_usable(self) -> bool:
        is_open = not self.reader.at_eof() and not self.writer.is_closing()
        return is_open and time.monotonic() - self.used_at < KEEP_ALIVE


class StreamTransport(httpx.AsyncBaseTransport):
    """Sends requests over connections that are kept alive. All of them go to one server."""

    def __init__(self, verify: ssl.SSLContext | bool) -> None:
        self._verify = verify
        self._ssl: ssl.SSLContext | None = None
        self._idle: list[_Connection] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request, and returns the response with its content."""
        timeout = request.extensions["timeout"]
        connection = self._take_idle() or await self._connect(request.url, timeout["connect"])
        loop = asyncio.get_running_loop()
        timer = loop.call_later(timeout["read"], connection.writer.transport.abort)
        keep = False
        try:
            connection.writer.write(_head(request) + request.content)
            status, headers, content = await _read_response(connection.reader)
            keep = _value(headers, b"connection").lower() != b"close"
            return httpx.Response(status, headers=headers, content=content, request=request)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise httpx.ReadError(f"no valid response: {error!r}") from error
        finally:
            timer.cancel()
            if keep:
                connection.used_at = time.monotonic()
                self._idle.append(connection)
            else:
                connection.writer.close()

    async def aclose(self) -> None:
        """Closes all connections."""
        for connection in self._idle:
            connection.writer.close()
        self._idle.clear()

    def _take_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            connection.writer.close()
        return None

    async def _connect(self, url: httpx.URL, limit: float) -> _Connection:
        is_tls = url.scheme == "https"
        if is_tls and self._ssl is None:
            self._ssl = httpx.create_ssl_context(verify=self._verify)
        port = url.port or (443 if is_tls else 80)
        try:
            async with asyncio.timeout(limit):
                streams = await asyncio.open_connection(
                    url.host, port, ssl=self._ssl if is_tls else None
                )
            return _Connection(*streams)
        except TimeoutError as error:
            raise httpx.ConnectTimeout(f"no connection to {url.host}") from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error


def _head(request: httpx.Request) -> bytes:
    lines = [b"%s %s HTTP/1.1" % (request.method.encode(), request.url.raw_path)]
    lines += [b"%s: %s" % header for header in request.headers.raw]
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def _read_response(reader: asyncio.StreamReader) -> tuple[int, list[Header], bytes]:
    """Returns status, headers and content. Raises `ValueError` if the response is invalid."""
    while True:
        first, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
        version, code, *_ = first.split(b" ", 2)
        if not version.startswith(b"HTTP/1."):
            raise ValueError(f"{first!r} is not HTTP/1.1")
        if (status := int(code)) >= 200:
            break
    headers = [
        (name.strip(), value.strip()) for name, _, value in (x.partition(b":") for x in lines)
    ]
    if status in (204, 304):
        return status, headers, b""
    if _value(headers, b"transfer-encoding").lower() == b"chunked":
        # The content is not chunked any more when `httpx` sees it.
        plain = [h for h in headers if h[0].lower() != b"transfer-encoding"]
        return status, plain, await _read_chunks(reader)
    if length := _value(headers, b"content-length"):
        return status, headers, await reader.readexactly(int(length))
    return status, [*headers, (b"connection", b"close")], await reader.read()


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks: list[bytes] = []
    while size := int((await reader.readline()).partition(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while (await reader.readline()).strip():
        pass  # Trailers.
    return b"".join(chunks)


def _value(headers: Sequence[Header], name: bytes) -> bytes:
    return next((value for key, value in headers if key.lower() == name), b"")

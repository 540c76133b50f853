"""What tests wait for, and a proxy that fails when a test says so."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

LIMIT = 60.0
"""How long a test waits for what must happen, in seconds. A busy machine may be slow."""


def until(condition: Callable[[], object]) -> None:
    """Waits until the condition is true."""
    ends_at = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < ends_at, "the condition did not become true"
        time.sleep(0.01)


class Proxy:
    """Forwards connections to a server, and fails if a test says so."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.drop_responses = False
        """Closes connections instead of returning responses, after the server has sent them."""
        self.swallow_requests = False
        """Neither forwards requests nor responds to them."""
        self.requests: list[str] = []
        """Method and path of each request that arrived."""
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def count(self, line: str) -> int:
        return sum(request == line for request in self.requests)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            threading.Thread(target=self._respond, args=(server, client), daemon=True).start()
            try:
                while data := client.recv(1 << 20):
                    head = data.split(b"\r\n", 1)[0].split(b" ")
                    if len(head) == 3 and head[2].startswith(b"HTTP/"):
                        self.requests.append(f"{head[0].decode()} {head[1].decode()}")
                    if not self.swallow_requests:
                        server.sendall(data)
            except OSError:
                pass

    def _respond(self, server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(1 << 20):
                if self.drop_responses:
                    break
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

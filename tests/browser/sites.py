"""Other web servers that tests need: a foreign site, and a proxy below which the dashboard is."""

from __future__ import annotations

import html
import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class _Quiet(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class _Listening:
    """A web server on a free port, until the end of the block."""

    def __init__(self, handler: type[BaseHTTPRequestHandler], host: str) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Site(_Listening):
    """A foreign page with a form and a link that lead to `target`."""

    def __init__(self, target: str, fields: dict[str, str], host: str = "127.0.0.1") -> None:
        inputs = "".join(
            f'<input type="hidden" name="{name}" value="{html.escape(value)}">' for name, value in fields.items()
        )
        page = (
            '<!doctype html><title>Foreign</title><link rel="icon" href="data:,">'
            f'<form method="post" action="{target}">{inputs}<button>Send</button></form><a href="{target}">Open</a>'
        ).encode()

        class Handler(_Quiet):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

        super().__init__(Handler, host)


class Proxy(_Listening):
    """Serves the dashboard of `upstream` below `/queue/`, as a reverse proxy does."""

    PREFIX = "/queue"

    def __init__(self, upstream: str) -> None:
        address = urlsplit(upstream).netloc
        outside: list[str] = []

        class Handler(_Quiet):
            def _forward(self) -> None:
                if not self.path.startswith(f"{Proxy.PREFIX}/"):
                    outside.append(self.path)
                    self.send_error(404)
                    return
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                connection = http.client.HTTPConnection(address, timeout=60)
                try:
                    path = self.path.removeprefix(Proxy.PREFIX)
                    connection.request(self.command, path, body or None, dict(self.headers))
                    self._answer(connection.getresponse())
                except OSError:
                    # One of the two sides has closed its connection.
                    pass
                finally:
                    connection.close()

            def _answer(self, response: http.client.HTTPResponse) -> None:
                self.send_response_only(response.status)
                for name, value in response.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.end_headers()
                while data := response.read1():
                    self.wfile.write(data)
                    self.wfile.flush()

            do_GET = do_POST = _forward

        super().__init__(Handler, "127.0.0.1")
        self.outside = outside
        """Paths outside of the prefix that were requested."""

"""Serving the numbers to monitors that come for them: `/metrics`, and `/-/healthy` for whoever only asks whether it is there.

Which numbers these are is `page`'s.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mappings.errors import ConfigError
from pipelines.measuring.exposition import CONTENT_TYPE, Gauge, exposition

PATH = "/metrics"
_PATIENCE_S = 10.0


@contextmanager
def serving_metrics(gauges: Callable[[], tuple[Gauge, ...]], host: str, port: int) -> Iterator[str]:
    """Serve the numbers from a thread for the length of the block; yields the page's address. Port 0 takes a free one.

    Raises:
        ConfigError: the address cannot be had.
    """
    try:
        server = _Server((host, port), gauges)
    except OSError as error:
        raise ConfigError(f"metrics cannot be served at {host}:{port}: {error.strerror}", hint="choose another port") from error
    thread = threading.Thread(target=server.serve_forever, name="eventsync-metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}{PATH}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    """The numbers' server, a thread for each request."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], gauges: Callable[[], tuple[Gauge, ...]]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Door)
        self.gauges = gauges


class _Door(BaseHTTPRequestHandler):
    """Answers one request: the numbers, a sign of life, or that there is nothing else."""

    server: _Server
    server_version = "eventsync"
    sys_version = ""
    timeout = _PATIENCE_S

    def do_GET(self) -> None:  # the name that http.server looks for
        """Answer whatever is asked; nothing can be changed here."""
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(HTTPStatus.OK, exposition(self.server.gauges()), CONTENT_TYPE)
            case "/-/healthy":
                self._answer(HTTPStatus.OK, "here\n")
            case _:
                self._answer(HTTPStatus.NOT_FOUND, f"only {PATH} is served here\n")

    do_HEAD = do_GET  # noqa: N815  # as above

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # as http.server calls it
        """Say nothing of each request: monitors come every few seconds."""

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

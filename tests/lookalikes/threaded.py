"""A small HTTP server in a thread of the test, for look-alikes that answer by `http.server`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """Clients that go away are none of our business."""


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    """Answer by `handler` for the length of the block; gives the port."""
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to a client."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    reason: str | None = None


@contextmanager
def answering_by(answer: Callable[[BaseHTTPRequestHandler, bytes], Answer]) -> Iterator[str]:
    """Answer every request by a function of it and its body for the length of the block; gives the base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            given = answer(self, self.rfile.read(int(self.headers.get("content-length", 0))))
            self.send_response(given.status, given.reason)
            for name, value in {**given.headers, "content-length": str(len(given.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(given.body)

        do_GET = do_PATCH = do_DELETE = do_POST  # noqa: N815  # the names that http.server calls

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with served(Handler) as port:
        yield f"http://127.0.0.1:{port}"

"""Small HTTP servers in a thread of the test, for look-alikes that answer by `http.server` or as an ASGI application."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import uvicorn


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


class _AppServer(uvicorn.Server):
    """Stops at once: uvicorn itself looks every tenth of a second whether it should."""

    def __init__(self, app: Any, options: dict[str, Any]) -> None:
        # Errors of ours are seen by the client; a broken-off answer is meant, and needs no traceback.
        super().__init__(uvicorn.Config(app, log_config=None, log_level="critical", lifespan="off", **options))
        self.is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.loop, self.is_done = asyncio.get_running_loop(), asyncio.Event()
        self.is_up.set()

    async def main_loop(self) -> None:
        while not self.is_done.is_set():
            await self.on_tick(0)  # the Date of answers
            with suppress(TimeoutError):
                await asyncio.wait_for(self.is_done.wait(), 0.5)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in (*self.servers, *(sockets or ())):
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)


@contextmanager
def app_served(app: Any, **options: Any) -> Iterator[str]:
    """Let an ASGI application answer on this machine for the length of the block; gives the base URL. `options` are uvicorn's."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = _AppServer(app, options)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        server.is_up.wait(30)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.loop.call_soon_threadsafe(server.is_done.set)
            thread.join(30)


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

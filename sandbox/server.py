"""The sandbox as a server on this machine: its socket, its signals, its announcement."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from sandbox.app import app_of
from sandbox.faults import Wire
from sandbox.service import Sandbox, open_sandbox
from sandbox.switches import Switches

_GRACE_S: Final = 3
_BACKLOG: Final = 1024


@dataclass(frozen=True, slots=True)
class Announcement:
    """Where a sandbox listens, the default key's secret, and the process id to signal."""

    base_url: str
    api_key: str = field(repr=False)
    pid: int


Ready = Callable[[Announcement], None]


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 0


def serve(
    address: Address, state: Path | None, switches: Switches, api_key: str | None = None, ready: Ready | None = None
) -> None:
    """Serve until SIGINT or SIGTERM, then return. `ready` is called once requests are answered.

    `state` None keeps everything in memory; without an `api_key` the default key gets a new secret. Raises OSError if
    the address cannot be had, StateInUseError if another sandbox holds the state folder.
    """
    os.umask(0o077)  # what it keeps holds keys and bodies
    with _listening(address) as listener, closing(open_sandbox(state, switches, api_key)) as sandbox:
        _Server(sandbox, listener, ready).run([listener])


@contextmanager
def running(state: Path | None, switches: Switches, api_key: str | None = None) -> Iterator[Announcement]:
    """Serve a sandbox on a free loopback port, in a thread of this process, for the length of the block."""
    announced: SimpleQueue[Announcement] = SimpleQueue()
    with _listening(Address()) as listener, closing(open_sandbox(state, switches, api_key)) as sandbox:
        server = _Server(sandbox, listener, announced.put)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield announced.get(timeout=30)
        finally:
            server.should_exit = True
            thread.join()


class _Server(uvicorn.Server):
    """A uvicorn server that announces itself when it is ready, and returns when it is stopped."""

    def __init__(self, sandbox: Sandbox, listener: socket.socket, ready: Ready | None) -> None:
        super().__init__(_settings(sandbox))
        host, port = listener.getsockname()[:2]
        self._ready = ready
        self._announcement = Announcement(f"http://{f'[{host}]' if ':' in host else host}:{port}", sandbox.api_key, os.getpid())

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, then announce it."""
        await super().startup(sockets)
        if self._ready is not None:
            self._ready(self._announcement)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM end the serving, not the process: the caller decides what comes after `serve`."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)


def _settings(sandbox: Sandbox) -> uvicorn.Config:
    return uvicorn.Config(
        app_of(sandbox),
        http=_tracked(sandbox.environment.wire),
        ws="none",
        access_log=False,
        # A program that runs a sandbox keeps its own logging.
        log_config=None,
        log_level="warning",
        # The admin API trusts the address of a request, so it has to be the connection's own.
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=_GRACE_S,
    )


def _tracked(wire: Wire) -> type[asyncio.Protocol]:
    """Return the HTTP protocol that uvicorn would use, extended to keep the wire's open connections."""

    class Tracked(AutoHTTPProtocol):  # type: ignore[misc, valid-type] # chosen by uvicorn as it is imported
        def connection_made(self, transport: asyncio.Transport) -> None:
            self._client = wire.opened(transport)
            super().connection_made(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            wire.closed(self._client)
            super().connection_lost(exc)

    return Tracked


def _listening(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    return socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)

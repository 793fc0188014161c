"""The sandbox as a server on this machine: application, socket, signals, and the announcement of its address."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from sandbox.answers import ApiError, BrokenResponse, Reply
from sandbox.routes import create_event, describe, list_channels, list_classifications, list_events, upload_image
from sandbox.service import RequestContext, RouteName, Sandbox, open_sandbox
from sandbox.switches import Switches
from sandbox.views import OriginGuard, admin_routes, page_routes

PREFIX: Final = "/api/public/v1"
Handler = Callable[[Sandbox, RequestContext], Awaitable[Reply]]
_PUBLIC: Final[Mapping[str, Mapping[str, tuple[RouteName, Handler]]]] = {
    f"{PREFIX}/events": {"POST": ("events", create_event), "GET": ("events_list", list_events)},
    f"{PREFIX}/media": {"POST": ("media", upload_image)},
    f"{PREFIX}/channels": {"GET": ("channels", list_channels)},
    f"{PREFIX}/classifications": {"GET": ("classifications", list_classifications)},
    "/api/developer/openapi/public-api-v1": {"GET": ("openapi", describe)},
}


def app_of(sandbox: Sandbox) -> Starlette:
    """Build the application of a sandbox (`state.sandbox`); it closes the sandbox at shutdown."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        sandbox.close()

    def refuse(error: ApiError) -> Response:
        return _response(sandbox, error.answer())

    def respond_to_unknown(request: Request, error: Exception) -> Response:
        """Answer an unknown path or method with the error envelope."""
        if not isinstance(error, HTTPException) or error.status_code == 404:
            return refuse(ApiError("not_found", f"There is nothing at {request.url.path}."))
        message = f"{request.method} is not possible at {request.url.path}."
        headers = tuple((error.headers or {}).items())
        return refuse(ApiError("invalid_request", message, status=error.status_code, headers=headers))

    def respond_to_failure(_: Request, __: Exception) -> Response:
        """Answer an error of the sandbox itself; Starlette raises it again for the server's log."""
        return refuse(ApiError("internal_error", "The sandbox itself failed; see its log."))

    public = [_route(sandbox, path, handlers) for path, handlers in _PUBLIC.items()]
    app = Starlette(
        routes=[*public, *page_routes(sandbox), *admin_routes(sandbox)],
        exception_handlers={HTTPException: respond_to_unknown, Exception: respond_to_failure},
        middleware=[Middleware(OriginGuard, refuse=lambda reason: refuse(ApiError("forbidden", reason)))],
        lifespan=lifespan,
    )
    # A path with another slash is a 404 in the error envelope, not a redirect, which would carry the key along.
    app.router.redirect_slashes = False
    app.state.sandbox = sandbox
    return app


def _route(sandbox: Sandbox, path: str, handlers: Mapping[str, tuple[RouteName, Handler]]) -> Route:
    async def endpoint(request: Request) -> Response:
        route, handle = handlers["GET" if request.method == "HEAD" else request.method]
        context = sandbox.begin(request, route)
        try:
            answer = await handle(sandbox, context)
        except ApiError as refusal:
            answer = refusal.answer(context.attempt.request_id)
        except ClientDisconnect:  # before the body was complete: nothing was done
            answer = ApiError("invalid_request", "The body ended early.").answer(context.attempt.request_id)
        sandbox.end(context, answer)
        return _response(sandbox, answer, context.limit_headers)

    return Route(path, endpoint, methods=list(handlers))


def _response(sandbox: Sandbox, answer: Reply, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    if answer.breakage:
        return BrokenResponse(answer, sandbox.wire)
    response = Response(answer.body, answer.status, dict(headers), answer.media_type)
    for name, value in answer.headers:
        response.headers.append(name, value)
    return response


_GRACE_S: Final = 3
_BACKLOG: Final = 1024


@dataclass(frozen=True, slots=True)
class Announcement:
    """The address of a sandbox, the default key's secret, and the process id to signal."""

    base_url: str
    api_key: str = field(repr=False)
    pid: int


Ready = Callable[[Announcement], None]


@dataclass(frozen=True, slots=True)
class Address:
    """The host and port to listen on; port 0 chooses a free one."""

    host: str = "127.0.0.1"
    port: int = 0


def serve(address: Address, state: Path | None, switches: Switches, api_key: str | None, ready: Ready) -> None:
    """Serve until SIGINT or SIGTERM, then return. `ready` is called as soon as requests are answered.

    `state` None keeps everything in memory; without an `api_key` the default key gets a new secret. Raises OSError if the address
    cannot be used, StateInUseError if another sandbox holds the state folder.
    """
    os.umask(0o077)  # the database contains keys and bodies
    with _listening(address) as listener, closing(open_sandbox(state, switches, api_key)) as sandbox:
        _Server(sandbox, listener, ready).run([listener])


@contextmanager
def running(state: Path | None, switches: Switches, api_key: str | None = None) -> Iterator[Announcement]:
    """Serve a sandbox on a free loopback port, in a thread of this process, during the block."""
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

    def __init__(self, sandbox: Sandbox, listener: socket.socket, ready: Ready) -> None:
        wire = sandbox.wire

        class Tracked(AutoHTTPProtocol):  # type: ignore[misc, valid-type] # chosen by uvicorn as it is imported
            """The HTTP protocol that uvicorn would use, which also records open connections in the wire."""

            def connection_made(self, transport: asyncio.Transport) -> None:
                self._client = wire.opened(transport)
                super().connection_made(transport)

            def connection_lost(self, exc: Exception | None) -> None:
                wire.closed(self._client)
                super().connection_lost(exc)

        super().__init__(
            uvicorn.Config(
                app_of(sandbox),
                http=Tracked,
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
        )
        host, port = listener.getsockname()[:2]
        self._ready = ready
        self._announcement = Announcement(f"http://{f'[{host}]' if ':' in host else host}:{port}", sandbox.api_key, os.getpid())

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then announce the address."""
        await super().startup(sockets)
        self._ready(self._announcement)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM end the serving, not the process: the caller of `serve` decides what follows."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        former = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)


def _listening(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    return socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)

"""The sandbox as one ASGI application: its paths, and how every answer becomes a response."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from sandbox.admin import admin_routes
from sandbox.answers import Answer, ApiError
from sandbox.faults import BrokenResponse
from sandbox.pages import page_routes
from sandbox.routes import create_event, describe, list_channels, list_classifications, list_events, upload_image
from sandbox.service import Environment, RequestContext, RouteName, Sandbox, open_sandbox
from sandbox.switches import Switches

PREFIX: Final = "/api/public/v1"

Handler = Callable[[Sandbox, RequestContext], Awaitable[Answer]]
_PUBLIC: Final[Mapping[str, Mapping[str, tuple[RouteName, Handler]]]] = {
    f"{PREFIX}/events": {"POST": ("events", create_event), "GET": ("events_list", list_events)},
    f"{PREFIX}/media": {"POST": ("media", upload_image)},
    f"{PREFIX}/channels": {"GET": ("channels", list_channels)},
    f"{PREFIX}/classifications": {"GET": ("classifications", list_classifications)},
    "/api/developer/openapi/public-api-v1": {"GET": ("openapi", describe)},
}


def create_app(
    state: Path | None, switches: Switches, api_key: str | None = None, environment: Environment | None = None
) -> Starlette:
    """Return the application of a sandbox on a state folder (None: in memory, gone with the application).

    `app.state.sandbox` is its `Sandbox`, whose `api_key` is the default key's secret: the one given, or a new one.
    Raises StateInUseError if another sandbox holds the folder.
    """
    return app_of(open_sandbox(state, switches, api_key, environment))


def app_of(sandbox: Sandbox) -> Starlette:
    """Return the application of an open sandbox; it closes the sandbox when it is shut down."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        sandbox.close()

    def respond_to_unknown(request: Request, error: Exception) -> Response:
        """Answer a path or method that does not exist with the error envelope."""
        status = error.status_code if isinstance(error, HTTPException) else 404
        refusal = ApiError("not_found", f"There is nothing at {request.url.path}.")
        if status != 404:
            refusal = ApiError("invalid_request", f"{request.method} is not possible at {request.url.path}.", status=status)
        refusal.headers = tuple(((error.headers if isinstance(error, HTTPException) else None) or {}).items())
        return _response(sandbox, refusal.answer(sandbox.environment.new_request_id()))

    def respond_to_failure(_: Request, __: Exception) -> Response:
        """Answer a mistake of the sandbox itself; Starlette raises it again, so that the server's log has it."""
        refusal = ApiError("internal_error", "The sandbox itself failed; its own log says how.")
        return _response(sandbox, refusal.answer(sandbox.environment.new_request_id()))

    public = [_route(sandbox, path, handlers) for path, handlers in _PUBLIC.items()]
    app = Starlette(
        routes=[*public, *page_routes(sandbox), *admin_routes(sandbox)],
        exception_handlers={HTTPException: respond_to_unknown, Exception: respond_to_failure},
        lifespan=lifespan,
    )
    # Another spelling of a path is a 404 in the error envelope, not a redirect that would carry the key along.
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
        except ClientDisconnect:  # before its body was complete: nothing was done, and the client is gone
            answer = ApiError("invalid_request", "The body ended early.").answer(context.attempt.request_id)
        sandbox.end(context, answer)
        return _response(sandbox, answer, context.limit_headers)

    return Route(path, endpoint, methods=list(handlers))


def _response(sandbox: Sandbox, answer: Answer, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    if answer.breakage:
        return BrokenResponse(answer, sandbox.environment.wire)
    response = Response(answer.body, answer.status, dict(headers), answer.media_type)
    for name, value in answer.headers:
        response.headers.append(name, value)
    return response

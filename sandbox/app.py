"""The sandbox as one ASGI application: which path leads where, and how every answer becomes a response.

What a route does is its own room's; how the application is served is `server`'s.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as Door

from sandbox.admin import admin_doors
from sandbox.answers import Answer, ApiError
from sandbox.faults import BrokenResponse
from sandbox.pages import page_doors
from sandbox.routes import create_event, describe, list_channels, list_classifications, list_events, upload_image
from sandbox.service import Route, Sandbox, Surroundings, Visit, open_sandbox
from sandbox.switches import Switches

PREFIX: Final = "/api/public/v1"

Act = Callable[[Sandbox, Visit], Awaitable[Answer]]


def create_app(
    state: Path | None, switches: Switches, api_key: str | None = None, around: Surroundings | None = None
) -> Starlette:
    """The sandbox on a state folder (None: in memory, gone with the application).

    `app.state.sandbox` is its `Sandbox`, whose `api_key` is the default key's secret: the one given, or a new one.
    Raises StateInUseError if another sandbox holds the folder.
    """
    return app_of(open_sandbox(state, switches, api_key, around))


def app_of(sandbox: Sandbox) -> Starlette:
    """The application of a sandbox that is already open; it closes the sandbox when it is shut down."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        sandbox.close()

    app = Starlette(
        routes=[*_public_doors(sandbox), *page_doors(sandbox), *admin_doors(sandbox)],
        exception_handlers={HTTPException: _missed(sandbox), Exception: _failed(sandbox)},
        lifespan=lifespan,
    )
    # Spelling a path otherwise is a 404 in the error envelope, not a redirect that would carry the key along.
    app.router.redirect_slashes = False
    app.state.sandbox = sandbox
    return app


def _public_doors(sandbox: Sandbox) -> list[Door]:
    return [
        _door(sandbox, f"{PREFIX}/events", {"POST": ("events", create_event), "GET": ("events_list", list_events)}),
        _door(sandbox, f"{PREFIX}/media", {"POST": ("media", upload_image)}),
        _door(sandbox, f"{PREFIX}/channels", {"GET": ("channels", list_channels)}),
        _door(sandbox, f"{PREFIX}/classifications", {"GET": ("classifications", list_classifications)}),
        _door(sandbox, "/api/developer/openapi/public-api-v1", {"GET": ("openapi", describe)}),
    ]


def _door(sandbox: Sandbox, path: str, acts: Mapping[str, tuple[Route, Act]]) -> Door:
    async def endpoint(request: Request) -> Response:
        route, act = acts["GET" if request.method == "HEAD" else request.method]
        visit = sandbox.arrive(request, route)
        try:
            answer = await act(sandbox, visit)
        except ApiError as refusal:
            answer = refusal.answer(visit.attempt.request_id)
        except ClientDisconnect:  # before its body was whole: nothing was done, and nobody is there to be told
            answer = ApiError("invalid_request", "The body ended early.").answer(visit.attempt.request_id)
        sandbox.leave(visit, answer)
        return _response(sandbox, answer, visit.hints)

    return Door(path, endpoint, methods=list(acts))


def _response(sandbox: Sandbox, answer: Answer, hints: tuple[tuple[str, str], ...] = ()) -> Response:
    if answer.breakage:
        return BrokenResponse(answer, sandbox.around.wire)
    response = Response(answer.body, answer.status, dict(hints), answer.media_type)
    for name, value in answer.headers:
        response.headers.append(name, value)
    return response


def _missed(sandbox: Sandbox) -> Callable[[Request, Exception], Response]:
    """Paths and methods that do not exist, in the error envelope."""

    def missed(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        headers = error.headers if isinstance(error, HTTPException) else None
        refusal = ApiError("not_found", f"There is nothing at {request.url.path}.")
        if status != 404:
            refusal = ApiError("invalid_request", f"{request.method} is not possible at {request.url.path}.", status=status)
        refusal.headers = tuple((headers or {}).items())
        return _response(sandbox, refusal.answer(sandbox.around.new_request_id()))

    return missed


def _failed(sandbox: Sandbox) -> Callable[[Request, Exception], Response]:
    """A mistake in the sandbox itself; Starlette raises it again, so that the server's log has it."""

    def failed(_: Request, __: Exception) -> Response:
        refusal = ApiError("internal_error", "The sandbox itself failed; its own log says how.")
        return _response(sandbox, refusal.answer(sandbox.around.new_request_id()))

    return failed

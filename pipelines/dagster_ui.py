"""Dagster's webserver behind a guard against pages of other sites (cross-site request forgery, DNS rebinding).

The webserver asks for no login, executes mutations sent by GET, and answers to any host name, so that any page in a browser that
reaches it could start a run. `python -m pipelines.dagster_ui` takes the options of `dagster-webserver`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

import click
import dagster as dg
import uvicorn
from dagster_webserver.app import create_app_from_workspace_process_context
from dagster_webserver.cli import dagster_webserver
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from mappings.errors import ConfigError
from pipelines.orchestration.dagster_private import opened_workspace
from pipelines.settings import current_settings

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
DEFAULT_PORT = 3000
_DEFAULT_PORTS = (80, 443)


class OriginGuard:
    """An ASGI application in front of another one, which refuses what a page of another site can send, or read under its name.

    The hosts that it answers to: those of this machine, the address that a connection came to, and `hosts`, each as a browser
    writes it (`HOST` or `HOST:PORT`).
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] = ()) -> None:
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = "" if scope["type"] == "lifespan" else self._refusal(scope, Headers(scope=scope))
        if not refusal:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocketClose(1008, refusal)(scope, receive, send)
        else:
            await PlainTextResponse(f"{refusal}\n", 403)(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> str:
        """Return why a request is refused, "" if it is not. Fetch Metadata: https://www.w3.org/TR/fetch-metadata/."""
        host, origin = headers.get("host", "").lower(), headers.get("origin")
        if host not in self._hosts | _own_hosts(scope):
            return f"The Dagster UI does not answer to the host {host!r}. If it is yours, name it in EVENTSYNC_UI_HOSTS."
        if origin is not None and origin.lower().partition("://")[2] not in {host, *self._hosts}:
            return (
                f"The Dagster UI takes no requests from pages of {origin}. If it is yours, name its host in EVENTSYNC_UI_HOSTS."
            )
        is_opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"} and not is_opened:
            return "The Dagster UI takes no requests from pages of other sites, except links that open it."
        return "" if scope["type"] == "websocket" else _refusal_of_form(scope, headers)


def _refusal_of_form(scope: Scope, headers: Headers) -> str:
    """Return why a request is refused that a page may send without the browser asking first: GraphQL by GET, other than JSON."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if scope["method"] not in {"GET", "HEAD"} and kind != "application/json":
        return f"Send a {scope['method']} request to the Dagster UI as application/json."
    if scope["method"] == "GET" and scope["path"].endswith("/graphql") and "text/html" not in headers.get("accept", ""):
        return "Send GraphQL to the Dagster UI by POST, as application/json."
    return ""


def _own_hosts(scope: Scope) -> frozenset[str]:
    """Return the hosts that lead to the socket of a connection, as a browser writes them."""
    address, port = scope["server"]
    names = (*LOOPBACK, f"[{address}]" if ":" in address else address)
    return frozenset({f"{name}:{port}" for name in names} | ({*names} if port in _DEFAULT_PORTS else set()))


def serve(  # noqa: PLR0913  # the options of `dagster-webserver`
    *,
    host: str,
    port: int | None,
    path_prefix: str,
    db_statement_timeout: int,
    db_pool_recycle: int,
    db_pool_max_overflow: int,
    read_only: bool,
    uvicorn_log_level: str,
    dagster_log_level: str,
    code_server_log_level: str,
    live_data_poll_rate: int,
    **targets: Any,
) -> None:
    """Serve the Dagster UI of the instance in DAGSTER_HOME until a signal."""
    try:
        hosts = current_settings().ui_hosts
    except ConfigError as error:
        raise click.ClickException(f"{error}\n{error.hint}") from error
    logging.getLogger("dagster").setLevel(dagster_log_level.upper())
    with dg.DagsterInstance.get() as instance:
        instance.optimize_for_webserver(db_statement_timeout, db_pool_recycle, db_pool_max_overflow)
        with opened_workspace(
            instance, targets, version=dg.__version__, read_only=read_only, log_level=code_server_log_level
        ) as workspace:
            app = create_app_from_workspace_process_context(workspace, path_prefix, live_data_poll_rate)
            uvicorn.run(OriginGuard(app, hosts), host=host, port=port or DEFAULT_PORT, log_level=uvicorn_log_level)


_NOT_OURS = frozenset({"suppress_warnings", "log_format", "instance_ref", "shutdown_pipe"})
"""Options of `dagster-webserver` that the guarded one does not have."""
main = click.Command(
    "dagster-webserver",
    params=[one for one in dagster_webserver.params if one.name not in _NOT_OURS],
    callback=serve,
    help="Serve the Dagster UI, and refuse what pages of other sites send to it.",
)

if __name__ == "__main__":
    main(auto_envvar_prefix="DAGSTER_WEBSERVER")

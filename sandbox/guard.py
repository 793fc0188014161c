"""A guard against requests that web pages of other sites send here (cross-site request forgery, DNS rebinding)."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

_API: Final = "/api/"
_DEFAULT_PORTS: Final = (None, 80, 443)


class OriginGuard:
    """An ASGI application in front of another one, which answers to this machine's names and to the address that it listens on.

    A client of the API may use any other name of the machine, with its key and without a browser's `Origin`. `refuse`: makes the
    answer to a request that is refused, from the reason.
    """

    def __init__(self, app: ASGIApp, refuse: Callable[[str], Response]) -> None:
        self._app = app
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reason = _reason(scope) if scope["type"] == "http" else ""
        await (self._refuse(reason) if reason else self._app)(scope, receive, send)


def _reason(scope: Scope) -> str:
    """Return why a request is refused, "" if it is not. Fetch Metadata: https://www.w3.org/TR/fetch-metadata/."""
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    host, origin = headers.get(b"host", "").lower(), headers.get(b"origin")
    if origin is not None and origin.lower().partition("://")[2] != host:
        return f"The sandbox takes no requests from pages of {origin}."
    is_opened = (headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")) == ("navigate", "document")
    if headers.get(b"sec-fetch-site", "none") not in {"none", "same-origin"} and not is_opened:
        return "The sandbox takes no requests from pages of other sites, except links that open its own."
    address, port = scope["server"]
    name, has_port, number = host.rpartition(":") if not host.endswith("]") else ("", "", "")
    name = (name if has_port else host).strip("[]")
    if (name == address or is_loopback(name)) and (number == str(port) if has_port else port in _DEFAULT_PORTS):
        return ""
    is_client = scope["path"].startswith(_API) and b"authorization" in headers and origin is None
    if is_client and (is_loopback(name) or not is_loopback(address)):
        return ""
    return f"The sandbox does not answer to the host {host!r}: use the address that it printed."


def is_loopback(host: str) -> bool:
    """Return whether a host name or address always means this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

"""Opening the way to the service: which addresses are allowed, which headers every request carries, how long it may take.

What is asked over it is `client`'s; the connections underneath are `transport`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from importlib.metadata import version
from typing import Self

import httpx
from pydantic import SecretStr

from connectors.errors import BaseUrlError, KeyFormatError
from connectors.event_api.addresses import Resolve, resolve_by_system
from connectors.event_api.transport import WireStream, direct_transport
from connectors.event_api.watched import Seen, WatchedTransport
from connectors.loopback import is_loopback
from connectors.public_addresses import refusal_of_host

API_PREFIX = "/api/public/v1"
"""Every public endpoint is under it (spec, What the service does)."""

LONGEST_BODY = 4 << 20
"""Bytes that are read of any one answer; the rest is left unread."""

DEFAULT_TIMEOUTS = httpx.Timeout(connect=10.0, read=60.0, write=30.0, pool=60.0)
"""Seconds to connect, between two bytes read or written, and to wait for a free connection."""

Passage = Callable[[], AbstractAsyncContextManager[None]]
"""Stands around each request and its answer. Entering it may wait, or raise: then nothing leaves."""

_KEY_SHAPE = re.compile(r"[\x21-\x7e]+")


def check_base_url(url: str) -> httpx.URL:
    """Return the service's address without a trailing slash or API prefix; it may have a path of its own.

    Raises `BaseUrlError` unless it is https (http is accepted for loopback hosts only, as a bearer secret travels with
    every request), free of user names, queries and fragments, and no metadata service of a cloud.
    """
    parsed = _parsed(url.strip())
    _refuse_unless(bool(parsed.host), "it names no host", "write it like https://events.example.org")
    _refuse_unless(not parsed.userinfo, "it holds a user name or password", "leave only the host; the key is set apart from it")
    _refuse_unless(not parsed.query and not parsed.fragment, "it holds a query or a fragment", "end it after the host or path")
    secure = parsed.scheme == "https" or (parsed.scheme == "http" and is_loopback(parsed.host))
    _refuse_unless(
        secure, f"it would send the key over plain {parsed.scheme or 'text'}", "https is required, except for loopback"
    )
    refusal = refusal_of_host(parsed.host)
    _refuse_unless(not refusal, f"it {refusal}", "name the host of the service")
    path = parsed.path.rstrip("/").removesuffix(API_PREFIX).rstrip("/")
    return parsed.copy_with(path=path or "/")


class ServiceHttp:
    """The way to one service: its address, the headers of every request, the timeouts, the transport beneath.

    An async context manager. It is httpx without the client's conveniences (cookies, redirects, authentication flows),
    which are unwanted here and take a third of a request's time. Whoever sends stands in its `passage` meanwhile.
    """

    def __init__(
        self, base_url: httpx.URL, headers: httpx.Headers, timeouts: httpx.Timeout, transport: httpx.AsyncBaseTransport
    ) -> None:
        self.passage: Passage = nullcontext
        self.base_url = base_url
        self.headers = headers
        self.timeouts = timeouts
        self._transport = transport

    async def __aenter__(self) -> Self:
        """Open nothing yet; connections are made as requests are sent."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await self._transport.aclose()

    def watch(self, seen: Seen) -> None:
        """Have `seen` told of each request from now on."""
        self._transport = WatchedTransport(self._transport, seen)

    async def send(self, request: httpx.Request) -> httpx.Response:
        """Send `request` once; its answer's body is still to be read, and the answer to be closed.

        Raises `httpx.TransportError`.
        """
        return await self._transport.handle_async_request(request)


def open_http(
    base_url: str,
    secret: SecretStr,
    *,
    transport: httpx.AsyncBaseTransport | None = None,
    timeouts: httpx.Timeout = DEFAULT_TIMEOUTS,
    in_flight: int = 8,
    resolve: Resolve = resolve_by_system,
) -> ServiceHttp:
    """Return the way to the service at `base_url`, to be used as an async context manager; nothing is sent yet.

    It follows no redirect and keeps at most `in_flight` connections. `transport` replaces the wire in tests, `resolve`
    the resolver. Raises `BaseUrlError` and `KeyFormatError`, neither of which shows the key.
    """
    url = check_base_url(base_url)
    headers = _headers(secret.get_secret_value().strip())
    wire = transport or direct_transport(url, in_flight=in_flight, resolve=resolve)
    return ServiceHttp(url, headers, timeouts, wire)


def key_tail(http: ServiceHttp) -> str:
    """Return how the client's key may be named to people: by its last four characters, or not at all where it is short."""
    key = secret_of(http)
    return f"…{key[-4:]}" if len(key) >= 12 else "…"


def secret_of(http: ServiceHttp) -> str:
    """Return the key itself, only ever to take it out of texts that are kept."""
    header: str = http.headers["authorization"]
    return header.removeprefix("Bearer ")


async def read_bounded(response: httpx.Response) -> bytes:
    """Read an answer's body, at most `LONGEST_BODY` bytes of it; a longer one is cut there."""
    if isinstance(response.stream, WireStream) and "content-encoding" not in response.headers:
        return (await response.stream.read(LONGEST_BODY))[:LONGEST_BODY]
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) >= LONGEST_BODY:
            break
    return bytes(body[:LONGEST_BODY])


def _headers(key: str) -> httpx.Headers:
    if not _KEY_SHAPE.fullmatch(key):
        problem = "is empty" if not key else "holds a space, a line break or a character outside of ASCII"
        raise KeyFormatError(
            f"the API key {problem}", hint="set EVENT_API_KEY, or EVENT_API_KEY_FILE, to the key as it was shown"
        )
    return httpx.Headers(
        {
            "authorization": f"Bearer {key}",
            "user-agent": f"eventsync/{version('eventsync')}",
            "accept": "application/json",
            "accept-encoding": "identity",
        }
    )


def _parsed(url: str) -> httpx.URL:
    try:
        return httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as problem:
        raise BaseUrlError(f"the base URL cannot be read: {problem}", hint="write it like https://events.example.org") from None


def _refuse_unless(good: bool, problem: str, hint: str) -> None:
    if not good:
        raise BaseUrlError(f"the base URL is refused: {problem}", hint=hint)

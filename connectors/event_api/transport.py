"""One HTTP exchange with the service: a request is sent once, and every result is returned as a value.

The network library is httpx over httpx-aiohttp, without httpx's client: its cookies, redirects and authentication flows are not
wanted and take a third of a request's time (budget 5). By itself httpx-aiohttp reports a connection that broke after the
request was sent as `httpx.ConnectTimeout`, which means "never sent" and would duplicate events. So errors are mapped here by
their cause.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from time import perf_counter
from types import SimpleNamespace
from typing import Self
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx
from aiohttp.abc import AbstractResolver, ResolveResult
from httpx_aiohttp import AiohttpTransport
from pydantic import SecretStr

from connectors.addresses import is_loopback, refusal_of, refusal_of_host
from connectors.errors import BaseUrlError, KeyFormatError
from connectors.event_api.answers import AnswerKind, HttpAnswer, Meaning
from connectors.masking import Mask
from mappings.delivery import API_PREFIX, Answer

LONGEST_BODY = 4 << 20
"""The most bytes read of an answer."""
DEFAULT_TIMEOUTS = httpx.Timeout(connect=10.0, read=60.0, write=30.0, pool=60.0)
"""Seconds to connect, between two bytes read or written, and to wait for a free connection."""
_KEPT_ALIVE_S = 4.0
"""How long idle connections are kept, below the five seconds of common servers, so that fewer requests meet a closing one."""
_SENT_AT_ONCE = 1 << 19
"""Request bodies up to this size are written at once, larger ones streamed."""
_WRITTEN_WITHIN_S = 15.0
"""Seconds within which a request must begin to leave: a quarter of the time that a lease lives."""
_KEY_SHAPE = re.compile(r"[\x21-\x7e]+")
_HEADERS_KNOWN = 256
"""How many converted headers are cached: most headers repeat from answer to answer."""
Passage = Callable[[], AbstractAsyncContextManager[None]]
"""A context manager around each request and its answer. Entering may wait, or raise so that nothing is sent."""
Clock = Callable[[], float]
"""Returns seconds of a clock that goes on while the process or the machine is suspended."""
_handed_over_at: ContextVar[float] = ContextVar("handed_over_at")
"""When the request of the running task was handed over to be sent."""
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the IP addresses of a host name; raises `OSError` if there are none."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One request and its result: `status` is 0 without an answer, and `error` then names the kind of failure.

    `path` has no query; `seconds` until the answer's headers arrived; `key`: the idempotency key, "" if none.
    """

    method: str
    host: str
    path: str
    status: int
    seconds: float
    key: str = ""
    error: str = ""


Seen = Callable[[Exchanged], None]


class _SuspendedError(Exception):
    """Nothing of a request was written, because too much time had passed since it was handed over."""


def _clock_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


def check_base_url(text: str) -> httpx.URL:
    """Return the service's address without a trailing slash or API prefix; it may have its own path.

    Raises `BaseUrlError` unless it is https (http only for loopback, because every request carries the API key), without user
    names, queries and fragments, and not a cloud's metadata service.
    """
    try:
        url = httpx.URL(text.strip())
    except (httpx.InvalidURL, ValueError) as error:
        raise BaseUrlError(f"the base URL cannot be read: {error}", hint="write it like https://events.example.org") from None
    is_secure = url.scheme == "https" or (url.scheme == "http" and is_loopback(url.host))
    refusal = refusal_of_host(url.host)
    for is_wrong, problem, hint in (
        (not url.host, "it names no host", "write it like https://events.example.org"),
        (url.userinfo, "it holds a user name or password", "leave only the host; the key is set apart from it"),
        (url.query or url.fragment, "it holds a query or a fragment", "end it after the host or path"),
        (not is_secure, f"it would send the key over plain {url.scheme or 'text'}", "https is required, except for loopback"),
        (refusal, f"it {refusal}", "name the host of the service"),
    ):
        if is_wrong:
            raise BaseUrlError(f"the base URL is refused: {problem}", hint=hint)
    path = url.path.rstrip("/").removesuffix(API_PREFIX).rstrip("/")
    return url.copy_with(path=path or "/")


class ServiceHttp:
    """The HTTP connection to one service, an async context manager made by `open_http`. Never raises because of the network.

    Every request runs inside `passage`, and `seen` is called for each that was sent. `is_recognised`: the service has answered
    in its own format; before that, other formats mean another host.
    """

    def __init__(
        self, base_url: httpx.URL, secret: SecretStr, timeouts: httpx.Timeout, transport: httpx.AsyncBaseTransport
    ) -> None:
        self.passage: Passage = nullcontext
        self.seen: Seen | None = None
        self.is_recognised = False
        self._base_url = base_url
        self._transport = transport
        key = secret.get_secret_value()
        self.key_tail = f"…{key[-4:]}" if len(key) >= 12 else "…"
        """The key as shown to people: its last four characters, or nothing of a short key."""
        self._key = key.encode("ascii")
        self._mask = Mask([key])
        self._shown = lru_cache(_HEADERS_KNOWN)(self._masked_header)
        self._extensions = {"timeout": timeouts.as_dict()}
        self._keyless_headers = {
            b"host": base_url.netloc,
            b"user-agent": f"eventsync/{version('eventsync')}".encode("ascii"),
            b"accept": b"application/json",
            b"accept-encoding": b"identity",
        }
        self._headers = {**self._keyless_headers, b"authorization": b"Bearer " + self._key}

    async def __aenter__(self) -> Self:
        """Return the connection; sockets are opened when requests are sent."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await self._transport.aclose()

    def request(
        self, method: str, url: httpx.URL, *, content: bytes = b"", headers: Mapping[str, str] | None = None, has_key: bool = True
    ) -> httpx.Request:
        """Build a request to `url`; without `has_key` it has no Authorization. `headers`: ASCII, with lower-case names."""
        added = {name.encode("ascii"): value.encode("ascii") for name, value in (headers or {}).items()}
        sent = {**(self._headers if has_key else self._keyless_headers), **added}
        if content or method == "POST":
            sent[b"content-length"] = b"%d" % len(content)
        return httpx.Request(method, url, headers=sent, stream=httpx.ByteStream(content), extensions=self._extensions)

    def url(self, path: str, *, prefix: str = API_PREFIX) -> httpx.URL:
        """Return the address of `path` (with its query) under the API's prefix, or another prefix."""
        base = self._base_url
        return base.copy_with(raw_path=base.raw_path.rstrip(b"/") + f"{prefix}{path}".encode("ascii"))

    async def exchange(
        self, request: httpx.Request, may_leave: Callable[[], bool] = lambda: True, *, attempt_s: float = 90.0
    ) -> HttpAnswer | Meaning | None:
        """Send `request` once and read its answer. Return None without sending if `may_leave` is false at the last moment."""
        try:
            async with self.passage(), asyncio.timeout(attempt_s):
                return await self._send(request) if may_leave() else None
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.UnsupportedProtocol) as problem:
            message = self._mask.hide(str(problem)) or "no connection"
            return Meaning(AnswerKind.NOT_REACHED, Answer(0, "no_connection", message))
        except (httpx.TimeoutException, TimeoutError):
            return Meaning(AnswerKind.LOST, Answer(0, "timeout", "no whole answer in time"))
        except httpx.RequestError as problem:
            message = self._mask.hide(str(problem)) or "the connection broke"
            return Meaning(AnswerKind.LOST, Answer(0, "connection_lost", message))

    async def _send(self, request: httpx.Request) -> HttpAnswer:
        response = await (self._transport.handle_async_request(request) if self.seen is None else self._send_seen(request))
        body = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) >= LONGEST_BODY:
                    break
        finally:
            await response.aclose()
        # Answers are kept, and shown to people, so our key is taken out where they repeat it.
        headers: dict[str, str] = {}
        for raw_name, raw_value in response.headers.raw:
            name, value = self._shown(raw_name, raw_value)
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        content = bytes(body[:LONGEST_BODY])
        # Of a creation only numbers are kept, so that its body is only searched for the key as it is.
        is_harmless = request.method == "POST" and response.is_success and self._key not in content
        return HttpAnswer(response.status_code, headers, content if is_harmless else self._mask.hide_bytes(content))

    async def _send_seen(self, request: httpx.Request) -> httpx.Response:
        began, status, error = perf_counter(), 0, ""
        try:
            response = await self._transport.handle_async_request(request)
            status = response.status_code
        except httpx.TransportError as failure:
            error = type(failure).__name__
            raise
        finally:
            if self.seen and (status or error):
                key, seconds = request.headers.get("idempotency-key", ""), perf_counter() - began
                self.seen(Exchanged(request.method, request.url.host, request.url.path, status, seconds, key, error))
        return response

    def _masked_header(self, raw_name: bytes, raw_value: bytes) -> tuple[str, str]:
        return raw_name.decode("latin-1").lower(), self._mask.hide(raw_value.decode("utf-8", "replace"))


def open_http(
    base_url: str,
    secret: SecretStr,
    *,
    transport: httpx.AsyncBaseTransport | None = None,
    timeouts: httpx.Timeout = DEFAULT_TIMEOUTS,
    in_flight: int = 8,
    resolve: Resolve | None = None,
) -> ServiceHttp:
    """Return the connection to the service at `base_url`, an async context manager; nothing is sent yet.

    It follows no redirect and keeps at most `in_flight` connections. `transport` and `resolve` replace network and resolver in
    tests. Raises `BaseUrlError` and `KeyFormatError`, neither of which shows the key.
    """
    url, key = check_base_url(base_url), secret.get_secret_value().strip()
    if not _KEY_SHAPE.fullmatch(key):
        problem = "holds a space, a line break or a character outside of ASCII" if key else "is empty"
        hint = "set EVENT_API_KEY, or EVENT_API_KEY_FILE, to the key as it was shown"
        raise KeyFormatError(f"the API key {problem}", hint=hint)
    wire = transport or direct_transport(url, in_flight=in_flight, resolve=resolve or resolve_by_system)
    return ServiceHttp(url, SecretStr(key), timeouts, wire)


def direct_transport(url: httpx.URL, *, in_flight: int, resolve: Resolve, clock_s: Clock = _clock_s) -> httpx.AsyncBaseTransport:
    """Return a transport to `url`'s host with at most `in_flight` connections, through the environment's proxy if set.

    Certificates are verified as by httpx (`SSL_CERT_FILE` and `SSL_CERT_DIR` are used). It never retries or redirects, and
    never connects to a cloud's metadata service. The client that uses it must close it.
    """
    tls = httpx.create_ssl_context() if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def connector() -> aiohttp.TCPConnector:
        resolver = GuardedResolver(resolve, allows_private=True)
        return aiohttp.TCPConnector(limit=in_flight, ssl=tls, keepalive_timeout=_KEPT_ALIVE_S, resolver=resolver)

    return AiohttpWire(connector, _proxy_for(url), clock_s)


def _proxy_for(url: httpx.URL) -> httpx.Proxy | None:
    proxies = getproxies()
    chosen = proxies.get(url.scheme) or proxies.get("all")
    if not chosen or proxy_bypass(url.netloc.decode("ascii")):
        return None
    proxy = httpx.Proxy(chosen if "://" in chosen else f"http://{chosen}")
    if proxy.auth is None:
        return proxy
    # As a header: in the address the password would be in the name of a connection.
    return httpx.Proxy(proxy.url, headers={"authorization": aiohttp.encode_basic_auth(*proxy.auth)})


class AiohttpWire(httpx.AsyncBaseTransport):
    """Sends each request once; raises `httpx.ConnectError` and its subclasses only if no connection was established.

    If this process is suspended before a request leaves, nothing of it is written: another run may have the feed by then.
    `open_connector` is called once, inside the event loop. No error shows a request's headers, which hold the key.
    """

    def __init__(
        self, open_connector: Callable[[], aiohttp.TCPConnector], proxy: httpx.Proxy | None = None, clock_s: Clock = _clock_s
    ) -> None:
        hooks = aiohttp.TraceConfig()
        hooks.on_request_chunk_sent.append(self._check_time)

        def session() -> aiohttp.ClientSession:
            return aiohttp.ClientSession(connector=open_connector(), cookie_jar=aiohttp.DummyCookieJar(), trace_configs=[hooks])

        self._clock_s = clock_s
        self._wire = AiohttpTransport(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), proxy=proxy, client=session)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request`; every failure is an `httpx.TransportError`."""
        _handed_over_at.set(self._clock_s())
        if int(request.headers.get("content-length", "0")) <= _SENT_AT_ONCE:
            request.read()
        try:
            response = await self._wire.handle_async_request(request)
        except (httpx.TransportError, aiohttp.ClientError, OSError, ValueError) as failure:
            raised = _unreached(failure, request) or _lost(failure, request)
        else:
            response.stream = _Body(response.stream, request)
            return response
        raise raised

    async def _check_time(self, _: object, request: SimpleNamespace, __: object) -> None:
        """Raise if too much time has passed; aiohttp calls this right before it writes the headers with the start of the body."""
        if not hasattr(request, "has_begun") and self._clock_s() - _handed_over_at.get() > _WRITTEN_WITHIN_S:
            raise _SuspendedError
        request.has_begun = True

    async def aclose(self) -> None:
        """Close all connections."""
        await self._wire.aclose()


class _Body(httpx.AsyncByteStream):
    """The body of an answer, streamed; an error while reading means that the request was sent."""

    def __init__(self, stream: httpx.SyncByteStream | httpx.AsyncByteStream, request: httpx.Request) -> None:
        self._stream = stream
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces."""
        try:
            async for piece in self._stream:  # type: ignore[union-attr]  # the transport's is asynchronous
                yield piece
        except (httpx.TransportError, aiohttp.ClientError, OSError) as failure:
            raised = _lost(failure, self._request)
        else:
            return
        raise raised

    async def aclose(self) -> None:
        """Release the connection for reuse, or close it if the body was not read completely."""
        await self._stream.aclose()  # type: ignore[union-attr]  # as above


def _origin(failure: Exception) -> BaseException:
    return failure.__cause__ if isinstance(failure, httpx.TransportError) and failure.__cause__ else failure


def _unreached(failure: Exception, request: httpx.Request) -> httpx.TransportError | None:  # noqa: PLR0911  # one arm a cause
    """Return the error of a request that certainly was not sent, None if it may have been."""
    match _origin(failure):
        case aiohttp.ClientConnectionError(__cause__=_SuspendedError()):
            return httpx.ConnectTimeout("this process was suspended before it was sent", request=request)
        case aiohttp.ClientHttpProxyError(status=status):
            return httpx.ProxyError(f"the proxy let nothing through: it answers {status}", request=request)
        case aiohttp.ClientProxyConnectionError() as origin:
            return httpx.ProxyError(f"the proxy let nothing through: {_reason(origin.os_error)}", request=request)
        case aiohttp.ConnectionTimeoutError():
            return httpx.ConnectTimeout("no connection in time", request=request)
        case aiohttp.InvalidURL() as origin:
            return httpx.UnsupportedProtocol(f"no address to connect to: {origin}", request=request)
        case aiohttp.ClientConnectorError() as origin:
            return httpx.ConnectError(
                f"no connection to {origin.host}:{origin.port}: {_reason(origin.os_error)}", request=request
            )
        case ValueError():
            return httpx.UnsupportedProtocol("the request cannot be written", request=request)
        case _:
            return None


def _lost(failure: Exception, request: httpx.Request) -> httpx.TransportError:
    match _origin(failure):
        case aiohttp.ServerTimeoutError():
            return httpx.ReadTimeout("no answer in time", request=request)
        case aiohttp.ClientResponseError() as origin:
            return httpx.RemoteProtocolError(f"no HTTP answer: {origin.message}", request=request)
        case origin:
            # What the HTTP library adds in angle brackets is its own error, with a status that was never sent.
            return httpx.ReadError(f"the connection broke: {str(origin).partition(': <')[0]}", request=request)


def _reason(problem: OSError) -> str:
    """Return the operating system's text, in lower case: connection refused, name or service not known."""
    return (problem.strerror or str(problem)).lower()


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Resolve a host name by the operating system."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


class GuardedResolver(AbstractResolver):
    """Resolves names to checked addresses only, so that a spreadsheet's cell cannot make us read from our own network.

    The checked address is the one connected to, so a name that resolves differently the second time (DNS rebinding) has no
    effect. `refused`: the reason by name.
    """

    def __init__(self, resolve: Resolve, *, allows_private: bool) -> None:
        self._resolve = resolve
        self._allows_private = allows_private
        self.refused: dict[str, str] = {}

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        """Return the checked addresses of `host`; a single forbidden one refuses it."""
        addresses = await self._resolve(host, port)
        if refusal := refusal_of(addresses, allows_private=self._allows_private):
            self.refused[host] = refusal
            raise OSError(0, f"it {refusal}")
        families = {address: socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses}
        flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        return [
            ResolveResult(hostname=host, host=address, port=port, family=own, proto=socket.IPPROTO_TCP, flags=flags)
            for address, own in families.items()
            if family in {socket.AF_UNSPEC, own}
        ]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

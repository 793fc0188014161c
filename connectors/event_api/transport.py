"""The wire under httpx: aiohttp's connections, on which a request is written at once, and only if it may still leave.

What a failure means for a row is `answers`' and `delivery`'s; how one is told, so that a connection never made is known
from one that broke after the request had left, is `failures`'.
"""

from __future__ import annotations

import asyncio
import re
import select
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from time import perf_counter
from typing import Self
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet

import aiohttp
import httpx
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from pydantic import SecretStr
from yarl import URL

from connectors.addresses import is_loopback, refusal_of, refusal_of_host
from connectors.errors import BaseUrlError, KeyFormatError
from connectors.event_api.answers import Lost, NotReached
from connectors.masking import Mask
from mappings.delivery import Answer

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the IP addresses of a host name; raises `OSError` where there are none."""


async def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Resolve as the operating system does."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[4][0]) for address in found))


class GuardedResolver(AbstractResolver):
    """Gives the connector only addresses that were checked: what it connects to is what was looked at.

    So a name that answers differently the second time (DNS rebinding) gains nothing. `refused` says of names why they were
    refused.
    """

    def __init__(self, resolve: Resolve, *, allows_private: bool) -> None:
        self._resolve = resolve
        self._allows_private = allows_private
        self.refused: dict[str, str] = {}

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        """Return the checked addresses of `host`; a single forbidden one among them refuses it."""
        addresses = await self._resolve(host, port)
        if refusal := refusal_of(addresses, allows_private=self._allows_private):
            self.refused[host] = refusal
            raise OSError(0, f"it {refusal}")
        return [_result(host, address, port) for address in addresses if family in {socket.AF_UNSPEC, _family(address)}]

    async def close(self) -> None:
        """Hold nothing that needs closing."""


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _result(host: str, address: str, port: int) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=_family(address),
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )


class HeldBackError(Exception):
    """The request was not written: its admission no longer holds. Nothing of it has left."""


def _always() -> bool:
    return True


may_leave: ContextVar[Callable[[], bool]] = ContextVar("may_leave", default=_always)
"""Whether the request that the running task is about to write may still leave."""


def as_httpx(failure: aiohttp.ClientError | HttpProcessingError | OSError, request: httpx.Request) -> httpx.TransportError:
    """Return what happened to `request`: an error of "never reached" only where no connection was established."""
    return _unreached(failure, request) or _lost(failure, request)


def _unreached(origin: Exception, request: httpx.Request) -> httpx.TransportError | None:
    match origin:
        case aiohttp.ClientHttpProxyError():
            return httpx.ProxyError(f"the proxy let nothing through: it answers {origin.status}", request=request)
        case aiohttp.ClientProxyConnectionError():
            return httpx.ProxyError(f"the proxy let nothing through: {_reason(origin.os_error)}", request=request)
        case aiohttp.ConnectionTimeoutError():
            return httpx.ConnectTimeout("no connection in time", request=request)
        case aiohttp.InvalidURL():
            return httpx.UnsupportedProtocol(f"no address to connect to: {origin}", request=request)
        case aiohttp.ClientConnectorError():
            return httpx.ConnectError(
                f"no connection to {origin.host}:{origin.port}: {_reason(origin.os_error)}", request=request
            )
        case _:
            return None


def _lost(origin: Exception, request: httpx.Request) -> httpx.TransportError:
    match origin:
        case aiohttp.ServerTimeoutError():
            return httpx.ReadTimeout("no answer in time", request=request)
        case HttpProcessingError():
            return httpx.RemoteProtocolError(f"no HTTP answer: {origin.message}", request=request)
        case _:
            # What the HTTP library adds in angle brackets is its own error, with a status that nobody sent.
            return httpx.ReadError(f"the connection broke: {str(origin).partition(': <')[0]}", request=request)


def _reason(problem: OSError) -> str:
    """Return the system's own words: connection refused, name or service not known."""
    return (problem.strerror or str(problem)).lower()


_KEPT_ALIVE_S = 4.0
"""Below the five seconds after which common servers close an idle connection: fewer requests meet a closing one."""
_SWITCHING = 101
"""The one answer below 200 that no other follows."""


def direct_transport(url: httpx.URL, *, in_flight: int, resolve: Resolve = resolve_by_system) -> httpx.AsyncBaseTransport:
    """Return a transport to `url`'s host with at most `in_flight` connections, through the environment's proxy if any.

    Certificates are verified as httpx does (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured). No request is repeated
    and no redirect followed here. Names that lead to the metadata service of a cloud are not connected to. Must be closed
    by the client that uses it.
    """
    tls = httpx.create_ssl_context() if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def connector() -> aiohttp.TCPConnector:
        resolver = GuardedResolver(resolve, allows_private=True)
        return aiohttp.TCPConnector(limit=in_flight, ssl=tls, keepalive_timeout=_KEPT_ALIVE_S, resolver=resolver)

    return FrankTransport(connector, _proxy_for(url))


class FrankTransport(httpx.AsyncBaseTransport):
    """Sends each request once, and raises `httpx.ConnectError` or `ConnectTimeout` only where no connection was established.

    aiohttp makes and keeps the connections, and reads the answers. `open_connector` is called once, inside the event loop.
    """

    def __init__(self, open_connector: Callable[[], aiohttp.TCPConnector], proxy: httpx.Proxy | None = None) -> None:
        self._open_connector = open_connector
        self._connector: aiohttp.TCPConnector | None = None
        self._proxy = proxy
        self._login = _login(proxy)
        self._destination = lru_cache(self._new_destination)
        self._used: WeakSet[ResponseHandler] = WeakSet()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request`, whose headers tell the length of its body; every failure is an `httpx.TransportError` without headers.

        Raises `HeldBackError`, with nothing written, where the request may leave no more once it has a connection: getting
        one may take as long as a pause.
        """
        content = request.read()  # it is there: ours are given as bytes
        head = self._head(request)
        try:
            connection = await self._connected(request)
            return await _answered(connection, request, head + content)
        except (aiohttp.ClientError, HttpProcessingError, OSError) as failure:
            told = as_httpx(failure, request)
        raise told

    async def aclose(self) -> None:
        """Close all connections."""
        if self._connector is not None:
            await self._connector.close()

    async def _connected(self, request: httpx.Request) -> Connection:
        """Return a connection of our own.

        A kept one on which something waits to be read is not used again: it is at its end, or holds what nobody has
        asked for, a second copy of an answer perhaps, which would be taken for the answer to the next request.
        """
        self._connector = self._connector or self._open_connector()
        destination = self._destination(request.url.scheme, request.url.netloc)
        try:
            connection = await self._connector.connect(destination, [], _timeouts(request))
            while _is_spoilt(connection, self._used):
                connection.close()
                connection = await self._connector.connect(destination, [], _timeouts(request))
        except TimeoutError as late:
            raise aiohttp.ConnectionTimeoutError from late
        if connection.protocol is not None:
            self._used.add(connection.protocol)
        return connection

    def _new_destination(self, scheme: str, netloc: bytes) -> aiohttp.ClientRequest:
        """Say where to connect to, and through what, in the form in which aiohttp's connector is told it."""
        try:
            url = URL(f"{scheme}://{netloc.decode('ascii')}")
        except ValueError as problem:
            raise aiohttp.InvalidURL(netloc.decode("ascii")) from problem
        if scheme not in {"http", "https"}:
            raise aiohttp.InvalidURL(url)
        return aiohttp.ClientRequest(
            "POST",
            url,
            loop=asyncio.get_running_loop(),
            proxy=URL(str(self._proxy.url)) if self._proxy else None,
            proxy_headers={name.decode("ascii"): value.decode("ascii") for name, value in self._login},
        )

    def _head(self, request: httpx.Request) -> bytes:
        """Return the request line and the headers (RFC 9112, 3 and 5), as the server, or the proxy that relays them, is told."""
        url, headers, target = request.url, request.headers.raw, request.url.raw_path
        if self._proxy and url.scheme == "http":
            target, headers = b"http://%b%b" % (url.netloc, target), headers + self._login
        lines = [b"%b %b HTTP/1.1" % (request.method.encode("ascii"), target), *(b"%b: %b" % header for header in headers)]
        head = b"\r\n".join(lines)
        if len(head.splitlines()) != len(lines):
            raise httpx.LocalProtocolError("a header holds a line break", request=request)
        return head + b"\r\n\r\n"


async def _answered(connection: Connection, request: httpx.Request, content: bytes) -> httpx.Response:
    """Write the whole request in one go, and return its answer, whose body is still to be read."""
    try:
        protocol = _written(connection, content, _timeouts(request).sock_read)
        message, body = await protocol.read()
        while message.code < httpx.codes.OK and message.code != _SWITCHING:
            message, body = await protocol.read()
    except BaseException:
        connection.close()
        raise
    return httpx.Response(
        message.code, headers=message.raw_headers, stream=WireStream(connection, body, request), request=request
    )


def _written(connection: Connection, content: bytes, read_s: float | None) -> ResponseHandler:
    """Look a last time whether the request may leave, and write it: nothing else gets its turn in between."""
    protocol = connection.protocol
    if protocol is None or protocol.transport is None:
        raise aiohttp.ServerDisconnectedError
    protocol.set_response_params(read_until_eof=True, auto_decompress=False, read_timeout=read_s)
    if not may_leave.get()():
        connection.release()
        raise HeldBackError
    protocol.transport.write(content)
    if not protocol.writing_paused:  # else no answer is due yet, and the time for the whole of it is the only bound
        protocol.start_timeout()
    return protocol


class WireStream(httpx.AsyncByteStream):
    """The body of an answer as it arrives, as httpx reads it; or all of it at once, up to a bound."""

    def __init__(self, connection: Connection, body: aiohttp.StreamReader, request: httpx.Request) -> None:
        self._connection = connection
        self._body = body
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield what has arrived, piece by piece; raises as `handle_async_request` does."""
        while not self._body.at_eof():
            yield await self._piece()

    async def read(self, most: int) -> bytes:
        """Return the whole body, or as soon as there are `most` bytes of it what has arrived; raises the same."""
        content = bytearray()
        while len(content) < most and not self._body.at_eof():
            content += await self._piece()
        return bytes(content)

    async def aclose(self) -> None:
        """Let the connection serve others, unless something is left to be read or written: then it is closed."""
        transport = self._connection.transport
        if transport is not None and transport.get_write_buffer_size():
            self._connection.close()
        else:
            self._connection.release()

    async def _piece(self) -> bytes:
        try:
            return await self._body.readany()
        except (aiohttp.ClientError, HttpProcessingError, OSError) as failure:
            told = as_httpx(failure, self._request)
        raise told


def _timeouts(request: httpx.Request) -> aiohttp.ClientTimeout:
    told = request.extensions.get("timeout", {})
    return _client_timeout(told.get("pool"), told.get("connect"), told.get("read"))


@lru_cache
def _client_timeout(pool_s: float | None, connect_s: float | None, read_s: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(connect=pool_s, sock_connect=connect_s, sock_read=read_s)


def _login(proxy: httpx.Proxy | None) -> list[tuple[bytes, bytes]]:
    """Return the header by which the proxy knows us; in an address the password would be in a connection's name."""
    if proxy is None or proxy.raw_auth is None:
        return []
    return [(b"proxy-authorization", b"Basic " + b64encode(b":".join(proxy.raw_auth)))]


def _is_spoilt(connection: aiohttp.connector.Connection, used: WeakSet[ResponseHandler]) -> bool:
    protocol = connection.protocol
    if protocol is None or protocol not in used:  # a new one may have something of the TLS handshake to read
        return False
    if protocol.should_close or protocol.transport is None:
        return True
    line = protocol.transport.get_extra_info("socket")
    return line is not None and _is_readable(line.fileno())


def _is_readable(descriptor: int) -> bool:
    look = select.poll()  # `select.select` knows no descriptor above 1023
    look.register(descriptor, select.POLLIN)
    return bool(look.poll(0))


def _proxy_for(url: httpx.URL) -> httpx.Proxy | None:
    proxies = getproxies()
    chosen = proxies.get(url.scheme) or proxies.get("all")
    if not chosen or proxy_bypass(url.netloc.decode("ascii")):
        return None
    return httpx.Proxy(chosen if "://" in chosen else f"http://{chosen}")


IDEMPOTENCY_KEY = "idempotency-key"


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One request that left, and what came back: `status` 0 where nothing did, `error` then names the kind of failure.

    `path` is without its query; `seconds` until the head of the answer was there; `key`: its idempotency key, "" if it had
    none.
    """

    method: str
    host: str
    path: str
    status: int
    seconds: float
    key: str = ""
    error: str = ""


Seen = Callable[[Exchanged], None]


class WatchedTransport(httpx.AsyncBaseTransport):
    """Sends each request over `wire` and tells `seen` of it. What was held back, and never left, is not told."""

    def __init__(self, wire: httpx.AsyncBaseTransport, seen: Seen) -> None:
        self._wire = wire
        self._seen = seen

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request` as the wire does, and raise what it raises."""
        began = perf_counter()
        try:
            response = await self._wire.handle_async_request(request)
        except httpx.TransportError as failure:
            self._tell(request, perf_counter() - began, error=type(failure).__name__)
            raise
        self._tell(request, perf_counter() - began, response.status_code)
        return response

    async def aclose(self) -> None:
        """Close the wire."""
        await self._wire.aclose()

    def _tell(self, request: httpx.Request, seconds: float, status: int = 0, error: str = "") -> None:
        key = request.headers.get(IDEMPOTENCY_KEY, "")
        self._seen(Exchanged(request.method, request.url.host, request.url.path, status, seconds, key, error))


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


_HEADERS_KNOWN = 256
"""So many headers are kept as they are shown: most of an answer's are those of the one before."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer that arrived whole. `headers` has lower-case names; `body` is cut at a sane length, our key masked."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Exchange:
    """Sends requests through `http`, each at most `attempt_s` seconds long, and never raises for what the network does."""

    def __init__(self, http: ServiceHttp, *, attempt_s: float) -> None:
        self._http = http
        self._attempt_s = attempt_s
        secret = secret_of(http)
        self._raw = secret.encode("ascii")
        self._mask = Mask([secret])
        self._shown = lru_cache(_HEADERS_KNOWN)(self._masked_header)
        self._extensions = {"timeout": http.timeouts.as_dict()}
        self._headers = {b"host": http.base_url.netloc, **_as_sent(http.headers)}
        self._keyless_headers = {name: value for name, value in self._headers.items() if name != b"authorization"}

    def request(
        self, method: str, url: httpx.URL, *, content: bytes = b"", headers: Mapping[str, str] | None = None, has_key: bool = True
    ) -> httpx.Request:
        """Build one request to `url`; without `has_key` it carries no Authorization. `headers`: ASCII, names in lower case."""
        sent = {**(self._headers if has_key else self._keyless_headers), **_as_sent(headers or {})}
        if content or method == "POST":
            sent[b"content-length"] = b"%d" % len(content)
        # With `content` instead httpx would work out for each request anew what host, length and kind of body it has.
        return httpx.Request(method, url, headers=sent, stream=httpx.ByteStream(content), extensions=self._extensions)

    def url(self, path: str, *, prefix: str = API_PREFIX) -> httpx.URL:
        """Return the address of `path` (with its query) under the API's prefix, or another one of the service."""
        base = self._http.base_url
        return base.copy_with(raw_path=base.raw_path.rstrip(b"/") + f"{prefix}{path}".encode("ascii"))

    async def __call__(self, request: httpx.Request) -> HttpAnswer | NotReached | Lost:
        """Send `request` once and read its answer."""
        try:
            async with self._http.passage(), asyncio.timeout(self._attempt_s):
                return await self._send(request)
        except (
            httpx.ConnectError,
            httpx.ConnectTimeout,
            httpx.PoolTimeout,
            httpx.ProxyError,
            httpx.UnsupportedProtocol,
        ) as problem:
            return NotReached(Answer(status=0, code="no_connection", message=self._mask.hide(str(problem)) or "no connection"))
        except (httpx.TimeoutException, TimeoutError):
            return Lost(Answer(status=0, code="timeout", message="no whole answer in time"))
        except httpx.RequestError as problem:
            return Lost(Answer(status=0, code="connection_lost", message=self._mask.hide(str(problem)) or "the connection broke"))

    async def _send(self, request: httpx.Request) -> HttpAnswer:
        response = await self._http.send(request)
        try:
            body = await read_bounded(response)
        finally:
            await response.aclose()
        # Of a creation only numbers are kept, so that its body is only looked through for the key as it is.
        is_harmless = request.method == "POST" and response.is_success and self._raw not in body
        headers = self._masked_headers(response.headers.raw)
        return HttpAnswer(response.status_code, headers, body if is_harmless else self._mask.hide_bytes(body))

    def _masked_headers(self, raw: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
        """Take our key out of headers that repeat it: answers are kept, and shown to people. Several of a name are joined."""
        headers: dict[str, str] = {}
        for raw_name, raw_value in raw:
            name, value = self._shown(raw_name, raw_value)
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return headers

    def _masked_header(self, raw_name: bytes, raw_value: bytes) -> tuple[str, str]:
        return raw_name.decode("latin-1").lower(), self._mask.hide(raw_value.decode("utf-8", "replace"))


def _as_sent(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    return {name.encode("ascii"): value.encode("ascii") for name, value in headers.items()}

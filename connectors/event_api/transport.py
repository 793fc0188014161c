"""The wire under httpx: aiohttp's connections, on which a request is written at once, and only if it may still leave.

What a failure means for a row is `answers`' and `delivery`'s; how one is told, so that a connection never made is known
from one that broke after the request had left, is `failures`'.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from functools import lru_cache
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet

import aiohttp
import httpx
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError
from yarl import URL

from connectors.event_api.addresses import GuardedResolver, Resolve, resolve_by_system
from connectors.event_api.departure import HeldBackError, may_leave
from connectors.event_api.failures import as_httpx

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

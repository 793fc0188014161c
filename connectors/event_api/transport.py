"""The wire under httpx: aiohttp's connections, with every failure told as what it is.

What a failure means for a row is `answers`' and `delivery`'s. A connection that was never made and a connection that
broke after the request had left are worlds apart here, so each becomes httpx's own error for it; no error carries the
request's headers, and with them the secret.
"""

from __future__ import annotations

import select
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from functools import lru_cache
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet

import aiohttp
import httpx
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace

from connectors.event_api.departure import HeldBackError, may_leave

_KEPT_ALIVE_S = 4.0
"""Below the five seconds after which common servers close an idle connection: fewer requests meet a closing one."""


def direct_transport(url: httpx.URL, *, in_flight: int) -> httpx.AsyncBaseTransport:
    """Return a transport to `url`'s host with at most `in_flight` connections, through the environment's proxy if any.

    Certificates are verified as httpx does (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured). No request is repeated
    and no redirect followed here. Must be closed by the client that uses it.
    """
    tls = httpx.create_ssl_context() if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return FrankTransport(lambda: _session(tls, in_flight), _proxy_for(url))


class FrankTransport(httpx.AsyncBaseTransport):
    """aiohttp under httpx, raising `httpx.ConnectError` or `ConnectTimeout` only where no connection was established.

    `open_session` is called once, inside the event loop, when the first request is sent.
    """

    def __init__(self, open_session: Callable[[], aiohttp.ClientSession], proxy: httpx.Proxy | None = None) -> None:
        self._open_session = open_session
        self._session: aiohttp.ClientSession | None = None
        self._proxy = str(proxy.url) if proxy else None
        self._login = _login(proxy.raw_auth) if proxy and proxy.raw_auth else {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request` once; every failure is an `httpx.TransportError` that knows no header."""
        if self._session is None:
            self._session = self._open_session()
        try:
            answer = await self._sent(self._session, request)
        except aiohttp.ClientError as failure:
            told = _as_httpx(failure, request)
        else:
            return httpx.Response(answer.status, headers=answer.raw_headers, stream=WireStream(answer, request), request=request)
        raise told

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _sent(self, session: aiohttp.ClientSession, request: httpx.Request) -> aiohttp.ClientResponse:
        asked = request.extensions.get("timeout", {})
        headers = [(name.decode("ascii"), value.decode("ascii")) for name, value in request.headers.raw]
        if self._login and request.url.scheme == "http":  # no tunnel: the proxy reads the request itself
            headers += self._login.items()
        return await session.request(
            request.method,
            str(request.url),
            headers=headers,
            data=await request.aread() or None,
            allow_redirects=False,
            timeout=_timeout(asked.get("pool"), asked.get("connect"), asked.get("read")),
            proxy=self._proxy,
            proxy_headers=self._login,
        )


class WireStream(httpx.AsyncByteStream):
    """The body of an answer as it arrives, as httpx reads it; or all of it at once, up to a bound."""

    def __init__(self, answer: aiohttp.ClientResponse, request: httpx.Request) -> None:
        self._answer = answer
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield what has arrived, piece by piece; raises as `handle_async_request` does."""
        while not self._answer.content.at_eof():
            yield await self._piece()

    async def read(self, most: int) -> bytes:
        """Return the whole body, or as soon as there are `most` bytes of it what has arrived; raises the same."""
        body = bytearray()
        while len(body) < most and not self._answer.content.at_eof():
            body += await self._piece()
        return bytes(body)

    async def aclose(self) -> None:
        """Let the connection serve others, unless something of the body is left unread: then it is closed."""
        self._answer.release()

    async def _piece(self) -> bytes:
        try:
            return await self._answer.content.readany()
        except aiohttp.ClientError as failure:
            told = _as_httpx(failure, self._request)
        raise told


@lru_cache
def _timeout(pool_s: float | None, connect_s: float | None, read_s: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(connect=pool_s, sock_connect=connect_s, sock_read=read_s)


def _login(login: tuple[bytes, bytes]) -> dict[str, str]:
    """Return the header by which a proxy knows us: in a header of its own the password is in no connection's name."""
    return {"proxy-authorization": "Basic " + b64encode(b":".join(login)).decode("ascii")}


def _as_httpx(failure: aiohttp.ClientError, request: httpx.Request) -> httpx.TransportError:
    return _unreached(failure, request) or _lost(failure, request)


def _unreached(origin: aiohttp.ClientError, request: httpx.Request) -> httpx.TransportError | None:
    match origin:
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return httpx.ProxyError("the proxy let nothing through", request=request)
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


def _lost(origin: aiohttp.ClientError, request: httpx.Request) -> httpx.TransportError:
    match origin:
        case aiohttp.ServerTimeoutError():
            return httpx.ReadTimeout("no answer in time", request=request)
        case aiohttp.ClientResponseError():
            return httpx.RemoteProtocolError(f"no HTTP answer: {origin.message}", request=request)
        case _:
            # What the HTTP library adds in angle brackets is its own error, with a status that nobody sent.
            return httpx.ReadError(f"the connection broke: {str(origin).partition(': <')[0]}", request=request)


def _reason(problem: OSError) -> str:
    """Return the system's own words: connection refused, name or service not known."""
    return (problem.strerror or str(problem)).lower()


class _PunctualConnector(aiohttp.TCPConnector):
    """Hands out a connection only to a request that may still leave: getting one may take as long as a pause.

    A kept connection on which something waits to be read is not used again: it is at its end, or holds what nobody has
    asked for, a second copy of an answer perhaps, which would be taken for the answer to the next request.
    """

    def __init__(self, *, limit: int, ssl: ssl.SSLContext) -> None:
        super().__init__(limit=limit, ssl=ssl, keepalive_timeout=_KEPT_ALIVE_S)
        self._used: WeakSet[ResponseHandler] = WeakSet()

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # the signature is aiohttp's
    ) -> aiohttp.connector.Connection:
        connection = await super().connect(req, traces, timeout)
        while _is_spoilt(connection, self._used):
            connection.close()
            connection = await super().connect(req, traces, timeout)
        if not may_leave.get()():
            connection.release()
            raise HeldBackError
        if connection.protocol is not None:
            self._used.add(connection.protocol)
        return connection


class _PunctualRequest(aiohttp.ClientRequest):
    """Asks once more in the very moment of writing: before Python 3.12 that is a task of its own, which others may delay."""

    async def write_bytes(
        self, writer: AbstractStreamWriter, conn: aiohttp.connector.Connection, content_length: int | None = None
    ) -> None:
        if may_leave.get()():
            await super().write_bytes(writer, conn, content_length)
        elif conn.protocol is not None:
            conn.protocol.set_exception(HeldBackError())


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


def _session(tls: ssl.SSLContext, in_flight: int) -> aiohttp.ClientSession:
    connector = _PunctualConnector(limit=in_flight, ssl=tls)
    return aiohttp.ClientSession(
        connector=connector, request_class=_PunctualRequest, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
    )


def _proxy_for(url: httpx.URL) -> httpx.Proxy | None:
    proxies = getproxies()
    chosen = proxies.get(url.scheme) or proxies.get("all")
    if not chosen or proxy_bypass(url.netloc.decode("ascii")):
        return None
    return httpx.Proxy(chosen if "://" in chosen else f"http://{chosen}")

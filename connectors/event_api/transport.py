"""The wire under httpx: aiohttp's connections, with every failure told as what it is.

What a failure means for a row is `answers`' and `delivery`'s. A connection that was never made and a connection that
broke after the request had left are worlds apart here, so each becomes httpx's own error for it; no error carries the
request's headers, and with them the secret.
"""

from __future__ import annotations

import select
import ssl
from collections.abc import AsyncIterator
from typing import cast
from urllib.request import getproxies, proxy_bypass
from weakref import WeakSet

import aiohttp
import httpx
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace
from httpx_aiohttp import AiohttpTransport

from connectors.event_api.departure import HeldBackError, may_leave

_KEPT_ALIVE_S = 4.0
"""Below the five seconds after which common servers close an idle connection: fewer requests meet a closing one."""


def direct_transport(url: httpx.URL, *, in_flight: int) -> httpx.AsyncBaseTransport:
    """Return a transport to `url`'s host with at most `in_flight` connections, through the environment's proxy if any.

    Certificates are verified as httpx does (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured). No request is repeated
    and no redirect followed here. Must be closed by the client that uses it.
    """
    tls = httpx.create_ssl_context() if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return FrankTransport(verify=tls, proxy=_proxy_for(url), client=lambda: _session(tls, in_flight))


class FrankTransport(AiohttpTransport):
    """aiohttp under httpx, raising `httpx.ConnectError` or `ConnectTimeout` only where no connection was established."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request` once; every failure is an `httpx.TransportError` that knows no header."""
        try:
            response = await super().handle_async_request(request)
        except (httpx.TransportError, aiohttp.ClientError) as failure:
            told = _as_httpx(failure, request)
        else:
            response.stream = _FrankStream(cast("httpx.AsyncByteStream", response.stream), request)
            return response
        raise told


class _FrankStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream, request: httpx.Request) -> None:
        self._stream = stream
        self._request = request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        told: httpx.TransportError | None = None
        try:
            async for chunk in self._stream:
                yield chunk
        except (httpx.TransportError, aiohttp.ClientError) as failure:
            told = _as_httpx(failure, self._request)
        if told is not None:
            raise told

    async def aclose(self) -> None:
        await self._stream.aclose()


def _as_httpx(failure: httpx.TransportError | aiohttp.ClientError, request: httpx.Request) -> httpx.TransportError:
    origin = failure.__cause__ if isinstance(failure, httpx.TransportError) else failure
    return _unreached(origin, request) or _lost(origin or failure, request)


def _unreached(origin: BaseException | None, request: httpx.Request) -> httpx.TransportError | None:
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


def _lost(origin: BaseException, request: httpx.Request) -> httpx.TransportError:
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
    return aiohttp.ClientSession(connector=connector, request_class=_PunctualRequest, cookie_jar=aiohttp.DummyCookieJar())


def _proxy_for(url: httpx.URL) -> httpx.Proxy | None:
    proxies = getproxies()
    chosen = proxies.get(url.scheme) or proxies.get("all")
    if not chosen or proxy_bypass(url.netloc.decode("ascii")):
        return None
    return httpx.Proxy(chosen if "://" in chosen else f"http://{chosen}")

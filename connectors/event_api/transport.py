"""One HTTP exchange with the service: a request is sent once, and every result is returned as a value.

The network library is aiohttp: no layer between it and us may give an answer another meaning, and a second one costs a third
of a request's time (budget 5). "Certainly not sent" is said only of a request of which no byte was written, whatever error
ended it: a hook of aiohttp is called right before the first byte.
"""

from __future__ import annotations

import asyncio
import io
import re
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from types import SimpleNamespace
from typing import Protocol, Self
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx
from aiohttp.abc import AbstractResolver, ResolveResult
from pydantic import SecretStr
from yarl import URL

from connectors.addresses import is_loopback, refusal_of, refusal_of_host
from connectors.errors import BaseUrlError, CertificateError, KeyFormatError, ProxyAddressError
from connectors.event_api.answers import AnswerKind, HttpAnswer, Meaning
from connectors.masking import Mask
from mappings.delivery import API_PREFIX, Answer

LONGEST_BODY = 4 << 20
"""The most bytes read of an answer."""
LONGEST_HEADER = 1 << 16
"""The most bytes of one header of an answer, and of its status line."""
DEFAULT_TIMEOUTS = aiohttp.ClientTimeout(total=None, connect=60.0, sock_connect=10.0, sock_read=60.0)
"""Seconds to wait for a free connection, to connect, and between two reads."""
ATTEMPT_S = 90.0
"""Seconds for one request with its answer."""
_KEPT_ALIVE_S = 4.0
"""How long idle connections are kept, below the five seconds of common servers, so that fewer requests meet a closing one."""
_SENT_AT_ONCE = 1 << 19
"""Request bodies up to this size are written at once, larger ones streamed."""
_WRITTEN_WITHIN_S = 15.0
"""Seconds within which a request must begin to leave: a quarter of the time that a lease lives."""
_LONGEST_REASON = 200
_KEY_SHAPE = re.compile(r"[\x21-\x7e]+")
_HEADERS_KNOWN = 256
"""How many converted headers are cached: most headers repeat from answer to answer."""
Passage = Callable[[], AbstractAsyncContextManager[None]]
"""A context manager around each request and its answer. Entering may wait, or raise so that nothing is sent."""
Clock = Callable[[], float]
"""Returns seconds of a clock that goes on while the process or the machine is suspended."""
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the IP addresses of a host name; raises `OSError` if there are none."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `headers`: ASCII, with lower-case names."""

    method: str
    url: URL
    headers: Mapping[str, str]
    content: bytes = b""


class WireError(Exception):
    """A request without an answer: `kind` tells whether it may have been carried out, `str()` why."""

    def __init__(self, kind: AnswerKind, code: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind
        self.code = code


class Wire(Protocol):
    """Sends requests over the network, or in tests over something else."""

    def now_s(self) -> float:
        """Return seconds of a clock that goes on while the process or the machine is suspended."""

    async def send(
        self, request: Request, *, since_s: float | None = None, within_s: float = ATTEMPT_S, longest: int = LONGEST_BODY
    ) -> HttpAnswer:
        """Send `request` once and read at most `longest` bytes of its answer, none of one that declares more.

        `since_s`: the time from which the request must begin to leave soon, None for now. Raises `WireError` if there is no
        answer.
        """

    def renew(self) -> None:
        """Use none of the present connections for further requests."""

    async def aclose(self) -> None:
        """Close all connections."""


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

    Every request runs inside `passage`. `is_recognised`: the service has answered in its own format; before that, other formats
    mean another host.
    """

    def __init__(self, base_url: httpx.URL, secret: SecretStr, wire: Wire) -> None:
        self.passage: Passage = nullcontext
        self.is_recognised = False
        self._base_url = str(base_url).rstrip("/")
        self._wire = wire
        key = secret.get_secret_value()
        self.key_tail = f"…{key[-4:]}" if len(key) >= 12 else "…"
        """The key as shown to people: its last four characters, or nothing of a short key."""
        self._key = key.encode("ascii")
        self._mask = Mask([key])
        self._shown = lru_cache(_HEADERS_KNOWN)(self._mask.hide)
        self._keyless_headers = {
            "user-agent": f"eventsync/{version('eventsync')}",
            "accept": "application/json",
            "accept-encoding": "identity",
        }
        self._headers = {**self._keyless_headers, "authorization": f"Bearer {key}"}

    async def __aenter__(self) -> Self:
        """Return the connection; sockets are opened when requests are sent."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await self._wire.aclose()

    def request(
        self, method: str, url: URL, *, content: bytes = b"", headers: Mapping[str, str] | None = None, has_key: bool = True
    ) -> Request:
        """Build a request to `url`; without `has_key` it has no Authorization. `headers`: ASCII, with lower-case names."""
        sent = {**(self._headers if has_key else self._keyless_headers), **(headers or {})}
        return Request(method, url, sent, content)

    def url(self, path: str, *, prefix: str = API_PREFIX) -> URL:
        """Return the address of `path` (with its query) under the API's prefix, or another prefix."""
        return URL(f"{self._base_url}{prefix}{path}", encoded=True)

    def renew(self) -> None:
        """Use none of the present connections for further requests, as one of them mixes answers up."""
        self._wire.renew()

    async def exchange(
        self, request: Request, may_leave: Callable[[], bool] = lambda: True, *, attempt_s: float = ATTEMPT_S
    ) -> HttpAnswer | Meaning | None:
        """Send `request` once and read its answer. Return None without sending if `may_leave` is false at the last moment."""
        since_s = self._wire.now_s()  # before the passage, which may look at the lease: nothing leaves long after that look
        async with self.passage():
            if not may_leave():
                return None
            try:
                answer = await self._wire.send(request, since_s=since_s, within_s=attempt_s)
            except WireError as failure:
                return Meaning(failure.kind, Answer(0, failure.code, self._mask.hide(str(failure))))
        return self._masked(request, answer)

    def _masked(self, request: Request, answer: HttpAnswer) -> HttpAnswer:
        """Take our key out of an answer that repeats it: answers are kept, and shown to people."""
        headers = {name: self._shown(value) for name, value in answer.headers.items()}
        # Of a creation only numbers are kept, so that its body is only searched for the key as it is.
        is_harmless = request.method == "POST" and 200 <= answer.status <= 299 and self._key not in answer.body
        return HttpAnswer(answer.status, headers, answer.body if is_harmless else self._mask.hide_bytes(answer.body))


def open_http(
    base_url: str,
    secret: SecretStr,
    *,
    wire: Wire | None = None,
    timeouts: aiohttp.ClientTimeout = DEFAULT_TIMEOUTS,
    in_flight: int = 8,
    resolve: Resolve | None = None,
) -> ServiceHttp:
    """Return the connection to the service at `base_url`, an async context manager; nothing is sent yet.

    It follows no redirect and keeps at most `in_flight` connections. `wire` and `resolve` replace network and resolver in
    tests. Raises `BaseUrlError`, `KeyFormatError`, `CertificateError` and `ProxyAddressError`, none of which shows the key.
    """
    url, key = check_base_url(base_url), secret.get_secret_value().strip()
    if not _KEY_SHAPE.fullmatch(key):
        problem = "holds a space, a line break or a character outside of ASCII" if key else "is empty"
        hint = "set EVENT_API_KEY, or EVENT_API_KEY_FILE, to the key as it was shown"
        raise KeyFormatError(f"the API key {problem}", hint=hint)
    wire = wire or direct_wire(url, timeouts=timeouts, in_flight=in_flight, resolve=resolve or resolve_by_system)
    return ServiceHttp(url, SecretStr(key), wire)


def direct_wire(
    url: httpx.URL,
    *,
    in_flight: int,
    resolve: Resolve,
    timeouts: aiohttp.ClientTimeout = DEFAULT_TIMEOUTS,
    clock_s: Clock = _clock_s,
) -> AiohttpWire:
    """Return the wire to `url`'s host with at most `in_flight` connections, through the environment's proxy if set.

    Certificates are verified as by httpx (`SSL_CERT_FILE` and `SSL_CERT_DIR` are used). It never retries or redirects, and
    never connects to a cloud's metadata service. The caller must close it.
    """
    tls = trusted_certificates() if url.scheme == "https" else True

    def connector() -> aiohttp.TCPConnector:
        resolver = GuardedResolver(resolve, allows_private=True)
        return aiohttp.TCPConnector(limit=in_flight, ssl=tls, keepalive_timeout=_KEPT_ALIVE_S, resolver=resolver)

    return AiohttpWire(connector, proxy=_proxy_for(url), timeouts=timeouts, clock_s=clock_s)


def trusted_certificates() -> ssl.SSLContext:
    """Return what servers are verified by, as httpx does. Raises `CertificateError` if it cannot be read."""
    try:
        return httpx.create_ssl_context()
    except OSError as problem:  # ssl.SSLError is one too
        raise CertificateError(
            f"the certificates to trust cannot be read: {_reason(problem)}",
            hint="correct or unset SSL_CERT_FILE and SSL_CERT_DIR, which name them",
        ) from problem


def _proxy_for(url: httpx.URL) -> tuple[URL, Mapping[str, str]] | None:
    """Return the environment's proxy for `url`, without its login, and the headers for it; None without a proxy."""
    proxies = getproxies()
    chosen = proxies.get(url.scheme) or proxies.get("all")
    if not chosen or proxy_bypass(url.netloc.decode("ascii")):
        return None
    try:
        proxy = httpx.Proxy(chosen if "://" in chosen else f"http://{chosen}")
    except (httpx.InvalidURL, ValueError):
        proxy = None
    if proxy is None or proxy.url.scheme not in {"http", "https"}:
        raise ProxyAddressError(
            "the environment names a proxy that cannot be used",
            hint=f"set {url.scheme.upper()}_PROXY to an address like http://proxy.example.org:3128, or NO_PROXY to {url.host}; "
            "SOCKS proxies are not supported",
        )
    # As a header: in the address the password would be in the name of a connection.
    login = {} if proxy.auth is None else {"proxy-authorization": aiohttp.encode_basic_auth(*proxy.auth)}
    return URL(str(proxy.url)), login


@dataclass(slots=True)
class _Departure:
    """How far a request has come. `has_begun`: its first byte was written, or is about to be; `is_over`: it must not begin."""

    handed_over_at: float
    has_content: bool
    has_begun: bool = False
    is_over: bool = False
    is_late: bool = False


class _NotLeavingError(Exception):
    """A request must not be written any more: it took too long, or its caller has given up."""


class AiohttpWire:
    """Sends each request once over aiohttp.

    If this process is suspended before a request leaves, nothing of it is written: another run may have the feed by then.
    `open_connector` is called inside the event loop; `unpacks`: content encodings are removed. No error shows a request's
    headers, which hold the key.
    """

    def __init__(
        self,
        open_connector: Callable[[], aiohttp.TCPConnector],
        *,
        proxy: tuple[URL, Mapping[str, str]] | None = None,
        timeouts: aiohttp.ClientTimeout = DEFAULT_TIMEOUTS,
        clock_s: Clock = _clock_s,
        unpacks: bool = True,
    ) -> None:
        self._open_connector = open_connector
        self._way = {} if proxy is None else {"proxy": proxy[0], "proxy_headers": proxy[1]}
        self._timeouts = timeouts
        self._clock_s = clock_s
        self._unpacks = unpacks
        self._sessions: list[aiohttp.ClientSession] = []
        self._is_renewed = True

    def now_s(self) -> float:
        """Return seconds of a clock that goes on while the process or the machine is suspended."""
        return self._clock_s()

    async def send(
        self, request: Request, *, since_s: float | None = None, within_s: float = ATTEMPT_S, longest: int = LONGEST_BODY
    ) -> HttpAnswer:
        """Send `request` once and read at most `longest` bytes of its answer; raise `WireError` if there is none."""
        content: bytes | io.BytesIO | None = request.content
        if len(request.content) > _SENT_AT_ONCE:
            content = io.BytesIO(request.content)
        elif not request.content:
            content = None
        departure = _Departure(self._clock_s() if since_s is None else since_s, has_content=content is not None)
        options = {"headers": request.headers, "data": content, "allow_redirects": False, "trace_request_ctx": departure}
        try:
            async with (
                asyncio.timeout(within_s),
                self._session().request(request.method, request.url, **options, **self._way) as answer,  # type: ignore[arg-type]  # its options are a typed dict
            ):
                body = bytearray()
                if (answer.content_length or 0) > longest:
                    return HttpAnswer(answer.status, _joined(answer.raw_headers), b"")
                async for piece in answer.content.iter_any():
                    body += piece
                    if len(body) >= longest:
                        break
                return HttpAnswer(answer.status, _joined(answer.raw_headers), bytes(body[:longest]))
        except Exception as failure:  # noqa: BLE001  # of whatever class: what counts is whether a byte was written
            raised = _unreached(failure, departure) if not departure.has_begun else _lost(failure)
        finally:
            departure.is_over = True
        raise raised

    def renew(self) -> None:
        """Use none of the present connections for further requests; idle ones close by themselves."""
        self._is_renewed = True

    async def aclose(self) -> None:
        """Close all connections."""
        for session in self._sessions:
            await session.close()

    def _session(self) -> aiohttp.ClientSession:
        if self._is_renewed:
            hooks = aiohttp.TraceConfig()
            hooks.on_request_headers_sent.append(self._begin_without_content)
            hooks.on_request_chunk_sent.append(self._begin)
            session = aiohttp.ClientSession(
                connector=self._open_connector(),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=self._timeouts,
                trace_configs=[hooks],
                auto_decompress=self._unpacks,
                max_line_size=LONGEST_HEADER,
                max_field_size=LONGEST_HEADER,
            )
            self._sessions.append(session)
            self._is_renewed = False
        return self._sessions[-1]

    async def _begin_without_content(self, session: object, context: SimpleNamespace, sent: object) -> None:
        departure: _Departure = context.trace_request_ctx
        if not departure.has_content:
            await self._begin(session, context, sent)

    async def _begin(self, _: object, context: SimpleNamespace, __: object) -> None:
        """Note that the request leaves, or raise if it must not; aiohttp calls this right before it writes the first byte."""
        departure: _Departure = context.trace_request_ctx
        if departure.has_begun:  # called again for each further piece of a body
            return
        departure.is_late = self._clock_s() - departure.handed_over_at > _WRITTEN_WITHIN_S
        if departure.is_late or departure.is_over:
            raise _NotLeavingError
        departure.has_begun = True


def _joined(raw_headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by lower-case name; several of one name become one list (RFC 9110, 5.3)."""
    headers: dict[str, str] = {}
    for name, value in map(_header, raw_headers):
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


@lru_cache(_HEADERS_KNOWN)
def _header(raw: tuple[bytes, bytes]) -> tuple[str, str]:
    return raw[0].decode("latin-1").lower(), raw[1].decode("utf-8", "replace")


def _unreached(failure: Exception, departure: _Departure) -> WireError:
    """Return the error of a request of which no byte was written."""
    kind, code = AnswerKind.NOT_REACHED, "no_connection"
    match failure:
        case _ if departure.is_late:
            why = "this process was suspended before it was sent"
        case aiohttp.ClientHttpProxyError(status=status):
            why = f"the proxy let nothing through: it answers {status}"
        case aiohttp.ClientProxyConnectionError():
            why = f"the proxy let nothing through: {_reason(failure.os_error)}"
        case aiohttp.ClientConnectorCertificateError():
            kind, code = AnswerKind.UNTRUSTED, "certificate"
            why = f"the certificate of {failure.host}:{failure.port} is not accepted: {_reason(failure.os_error)}"
        case aiohttp.ClientConnectorError():
            why = f"no connection to {failure.host}:{failure.port}: {_reason(failure.os_error)}"
        case TimeoutError():
            why = "no connection in time"
        case _:
            why = f"it could not be sent: {_short(failure)}"
    return WireError(kind, code, why)


def _lost(failure: Exception) -> WireError:
    """Return the error of a request that was written, at least in part."""
    match failure:
        case TimeoutError():
            return WireError(AnswerKind.LOST, "timeout", "no whole answer in time")
        case aiohttp.ClientConnectionError() | aiohttp.ClientPayloadError() | OSError():
            return WireError(AnswerKind.LOST, "connection_lost", f"the connection broke: {_short(failure)}")
        case _:
            return WireError(AnswerKind.UNREADABLE, "unreadable", f"its answer cannot be read: {_short(failure)}")


def _short(failure: Exception) -> str:
    """Return an error's text in one line. What aiohttp adds in angle brackets is its own error, with a status never sent."""
    text = failure.message if isinstance(failure, aiohttp.ClientResponseError) else str(failure).partition(": <")[0]
    return " ".join((text or type(failure).__name__).split())[:_LONGEST_REASON]


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

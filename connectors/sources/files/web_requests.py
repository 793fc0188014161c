"""Requests to web servers: redirects followed only to allowed places, addresses pinned, each request within a deadline.

A name is looked up once for each request, and the connection goes to an address that was checked (DNS pinning): a name
that answers differently the second time (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import base64
import functools
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import httpx

from connectors.addresses import is_usual_port, numeric_address, refusal_of, refusal_of_host
from connectors.retry import RetryPolicy
from connectors.sources.contract import REAL_CLOCK, Clock, SourceRefusedError, SourceUnavailableError
from mappings.spec.source_words import without_secrets
from mappings.strict import written

LARGEST_BYTES = 2 * 1024**3
Resolve = Callable[[str, int], Sequence[str]]
"""Returns the IP addresses of a host name; raises `OSError` where there are none."""


def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Resolve as the operating system does."""
    return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """`largest`: bytes. `silence_s`: between two pieces; `longest_s`: the whole, retries included. A file that comes slower than
    `slowest_bytes` a second, over any `window_s`, is given up. `hops`: redirects in a row.
    `settle_s`: a file of unknown length is fetched again after so long, and is whole if it is the same; None: it is not.
    """

    largest: int = LARGEST_BYTES
    connect_s: float = 30.0
    silence_s: float = 60.0
    longest_s: float = 3600.0
    slowest_bytes: float = 1024.0
    window_s: float = 60.0
    hops: int = 5
    settle_s: float | None = None
    retries: RetryPolicy = field(default=RetryPolicy(attempts=4, budget_s=120.0))
    clock: Clock = REAL_CLOCK
    resolve: Resolve = resolve_by_system


class TransferLimit:
    """Holds one file to the bounds while it comes in, piece by piece. `shown` is its address without secrets."""

    def __init__(self, bounds: FetchLimits, shown: str) -> None:
        self.bounds = bounds
        self.shown = shown
        self.ends_at = bounds.clock.clock_s() + bounds.longest_s
        self.restart()

    def restart(self) -> None:
        """Begin a new attempt: the pause before it does not count as slowness."""
        self._since, self._bytes = self.bounds.clock.clock_s(), 0

    def count(self, piece: int, total: int) -> None:
        """Count a piece; `total` bytes are there by now.

        Raises:
            SourceRefusedError: it is too large.
            SourceUnavailableError: it comes too slowly.
        """
        self.check_size(total)
        now = self.bounds.clock.clock_s()
        self._bytes += piece
        if now > self.ends_at:
            message = f"{self.shown} was not there after {self.bounds.longest_s:.0f} s ({total} bytes had come)"
            raise SourceUnavailableError(message, hint="ask the partner for a faster server, or a smaller or packed file")
        if now - self._since >= self.bounds.window_s:
            if self._bytes < self.bounds.slowest_bytes * (now - self._since):
                message = f"{self.shown} comes too slowly: {self._bytes} bytes in {now - self._since:.0f} s"
                raise SourceUnavailableError(message, hint="run again later")
            self._since, self._bytes = now, 0

    def check_size(self, total: int) -> None:
        """Refuse a file whose announced or actual size is too large.

        Raises:
            SourceRefusedError: it is.
        """
        if total > self.bounds.largest:
            power = min((self.bounds.largest.bit_length() - 1) // 10, 3)
            unit = ("bytes", "kB", "MB", "GB")[power]
            message = f"{self.shown} is larger than {written(self.bounds.largest / 1024**power)} {unit}"
            raise SourceRefusedError(message, hint="is it the right file? If so, say `largest: 5GB` in its source")


_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"user-agent": "eventsync", "accept": "*/*"}
_OPENED = (".connect_tcp.complete", ".connect_unix_socket.complete", ".start_tls.complete")


@dataclass(slots=True)
class Deadline:
    """Shuts a server's connection down when its time is over, from a thread of its own; to be closed.

    The timeouts of httpx are for each piece: a server that sends a byte now and then would never meet them.
    """

    is_over: bool = False
    _socket: socket.socket | None = None
    _timer: threading.Timer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def within(self, seconds: float) -> None:
        """Start again: the time is over in so many seconds from now."""
        self.close()
        self._timer = threading.Timer(seconds, self._shut_down)
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def trace(self, event: str, details: Mapping[str, Any]) -> None:
        """Note which socket is open, as httpcore's request extension `trace`."""
        if event.endswith(_OPENED):
            with self._lock:
                self._socket = details["return_value"].get_extra_info("socket")
            if self.is_over:
                self._shut_down()

    def _shut_down(self) -> None:
        with self._lock, suppress(OSError):
            self.is_over = True
            if self._socket is not None:
                # Not SSLSocket.shutdown, which would drop the TLS state that the reading thread uses.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class RedirectHop:
    """One request of a chain of redirects: its `url`; `own` is the first one, as the mapping file writes it."""

    url: httpx.URL
    own: httpx.URL

    @property
    def is_own(self) -> bool:
        """Whether the author of the mapping file named this origin (scheme, host and port; RFC 6454)."""
        url, own = self.url, self.own
        return (url.scheme, url.raw_host, url.port) == (own.scheme, own.raw_host, own.port)

    @property
    def host(self) -> str:
        return self.url.raw_host.decode("ascii")

    @property
    def port(self) -> int:
        return self.url.port or (443 if self.url.scheme == "https" else 80)

    @property
    def authorization(self) -> dict[str, str]:
        """The password of the first address, for its own origin only."""
        if not (self.is_own and self.own.userinfo):
            return {}
        user, _, password = self.own.userinfo.decode("ascii").partition(":")
        token = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode())
        return {"authorization": f"Basic {token.decode('ascii')}"}

    def refused(self, refusal: str) -> SourceRefusedError:
        """Return the error for a hop that must not be made."""
        shown = without_secrets(str(self.own))
        if self.is_own:
            return SourceRefusedError(f"{shown} {refusal}", hint="nothing is ever read from there; check `source.path`")
        hint = "a feed may only be sent on to public addresses; name the file's own address"
        return SourceRefusedError(f"{shown} sends us on to {self.host}, which {refusal}", hint=hint)

    def after(self, response: httpx.Response) -> RedirectHop:
        """Follow a redirect.

        Raises:
            SourceRefusedError: it leads to no web address, or from https to http.
        """
        shown = without_secrets(str(self.url))
        to = response.headers.get("location", "")
        if not to:
            raise SourceRefusedError(f"{shown} answered {response.status_code} and not where to go", hint="ask the partner")
        onward = self.url.join(to)
        if onward.scheme not in {"http", "https"} or not onward.host:
            raise SourceRefusedError(f"{shown} sends us on to no web address", hint="ask the partner for the file's own address")
        if "https" in (self.own.scheme, self.url.scheme) and onward.scheme == "http":
            message = f"{shown} sends us on to {without_secrets(str(onward))}, which anybody on the way could read and change"
            raise SourceRefusedError(message, hint="ask the partner to serve the file by https")
        return RedirectHop(onward, self.own)


@dataclass(slots=True)
class WebRequests:
    """Sends requests, one at a time, through the machine's proxies; to be closed.

    It replaces `httpx.Client`, which would log every address, tokens included.
    """

    bounds: FetchLimits
    _transports: dict[str, httpx.HTTPTransport] = field(default_factory=dict)

    def close(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            transport.close()

    @contextmanager
    def ask(self, method: str, address: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Follow redirects and give the final answer; its body comes as it is read.

        The first address is the author's own choice and may be private. A redirect leads to public addresses at usual
        ports only, or stays within the origin of the first address; it never leads from https to http, and the password
        goes to that origin only. Metadata services of clouds are never asked.

        Raises:
            SourceRefusedError: the address is none, a certificate is not valid, or a redirect leads astray.
            SourceUnavailableError: there is no answer, or the connection breaks, also while the block reads.
        """
        shown, deadline = without_secrets(address), Deadline()
        with ExitStack() as open_things, _sorted_errors(shown, deadline):
            own = httpx.URL(address)
            hop, looked_up = RedirectHop(own, own), dict[tuple[str, int], Sequence[str]]()
            for _ in range(self.bounds.hops + 1):
                deadline.within(self.bounds.connect_s + self.bounds.silence_s)
                response = open_things.enter_context(closing(self._answer(method, hop, headers, deadline, looked_up)))
                if response.status_code not in _REDIRECTS:
                    deadline.within(self.bounds.longest_s)
                    yield response
                    return
                response.close()
                hop = hop.after(response)
            raise SourceRefusedError(f"{shown} sends us on and on, in a circle", hint="check `source.path`")

    def _answer(
        self,
        method: str,
        hop: RedirectHop,
        headers: Mapping[str, str],
        deadline: Deadline,
        looked_up: dict[tuple[str, int], Sequence[str]],
    ) -> httpx.Response:
        """Ask the proxy if there is one, else the checked addresses of the host, the next where one cannot be reached."""
        proxy = "" if proxy_bypass(hop.host) else getproxies().get(hop.url.scheme, "")
        addresses = self._checked(hop, looked_up, has_proxy=bool(proxy))
        target = hop.url.copy_with(userinfo=b"", fragment=None)
        timeout = httpx.Timeout(self.bounds.silence_s, connect=self.bounds.connect_s).as_dict()
        extensions = {"timeout": timeout, "trace": deadline.trace, **({} if proxy else {"sni_hostname": hop.host})}
        sent = {**_HEADERS, **headers, "host": hop.url.netloc.decode("ascii"), **hop.authorization}
        if proxy not in self._transports:
            trusted = _trusted(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
            limits = httpx.Limits(max_keepalive_connections=0)
            self._transports[proxy] = httpx.HTTPTransport(verify=trusted, proxy=proxy or None, limits=limits)
        targets = [target] if proxy else [target.copy_with(host=address) for address in addresses]
        for left, pinned in enumerate(targets, 1 - len(targets)):
            try:
                return self._transports[proxy].handle_request(httpx.Request(method, pinned, headers=sent, extensions=extensions))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if left == 0 or deadline.is_over or _is_untrusted(error):
                    raise
        raise SourceUnavailableError(f"{hop.host} has no address", hint="run again later")

    def _checked(self, hop: RedirectHop, looked_up: dict[tuple[str, int], Sequence[str]], *, has_proxy: bool) -> Sequence[str]:
        """Return the addresses of a host, all of them checked; a proxy looks up the first host itself."""
        place = host, port = hop.host, hop.port
        if refusal := refusal_of_host(host):
            raise hop.refused(refusal)
        if not (hop.is_own or is_usual_port(hop.url.port)):
            raise hop.refused(f"is meant by its port {port}, where no files are served")
        if hop.is_own and has_proxy:
            return []
        if not looked_up.get(place):
            literal = numeric_address(host)
            try:
                looked_up[place] = [literal] if literal else self.bounds.resolve(host, port)
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or "its name cannot be looked up"
                raise SourceUnavailableError(f"the address of {host} is unknown: {reason}", hint="run again later") from None
        if refusal := refusal_of(looked_up[place], allows_private=hop.is_own):
            raise hop.refused(refusal)
        return looked_up[place]


@functools.cache
def _trusted(*_places: str | None) -> ssl.SSLContext:
    """Return the trusted certificate authorities, loaded once for each place they are in, as that takes long."""
    return httpx.create_ssl_context()


@contextmanager
def _sorted_errors(shown: str, deadline: Deadline) -> Iterator[None]:
    """Turn errors of httpx into those of sources, without the cause, which may repeat secrets.

    A request that the deadline ended may look to httpx like the good end of a file.
    """
    late = SourceUnavailableError(f"{shown} takes too long to answer", hint="run again later")
    with closing(deadline):
        try:
            yield
        except httpx.InvalidURL as error:
            raise SourceRefusedError(f"{shown} is no web address: {error}", hint="check `source.path`") from None
        except httpx.TransportError as error:
            if deadline.is_over:
                raise late from None
            if isinstance(error, httpx.UnsupportedProtocol):
                raise SourceRefusedError(f"{shown} is no web address", hint="check `source.path`") from None
            if _is_untrusted(error):
                message = f"the certificate of {shown} is not valid: {error}"
                raise SourceRefusedError(message, hint="ask the partner to renew it") from None
            reason = "it fell silent" if isinstance(error, httpx.ReadTimeout) else str(error) or type(error).__name__
            raise SourceUnavailableError(f"{shown} could not be fetched: {reason}", hint="run again later") from None
    if deadline.is_over:
        raise late


def _is_untrusted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False

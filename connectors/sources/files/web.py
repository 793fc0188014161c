"""Files on the web: downloaded completely to an unnamed copy, resumed after a broken connection, skipped if unchanged.

fsspec's HTTP file system does not pin addresses, check redirects, or limit and resume transfers.
"""

from __future__ import annotations

import functools
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from tempfile import TemporaryFile
from typing import Any, BinaryIO
from urllib.request import getproxies, proxy_bypass

import httpx

from connectors.addresses import is_usual_port, numeric_address, refusal_of, refusal_of_host
from connectors.retry import RetryPolicy, http_date, retry_after_s
from connectors.sources.contract import (
    REAL_CLOCK,
    Clock,
    Ending,
    Reading,
    SourceRefusedError,
    SourceUnavailableError,
    unchanged,
)
from connectors.sources.files.choice import Files, FoundFile, beside, name_of
from connectors.sources.files.opened_file import OpenStored, StoredFile, cut_off_is_passing, digest_of, sent_unpacked
from mappings.spec.source import FileSource
from mappings.spec.source_words import marker_of, without_secrets
from mappings.strict import written

LARGEST_BYTES = 2 * 1024**3
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"user-agent": "eventsync", "accept": "*/*"}
_OPENED = (".connect_tcp.complete", ".connect_unix_socket.complete", ".start_tls.complete")
_PASSING = frozenset({202, 408, 425, 429})
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18}|\*)", re.ASCII)
_ENCODED = {"accept-encoding": "gzip"}
"""The encodings of every request; each encoding is a separate representation, with its own version and length."""
_FRESH_S = 60.0
"""A time of change within so many seconds of the answer's time may belong to two versions (RFC 9110, section 8.8.2.2)."""
_GREAT_STEP_BYTES = 1024 * 1024
"""An attempt with so many bytes does not count as a failure: a long download may break often, if it progresses."""
_LONGEST_PAUSE_S = 30.0
"""The longest pause that is waited for within a run, in seconds."""
_AGAIN = "run again; if it happens again, ask the partner"
Resolve = Callable[[str, int], Sequence[str]]
"""Returns the IP addresses of a host name; raises `OSError` if there are none."""


def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Resolve a host name by the operating system."""
    return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of a download. `largest`: bytes. `silence_s`: between two pieces; `longest_s`: in total, including retries. A
    download slower than `slowest_bytes` per second over any `window_s` is aborted. `hops`: the most redirects in a row.

    `settle_s`: a file of unknown length is fetched again after so long, and is complete if unchanged; None: it is not fetched
    again.
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
    """Checks a download against its limits as it arrives. `shown`: its address without secrets."""

    def __init__(self, bounds: FetchLimits, shown: str) -> None:
        self.bounds = bounds
        self.shown = shown
        self.ends_at = bounds.clock.clock_s() + bounds.longest_s
        self.restart()

    def restart(self) -> None:
        """Start a new attempt: the pause before it does not count as slowness."""
        self._since, self._bytes = self.bounds.clock.clock_s(), 0

    def count(self, piece: int, total: int) -> None:
        """Count a piece; `total`: the bytes so far.

        Raises:
            SourceRefusedError: the file is too large.
            SourceUnavailableError: it arrives too slowly.
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
        """Check the announced or actual size of a file.

        Raises:
            SourceRefusedError: it is too large.
        """
        if total > self.bounds.largest:
            power = min((self.bounds.largest.bit_length() - 1) // 10, 3)
            unit = ("bytes", "kB", "MB", "GB")[power]
            message = f"{self.shown} is larger than {written(self.bounds.largest / 1024**power)} {unit}"
            raise SourceRefusedError(message, hint="is it the right file? If so, say `largest: 5GB` in its source")


@dataclass(slots=True)
class Deadline:
    """A deadline that shuts down the connection from a separate thread; it must be closed.

    httpx's timeouts apply to each piece, so a server that sends a byte now and then would never exceed them.
    """

    is_over: bool = False
    _socket: socket.socket | None = None
    _timer: threading.Timer | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def within(self, seconds: float) -> None:
        """Restart the deadline, in so many seconds from now."""
        self.close()
        self._timer = threading.Timer(seconds, self._shut_down)
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def trace(self, event: str, details: Mapping[str, Any]) -> None:
        """Remember the open socket, as httpcore's request extension `trace`."""
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
    """One request in a chain of redirects: its `url`, and `own`, the first address from the mapping file."""

    url: httpx.URL
    own: httpx.URL

    @property
    def is_own(self) -> bool:
        """Whether the request stays at the origin in the mapping file (scheme, host and port; RFC 6454)."""
        url, own = self.url, self.own
        return (url.scheme, url.raw_host, url.port) == (own.scheme, own.raw_host, own.port)

    @property
    def host(self) -> str:
        return self.url.raw_host.decode("ascii")

    @property
    def port(self) -> int:
        return self.url.port or (443 if self.url.scheme == "https" else 80)

    def refused(self, refusal: str) -> SourceRefusedError:
        """Return the error for a forbidden request."""
        shown = without_secrets(str(self.own))
        if self.is_own:
            return SourceRefusedError(f"{shown} {refusal}", hint="nothing is ever read from there; check `source.path`")
        hint = "a feed may be redirected to public addresses only; write the file's own address"
        return SourceRefusedError(f"{shown} redirects to {self.host}, which {refusal}", hint=hint)

    def after(self, response: httpx.Response) -> RedirectHop:
        """Return the next request after a redirect.

        Raises:
            SourceRefusedError: it does not lead to a web address, or leads from https to http.
        """
        shown = without_secrets(str(self.url))
        to = response.headers.get("location", "")
        if not to:
            raise SourceRefusedError(f"{shown} answered {response.status_code} without an address", hint="ask the partner")
        onward = self.url.join(to)
        if onward.scheme not in {"http", "https"} or not onward.host:
            raise SourceRefusedError(
                f"{shown} redirects to something that is not a web address", hint="ask the partner for the file's own address"
            )
        if "https" in (self.own.scheme, self.url.scheme) and onward.scheme == "http":
            message = f"{shown} redirects to {without_secrets(str(onward))}, which is not encrypted"
            raise SourceRefusedError(message, hint="ask the partner to serve the file by https")
        return RedirectHop(onward, self.own)


@dataclass(slots=True)
class WebRequests:
    """Sends requests, one at a time, through the machine's proxies; it must be closed.

    It replaces `httpx.Client`, which would log every address with its tokens.
    """

    bounds: FetchLimits
    _transports: dict[str, httpx.HTTPTransport] = field(default_factory=dict)

    def close(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            transport.close()

    @contextmanager
    def ask(self, method: str, address: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Send a request, follow redirects, and yield the final answer, whose body is streamed.

        The first address is chosen by the author and may be private. A redirect must lead to a public address at a usual port,
        or stay at the first origin; it must not lead from https to http, and the password is sent to the first origin only.
        Metadata services of clouds are always refused.

        Raises:
            SourceRefusedError: the address is invalid, a certificate is invalid, or a redirect is forbidden.
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
            raise SourceRefusedError(f"{shown} redirects too often, or in a circle", hint="check `source.path`")

    def _answer(
        self,
        method: str,
        hop: RedirectHop,
        headers: Mapping[str, str],
        deadline: Deadline,
        looked_up: dict[tuple[str, int], Sequence[str]],
    ) -> httpx.Response:
        """Send a request to the proxy if there is one, else to the host's checked addresses in turn until one can be reached."""
        proxy = "" if proxy_bypass(hop.host) else getproxies().get(hop.url.scheme, "")
        addresses = self._checked(hop, looked_up, has_proxy=bool(proxy))
        target = hop.url.copy_with(userinfo=b"", fragment=None)
        timeout = httpx.Timeout(self.bounds.silence_s, connect=self.bounds.connect_s).as_dict()
        extensions = {"timeout": timeout, "trace": deadline.trace, **({} if proxy else {"sni_hostname": hop.host})}
        sent = {**_HEADERS, **headers, "host": hop.url.netloc.decode("ascii")}
        if proxy not in self._transports:
            trusted = _trusted(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
            limits = httpx.Limits(max_keepalive_connections=0)
            self._transports[proxy] = httpx.HTTPTransport(verify=trusted, proxy=proxy or None, limits=limits)
        targets = [target] if proxy else [target.copy_with(host=address) for address in addresses]
        for pinned in targets:
            try:
                request = httpx.Request(method, pinned, headers=sent, extensions=extensions)
                if hop.is_own and hop.own.userinfo:  # the password of the first address, for its own origin only
                    request = next(httpx.BasicAuth(hop.own.username, hop.own.password).auth_flow(request))
                return self._transports[proxy].handle_request(request)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                if pinned is targets[-1] or deadline.is_over or _is_untrusted(error):
                    raise
        raise SourceUnavailableError(f"{hop.host} has no address", hint="run again later")

    def _checked(self, hop: RedirectHop, looked_up: dict[tuple[str, int], Sequence[str]], *, has_proxy: bool) -> Sequence[str]:
        """Return the checked addresses of a host; a proxy resolves the first host itself."""
        place = host, port = hop.host, hop.port
        if refusal := refusal_of_host(host):
            raise hop.refused(refusal)
        if not (hop.is_own or is_usual_port(hop.url.port)):
            raise hop.refused(f"is addressed at port {port}, which is not allowed for files")
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
    """Return the trusted certificate authorities. `_places` (SSL_CERT_FILE, SSL_CERT_DIR, which httpx reads) is the cache key."""
    return httpx.create_ssl_context()


@contextmanager
def _sorted_errors(shown: str, deadline: Deadline) -> Iterator[None]:
    """Convert httpx's exceptions to errors of sources, without the cause, which may contain secrets.

    A request that the deadline ended may look to httpx like the normal end of a file.
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
                raise SourceRefusedError(f"{shown} is not a web address", hint="`source.path` must begin with https://") from None
            if _is_untrusted(error):
                message = f"the certificate of {shown} is not valid: {error}"
                raise SourceRefusedError(
                    message, hint="ask the partner to renew it, or correct SSL_CERT_FILE if it is set"
                ) from None
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


@contextmanager
def read_web_file(
    spec: FileSource,
    files: WebFiles,
    read_as: Callable[[OpenStored], AbstractContextManager[Reading]],
    columns: tuple[str, ...],
    since: str,
) -> Iterator[Reading]:
    """Read one file on the web. `since`: its version at an earlier reading, in which case it is not fetched again."""
    path, name = spec.path, name_of(spec.path)
    writing, hint = f"{files.shown(path)} is still being written", "run again later; nothing was read"
    marker = marker_of(spec.marker, name) if spec.marker else ""
    if marker and files.find(beside(path, marker)) is None:
        raise SourceUnavailableError(f"{writing}: its marker {marker} is not there yet", hint=hint)
    with files.fetched_if_changed(path, since) as stored:
        if stored is None:
            yield unchanged(columns, since, name)
            return
        settle_s = files.bounds.settle_s
        if settle_s is not None and (stored.age_s is None or stored.age_s < settle_s):
            files.bounds.clock.sleep(settle_s)
            with files.fetched_if_changed(path, stored.stamp) as again:
                if again is not None and again.stamp != stored.stamp:
                    raise SourceUnavailableError(f"{writing}: it changed within {settle_s:.0f} s", hint=hint)
        with read_as(stored.reopened) as reading:
            yield replace(reading, ending=lambda: Ending(stored.version))


@dataclass(frozen=True, slots=True)
class WebFiles(Files):
    """Files on the web, where a path is an address; they cannot be listed."""

    bounds: FetchLimits

    def find(self, path: str) -> FoundFile | None:
        """Return the file at an address, None if there is none, by one or two small requests."""
        with closing(WebRequests(self.bounds)) as requests:
            # A server may refuse HEAD, or not know it, and still give the file.
            for method in ("HEAD", "GET"):
                with requests.ask(method, path, _ENCODED) as answer:
                    if answer.status_code in {404, 410} or (method == "HEAD" and answer.status_code != 200):
                        continue
                    _refuse_other_answers(answer, without_secrets(path))
                    return FoundFile(path, name_of(path), _firm_version_of(answer), changed_at(answer), _size_of(answer))
        return None

    @contextmanager
    def open(self, path: str) -> Iterator[StoredFile]:
        """Yield a copy of the file at an address."""
        with self.fetched_if_changed(path, "") as stored:
            if stored is None:
                raise SourceUnavailableError(
                    f"{without_secrets(path)} answered 304 to an unconditional request", hint="run again later"
                )
            yield stored

    @contextmanager
    def fetched_if_changed(self, path: str, known: str) -> Iterator[StoredFile | None]:
        """Yield a copy of the file at an address; None if it still has the version `known`, after one request without a body."""
        with ExitStack() as open_things:
            # Nameless from the beginning: nothing is left behind, not even by `kill -9`.
            stream = open_things.enter_context(TemporaryFile(prefix="eventsync-"))
            requests = open_things.enter_context(closing(WebRequests(self.bounds)))
            download = _Download(requests, path, stream)
            answer = download.run(known)
            if answer is None:
                yield None
                return
            name, age_s, has_known_end = name_of(path), _age_s(answer), download.has_known_end
            if not has_known_end and self.bounds.settle_s is not None:
                self._check_same_again(requests, path, digest_of(stream), self.bounds.settle_s)
                has_known_end, age_s = True, max(age_s or 0.0, self.bounds.settle_s)
            with cut_off_is_passing(name, has_known_end=has_known_end):
                encoding = answer.headers.get("content-encoding", "")
                whole, was_packed = open_things.enter_context(sent_unpacked(stream, name, encoding))
            stamp = _version_of(answer) or digest_of(whole)
            yield StoredFile(whole, name, stamp, has_known_end or was_packed, _firm_version_of(answer), age_s)

    def _check_same_again(self, requests: WebRequests, path: str, digest: str, settle_s: float) -> None:
        """Fetch a file again after a while: two transfers hardly break off at the same byte."""
        self.bounds.clock.sleep(settle_s)
        with TemporaryFile(prefix="eventsync-") as stream:
            _Download(requests, path, stream).run("")
            if digest_of(stream) != digest:
                message = "is still being written, or its answers are cut off: it came differently twice within"
                hint = "run again later; nothing was read"
                raise SourceUnavailableError(f"{without_secrets(path)} {message} {settle_s:.0f} s", hint=hint)


class _Download:
    """A download in progress: the bytes so far, and the validator for requesting the rest.

    `has_known_end`: the server sent the length, or a last chunk; an answer that ends with the connection has no known end.
    """

    def __init__(self, requests: WebRequests, path: str, stream: BinaryIO) -> None:
        self._requests = requests
        self._path = path
        self._stream = stream
        self._shown = without_secrets(path)
        self._limit = TransferLimit(requests.bounds, self._shown)
        self.has_known_end = False
        self._restart()

    def _restart(self) -> None:
        self._stream.seek(0)
        self._stream.truncate()
        self._received = 0
        self._size: int | None = None
        self._validator = ""
        self._answer: httpx.Response | None = None

    def run(self, known: str) -> httpx.Response | None:
        """Download until complete; return the answer with the headers, None if the version is the known one."""
        bounds, clock = self._requests.bounds, self._requests.bounds.clock
        attempt, started = 0, clock.clock_s()
        while True:
            attempt, before = attempt + 1, self._received
            try:
                self._limit.restart()
                return self._attempt(known)
            except SourceUnavailableError as trouble:
                if self._received - before >= _GREAT_STEP_BYTES:
                    attempt, started = 0, clock.clock_s()
                pause_s = max(bounds.retries.wait_s(max(attempt, 1), clock.chance), trouble.retry_after_s or 0.0)
                now = clock.clock_s()
                is_spent = bounds.retries.is_spent(attempt, now - started, pause_s)
                if is_spent or pause_s > _LONGEST_PAUSE_S or now + pause_s > self._limit.ends_at:
                    raise
            clock.sleep(pause_s)

    def _attempt(self, known: str) -> httpx.Response | None:
        with self._requests.ask("GET", self._path, {**_ENCODED, **self._conditions(known)}) as answer:
            if answer.status_code == 304 and known and not self._received:
                return None
            if answer.status_code == 416 and self._received:
                self._restart()
                raise SourceUnavailableError(f"{self._shown} became shorter while we fetched it", hint="run again")
            _refuse_other_answers(answer, self._shown)
            if answer.status_code == 206:
                self._resume(answer)
            elif known and _version_of(answer) == known:
                return None
            else:
                self._restart()
                self._validator, self._answer = _resumable_version_of(answer), answer
                self._size = None if "transfer-encoding" in answer.headers else _size_of(answer)
                self._limit.check_size(_size_of(answer) or 0)
            for piece in answer.iter_raw():
                self._stream.write(piece)
                self._received += len(piece)
                self._limit.count(len(piece), self._received)
            self._stream.flush()
            is_chunked = answer.status_code == 200 and "transfer-encoding" in answer.headers
        self.has_known_end = self._size is not None or is_chunked
        if self._size is None or self._received == self._size:
            return self._answer
        # A server may answer with a part of the rest, in good order: that is no end of the file.
        message = f"{self._shown} came as {self._received:,} bytes of {self._size:,}"
        if self._received > self._size:
            self._restart()
        raise SourceUnavailableError(message, hint=_AGAIN)

    def _conditions(self, known: str) -> Mapping[str, str]:
        """Return the headers for requesting the rest of a file, or the file only if its version has changed."""
        if self._received and self._validator:
            return {"range": f"bytes={self._received}-", "if-range": self._validator}
        name, _, value = known.partition("=")
        header = {"ETag": "if-none-match", "Last-Modified": "if-modified-since"}.get(name)
        return {header: value} if header and value.isprintable() and value.isascii() else {}

    def _resume(self, answer: httpx.Response) -> None:
        """Continue if a 206 is the requested rest of the same version."""
        match = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", "").strip())
        start, size = (int(match[1]), None if match[2] == "*" else int(match[2])) if match else (None, None)
        is_other = None not in (size, self._size) and size != self._size
        if not self._received or is_other or start != self._received or _resumable_version_of(answer) != self._validator:
            self._restart()
            message = f"{self._shown} changed while we fetched it, or its server gives other parts than it was asked for"
            raise SourceUnavailableError(message, hint=_AGAIN)
        self._size = self._size if size is None else size


def changed_at(answer: httpx.Response, header: str = "last-modified") -> float | None:
    """Return when the file was changed, in seconds since 1970, None if unknown."""
    moment = http_date(answer.headers.get(header, ""))
    return None if moment is None else moment.timestamp()


def _age_s(answer: httpx.Response) -> float | None:
    """Return how long the file had been unchanged, by the server's clock, None if unknown."""
    changed, now = changed_at(answer), changed_at(answer, "date")
    return None if changed is None or now is None else now - changed


def _version_of(answer: httpx.Response) -> str:
    """Return the version in the answer's headers, "" if none: `ETag="v1"`, `Last-Modified=...`."""
    versions = ((name, answer.headers.get(name, "").strip()) for name in ("ETag", "Last-Modified"))
    return next((f"{name}={value}" for name, value in versions if value), "")


def _firm_version_of(answer: httpx.Response) -> str:
    """Return the version if it identifies the content, else "": times of change have whole seconds only."""
    version = _version_of(answer)
    return version if version.startswith("ETag=") or (_age_s(answer) or 0.0) >= _FRESH_S else ""


def _resumable_version_of(answer: httpx.Response) -> str:
    """Return the validator for requesting the rest of this answer (RFC 9110, section 13.1.5), "" if none."""
    version = _firm_version_of(answer).partition("=")[2]
    return "" if version.startswith("W/") else version


def _size_of(answer: httpx.Response) -> int | None:
    """Return the announced size of the body, None if unknown."""
    length = answer.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdecimal() and len(length) < 19 else None


def _refuse_other_answers(answer: httpx.Response, shown: str) -> None:
    """Check that an answer has a file: 200 or 206.

    Raises:
        SourceUnavailableError: 202, 408, 425, 429, 5xx: a later attempt may work. `retry_after_s`: what the server asks for.
        SourceRefusedError: any other status.
    """
    status = answer.status_code
    if status in {200, 206}:
        return
    message = f"{shown} answered {status} {answer.reason_phrase}".rstrip()
    if status in _PASSING or status >= 500:
        message = f"{message}: the file is not ready yet" if status == 202 else message
        raise SourceUnavailableError(message, hint="run again later", retry_after_s=retry_after_s(answer.headers))
    if status in {404, 410}:
        raise SourceRefusedError(f"{message}: there is no such file", hint="check `source.path` with the partner")
    raise SourceRefusedError(message, hint="check the address and the access with the partner")

"""Files on the web: downloaded completely to an unnamed copy by one conditional request, skipped if unchanged.

fsspec's HTTP file system does not pin addresses, check redirects, or limit transfers.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from tempfile import TemporaryFile
from typing import BinaryIO, TypeVar
from urllib.request import getproxies, proxy_bypass

import httpx

from connectors.addresses import is_usual_port, numeric_address, refusal_of, refusal_of_host
from connectors.errors import certificate_fault
from connectors.retry import RetryPolicy, http_date, retry_after_s, retry_on
from connectors.sources.contract import (
    REAL_CLOCK,
    Clock,
    LoginRefusedError,
    Reading,
    SourceRefusedError,
    SourceUnavailableError,
    unchanged,
)
from connectors.sources.files.choice import Files, FoundFile, name_of
from connectors.sources.files.opened_file import OpenStored, StoredFile, cut_off_is_passing, digest_of, sent_unpacked
from mappings.spec.source_words import without_secrets

T = TypeVar("T")
_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"user-agent": "eventsync", "accept": "*/*", "accept-encoding": "gzip"}
NO_HEADERS: Mapping[str, str] = {}
_PASSING = frozenset({202, 408, 425, 429})
_RETRIES = RetryPolicy(attempts=4, budget_s=120.0)
_FRESH_S = 60.0
"""A time of change within so many seconds of the answer's time may belong to two versions (RFC 9110, section 8.8.2.2)."""
Resolve = Callable[[str, int], Sequence[str]]
"""Returns the IP addresses of a host name; raises `OSError` if there are none."""


def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Resolve a host name by the operating system."""
    return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of a transfer. `largest`: bytes. `silence_s`: between two pieces; `longest_s`: in total."""

    largest: int = 2 * 1024**3
    connect_s: float = 30.0
    silence_s: float = 60.0
    longest_s: float = 3600.0
    clock: Clock = REAL_CLOCK
    resolve: Resolve = resolve_by_system

    def copy(self, pieces: Iterable[bytes], copy: BinaryIO, shown: str) -> int:
        """Write the pieces to `copy` as they arrive; return their size in bytes. `shown`: their address without secrets.

        Raises:
            SourceRefusedError: the file is too large.
            SourceUnavailableError: it takes too long.
        """
        received, ends_at = 0, self.clock.clock_s() + self.longest_s
        for piece in pieces:
            copy.write(piece)
            received += len(piece)
            self.check_size(received, shown)
            if self.clock.clock_s() > ends_at:
                message = f"{shown} was not there after {self.longest_s:.0f} s ({received} bytes had come)"
                raise SourceUnavailableError(message, hint="ask the partner for a faster server, or a smaller or packed file")
        copy.flush()
        return received

    def retried(self, request: Callable[[], T]) -> T:
        """Return what `request` returns, repeated while it raises SourceUnavailableError, within bounds."""
        clock = self.clock
        return retry_on(SourceUnavailableError, request, _RETRIES, sleep=clock.sleep, random=clock.chance, clock=clock.clock_s)

    def check_size(self, size: int, shown: str) -> None:
        """Check the announced or actual size of a file.

        Raises:
            SourceRefusedError: it is too large.
        """
        if size > self.largest:
            message = f"{shown} is larger than {self.largest // 2**20} million bytes"
            raise SourceRefusedError(message, hint="is it the right file? If so, ask for it packed, or in parts")


@dataclass(frozen=True, slots=True)
class RedirectHop:
    """One request in a chain of redirects: its `url`, and `own`, the first address from the mapping file."""

    url: httpx.URL
    own: httpx.URL

    @classmethod
    def first(cls, address: str) -> RedirectHop:
        """Return the first request.

        Raises:
            SourceRefusedError: the address is invalid.
        """
        with _as_source_errors(without_secrets(address)):
            return cls(httpx.URL(address), httpx.URL(address))

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
            return SourceRefusedError(f"{shown} {refusal}", hint="nothing is ever read from there; check the address")
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
        return self.onward(to)

    def onward(self, to: str) -> RedirectHop:
        """Return the next request at an address that an answer names, which may be relative; raises as `after`."""
        shown, onward = without_secrets(str(self.url)), self.url.join(to)
        if onward.scheme not in {"http", "https"} or not onward.host:
            raise SourceRefusedError(
                f"{shown} redirects to something that is not a web address", hint="ask the partner for the file's own address"
            )
        if "https" in (self.own.scheme, self.url.scheme) and onward.scheme == "http":
            message = f"{shown} redirects to {without_secrets(str(onward))}, which is not encrypted"
            raise SourceRefusedError(message, hint="ask the partner to serve the file by https")
        return RedirectHop(onward, self.own)


class Connections(ExitStack):
    """Connections that requests share, each host's its own: a host does not inherit the certificate of another at its address."""

    def __init__(self) -> None:
        super().__init__()
        self._transports = dict[tuple[str, str, int, str], httpx.HTTPTransport]()

    def to(self, hop: RedirectHop, proxy: str) -> httpx.HTTPTransport:
        """Return the transport for a request."""
        place = hop.url.scheme, hop.host, hop.port, proxy
        if place not in self._transports:
            # To read all certificates that are trusted takes longer than a small request: one that is not encrypted has no use
            # for them, and a context without any accepts no server.
            trusted = self._trusted if hop.url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._transports[place] = self.enter_context(httpx.HTTPTransport(verify=trusted, proxy=proxy or None))
        return self._transports[place]

    @cached_property
    def _trusted(self) -> ssl.SSLContext:
        from connectors.event_api.transport import trusted_certificates  # noqa: PLC0415  # most readings need none

        return trusted_certificates()


@contextmanager
def ask(  # noqa: PLR0913  # the parts of one request
    bounds: FetchLimits,
    method: str,
    start: str | RedirectHop,
    headers: Mapping[str, str],
    *,
    own_headers: Mapping[str, str] = NO_HEADERS,
    body: bytes = b"",
    connections: Connections | None = None,
) -> Iterator[httpx.Response]:
    """Send a request, follow redirects unless it has a `body`, and yield the final answer, whose body is streamed.

    The first address is chosen by the author and may be private. A redirect must lead to a public address at a usual port, or
    stay at the first origin; it must not lead from https to http. The password and `own_headers` are sent to the first origin
    only. Metadata services of clouds are always refused. `connections`: those to use and to keep, none for one request. It
    replaces `httpx.Client`, which would log addresses with tokens.

    Raises:
        SourceRefusedError: the address is invalid, a certificate is invalid, or a redirect is forbidden.
        SourceUnavailableError: there is no answer, or the connection breaks, also while the block reads.
    """
    hop = RedirectHop.first(start) if isinstance(start, str) else start
    shown, looked_up = without_secrets(str(hop.url)), dict[tuple[str, int], Sequence[str]]()
    with ExitStack() as open_things, _as_source_errors(shown):
        shared = connections or open_things.enter_context(Connections())
        for _ in range(_MOST_REDIRECTS + 1):
            proxy = "" if proxy_bypass(hop.host) else getproxies().get(hop.url.scheme, "")
            addresses = _checked(hop, looked_up, bounds.resolve, has_proxy=bool(proxy))
            transport = shared.to(hop, proxy)
            targets = [hop.url] if proxy else [hop.url.copy_with(host=address) for address in addresses]
            message = _Message(method, {**headers, **(own_headers if hop.is_own else {})}, body)
            response = open_things.enter_context(closing(_sent(transport, hop, targets, message, bounds)))
            if response.status_code not in _REDIRECTS:
                yield response
                return
            response.close()
            if body:
                text = f"{shown} redirects what is sent to it to {without_secrets(response.headers.get('location', ''))}"
                raise SourceRefusedError(text, hint="write the address that it leads to")
            hop = hop.after(response)
        raise SourceRefusedError(f"{shown} redirects too often, or in a circle", hint="check the address")


@dataclass(frozen=True, slots=True)
class _Message:
    """What is sent in one request."""

    method: str
    headers: Mapping[str, str]
    body: bytes


def _sent(
    transport: httpx.HTTPTransport,
    hop: RedirectHop,
    targets: Sequence[httpx.URL],
    message: _Message,
    bounds: FetchLimits,
) -> httpx.Response:
    """Send a request to the first of the targets that can be reached; the certificate is that of the host's name."""
    timeout = httpx.Timeout(bounds.silence_s, connect=bounds.connect_s).as_dict()
    for target in targets:
        request = httpx.Request(
            message.method,
            target.copy_with(userinfo=b"", fragment=None),
            headers={**_HEADERS, **message.headers, "host": hop.url.netloc.decode("ascii")},
            content=message.body,
            extensions={"timeout": timeout, **({} if target is hop.url else {"sni_hostname": hop.host})},
        )
        if hop.is_own and hop.own.userinfo:  # the password of the first address, for its own origin only
            request = next(httpx.BasicAuth(hop.own.username, hop.own.password).auth_flow(request))
        try:
            return transport.handle_request(request)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if target is targets[-1] or certificate_fault(error):
                raise
    raise SourceUnavailableError(f"{hop.host} has no address", hint="run again later")


def _checked(
    hop: RedirectHop, looked_up: dict[tuple[str, int], Sequence[str]], resolve: Resolve, *, has_proxy: bool
) -> Sequence[str]:
    """Return the checked addresses of a host, each looked up once; a proxy resolves the first host itself."""
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
            looked_up[place] = [literal] if literal else resolve(host, port)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "its name cannot be looked up"
            raise SourceUnavailableError(f"the address of {host} is unknown: {reason}", hint="run again later") from None
    if refusal := refusal_of(looked_up[place], allows_private=hop.is_own):
        raise hop.refused(refusal)
    return looked_up[place]


@contextmanager
def _as_source_errors(shown: str) -> Iterator[None]:
    """Convert httpx's exceptions to errors of sources, without the cause, which may contain secrets."""
    try:
        yield
    except httpx.InvalidURL as error:
        raise SourceRefusedError(f"{shown} is no web address: {error}", hint="check the address") from None
    except httpx.UnsupportedProtocol:
        raise SourceRefusedError(f"{shown} is not a web address", hint="it must begin with https://") from None
    except (httpx.TransportError, httpx.DecodingError) as error:
        if certificate_fault(error):
            hint = "ask the partner to renew it, or correct SSL_CERT_FILE if it is set"
            raise SourceRefusedError(f"the certificate of {shown} is not valid: {error}", hint=hint) from None
        reason = "it fell silent" if isinstance(error, httpx.ReadTimeout) else str(error) or type(error).__name__
        raise SourceUnavailableError(f"{shown} could not be fetched: {reason}", hint="run again later") from None


@contextmanager
def read_web_file(
    path: str,
    files: WebFiles,
    read_as: Callable[[OpenStored], AbstractContextManager[Reading]],
    columns: tuple[str, ...],
    since: str,
) -> Iterator[Reading]:
    """Read one file on the web. `since`: its version at an earlier reading, in which case it is not fetched again."""
    with files.fetched_if_changed(path, since) as stored:
        if stored is None:
            yield unchanged(columns, since, name_of(path))
            return
        with read_as(stored.reopened) as reading:
            yield replace(reading, ending=lambda: replace(reading.ending(), cursor=stored.version))


@dataclass(frozen=True, slots=True)
class WebFiles(Files):
    """Files on the web, where a path is an address; they cannot be listed."""

    bounds: FetchLimits

    def find(self, path: str) -> FoundFile | None:
        """Return the file at an address, None if there is none, by one or two small requests."""
        # A server may refuse HEAD, or not know it, and still give the file.
        for method in ("HEAD", "GET"):
            with ask(self.bounds, method, path, {}) as answer:
                if answer.status_code in {404, 410} or (method == "HEAD" and answer.status_code != 200):
                    continue
                refuse_other_answers(answer, without_secrets(path))
                return FoundFile(path, name_of(path), _firm_version_of(answer), changed_at(answer), _size_of(answer))
        return None

    @contextmanager
    def open(self, path: str) -> Iterator[StoredFile]:
        """Yield a copy of the file at an address."""
        with self.fetched_if_changed(path, "") as stored:
            if stored is None:
                message = f"{without_secrets(path)} answered 304 to an unconditional request"
                raise SourceUnavailableError(message, hint="run again later")
            yield stored

    @contextmanager
    def fetched_if_changed(self, path: str, known: str) -> Iterator[StoredFile | None]:
        """Yield a copy of the file at an address; None if it still has the version `known`, after one request without a body.

        An answer that ends with the connection has no known end.
        """
        # Nameless from the beginning: nothing is left behind, not even by `kill -9`.
        with TemporaryFile(prefix="eventsync-") as stream:
            answer = self.bounds.retried(lambda: self._fetch(path, known, stream))
            if answer is None:
                yield None
                return
            name, encoding = name_of(path), answer.headers.get("content-encoding", "")
            has_known_end = bool({"content-length", "transfer-encoding"}.intersection(answer.headers))
            with ExitStack() as open_things:
                with cut_off_is_passing(name, has_known_end=has_known_end):
                    whole, was_packed = open_things.enter_context(sent_unpacked(stream, name, encoding))
                stamp = _version_of(answer) or digest_of(whole)
                yield StoredFile(whole, name, stamp, has_known_end or was_packed, _firm_version_of(answer))

    def _fetch(self, path: str, known: str, stream: BinaryIO) -> httpx.Response | None:
        """Download a file; return the answer with the headers, None if the version is the known one."""
        shown = without_secrets(path)
        stream.seek(0)
        stream.truncate()
        with ask(self.bounds, "GET", path, _conditions(known)) as answer:
            if answer.status_code == 304 and known:
                return None
            refuse_other_answers(answer, shown)
            if known and _version_of(answer) == known:
                return None
            self.bounds.check_size(_size_of(answer) or 0, shown)
            self.bounds.copy(answer.iter_raw(), stream, shown)
            return answer


def _conditions(known: str) -> Mapping[str, str]:
    """Return the headers for requesting a file only if its version has changed."""
    name, _, value = known.partition("=")
    header = {"ETag": "if-none-match", "Last-Modified": "if-modified-since"}.get(name)
    return {header: value} if header and value.isprintable() and value.isascii() else {}


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


def _size_of(answer: httpx.Response) -> int | None:
    """Return the announced size of the body, None if unknown."""
    length = answer.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdecimal() and len(length) < 19 else None


def links_of(answer: httpx.Response) -> Mapping[str, str]:
    """Return the links of the header `Link` by their relations: one may have several, in any case (RFC 8288, section 3.3)."""
    return {name: link["url"] for names, link in answer.links.items() for name in str(names).casefold().split()}


def refuse_other_answers(answer: httpx.Response, shown: str, said: str = "", hint: str = "") -> None:
    """Check that an answer has a file. `said`: the beginning of its text, to be shown; `hint`: what to do about a refusal.

    Raises:
        SourceUnavailableError: 202, 408, 425, 429, 5xx: a later attempt may work. `retry_after_s`: what the server asks for.
        SourceRefusedError: any other status.
    """
    status = answer.status_code
    if status == 200:
        return
    message = f"{shown} answered {status} {answer.reason_phrase}".rstrip()
    if status in _PASSING or status >= 500:
        message = f"{message}: the file is not ready yet" if status == 202 else message
        raise SourceUnavailableError(message, hint="run again later", retry_after_s=retry_after_s(answer.headers))
    if status in {404, 410} and not said:
        raise SourceRefusedError(f"{message}: there is no such file", hint="check the address with the partner")
    message = f"{message}: {said}" if said else message
    refusal = LoginRefusedError if status in {401, 403} else SourceRefusedError
    raise refusal(message, hint=hint or "check the address and the access with the partner")

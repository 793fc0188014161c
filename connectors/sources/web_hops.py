"""One question to a web server and its answer, redirects followed only where they may lead us.

What is asked, and what the answer means, is `web_answers`' and `web_files`'.
"""

from __future__ import annotations

import base64
import functools
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import httpx

from connectors.public_addresses import is_link_local, is_numeric, is_public
from connectors.sources.errors import SourceRefusedError, SourceUnavailableError
from connectors.sources.fetching import Fetching
from connectors.sources.web_deadline import Deadline
from mappings.file_names import without_secrets

Resolve = Callable[[str, int], Sequence[str]]
"""Returns the IP addresses of a host name; raises `OSError` where there are none."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"user-agent": "eventsync", "accept": "*/*"}


@functools.cache
def _trusted() -> ssl.SSLContext:
    """Return who may vouch for servers: read once, as that takes longer than a small file."""
    return httpx.create_ssl_context()


def resolve_by_system(host: str, port: int) -> Sequence[str]:
    """Resolve as the operating system does."""
    return list(dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))


@dataclass(slots=True)
class WebDoor:
    """Asks web servers, one question at a time, through the machine's proxies; to be closed.

    It takes the place of an `httpx.Client`, which would write every address into the log, tokens and all.
    """

    bounds: Fetching
    resolve: Resolve = resolve_by_system
    _wires: dict[str, httpx.HTTPTransport] = field(default_factory=dict)

    def close(self) -> None:
        """Close all connections."""
        for wire in self._wires.values():
            wire.close()

    @contextmanager
    def ask(self, method: str, address: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Give the answer that is no redirect; its body comes as it is read.

        User and password are told to the address's own host only. A redirect never leads from https to http, and never to a
        private address, unless the feed's own host is at one: else a partner could make us read from our own network. To an
        address of the link alone, by which machines in clouds learn their secrets, it leads never.

        Raises:
            SourceRefusedError: the address is none, a certificate is not valid, or a redirect leads astray.
            SourceUnavailableError: nobody answers, or the connection breaks, also while the block reads.
        """
        shown, deadline = without_secrets(address), Deadline()
        with ExitStack() as open_things, _told_apart(shown), _in_time(deadline, shown):
            own = url = httpx.URL(address)
            for _ in range(self.bounds.hops + 1):
                deadline.within(self.bounds.connect_s + self.bounds.silence_s)
                asked, proxy = self._request(method, url, own, headers)
                asked.extensions["trace"] = deadline.trace
                response = open_things.enter_context(closing(self._wire(proxy).handle_request(asked)))
                if response.status_code not in _REDIRECTS:
                    deadline.within(self.bounds.longest_s)
                    yield response
                    return
                response.close()
                url = self._next(own, url, response)
            raise SourceRefusedError(f"{shown} sends us on and on, in a circle", hint="check `source.path`")

    def _request(self, method: str, url: httpx.URL, own: httpx.URL, headers: Mapping[str, str]) -> tuple[httpx.Request, str]:
        """Return what is asked, and through which proxy."""
        proxy = "" if proxy_bypass(url.host) else getproxies().get(url.scheme, "")
        target, extensions = url.copy_with(userinfo=b"", fragment=None), self._extensions()
        if not _is_same_host(url, own) and not proxy:
            # What is connected to is what was looked at: a name that answers differently the second time gains nothing.
            target = target.copy_with(host=self._checked(url, own)[0])
            extensions |= {"sni_hostname": url.host}
        elif not _is_same_host(url, own):
            self._checked(url, own)
        told = {**_HEADERS, **headers, "host": url.netloc.decode("ascii"), **_authorization(url, own)}
        return httpx.Request(method, target, headers=told, extensions=extensions), proxy

    def _extensions(self) -> dict[str, object]:
        bounds = self.bounds
        timeout = httpx.Timeout(bounds.silence_s, connect=bounds.connect_s)
        return {"timeout": timeout.as_dict()}

    def _wire(self, proxy: str) -> httpx.HTTPTransport:
        if proxy not in self._wires:
            limits = httpx.Limits(max_keepalive_connections=0)
            self._wires[proxy] = httpx.HTTPTransport(verify=_trusted(), proxy=proxy or None, limits=limits)
        return self._wires[proxy]

    def _next(self, own: httpx.URL, url: httpx.URL, response: httpx.Response) -> httpx.URL:
        shown = without_secrets(str(url))
        to = response.headers.get("location", "")
        if not to:
            raise SourceRefusedError(f"{shown} answered {response.status_code} and not where to go", hint="ask the partner")
        onward = url.join(to)
        if onward.scheme not in {"http", "https"} or not onward.host:
            raise SourceRefusedError(f"{shown} sends us on to no web address", hint="ask the partner for the file's own address")
        if "https" in (own.scheme, url.scheme) and onward.scheme == "http":
            message = f"{shown} sends us on to {without_secrets(str(onward))}, which anybody on the way could read and change"
            raise SourceRefusedError(message, hint="ask the partner to serve the file by https")
        return onward

    def _checked(self, url: httpx.URL, own: httpx.URL) -> Sequence[str]:
        """Return the addresses of a host that we were sent on to."""
        found = self._addresses(url)
        is_inside = not all(map(is_public, found)) and all(map(is_public, self._addresses(own)))
        if is_inside or any(map(is_link_local, found)):
            message = f"{without_secrets(str(own))} sends us on to {url.host}, an address inside a private network"
            raise SourceRefusedError(message, hint="a feed may only be sent on to public addresses; name the file's own address")
        return found

    def _addresses(self, url: httpx.URL) -> Sequence[str]:
        port = url.port or (443 if url.scheme == "https" else 80)
        if is_numeric(url.host) and ":" in url.host:
            return [url.host]
        try:
            return self.resolve(url.host, port)
        except OSError as error:
            raise SourceUnavailableError(f"nobody knows where {url.host} is: {error.strerror}", hint="run again later") from None


def _is_same_host(url: httpx.URL, own: httpx.URL) -> bool:
    return url.host == own.host


def _authorization(url: httpx.URL, own: httpx.URL) -> dict[str, str]:
    is_own = (url.scheme, url.host, url.port) == (own.scheme, own.host, own.port)
    if not (is_own and own.userinfo):
        return {}
    user, _, password = own.userinfo.decode("ascii").partition(":")
    token = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode())
    return {"authorization": f"Basic {token.decode('ascii')}"}


@contextmanager
def _in_time(deadline: Deadline, shown: str) -> Iterator[None]:
    """Say so where a deadline ended the talk: what the wire makes of it may look like the good end of a file."""
    with closing(deadline):
        try:
            yield
        except httpx.TransportError:
            if not deadline.is_over:
                raise
    if deadline.is_over:
        raise SourceUnavailableError(f"{shown} takes too long to answer", hint="run again later")


@contextmanager
def _told_apart(shown: str) -> Iterator[None]:
    """Turn what the wire raises into what it means for a source, without the cause, which may repeat secrets."""
    try:
        yield
    except httpx.TransportError as error:
        if _is_untrusted(error):
            message, hint = f"the certificate of {shown} is not valid: {error}", "ask the partner to renew it"
            raise SourceRefusedError(message, hint=hint) from None
        if isinstance(error, httpx.UnsupportedProtocol):
            raise SourceRefusedError(f"{shown} is no web address", hint="check `source.path`") from None
        said = "it fell silent" if isinstance(error, httpx.ReadTimeout) else str(error) or type(error).__name__
        raise SourceUnavailableError(f"{shown} could not be fetched: {said}", hint="run again later") from None
    except httpx.InvalidURL as error:
        raise SourceRefusedError(f"{shown} is no web address: {error}", hint="check `source.path`") from None


def _is_untrusted(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False

"""Fetching a partner's cover image: from public addresses only, within bounds of size and time, believed by its bytes.

How it reaches the service is `upload`'s; what becomes of a row whose image fails is the mapping's choice.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import Self

import aiohttp
import httpx

from connectors.event_api.addresses import GuardedResolver, Resolve, resolve_by_system
from connectors.event_api.pictures import recognise
from connectors.event_api.transport import FrankTransport
from connectors.public_addresses import is_usual_port, refusal_of_host
from connectors.retry import Random, RetryPolicy, Sleep, ask_until
from mappings.errors import SyncError

_ACCEPTED = frozenset({"image/jpeg", "image/png", "image/webp", "image/gif"})
_PASSING = frozenset({408, 425, 429, *range(500, 600)})
_HEADERS = {"user-agent": "eventsync (cover images)", "accept": "image/*", "accept-encoding": "identity"}
_RETRIES = RetryPolicy(attempts=3, budget_s=60.0)


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What is taken for a cover image. `timeout_s` bounds one attempt, redirects included; `max_pixels_moving` all frames.

    A server that failed `host_patience` images in a row is not asked for more of them. `allows_private` lets links lead
    into private networks, for tests and for image servers of one's own; never to the metadata service of a cloud.
    """

    max_bytes: int = 10 << 20
    max_pixels: int = 50_000_000
    max_pixels_moving: int = 250_000_000
    timeout_s: float = 20.0
    max_redirects: int = 3
    host_patience: int = 3
    accepted: frozenset[str] = _ACCEPTED
    allows_private: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """A checked image. `digest`: 16 bytes of BLAKE2b over `content`; `etag` as its server named it, "" if it did not."""

    content: bytes
    content_type: str
    extension: str
    digest: bytes
    etag: str = ""


@dataclass(frozen=True, slots=True)
class ImageUnchanged:
    """The server says that the image is still the one of the `etag` handed in."""


@dataclass(frozen=True, slots=True)
class ImageProblem:
    """Why an image cannot be used, in words for the partner's editor. `is_passing`: another run may fare better.

    `cause` is set where the trouble is not the image's own: our key, the service, the route. `is_key_used`: an upload under
    this idempotency key was taken before, and its answer is lost.
    """

    reason: str
    is_passing: bool = False
    cause: SyncError | None = None
    is_key_used: bool = False


@dataclass(frozen=True, slots=True)
class _Moved:
    url: httpx.URL


class ImageFetcher:
    """Fetches images without any secret. Async context manager; sleep and randomness are handed in.

    `resolve` and `transport` replace the resolver and the wire in tests.
    """

    def __init__(
        self,
        limits: ImageLimits,
        *,
        sleep: Sleep,
        random: Random,
        resolve: Resolve = resolve_by_system,
        in_flight: int = 8,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._limits = limits
        self._sleep = sleep
        self._random = random
        self._resolver = GuardedResolver(resolve, allows_private=limits.allows_private)
        self._failures: Counter[str] = Counter()
        wire = transport or _wire(self._resolver, in_flight)
        self._http = httpx.AsyncClient(transport=wire, headers=_HEADERS, follow_redirects=False, trust_env=False)

    async def __aenter__(self) -> Self:
        """Open nothing yet; connections are made as images are fetched."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def fetch_image(self, url: str, *, etag: str = "") -> Image | ImageUnchanged | ImageProblem:
        """Fetch and check one image; with `etag`, only if it is another one by now. Never raises for an image."""
        host = _host_of(url)
        if self._failures[host] >= self._limits.host_patience:
            return ImageProblem(f"The image's server {host} failed for {self._failures[host]} images in a row.", is_passing=True)
        found = await self._insist(url, etag)
        is_down = isinstance(found, ImageProblem) and found.is_passing
        self._failures[host] = self._failures[host] + 1 if is_down else 0
        return found

    async def _insist(self, url: str, etag: str) -> Image | ImageUnchanged | ImageProblem:
        return await ask_until(
            lambda found: not (isinstance(found, ImageProblem) and found.is_passing),
            lambda: self._fetch_in_time(url, etag),
            wait_s=lambda attempt, _: _RETRIES.wait_s(attempt, self._random),
            is_spent=lambda attempt, _: attempt >= _RETRIES.attempts,
            sleep=self._sleep,
        )

    async def _fetch_in_time(self, url: str, etag: str) -> Image | ImageUnchanged | ImageProblem:
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                return await self._follow(httpx.URL(url), etag)
        except (TimeoutError, httpx.TimeoutException):
            return ImageProblem(
                f"The image's server did not deliver it within {self._limits.timeout_s:.0f} seconds.", is_passing=True
            )
        except httpx.ConnectError as problem:
            return self._unreached(problem)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError):
            return ImageProblem("The image's address is not a web address.")
        except httpx.RequestError as problem:
            return ImageProblem(f"The image could not be fetched: {problem}.", is_passing=True)

    async def _follow(self, url: httpx.URL, etag: str) -> Image | ImageUnchanged | ImageProblem:
        is_secure = False
        for _ in range(self._limits.max_redirects + 1):
            problem = self._address_problem(url, is_secure=is_secure)
            if problem:
                return ImageProblem(problem)
            found = await self._fetch(url, etag)
            if not isinstance(found, _Moved):
                return found
            is_secure, url = url.scheme == "https", found.url
        return ImageProblem(f"The image's address redirects more than {self._limits.max_redirects} times.")

    def _address_problem(self, url: httpx.URL, *, is_secure: bool) -> str:
        if url.scheme not in {"http", "https"} or not url.host:
            return "The image's address does not begin with http:// or https://."
        if url.userinfo:
            return "The image's address holds a user name or password."
        if is_secure and url.scheme == "http":
            return "The image's address redirects from https to plain http."
        if not is_usual_port(url.port):
            return f"The image's address names the port {url.port}, where no images are served."
        refusal = refusal_of_host(url.host, allows_private=self._limits.allows_private)
        return f"The image's address {refusal}." if refusal else ""

    async def _fetch(self, url: httpx.URL, etag: str) -> Image | ImageUnchanged | ImageProblem | _Moved:
        headers = {"if-none-match": etag} if etag else {}
        async with self._http.stream("GET", url, headers=headers) as response:
            if response.status_code == 304 and etag:
                return ImageUnchanged()
            if response.has_redirect_location:
                return _Moved(url.join(response.headers["location"]))
            if response.status_code != 200:
                return ImageProblem(f"The image's server answers {response.status_code}.", response.status_code in _PASSING)
            packing = response.headers.get("content-encoding", "identity")
            if packing.strip().lower() not in {"", "identity"}:
                return ImageProblem(f"The image's server packs the image ({packing[:40]}), although it was asked not to.")
            content = await self._read(response)
            return self._too_large() if content is None else self._checked(content, response.headers.get("etag", ""))

    async def _read(self, response: httpx.Response) -> bytes | None:
        declared = response.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self._limits.max_bytes:
            return None
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > self._limits.max_bytes:
                return None
        return bytes(content)

    def _checked(self, content: bytes, etag: str) -> Image | ImageProblem:
        picture = recognise(content)
        if picture is None or picture.content_type not in self._limits.accepted:
            return ImageProblem(f"What lies at the image's address is not an image in one of the formats {self._formats()}.")
        if picture.width * picture.height > self._limits.max_pixels:
            return ImageProblem(f"The image has {picture.width} x {picture.height} pixels, which is too many.")
        if picture.frames * picture.width * picture.height > self._limits.max_pixels_moving:
            return ImageProblem(f"The image moves, and its {picture.frames} frames are too many for their size.")
        digest = hashlib.blake2b(content, digest_size=16).digest()
        return Image(content, picture.content_type, picture.extension, digest, etag)

    def _too_large(self) -> ImageProblem:
        return ImageProblem(f"The image is larger than {self._limits.max_bytes / (1 << 20):.0f} MB.")

    def _formats(self) -> str:
        return ", ".join(sorted(kind.removeprefix("image/").upper() for kind in self._limits.accepted))

    def _unreached(self, problem: httpx.ConnectError) -> ImageProblem:
        if refusal := self._resolver.refused.get(problem.request.url.host):
            return ImageProblem(f"The image's address {refusal}.")
        return ImageProblem(f"The image's server cannot be reached: {problem}.", is_passing=True)


def _host_of(url: str) -> str:
    try:
        return httpx.URL(url).host
    except (httpx.InvalidURL, ValueError):
        return ""


def _wire(resolver: GuardedResolver, in_flight: int) -> httpx.AsyncBaseTransport:
    def connector() -> aiohttp.TCPConnector:
        tls = httpx.create_ssl_context()  # here, as all certificates are read for it, and most runs fetch no image
        return aiohttp.TCPConnector(limit=in_flight, ssl=tls, resolver=resolver, use_dns_cache=False, force_close=True)

    return FrankTransport(connector)

"""Cover images: fetch them from public addresses within bounds of size and time, recognise them by their bytes, upload them.

The encoding of an upload is not shown by the specification: the one on its OpenAPI page and the usual ones are tried.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Self

import aiohttp
import httpx
from pydantic import ValidationError

from connectors.addresses import is_usual_port, refusal_of_host
from connectors.event_api.answers import Foreign, KeyUsed, Meaning, Refused, WireModel, in_short
from connectors.event_api.route import Closed, Questions, Read
from connectors.event_api.transport import AiohttpWire, GuardedResolver, Resolve, resolve_by_system
from connectors.retry import Random, RetryPolicy, Sleep, ask_until
from mappings.errors import SyncError

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers that begin a frame (ITU-T T.81, table B.1); the three left out define tables instead."""
_GIF_EXTENSION, _GIF_FRAME = 0x21, 0x2C


@dataclass(frozen=True, slots=True)
class Picture:
    """A recognised picture; `width` and `height` in pixels, `frames` more than one where it moves."""

    content_type: str
    extension: str
    width: int
    height: int
    frames: int = 1


def recognise(content: bytes) -> Picture | None:
    """Return what `content` is, None where it is no JPEG, PNG, GIF or WebP with a size. Never raises."""
    try:
        return _recognise(content)
    except IndexError:
        return None


def _recognise(content: bytes) -> Picture | None:
    if content.startswith(b"\xff\xd8\xff"):
        return _sized("image/jpeg", "jpg", _jpeg_size(content))
    if content.startswith(_PNG) and content[12:16] == b"IHDR":
        return _sized("image/png", "png", (_big(content[16:20]), _big(content[20:24])), _png_frames(content))
    if content[:6] in {b"GIF87a", b"GIF89a"}:
        return _sized("image/gif", "gif", (_little(content[6:8]), _little(content[8:10])), _gif_frames(content))
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return _sized("image/webp", "webp", _webp_size(content), content.count(b"ANMF"))
    return None


def _sized(content_type: str, extension: str, size: tuple[int, int], frames: int = 1) -> Picture | None:
    width, height = size
    return Picture(content_type, extension, width, height, max(frames, 1)) if width > 0 and height > 0 else None


def _png_frames(content: bytes) -> int:
    """Return how many frames an animated PNG declares: in a chunk that comes before the first image data."""
    at = content.find(b"acTL", 8, content.find(b"IDAT"))
    return _big(content[at + 4 : at + 8]) if at > 0 else 1


def _gif_frames(content: bytes) -> int:
    """Count the frames of a GIF, block by block; what follows a block that is no block is not looked at."""
    at, frames = 13 + _colours(content[10]), 0
    while at < len(content) and content[at] in {_GIF_EXTENSION, _GIF_FRAME}:
        if content[at] == _GIF_FRAME:
            frames += 1
            at += 11 + _colours(content[at + 9])
        else:
            at += 2
        at = _after_gif_blocks(content, at)
    return frames


def _colours(flags: int) -> int:
    """Return the bytes of a GIF's colour table, 0 where its flags announce none."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _after_gif_blocks(content: bytes, at: int) -> int:
    while content[at]:
        at += content[at] + 1
    return at + 1


def _jpeg_size(content: bytes) -> tuple[int, int]:
    for marker, at in _jpeg_segments(content):
        if marker in _JPEG_FRAMES:
            return _big(content[at + 5 : at + 7]), _big(content[at + 3 : at + 5])
    return 0, 0


def _jpeg_segments(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield each marker with the place of its length, up to the first scan."""
    at = 2
    while at < len(content) - 1 and content[at] == 0xFF:
        marker = content[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in _JPEG_WITHOUT_LENGTH:
            at += 2
        else:
            yield marker, at + 2
            at += 2 + max(_big(content[at + 2 : at + 4]), 2)


def _webp_size(content: bytes) -> tuple[int, int]:
    match content[12:16]:
        case b"VP8X":
            return 1 + _little(content[24:27]), 1 + _little(content[27:30])
        case b"VP8L":
            bits = _little(content[21:25])
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            return _little(content[26:28]) & 0x3FFF, _little(content[28:30]) & 0x3FFF
        case _:
            return 0, 0


def _big(number: bytes) -> int:
    return int.from_bytes(number, "big")


def _little(number: bytes) -> int:
    return int.from_bytes(number, "little")


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

    return AiohttpWire(connector)


_OTHER_ENCODING = frozenset({400, 415, 422})
"""Refusals that may mean the encoding rather than the image."""


@dataclass(frozen=True, slots=True)
class _Encoding:
    """A form with the image in `field`, or the image itself where there is none. `key_end` sets the requests of one image
    apart: each has a key of its own.
    """

    field: str
    key_end: str


_USUAL = (_Encoding("file", ""), _Encoding("", "-raw"), _Encoding("image", "-image"))
"""The encodings in the order of trying, where the service's page shows none."""
_TOLD_KEY_END = "-field"
LONGEST_KEY_END = max(len(end) for end in (_TOLD_KEY_END, *(encoding.key_end for encoding in _USUAL)))
"""By how many characters the key of an upload may be longer than that of an event."""
_FIELD = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class _Id(WireModel):
    id: int


class _Uploaded(WireModel):
    """The answer's shape beyond the id is not shown (spec, POST media): the id is taken from where it usually stands."""

    id: int | None = None
    doc: _Id | None = None
    data: _Id | None = None


class Uploader:
    """Uploads over one route, several images at once, and remembers which encoding the service took."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._url = questions.exchange.url("/media")
        self._known: _Encoding | None = None
        self._order: tuple[_Encoding, ...] = _USUAL

    def expect(self, field: str) -> None:
        """Try a form with the image in `field` first, as the service's page shows it; "" or what is no name changes nothing."""
        if _FIELD.fullmatch(field):
            told = next((usual for usual in _USUAL if usual.field == field), _Encoding(field, _TOLD_KEY_END))
            self._order = (told, *(usual for usual in _USUAL if usual != told))

    async def upload(self, image: Image, key: str) -> int | ImageProblem:
        """Return the id of the media document, or why there is none. Never raises for an image.

        `key` is the idempotency key of this image's upload; another encoding is another request and gets its own.
        """
        tried: list[_Encoding] = []
        refusals: list[Meaning | Closed] = []
        encoding: _Encoding | None = self._known or self._order[0]
        while encoding is not None:
            tried.append(encoding)
            met = await self._questions.insist(partial(self._request, image, key, encoding), _media_id)
            if isinstance(met, Read):
                self._known = encoding
                return met.value
            refusals.append(met)
            is_of_encoding = isinstance(met, Refused | Foreign) and met.answer.status in _OTHER_ENCODING
            encoding = self._next(tried) if is_of_encoding else None
        return self._problem(_about_the_image(refusals))

    def _next(self, tried: list[_Encoding]) -> _Encoding | None:
        """Return what to try after refusals; another upload in flight may have found the good one meanwhile."""
        if self._known is not None:
            return None if self._known in tried else self._known
        return next((encoding for encoding in self._order if encoding not in tried), None)

    def _request(self, image: Image, key: str, encoding: _Encoding) -> httpx.Request:
        content_type, content = _form(image, encoding.field) if encoding.field else (image.content_type, image.content)
        headers = {"content-type": content_type, "idempotency-key": key + encoding.key_end}
        return self._questions.exchange.request("POST", self._url, content=content, headers=headers)

    def _problem(self, met: Meaning | Closed) -> ImageProblem:
        if isinstance(met, Closed):
            return ImageProblem(f"The image could not be uploaded: {met.cause}.", is_passing=True, cause=met.cause)
        if isinstance(met, Refused | Foreign):
            return ImageProblem(f"The service refuses the image: {in_short(met.answer)}.")
        if isinstance(met, KeyUsed):
            told = "The service says that this image was uploaded before, and not under which number."
            return ImageProblem(told, is_passing=met.is_under_way, is_key_used=True)
        cause = self._questions.complaint(met, "the upload of an image")
        return ImageProblem(f"The image could not be uploaded: {cause}.", is_passing=True, cause=cause)


def _about_the_image(refusals: list[Meaning | Closed]) -> Meaning | Closed:
    """Return the first refusal that is not about the encoding alone (415), else the last one."""
    return next((met for met in refusals if isinstance(met, Closed) or met.answer.status != 415), refusals[-1])


def _form(image: Image, field: str) -> tuple[str, bytes]:
    """Encode as a form with one file in `field`; the boundary comes from the image, so that a retry sends the same bytes."""
    name = image.digest.hex()
    boundary = f"eventsync-{name}"
    head = (
        f'--{boundary}\r\ncontent-disposition: form-data; name="{field}"; filename="{name}.{image.extension}"\r\n'
        f"content-type: {image.content_type}\r\n\r\n"
    )
    return f"multipart/form-data; boundary={boundary}", head.encode("ascii") + image.content + f"\r\n--{boundary}--\r\n".encode(
        "ascii"
    )


def _media_id(body: bytes) -> int | None:
    try:
        told = _Uploaded.model_validate_json(body)
    except ValidationError:
        return None
    return next((found.id for found in (told.doc, told.data) if found is not None), told.id)

"""Cover images: fetches them from public addresses within limits of size and time, detects their format, uploads them.

The specification does not give the encoding of an upload: the one on its OpenAPI page and the usual ones are tried.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from math import inf
from typing import Self

import aiohttp
import httpx
from pydantic import AliasChoices, AliasPath, Field
from yarl import URL

from connectors.addresses import is_usual_port, refusal_of_host
from connectors.event_api.answers import KEY_TAKEN, AnswerKind, HttpAnswer, Meaning, WireModel, in_short
from connectors.event_api.route import Route
from connectors.event_api.transport import (
    AiohttpWire,
    GuardedResolver,
    Request,
    Resolve,
    Wire,
    WireError,
    resolve_by_system,
    trusted_certificates,
)
from connectors.retry import Random, RetryPolicy, Sleep, ask_until
from mappings.errors import SyncError


def content_type_of(content: bytes) -> str:
    """Return the content type of an image by its first bytes, "" if it is not a JPEG, PNG, GIF or WebP."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    heads = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png", b"GIF87a": "image/gif", b"GIF89a": "image/gif"}
    return next((kind for head, kind in heads.items() if content.startswith(head)), "")


_MAX_BYTES = 10 << 20
_MAX_REDIRECTS = 3
_HOST_PATIENCE = 3
"""After so many failed images in a row, no more images are requested from that server."""
_PASSING = frozenset({408, 425, 429, *range(500, 600)})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"user-agent": "eventsync (cover images)", "accept": "image/*", "accept-encoding": "identity"}
_RETRIES = RetryPolicy(attempts=3, budget_s=inf)


@dataclass(frozen=True, slots=True)
class Image:
    """A checked image. `digest`: 16 bytes of BLAKE2b of `content`; `etag`: as sent by its server, "" if none."""

    content: bytes
    content_type: str
    digest: bytes
    etag: str = ""


@dataclass(frozen=True, slots=True)
class ImageUnchanged:
    """The server answered that the image still has the given `etag`."""


@dataclass(frozen=True, slots=True)
class ImageProblem:
    """Why an image cannot be used, worded for the partner's editor. `is_passing`: a later run may succeed.

    `cause`: set if the image is not to blame, but our key, the service or the route. `is_key_used`: an upload with this
    idempotency key was accepted before, and its answer was lost.
    """

    reason: str
    is_passing: bool = False
    cause: SyncError | None = None
    is_key_used: bool = False


class _UnusableError(Exception):
    """The file at the address cannot be used; `str()` is for the partner's editor."""


class ImageFetcher:
    """Fetches images without any secret. Async context manager.

    `timeout_s` limits one attempt including redirects. `allows_private` allows links into private networks, for tests and own
    image servers, but never to a cloud's metadata service. `resolve` and `wire` replace the resolver and the network in tests.
    """

    def __init__(
        self,
        *,
        sleep: Sleep,
        random: Random,
        allows_private: bool = False,
        timeout_s: float = 20.0,
        resolve: Resolve = resolve_by_system,
        wire: Wire | None = None,
    ) -> None:
        self._allows_private = allows_private
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._random = random
        self._resolver = resolver = GuardedResolver(resolve, allows_private=allows_private)
        self._failures: Counter[str] = Counter()

        def connector() -> aiohttp.TCPConnector:
            tls = trusted_certificates()  # here, as all certificates are read for it, and most runs fetch no image
            return aiohttp.TCPConnector(ssl=tls, resolver=resolver, use_dns_cache=False, force_close=True)

        self._wire = wire or AiohttpWire(connector, unpacks=False)

    async def __aenter__(self) -> Self:
        """Return the fetcher; connections are opened when images are fetched."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await self._wire.aclose()

    async def fetch_image(self, url: str, *, etag: str = "") -> Image | ImageUnchanged | ImageProblem:
        """Fetch and check one image; with `etag`, only if it has changed. Never raises because of an image."""
        try:
            host = httpx.URL(url).host
        except (httpx.InvalidURL, ValueError):
            return ImageProblem("The image's address is not a web address.")
        if self._failures[host] >= _HOST_PATIENCE:
            return ImageProblem(f"The image's server {host} failed for {self._failures[host]} images in a row.", is_passing=True)
        found = await ask_until(
            lambda found: not (isinstance(found, ImageProblem) and found.is_passing),
            lambda: self._fetch_in_time(url, etag),
            _RETRIES,
            sleep=self._sleep,
            random=self._random,
        )
        is_down = isinstance(found, ImageProblem) and found.is_passing
        self._failures[host] = self._failures[host] + 1 if is_down else 0
        return found

    async def _fetch_in_time(self, url: str, etag: str) -> Image | ImageUnchanged | ImageProblem:  # one arm a cause
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._follow(httpx.URL(url), etag)
        except _UnusableError as problem:
            return ImageProblem(str(problem))
        except TimeoutError:
            return ImageProblem(f"The image's server did not deliver it within {self._timeout_s:.0f} seconds.", is_passing=True)
        except (httpx.InvalidURL, ValueError):
            return ImageProblem("The image's address is not a web address.")
        except WireError as problem:
            has_left = problem.kind in {AnswerKind.LOST, AnswerKind.UNREADABLE}
            what = "The image could not be fetched" if has_left else "The image's server cannot be reached"
            return ImageProblem(f"{what}: {problem}.", is_passing=True)

    async def _follow(self, url: httpx.URL, etag: str) -> Image | ImageUnchanged | ImageProblem:
        is_secure = False
        for _ in range(_MAX_REDIRECTS + 1):
            self._check_address(url, is_secure=is_secure)
            headers = _HEADERS | ({"if-none-match": etag} if etag else {})
            answer = await self._get(Request("GET", URL(str(url), encoded=True), headers), url.host)
            if answer.status == 304 and etag:
                return ImageUnchanged()
            if answer.status not in _REDIRECTS or "location" not in answer.headers:
                return self._read(answer)
            is_secure, url = url.scheme == "https", url.join(answer.headers["location"])
        raise _UnusableError(f"The image's address redirects more than {_MAX_REDIRECTS} times: give the address where it ends.")

    def _check_address(self, url: httpx.URL, *, is_secure: bool) -> None:
        refusal = refusal_of_host(url.host, allows_private=self._allows_private)
        problems = {
            "does not begin with http:// or https://": url.scheme not in {"http", "https"} or not url.host,
            "holds a user name or password": bool(url.userinfo),
            "redirects from https to plain http": is_secure and url.scheme == "http",
            f"names the port {url.port}, which is not allowed for images": not is_usual_port(url.port),
            refusal: bool(refusal),
        }
        for problem, is_there in problems.items():
            if is_there:
                raise _UnusableError(f"The image's address {problem}.")

    async def _get(self, request: Request, host: str) -> HttpAnswer:
        try:
            return await self._wire.send(request, longest=_MAX_BYTES + 1)
        except WireError:
            if refusal := self._resolver.refused.get(host):
                raise _UnusableError(f"The image's address {refusal}.") from None
            raise

    def _read(self, answer: HttpAnswer) -> Image | ImageProblem:
        if answer.status != 200:
            return ImageProblem(f"The image's server answers {answer.status}.", answer.status in _PASSING)
        packing = answer.headers.get("content-encoding", "identity")
        if packing.strip().lower() not in {"", "identity"}:
            raise _UnusableError(f"The image's server compresses the image ({packing[:40]}), although we asked it not to.")
        declared = answer.headers.get("content-length", "")
        if len(answer.body) > _MAX_BYTES or (declared.isdigit() and int(declared) > _MAX_BYTES):
            raise _UnusableError(f"The image is larger than {_MAX_BYTES >> 20} MB.")
        content_type = content_type_of(answer.body)
        if not content_type:
            raise _UnusableError("The file at the image's address is not a GIF, JPEG, PNG or WEBP image.")
        digest = hashlib.blake2b(answer.body, digest_size=16).digest()
        return Image(answer.body, content_type, digest, answer.headers.get("etag", ""))


_OTHER_ENCODING = frozenset({400, 415, 422})
"""Statuses that may refuse the encoding rather than the image."""
_REFUSED = frozenset({AnswerKind.REFUSED, AnswerKind.REFUSED_BY_PROXY, AnswerKind.FOREIGN, AnswerKind.ANOTHER_HOST})
_USUAL = {"file": "", "": "-raw", "image": "-image"}
"""Encodings to try in order: a form with the image in this field, or ("") the image itself.

The value is the suffix of the idempotency key, since another encoding is another request.
"""
_OTHER_KEY_END = "-field"
_FIELD = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class _Uploaded(WireModel):
    """An upload's answer. The spec does not show it beyond the id (POST media), which is read from the usual places."""

    id: int = Field(validation_alias=AliasChoices(AliasPath("doc", "id"), AliasPath("data", "id"), "id"))


class Uploader:
    """Uploads several images at once over one route, and remembers the encoding that the service accepted."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._url = route.http.url("/media")
        self._order = list(_USUAL)

    def expect(self, field: str) -> None:
        """Try the form field `field` first, as given by the service's page; "" or an invalid name is ignored."""
        if _FIELD.fullmatch(field):
            self._order = [field, *(usual for usual in _USUAL if usual != field)]

    async def upload(self, image: Image, key: str) -> int | ImageProblem:
        """Return the id of the uploaded image, or why there is none. Never raises because of an image.

        `key`: the idempotency key of the upload; each encoding adds its own suffix.
        """
        refusals: dict[str, Meaning] = {}
        while untried := [field for field in self._order if field not in refusals]:
            field = untried[0]
            met = await self._send(image, key, field)
            if met.kind is AnswerKind.READ:
                self._order = [field]  # also for uploads in flight that have tried another one
                uploaded: _Uploaded = met.value
                return uploaded.id
            refusals[field] = met
            if met.kind not in _REFUSED or met.answer.status not in _OTHER_ENCODING:
                break
        # The first refusal that is not about the encoding alone (415), else the last one.
        return self._problem(next((one for one in refusals.values() if one.answer.status != 415), met))

    async def _send(self, image: Image, key: str, field: str) -> Meaning:
        content_type, content = _form(image, field) if field else (image.content_type, image.content)
        headers = {"content-type": content_type, "idempotency-key": key + _USUAL.get(field, _OTHER_KEY_END)}
        return await self._route.insist(
            lambda: self._route.http.request("POST", self._url, content=content, headers=headers), _Uploaded.read
        )

    def _problem(self, met: Meaning) -> ImageProblem:
        if met.kind in _REFUSED:
            return ImageProblem(f"The service refuses the image: {in_short(met.answer)}.")
        if met.kind in KEY_TAKEN:
            is_passing = met.kind is AnswerKind.IN_PROGRESS
            used = "The service says that this image was uploaded before, but not under which id."
            reason = "The service is still processing an earlier upload of this image." if is_passing else used
            return ImageProblem(reason, is_passing=is_passing, is_key_used=True)
        cause = self._route.complaint(met, "the upload of an image")
        return ImageProblem(f"The image could not be uploaded: {cause}.", is_passing=True, cause=cause)


def _form(image: Image, field: str) -> tuple[str, bytes]:
    """Return the content type and body of a form with one file in `field`. The boundary is derived from the image, so that a
    retry sends the same bytes.
    """
    name, extension = image.digest.hex(), image.content_type.removeprefix("image/").replace("jpeg", "jpg")
    boundary = f"eventsync-{name}"
    head = (
        f'--{boundary}\r\ncontent-disposition: form-data; name="{field}"; filename="{name}.{extension}"\r\n'
        f"content-type: {image.content_type}\r\n\r\n"
    )
    content = b"".join((head.encode("ascii"), image.content, f"\r\n--{boundary}--\r\n".encode("ascii")))
    return f"multipart/form-data; boundary={boundary}", content

"""One HTTP exchange with the service: a request leaves once, and what comes back is a value, whatever it is.

What the answer means is read in `answers`; whether to ask again is never decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import httpx

from connectors.event_api.answers import Lost, NotReached
from connectors.event_api.http import API_PREFIX, ServiceHttp, read_bounded, secret_of
from connectors.masking import Mask
from mappings.delivery import Answer

_HEADERS_KNOWN = 256
"""So many headers are kept as they are shown: most of an answer's are those of the one before."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer that arrived whole. `headers` has lower-case names; `body` is cut at a sane length, our key masked."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Exchange:
    """Sends requests through `http`, each at most `attempt_s` seconds long, and never raises for what the network does."""

    def __init__(self, http: ServiceHttp, *, attempt_s: float) -> None:
        self._http = http
        self._attempt_s = attempt_s
        secret = secret_of(http)
        self._raw = secret.encode("ascii")
        self._mask = Mask([secret])
        self._shown = lru_cache(_HEADERS_KNOWN)(self._masked_header)
        self._extensions = {"timeout": http.timeouts.as_dict()}
        self._headers = {b"host": http.base_url.netloc, **_as_sent(http.headers)}
        self._keyless_headers = {name: value for name, value in self._headers.items() if name != b"authorization"}

    def request(
        self, method: str, url: httpx.URL, *, content: bytes = b"", headers: Mapping[str, str] | None = None, has_key: bool = True
    ) -> httpx.Request:
        """Build one request to `url`; without `has_key` it carries no Authorization. `headers`: ASCII, names in lower case."""
        sent = {**(self._headers if has_key else self._keyless_headers), **_as_sent(headers or {})}
        if content or method == "POST":
            sent[b"content-length"] = b"%d" % len(content)
        # With `content` instead httpx would work out for each request anew what host, length and kind of body it has.
        return httpx.Request(method, url, headers=sent, stream=httpx.ByteStream(content), extensions=self._extensions)

    def url(self, path: str, *, prefix: str = API_PREFIX) -> httpx.URL:
        """Return the address of `path` (with its query) under the API's prefix, or another one of the service."""
        base = self._http.base_url
        return base.copy_with(raw_path=base.raw_path.rstrip(b"/") + f"{prefix}{path}".encode("ascii"))

    async def __call__(self, request: httpx.Request) -> HttpAnswer | NotReached | Lost:
        """Send `request` once and read its answer."""
        try:
            async with self._http.passage(), asyncio.timeout(self._attempt_s):
                return await self._send(request)
        except (
            httpx.ConnectError,
            httpx.ConnectTimeout,
            httpx.PoolTimeout,
            httpx.ProxyError,
            httpx.UnsupportedProtocol,
        ) as problem:
            return NotReached(Answer(status=0, code="no_connection", message=self._mask.hide(str(problem)) or "no connection"))
        except (httpx.TimeoutException, TimeoutError):
            return Lost(Answer(status=0, code="timeout", message="no whole answer in time"))
        except httpx.RequestError as problem:
            return Lost(Answer(status=0, code="connection_lost", message=self._mask.hide(str(problem)) or "the connection broke"))

    async def _send(self, request: httpx.Request) -> HttpAnswer:
        response = await self._http.send(request)
        try:
            body = await read_bounded(response)
        finally:
            await response.aclose()
        # Of a creation only numbers are kept, so that its body is only looked through for the key as it is.
        is_harmless = request.method == "POST" and response.is_success and self._raw not in body
        headers = self._masked_headers(response.headers.raw)
        return HttpAnswer(response.status_code, headers, body if is_harmless else self._mask.hide_bytes(body))

    def _masked_headers(self, raw: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
        """Take our key out of headers that repeat it: answers are kept, and shown to people. Several of a name are joined."""
        headers: dict[str, str] = {}
        for raw_name, raw_value in raw:
            name, value = self._shown(raw_name, raw_value)
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return headers

    def _masked_header(self, raw_name: bytes, raw_value: bytes) -> tuple[str, str]:
        return raw_name.decode("latin-1").lower(), self._mask.hide(raw_value.decode("utf-8", "replace"))


def _as_sent(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    return {name.encode("ascii"): value.encode("ascii") for name, value in headers.items()}

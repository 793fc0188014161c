"""One HTTP exchange with the service: a request leaves once, and what comes back is a value, whatever it is.

What the answer means is read in `answers`; whether to ask again is never decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from connectors.event_api.answers import Lost, NotReached
from connectors.event_api.http import API_PREFIX, ServiceHttp, read_bounded, secret_of
from connectors.masking import Mask
from mappings.delivery import Answer


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
        self._extensions = {"timeout": http.timeouts.as_dict()}

    def request(
        self, method: str, url: httpx.URL, *, content: bytes = b"", headers: Mapping[str, str] | None = None, has_key: bool = True
    ) -> httpx.Request:
        """Build one request to `url`; without `has_key` it carries no Authorization."""
        merged = httpx.Headers(self._http.headers)
        if not has_key:
            merged.pop("authorization", None)
        if headers:
            merged.update(headers)
        return httpx.Request(method, url, headers=merged, content=content, extensions=self._extensions)

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
        is_created = request.method == "POST" and response.is_success
        return self._masked(HttpAnswer(response.status_code, response.headers, body), is_created=is_created)

    def _masked(self, told: HttpAnswer, *, is_created: bool) -> HttpAnswer:
        """Take our key out of an answer that repeats it: answers are kept, and shown to people.

        Of a creation only numbers are kept, so that its body is only looked through for the key as it is.
        """
        headers = {name: self._mask.hide(value) for name, value in told.headers.items()}
        if is_created and self._raw not in told.body:
            return HttpAnswer(told.status, headers, told.body)
        return HttpAnswer(told.status, headers, self._mask.hide_bytes(told.body))

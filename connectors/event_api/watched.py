"""The wire, watched: how long each request took and what came back, told to whoever asked for it; else it is not there.

What is made of it is the watcher's; nothing of a request or its answer is changed here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import httpx

IDEMPOTENCY_KEY = "idempotency-key"


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One request that left, and what came back: `status` 0 where nothing did, `error` then names the kind of failure.

    `path` is without its query; `seconds` until the head of the answer was there; `key`: its idempotency key, "" if it had
    none.
    """

    method: str
    host: str
    path: str
    status: int
    seconds: float
    key: str = ""
    error: str = ""


Seen = Callable[[Exchanged], None]


class WatchedTransport(httpx.AsyncBaseTransport):
    """Sends each request over `wire` and tells `seen` of it. What was held back, and never left, is not told."""

    def __init__(self, wire: httpx.AsyncBaseTransport, seen: Seen) -> None:
        self._wire = wire
        self._seen = seen

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request` as the wire does, and raise what it raises."""
        began = perf_counter()
        try:
            response = await self._wire.handle_async_request(request)
        except httpx.TransportError as failure:
            self._tell(request, perf_counter() - began, error=type(failure).__name__)
            raise
        self._tell(request, perf_counter() - began, response.status_code)
        return response

    async def aclose(self) -> None:
        """Close the wire."""
        await self._wire.aclose()

    def _tell(self, request: httpx.Request, seconds: float, status: int = 0, error: str = "") -> None:
        key = request.headers.get(IDEMPOTENCY_KEY, "")
        self._seen(Exchanged(request.method, request.url.host, request.url.path, status, seconds, key, error))

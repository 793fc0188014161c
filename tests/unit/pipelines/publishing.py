"""The publishing half of a run on virtual time, with a service and image servers at the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
from pictures import png
from unit.connectors_api.wired import HandlerWire, api_over
from unit.state.world import DESTINATION, World
from virtual_time import at_once, now

from connectors.concurrency_limit import ConcurrencyLimit
from connectors.event_api.delivery import EventApi
from connectors.event_api.media import ImageFetcher
from connectors.retry import RetryPolicy
from mappings.errors import SyncError
from pipelines.run.images import CoverImages
from pipelines.run.publish import GRACE_S, Drain
from state.notes import MediaMemory

Wire = Callable[[httpx.Request], Awaitable[httpx.Response]]


def covers_from(memory: MediaMemory) -> CoverImages:
    """Cover images of servers where each address /N shows a picture of its own, but for those of missing.example."""

    def pictures(request: httpx.Request) -> httpx.Response:
        if request.url.host == "missing.example":
            return httpx.Response(404)
        return httpx.Response(200, stream=httpx.ByteStream(png(40, 1 + int(request.url.path[1:]))))

    fetcher = ImageFetcher(sleep=asyncio.sleep, random=lambda: 0.0, wire=HandlerWire(pictures))
    return CoverImages(fetcher, memory, "tests", now)


def published(world: World, service: Wire, *, in_flight: int = 4, attempts: int = 6) -> SyncError | None:
    """Send what is owed to a service, trying each request so often, and return why the drain ended early."""

    @asynccontextmanager
    async def open_api(_passage: object) -> AsyncIterator[EventApi]:
        api, http = api_over(service, policy=RetryPolicy(attempts=attempts))
        api.limiter.concurrency = ConcurrencyLimit(in_flight)
        async with http:
            yield api

    def open_covers() -> CoverImages:
        return covers_from(MediaMemory(world.engine, DESTINATION))

    async def main() -> SyncError | None:
        drain = Drain(world.outbox(), in_flight, GRACE_S, lambda _rows: None)
        await drain.publish(open_api, open_covers)
        return drain.cause

    return at_once(main)

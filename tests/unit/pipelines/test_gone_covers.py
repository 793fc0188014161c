"""A cover image that the service has no longer, while it takes no other: the row waits for its image, it is not refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from unit.connectors_api.test_pictures import png
from unit.connectors_api.wired import api_over, created, told
from unit.state.world import DESTINATION, World, row
from virtual_time import at_once, now

from connectors.event_api.client import EventApi
from connectors.event_api.media import ImageFetcher, ImageLimits
from mappings.outcome import Cover
from pipelines.run.images import CoverImages
from pipelines.run.publish import Publisher, PublishJob
from state.notes import MediaMemory

COVER = Cover("https://img.example/1", "omit")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "state.db")
    yield made
    made.engine.dispose()


@dataclass
class Forgetful:
    """A service that has lost the images below `first`, and takes others while `is_open`. `stores`: it keeps refusals."""

    stores: bool
    first: int = 1
    uploaded: int = 0
    is_open: bool = True
    stored: dict[str, httpx.Response] = field(default_factory=dict)
    events: list[tuple[str, int]] = field(default_factory=list)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/media"):
            return self._upload()
        if request.url.path.endswith("/events"):
            return self._create(request.headers["idempotency-key"], json.loads(request.content))
        return told(503, "internal_error")

    def _upload(self) -> httpx.Response:
        if not self.is_open:
            return told(503, "internal_error")
        self.uploaded += 1
        return httpx.Response(201, json={"doc": {"id": self.uploaded}})

    def _create(self, key: str, body: dict[str, int]) -> httpx.Response:
        if key in self.stored:
            return self.stored[key]
        if body["coverImage"] < self.first:
            refusal = told(400, "invalid_request", request_id=f"req-{key}", field="coverImage", issue="does not exist")
            return self.stored.setdefault(key, refusal) if self.stores else refusal
        self.events.append((key, body["coverImage"]))
        return created(len(self.events))


def _publish(world: World, service: Forgetful) -> None:
    def pictures(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=httpx.ByteStream(png(40, 30)))

    async def main() -> None:
        fetcher = ImageFetcher(ImageLimits(), sleep=asyncio.sleep, random=lambda: 0.0, transport=httpx.MockTransport(pictures))

        @asynccontextmanager
        async def open_api(_passage: object) -> AsyncIterator[EventApi]:
            api, http = api_over(service)
            async with http:
                yield api

        def open_covers() -> CoverImages:
            return CoverImages(fetcher, MediaMemory(world.engine, DESTINATION), "tests", now)

        job = PublishJob(world.outbox(), open_api, open_covers, 2, lambda _rows: None, lambda: 0.0)
        await Publisher(job).run()

    at_once(main)


@pytest.mark.parametrize("stores", [False, True])
def test_a_row_whose_image_is_gone_waits_for_it_while_no_image_can_be_uploaded(world: World, stores: bool) -> None:
    service = Forgetful(stores)
    world.stage([row("a", cover=COVER)])
    _publish(world, service)
    service.first, service.is_open = 2, False
    world.stage([row("a", cover=COVER), row("b", cover=COVER)])
    for _ in range(2):
        _publish(world, service)
        entry = world.known("b")
        assert (entry.state, entry.attempts, entry.unanswered_at) == ("pending", 0, None)
    service.is_open = True
    _publish(world, service)
    assert [cover for _, cover in service.events] == [1, 2]
    assert world.states() == {"a": "delivered", "b": "delivered"}
    assert world.known("b").revision == int(stores)


def test_such_a_row_takes_the_words_that_its_source_says_meanwhile(world: World) -> None:
    service = Forgetful(stores=True)
    world.stage([row("a", cover=COVER)])
    _publish(world, service)
    service.first, service.is_open = 2, False
    world.stage([row("a", cover=COVER), row("b", cover=COVER)])
    _publish(world, service)
    world.stage([row("a", cover=COVER), row("b", "corrected", cover=COVER)])
    service.is_open = True
    _publish(world, service)
    entry = world.known("b")
    assert (entry.state, b"corrected" in entry.body, entry.drift_kind) == ("delivered", True, None)

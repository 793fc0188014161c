"""Cover images on their way into an event: remembered, or fetched, checked and uploaded once for each content.

How an image is fetched safely is `connectors.event_api.media`'s, what is remembered `state.media`'s; what becomes of an
event whose image fails is the mapping's choice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from connectors.errors import ServiceUnavailableError
from connectors.event_api.client import EventApi
from connectors.event_api.media import Image, ImageFetcher, ImageProblem, ImageUnchanged
from mappings.delivery import Answer, Intent, Postponed, Refusal
from mappings.errors import SyncError
from mappings.event import as_draft, with_cover
from mappings.identity import idempotency_key
from mappings.vocabulary import Cover, FeedName, Reason, ReasonCode, RowKey
from state.media import MediaMemory

_MEDIA = FeedName("media")
"""Stands where a feed's name stands in an event's key: feeds share the images of one destination."""
KEYS_OF_AN_IMAGE = 3
"""So many keys are tried for one image whose upload the service remembers and does not show: a second document of an image
is seen by nobody."""
OUTAGE = 3
"""So many images in a row that the service could not take say that it takes none now."""


@dataclass(frozen=True, slots=True)
class CoverProblem:
    """An image that could not be used, and the row it was meant for."""

    row_key: RowKey
    url: str
    reason: str


@dataclass(frozen=True, slots=True)
class Dressed:
    """The body to pin and send. `missing`: why the image that the row asked for is not in it."""

    body: bytes
    missing: Reason | None = None


class Covers:
    """The images of one drain: each address is fetched once, each content uploaded once, whoever asks for it."""

    def __init__(self, fetcher: ImageFetcher, memory: MediaMemory, namespace: str, now: Callable[[], datetime]) -> None:
        self._fetcher = fetcher
        self._memory = memory
        self._namespace = namespace
        self._now = now
        self._asked: dict[str, asyncio.Task[int | ImageProblem]] = {}
        self._uploads: dict[bytes, asyncio.Task[int | ImageProblem]] = {}
        self._not_taken = 0
        self.problems: list[CoverProblem] = []

    async def dress(self, api: EventApi, intent: Intent, cover: Cover) -> Dressed | Refusal | Postponed:
        """Return the body to pin and send, or what becomes of the row instead. Never raises for an image."""
        found = await self._asked_once(api, cover.url)
        if isinstance(found, int):
            return Dressed(with_cover(intent.body, found))
        if found.cause is not None:
            return Postponed(Answer(0, "media", found.reason), found.cause, attempts=0)
        self.problems.append(CoverProblem(intent.row_key, cover.url, found.reason))
        missing = Reason(ReasonCode.IMAGE, "coverImage", "", cover.url, found.reason)
        if not cover.stand_in:
            return _without_cover(intent.body, cover, missing)
        stand_in = await self.dress(api, intent, Cover(cover.stand_in, "omit"))
        return replace(stand_in, missing=missing) if isinstance(stand_in, Dressed) else stand_in

    async def close(self) -> None:
        """Close the connections to the partners' servers."""
        tasks = [*self._asked.values(), *self._uploads.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._fetcher.__aexit__(None, None, None)

    async def _asked_once(self, api: EventApi, url: str) -> int | ImageProblem:
        if url not in self._asked:
            self._asked[url] = asyncio.create_task(self._media_id(api, url))
        return await asyncio.shield(self._asked[url])

    async def _media_id(self, api: EventApi, url: str) -> int | ImageProblem:
        known = await asyncio.to_thread(self._memory.known_address, url)
        known_id = await asyncio.to_thread(self._memory.known_content, known.content_digest) if known else None
        found = await self._fetcher.fetch_image(url, etag=known.etag if known and known_id is not None else "")
        match found:
            case ImageUnchanged():
                return known_id if known_id is not None else ImageProblem("The image's server contradicts itself.")
            case ImageProblem():
                return found
            case Image():
                return await self._remembered(api, url, found)

    async def _remembered(self, api: EventApi, url: str, image: Image) -> int | ImageProblem:
        media_id = await self._uploaded_once(api, image)
        if isinstance(media_id, int):
            remember = self._memory.remember
            await asyncio.to_thread(remember, url, image.digest, media_id, etag=image.etag, seen_at=self._now())
        return media_id

    async def _uploaded_once(self, api: EventApi, image: Image) -> int | ImageProblem:
        """Upload one content once, also where several addresses show it in this very moment."""
        if image.digest not in self._uploads:
            self._uploads[image.digest] = asyncio.create_task(self._uploaded(api, image))
        return await asyncio.shield(self._uploads[image.digest])

    async def _uploaded(self, api: EventApi, image: Image) -> int | ImageProblem:
        known = await asyncio.to_thread(self._memory.known_content, image.digest)
        if known is not None:
            return known
        met = await self._insist(api, image)
        if isinstance(met, int):
            self._not_taken = 0
            return met
        return await self._judged(api, met)

    async def _insist(self, api: EventApi, image: Image) -> int | ImageProblem:
        """Upload under the key of this content, or under the next one where the first was used and its answer is lost."""
        met: int | ImageProblem = ImageProblem("The image was not uploaded.")
        for revision in range(KEYS_OF_AN_IMAGE):
            key = idempotency_key(self._namespace, _MEDIA, RowKey(image.digest.hex()), action="upload", revision=revision)
            met = await api.upload(image, key)
            if isinstance(met, int) or not met.is_key_used:
                break
        return met

    async def _judged(self, api: EventApi, met: ImageProblem) -> ImageProblem:
        """Tell an image that the service cannot digest from a service that is down: only the latter holds rows up."""
        if not isinstance(met.cause, ServiceUnavailableError):
            return met
        self._not_taken += 1
        if self._not_taken >= OUTAGE:
            return met
        try:
            await api.classifications()
        except SyncError:
            return met
        return replace(met, cause=None)


def _without_cover(body: bytes, cover: Cover, missing: Reason) -> Dressed | Refusal:
    match cover.on_error:
        case "draft":
            return Dressed(as_draft(body), missing)
        case "reject":
            return Refusal(Answer(0, "image", missing.hint, field="coverImage", issue=missing.hint), attempts=0)
        case _:
            return Dressed(body, missing)

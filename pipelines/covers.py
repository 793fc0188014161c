"""Cover images on their way into an event: remembered, or fetched, checked and uploaded once for each content.

How an image is fetched safely is `connectors.event_api.media`'s, what is remembered `state.media`'s; what becomes of an
event whose image fails is the mapping's choice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from connectors.event_api.client import EventApi
from connectors.event_api.media import Image, ImageFetcher, ImageProblem, ImageUnchanged
from mappings.delivery import Answer, Intent, Postponed, Refusal
from mappings.event import as_draft, with_cover
from mappings.identity import idempotency_key
from mappings.vocabulary import Cover, FeedName, RowKey
from state.media import MediaMemory

_MEDIA = FeedName("media")
"""Stands where a feed's name stands in an event's key: feeds share the images of one destination."""


@dataclass(frozen=True, slots=True)
class CoverProblem:
    """An image that could not be used, and the row it was meant for."""

    row_key: RowKey
    url: str
    reason: str


class Covers:
    """The images of one drain: each address is fetched once, each content uploaded once, whoever asks for it."""

    def __init__(self, fetcher: ImageFetcher, memory: MediaMemory, namespace: str, now: Callable[[], datetime]) -> None:
        self._fetcher = fetcher
        self._memory = memory
        self._namespace = namespace
        self._now = now
        self._asked: dict[str, asyncio.Task[int | ImageProblem]] = {}
        self.problems: list[CoverProblem] = []

    async def body_with_cover(self, api: EventApi, intent: Intent, cover: Cover) -> bytes | Refusal | Postponed:
        """Return the body to pin and send, or what becomes of the row instead. Never raises for an image."""
        found = await self._asked_once(api, cover.url)
        if isinstance(found, int):
            return with_cover(intent.body, found)
        if found.cause is not None:
            return Postponed(Answer(0, "media", found.reason), found.cause, attempts=0)
        self.problems.append(CoverProblem(intent.row_key, cover.url, found.reason))
        return _without_cover(intent.body, cover, found)

    async def close(self) -> None:
        """Close the connections to the partners' servers."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
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
                return await self._uploaded(api, url, found)

    async def _uploaded(self, api: EventApi, url: str, image: Image) -> int | ImageProblem:
        media_id: int | ImageProblem | None = await asyncio.to_thread(self._memory.known_content, image.digest)
        if media_id is None:
            key = idempotency_key(self._namespace, _MEDIA, RowKey(image.digest.hex()), action="upload")
            media_id = await api.upload(image, key)
        if isinstance(media_id, int):
            remember = self._memory.remember
            await asyncio.to_thread(remember, url, image.digest, media_id, etag=image.etag, seen_at=self._now())
        return media_id


def _without_cover(body: bytes, cover: Cover, problem: ImageProblem) -> bytes | Refusal:
    match cover.on_error:
        case "draft":
            return as_draft(body)
        case "reject":
            return Refusal(Answer(0, "image", problem.reason, field="coverImage", issue=problem.reason), attempts=0)
        case _:
            return body

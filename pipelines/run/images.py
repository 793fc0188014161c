"""Cover images of events: fetched once per address, uploaded once per content, remembered in the state DB.

The mapping chooses what happens to an event whose image fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeGuard

from connectors.errors import ServiceUnavailableError
from connectors.event_api.client import EventApi
from connectors.event_api.media import Image, ImageFetcher, ImageProblem, ImageUnchanged
from mappings.delivery import Answer, Blocked, Intent, Postponed, Refusal, Verdict
from mappings.errors import SyncError
from mappings.event import as_draft, with_cover
from mappings.outcome import Cover
from mappings.refusals import Reason, ReasonCode
from mappings.row_key import FeedName, RowKey, idempotency_key
from pipelines.run.systemic_failure import is_same_place, words_of
from state.notes import MediaMemory

_MEDIA = FeedName("media")
"""In place of a feed's name in idempotency keys: feeds share the images of one destination."""
KEYS_OF_AN_IMAGE = 3
"""Keys tried for one image whose upload the service remembers but does not show: a second document of an image is harmless."""
OUTAGE = 3
"""After so many images in a row that the service could not take, uploads are taken to be down."""


@dataclass(frozen=True, slots=True)
class CoverProblem:
    """An image that could not be used, and the row it was meant for."""

    row_key: RowKey
    url: str
    reason: str


@dataclass(frozen=True, slots=True)
class Dressed:
    """The body to pin and send. `missing`: why the row's image is not in it; `media_id`: the image that is."""

    body: bytes
    missing: Reason | None = None
    media_id: int | None = field(default=None, compare=False)


class CoverImages:
    """The images of one drain: each address is fetched once, each content uploaded once."""

    def __init__(self, fetcher: ImageFetcher, memory: MediaMemory, namespace: str, now: Callable[[], datetime]) -> None:
        self._fetcher = fetcher
        self._memory = memory
        self._namespace = namespace
        self._now = now
        self._asked: dict[str, asyncio.Task[int | ImageProblem]] = {}
        self._uploads: dict[bytes, asyncio.Task[int | ImageProblem]] = {}
        self._not_taken = 0
        self._gone: set[int] = set()
        self._last_tries: set[int] = set()
        self.problems: list[CoverProblem] = []

    async def dress(self, api: EventApi, intent: Intent, cover: Cover) -> Dressed | Refusal | Postponed:
        """Return the body to pin and send, or what becomes of the row instead. Never raises for an image."""
        found = await self._asked_once(api, cover.url)
        if isinstance(found, int):
            return Dressed(with_cover(intent.body, found), media_id=found)
        if found.cause is not None:
            return Postponed(Answer(0, "media", found.reason), found.cause, attempts=0)
        self.problems.append(CoverProblem(intent.row_key, cover.url, found.reason))
        missing = Reason(ReasonCode.IMAGE, "coverImage", "", cover.url, found.reason)
        if not cover.stand_in:
            return _without_cover(intent.body, cover, missing)
        stand_in = await self.dress(api, intent, Cover(cover.stand_in, "omit"))
        return replace(stand_in, missing=missing) if isinstance(stand_in, Dressed) else stand_in

    async def forget(self, media_id: int) -> bool:
        """Forget an image that the service refuses, as it may have been deleted there; return whether to upload it again.

        Once for each image: a service that refuses what was just uploaded will refuse it again.
        """
        if media_id in self._last_tries:
            return False
        if media_id not in self._gone:
            self._gone.add(media_id)
            for asked in (self._asked, self._uploads):
                _drop(asked, media_id)
            await asyncio.to_thread(self._memory.forget, media_id)
        return True

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
        known_id = await self._known_content(known.content_digest) if known else None
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
        """Upload one content once, also where several addresses serve it at the same time."""
        if image.digest not in self._uploads:
            self._uploads[image.digest] = asyncio.create_task(self._uploaded(api, image))
        return await asyncio.shield(self._uploads[image.digest])

    async def _uploaded(self, api: EventApi, image: Image) -> int | ImageProblem:
        known = await self._known_content(image.digest)
        if known is not None:
            return known
        met = await self._insist(api, image)
        if isinstance(met, int):
            self._not_taken = 0
            return met
        return await self._judged(api, met)

    async def _insist(self, api: EventApi, image: Image) -> int | ImageProblem:
        """Upload under the key of this content, or under the next one where the first is used up or its document is gone."""
        met: int | ImageProblem = ImageProblem("The image was not uploaded.")
        for revision in range(KEYS_OF_AN_IMAGE):
            key = idempotency_key(self._namespace, _MEDIA, RowKey(image.digest.hex()), action="upload", revision=revision)
            met = await api.upload(image, key)
            if met not in self._gone and (isinstance(met, int) or not met.is_key_used):
                break
        if self._gone and isinstance(met, int):
            self._last_tries.add(met)
        return met

    async def _known_content(self, digest: bytes) -> int | None:
        known = await asyncio.to_thread(self._memory.known_content, digest)
        return None if known in self._gone else known

    async def _judged(self, api: EventApi, met: ImageProblem) -> ImageProblem:
        """Distinguish an image that the service cannot process from a service that is down: only the latter holds rows up."""
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


def names_cover(verdict: Verdict) -> TypeGuard[Refusal | Blocked]:
    """Whether the service refused a row for its cover image: by the field, or in its words where it names none."""
    match verdict:
        case Refusal(answer) if not answer.field:
            words = words_of(answer.issue, answer.message)
            return verdict.attempts > 0 and ("coverimage" in words or {"cover", "image"} <= words)
        case Refusal(answer) | Blocked(answer, is_unanswered=False):
            return verdict.attempts > 0 and bool(answer.field) and is_same_place(answer.field, "coverImage")
        case _:
            return False


def _drop(asked: dict[Any, asyncio.Task[int | ImageProblem]], media_id: int) -> None:
    """Drop the finished tasks that returned this id."""
    for name, task in list(asked.items()):
        if task.done() and not task.cancelled() and task.exception() is None and task.result() == media_id:
            del asked[name]


def _without_cover(body: bytes, cover: Cover, missing: Reason) -> Dressed | Refusal:
    match cover.on_error:
        case "draft":
            return Dressed(as_draft(body), missing)
        case "reject":
            return Refusal(Answer(0, "image", missing.hint, field="coverImage", issue=missing.hint), attempts=0)
        case _:
            return Dressed(body, missing)

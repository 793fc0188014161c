"""Cover images of events: fetched once per address, uploaded once per content, recorded in the state DB.

The mapping decides what happens to an event whose image fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeGuard

from connectors.errors import ServiceUnavailableError
from connectors.event_api.answers import is_same_place, words_of
from connectors.event_api.delivery import EventApi
from connectors.event_api.media import Image, ImageFetcher, ImageProblem, ImageUnchanged
from mappings.delivery import Answer, Blocked, Cover, Intent, Postponed, Refusal, Superseded, Verdict
from mappings.errors import SyncError
from mappings.event import as_draft, with_cover
from mappings.reasons import Reason, ReasonCode
from mappings.row_key import FeedName, RowKey, idempotency_key
from state.ledger.outbox import Outbox
from state.notes import MediaMemory

_MEDIA = FeedName("media")
"""Used instead of a feed's name in idempotency keys of uploads: the feeds of one destination share images."""
KEYS_OF_AN_IMAGE = 3
"""Keys tried for one image whose upload the service remembers but does not return; a second document of an image is harmless."""
OUTAGE = 3
"""After this many images in a row that the service could not take, uploads count as unavailable."""


@dataclass(frozen=True, slots=True)
class CoverProblem:
    """An image that could not be used, and its row."""

    row_key: RowKey
    url: str
    reason: str


@dataclass(frozen=True, slots=True)
class EventBody:
    """The body to pin and send. `missing`: why the row's image is not in it; `media_id`: the image in it."""

    body: bytes
    missing: Reason | None = None
    media_id: int | None = field(default=None, compare=False)


class CoverImages:
    """Fetches and uploads the images of one drain: each address once, each content once."""

    def __init__(self, fetcher: ImageFetcher, memory: MediaMemory, namespace: str, now: Callable[[], datetime]) -> None:
        self._fetcher = fetcher
        self._memory = memory
        self._namespace = namespace
        self._now = now
        self._tasks: dict[str | bytes, asyncio.Task[int | ImageProblem]] = {}  # by address, and by digest of the content
        self._failures_in_a_row = 0
        self._gone: set[int] = set()
        self._last_tries: set[int] = set()
        self.problems: list[CoverProblem] = []

    async def deliver(self, api: EventApi, outbox: Outbox, intent: Intent, cover: Cover) -> Verdict:
        """Deliver an intent with its image, pinned before it is sent; upload an image again that the service has lost."""
        first = await self.prepare(api, intent, cover)
        if not isinstance(first, EventBody):
            return first
        verdict = await api.deliver(outbox.pin(intent, first.body, missing=first.missing))
        if first.media_id is None or not names_cover(verdict) or not await self.forget(first.media_id):
            return verdict
        second = await self.prepare(api, intent, cover)
        if isinstance(second, Postponed):  # nothing is wrong with the row: no image can be uploaded at the moment
            outbox.unpin(intent, refused=verdict)
            return second
        if not isinstance(second, EventBody) or second.body == first.body:
            return verdict
        return await api.deliver(outbox.pin(intent, second.body, missing=second.missing, refused=verdict))

    async def prepare(self, api: EventApi, intent: Intent, cover: Cover) -> EventBody | Refusal | Postponed:
        """Return the body to pin and send, or the verdict that ends the row's delivery. An image problem raises nothing."""
        found = await self._once(cover.url, lambda: self._fetch(api, cover.url))
        if isinstance(found, int):
            return EventBody(with_cover(intent.body, found), media_id=found)
        if found.cause is not None:
            return Postponed(Answer(0, "media", found.reason), found.cause, attempts=0)
        self.problems.append(CoverProblem(intent.row_key, cover.url, found.reason))
        missing = Reason(ReasonCode.IMAGE, "coverImage", "", cover.url, found.reason)
        if cover.stand_in:
            stand_in = await self.prepare(api, intent, Cover(cover.stand_in, "omit"))
            return replace(stand_in, missing=missing) if isinstance(stand_in, EventBody) else stand_in
        if cover.on_error == "reject":
            return Refusal(Answer(0, "image", missing.hint, field="coverImage", issue=missing.hint), attempts=0)
        return EventBody(as_draft(intent.body) if cover.on_error == "draft" else intent.body, missing)

    async def forget(self, media_id: int) -> bool:
        """Forget an uploaded image that the service refuses; return whether to upload it again.

        True once per image: a service that refuses a new upload will refuse it again.
        """
        if media_id in self._last_tries:
            return False
        if media_id not in self._gone:
            self._gone.add(media_id)
            for name, task in list(self._tasks.items()):
                if task.done() and not task.cancelled() and task.exception() is None and task.result() == media_id:
                    del self._tasks[name]
            await asyncio.to_thread(self._memory.forget, media_id)
        return True

    async def close(self) -> None:
        """Cancel open work and close the connections to the partners' servers."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._fetcher.__aexit__(None, None, None)

    async def _once(self, name: str | bytes, work: Callable[[], Coroutine[Any, Any, int | ImageProblem]]) -> int | ImageProblem:
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(work())
        return await asyncio.shield(self._tasks[name])

    async def _fetch(self, api: EventApi, url: str) -> int | ImageProblem:
        """Return the media id of the image at an address; fetch and upload it if needed."""
        known = await asyncio.to_thread(self._memory.known_address, url)
        known_id = await self._known_content(known.content_digest) if known else None
        found = await self._fetcher.fetch_image(url, etag=known.etag if known and known_id is not None else "")
        if isinstance(found, ImageUnchanged):
            return ImageProblem("The image's server contradicts itself.") if known_id is None else known_id
        if isinstance(found, ImageProblem):
            return found
        media_id = await self._once(found.digest, lambda: self._upload(api, found))
        if isinstance(media_id, int):
            remember = self._memory.remember
            await asyncio.to_thread(remember, url, found.digest, media_id, etag=found.etag, seen_at=self._now())
        return media_id

    async def _upload(self, api: EventApi, image: Image) -> int | ImageProblem:
        """Upload under the key of this content, or under its next key if that one is used up or its document is gone.

        After a failure, another request to the service distinguishes an outage from an image that it cannot process; only an
        outage postpones the row.
        """
        known = await self._known_content(image.digest)
        if known is not None:
            return known
        found: int | ImageProblem = ImageProblem("The image was not uploaded.")
        for revision in range(KEYS_OF_AN_IMAGE):
            key = idempotency_key(self._namespace, _MEDIA, RowKey(image.digest.hex()), action="upload", revision=revision)
            found = await api.uploader.upload(image, key)
            if found not in self._gone and (isinstance(found, int) or not found.is_key_used):
                break
        if isinstance(found, int):
            self._failures_in_a_row = 0
            if self._gone:
                self._last_tries.add(found)
        elif isinstance(found.cause, ServiceUnavailableError):
            self._failures_in_a_row += 1
            if self._failures_in_a_row < OUTAGE:
                with suppress(SyncError):
                    await api.classifications()
                    return replace(found, cause=None)
        return found

    async def _known_content(self, digest: bytes) -> int | None:
        known = await asyncio.to_thread(self._memory.known_content, digest)
        return None if known in self._gone else known


def names_cover(verdict: Verdict) -> TypeGuard[Refusal | Blocked | Superseded]:
    """Return whether the service refused a row for its cover image: by the answer's field, or by the words of its message.

    After an attempt that may have created the event it proves nothing.
    """
    if not isinstance(verdict, Refusal | Blocked | Superseded) or not verdict.attempts or verdict.copies:
        return False
    if isinstance(verdict, Blocked) and not verdict.answer.field:
        return False
    answer = verdict.answer
    words = words_of(answer.issue, answer.message)
    if answer.field:
        return is_same_place(answer.field, "coverImage")
    return "coverimage" in words or {"cover", "image"} <= words

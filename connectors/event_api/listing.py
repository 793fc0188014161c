"""The account's lists: channels page by page, classifications with their version.

How a question is asked and insisted upon is `questions`'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from pydantic import ValidationError

from connectors.errors import NotTheServiceError, RequestRefusedError
from connectors.event_api.questions import Questions
from connectors.event_api.wire import Channel, ChannelPage, ClassificationList, Told
from mappings.delivery import Answer
from mappings.errors import PermanentError

L = TypeVar("L", bound=Told)

PAGE_SIZE = 100
"""The service's effective maximum (spec, Limits)."""
MOST_PAGES = 1000
"""A list longer than this is a service that counts its pages wrongly."""


@dataclass(frozen=True, slots=True)
class Classifications:
    """The slugs that events may carry, and the date (YYYY-MM-DD) that the list goes by."""

    version: str
    slugs: frozenset[str]


async def channels(questions: Questions) -> dict[str, int]:
    """Return the ids of all channels available to the key's owner, by slug. Raises as `Questions.ask` does.

    A list that repeats itself instead of ending raises `NotTheServiceError`; two channels of one slug raise
    `RequestRefusedError`, as a mapping could not say which one it means.
    """
    found: dict[int, Channel] = {}
    for page in range(1, MOST_PAGES + 1):
        told = await _channel_page(questions, page)
        fresh = [channel for channel in told.docs if channel.id not in found]
        found.update((channel.id, channel) for channel in fresh)
        if not told.is_followed(len(told.docs)):
            return _by_slug(found.values())
        if not fresh:
            break
    raise NotTheServiceError(
        f"the list of channels does not end: a next page is announced, and page {page} brings nothing new",
        hint="ask the service's support; the list is not used, as it may be incomplete",
    )


async def classifications(with_key: Questions, without_key: Questions) -> Classifications:
    """Return the classification list. Raises as `Questions.ask` does.

    Whether the service wants a key here is not shown (spec, GET classifications; its example sends none): asked first
    without one, and with it where that is refused.
    """
    try:
        told = await _classification_list(without_key, has_key=False)
    except PermanentError:
        told = await _classification_list(with_key, has_key=True)
    return Classifications(told.version, frozenset(one.slug for one in told.docs))


def _by_slug(found: Iterable[Channel]) -> dict[str, int]:
    by_slug: dict[str, int] = {}
    for channel in found:
        if channel.slug in by_slug:
            told = Answer(status=200, message=f"channels {by_slug[channel.slug]} and {channel.id} share the slug {channel.slug}")
            raise RequestRefusedError(told.message, answer=told, hint="rename one of them on the service's pages")
        by_slug[channel.slug] = channel.id
    return by_slug


async def _channel_page(questions: Questions, page: int) -> ChannelPage:
    url = questions.exchange.url(f"/channels?page={page}&limit={PAGE_SIZE}")
    return await questions.ask(
        lambda: questions.exchange.request("GET", url),
        _reader(ChannelPage),
        "the list of channels",
    )


async def _classification_list(questions: Questions, *, has_key: bool) -> ClassificationList:
    url = questions.exchange.url("/classifications")
    return await questions.ask(
        lambda: questions.exchange.request("GET", url, has_key=has_key),
        _reader(ClassificationList),
        "the list of classifications",
    )


def _reader(model: type[L]) -> Callable[[bytes], L | None]:
    def read(body: bytes) -> L | None:
        try:
            return model.model_validate_json(body)
        except ValidationError:
            return None

    return read

"""The account's lists: channels, classifications with their version, and the events that are there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from connectors.errors import NotTheServiceError, RequestRefusedError, ScopeMissingError
from connectors.event_api.answers import Channel, ChannelPage, ClassificationList, Paging, WireModel
from connectors.event_api.route import Questions
from connectors.event_api.transport import LONGEST_BODY
from mappings.delivery import Answer
from mappings.errors import PermanentError

L = TypeVar("L", bound=WireModel)
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


_SIZES = (100, 25, 5, 1)
"""Events asked for at once: the effective maximum (spec, Limits), fewer where a page is longer than is read of an answer."""
_MOST_SWEEPS = 3
_MOST_PAGES = 100_000
_FORBIDDEN = 403
_LARGEST_ID = (1 << 63) - 1
_READING = (
    "reading the list of events (GET /events) needs more than the scopes `channels:read` and `events:create`, and the name of"
    " that scope is not documented: ask the key's owner to add the one for reading events on the service's page"
    " /developers/keys; without it, look on the service's pages and use `eventsync resolve`"
)


class _Page(Paging):
    docs: tuple[dict[str, Any], ...]


class _TooLong:
    """A page of which not everything was read."""


_TOO_LONG = _TooLong()


@dataclass(frozen=True, slots=True)
class ListedEvent:
    """One event of the list. Which fields items have is not shown (spec, Pagination envelope): `fields` are those it shows."""

    event_id: int
    fields: Mapping[str, Any]


class EventList:
    """One reading of the list, page by page, in any order. To be read once.

    A list that grows only repeats what was seen, wherever it grows. One that shrinks may move an event past the reader:
    it is read again, up to three times. `is_whole`: whether as many events were seen as the service counts.
    """

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._seen: set[int] = set()
        self._size = _SIZES[0]
        self._has_shrunk = False
        self.total: int | None = None
        self.without_id = 0
        self.is_whole = False

    @property
    def read(self) -> int:
        """How many events were seen so far."""
        return len(self._seen)

    async def pages(self) -> AsyncIterator[list[ListedEvent]]:
        """Yield what each page brings that was not seen before. Raises as `Questions.ask` does.

        A key that must not read events raises `ScopeMissingError` with what to ask for.
        """
        for _ in range(_MOST_SWEEPS):
            before, sweep, self.without_id = len(self._seen), _Sweep(), 0
            async for page in self._sweep(sweep):
                yield page
                if self._has_all():
                    break
            self.is_whole = self._has_all() or sweep.is_whole
            if self.is_whole or (len(self._seen) == before and sweep.is_steady):
                return

    def _has_all(self) -> bool:
        """Whether nothing can be left: a list that only grows moves no event past the reader."""
        return self.total is not None and not self._has_shrunk and len(self._seen) + self.without_id >= self.total

    async def _sweep(self, sweep: _Sweep) -> AsyncIterator[list[ListedEvent]]:
        """Read from the first page to the last. Where pages become smaller on the way, they overlap."""
        place = 0
        for _ in range(_MOST_PAGES):
            number, page = await self._page(place)
            ids = [event_id for event_id in map(_id_of, page.docs) if event_id is not None]
            if not page.docs or sweep.repeats(ids):
                return
            self._has_shrunk |= (self.total or 0) > (page.totalDocs or 0)
            self.total = page.totalDocs
            self.without_id += len(page.docs) - len(ids)
            sweep.note(ids, page.totalDocs, len(page.docs))
            yield self._fresh(page.docs)
            if 0 < page.limit < self._size:
                self._size = page.limit
            place = number * self._size
            if not _is_followed(page, place, self._size):
                return

    def _fresh(self, docs: tuple[dict[str, Any], ...]) -> list[ListedEvent]:
        fresh = []
        for doc in docs:
            event_id = _id_of(doc)
            if event_id is not None and event_id not in self._seen:
                self._seen.add(event_id)
                fresh.append(ListedEvent(event_id, doc))
        return fresh

    async def _page(self, place: int) -> tuple[int, _Page]:
        """Return the page that holds the event at `place`, counted from 0, and its number; a smaller one if it is too long."""
        while True:
            number = place // self._size + 1
            page = await self._asked(number)
            if isinstance(page, _Page):
                return number, page
            smaller = [size for size in _SIZES if size < self._size]
            if not smaller:
                raise NotTheServiceError(
                    f"the list of events has an item of more than {LONGEST_BODY} bytes",
                    hint="ask the service's support; the list is not used, as it cannot be read to its end",
                )
            self._size = smaller[0]

    async def _asked(self, number: int) -> _Page | _TooLong:
        url = self._questions.exchange.url(f"/events?page={number}&limit={self._size}")
        try:
            return await self._questions.ask(
                lambda: self._questions.exchange.request("GET", url), _read_page, "the list of events"
            )
        except ScopeMissingError as refusal:
            raise ScopeMissingError(str(refusal), hint=_READING) from refusal
        except RequestRefusedError as refusal:
            if refusal.answer.status != _FORBIDDEN:
                raise
            raise ScopeMissingError(str(refusal), hint=_READING) from refusal


class _Sweep:
    """What one way through the list has met: enough to know whether events may have moved past the reader."""

    def __init__(self) -> None:
        self._ids: set[int] = set()
        self._last: list[int] = []
        self._totals: set[int | None] = set()
        self._without_id = 0

    @property
    def is_steady(self) -> bool:
        """Whether the list was as long on the first page as on the last."""
        return len(self._totals) <= 1

    @property
    def is_whole(self) -> bool:
        """Whether the list stood still, and everything was there that it counts."""
        return self.is_steady and len(self._ids) + self._without_id >= max((total or 0 for total in self._totals), default=0)

    def repeats(self, ids: list[int]) -> bool:
        """Whether a page is the very one before it: the service does not turn pages."""
        return bool(ids) and ids == self._last

    def note(self, ids: list[int], total: int | None, items: int) -> None:
        """Take note of one page of so many items, of which those with `ids` have one."""
        self._ids.update(ids)
        self._without_id += items - len(ids)
        self._last = ids
        self._totals.add(total)


def _is_followed(page: _Page, place: int, size: int) -> bool:
    """Return whether there is more at `place`: the total counts, this list has no other sign of its end (spec, GET events)."""
    if page.totalDocs is not None:
        return place < page.totalDocs
    return len(page.docs) >= size if page.hasNextPage is None else page.hasNextPage


def _id_of(doc: Mapping[str, Any]) -> int | None:
    told = doc.get("id")
    if isinstance(told, str) and told.isascii() and told.isdigit() and len(told) <= len(str(_LARGEST_ID)):
        told = int(told)
    return told if isinstance(told, int) and not isinstance(told, bool) and 0 < told <= _LARGEST_ID else None


def _read_page(body: bytes) -> _Page | _TooLong | None:
    try:
        return _Page.model_validate_json(body)
    except ValidationError:
        return _TOO_LONG if len(body) >= LONGEST_BODY else None

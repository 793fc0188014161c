"""The account's lists: channels, classifications with their version, and the events that are there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from connectors.errors import NotTheServiceError, RequestRefusedError, ScopeMissingError
from connectors.event_api.answers import WireModel
from connectors.event_api.route import Route
from mappings.delivery import Answer
from mappings.errors import PermanentError

PAGE_SIZE = 100
"""The service's effective maximum (spec, Limits)."""
MOST_PAGES = 1000
"""A list longer than this is a service that counts its pages wrongly."""


class _Channel(WireModel):
    """A publish destination available to the key's owner (spec, Channel)."""

    id: int
    slug: str


class _Classification(WireModel):
    """A slug that events may be classified with (spec, Classification)."""

    slug: str


class _ClassificationList(WireModel):
    """The classification list with its version, a date in the form YYYY-MM-DD."""

    version: str
    docs: tuple[_Classification, ...]


class _Page(WireModel):
    """A page and where it stands: the full envelope, or the minimal one of the event list (spec, Pagination)."""

    docs: tuple[Any, ...]
    limit: int = 0
    total: int | None = Field(None, validation_alias="totalDocs")
    has_next: bool | None = Field(None, validation_alias="hasNextPage")

    def is_last(self, number: int) -> bool:
        """Return whether no other page follows; the list of events shows it by its total alone (spec, GET events)."""
        if self.has_next is not None:
            return not self.has_next
        size = self.limit if 0 < self.limit < PAGE_SIZE else PAGE_SIZE
        return len(self.docs) < size if self.total is None else number * size >= self.total


class _ChannelPage(_Page):
    docs: tuple[_Channel, ...]


class _EventPage(_Page):
    docs: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Classifications:
    """The slugs that events may carry, and the date (YYYY-MM-DD) that the list goes by."""

    version: str
    slugs: frozenset[str]


async def channels(route: Route) -> dict[str, int]:
    """Return the ids of all channels available to the key's owner, by slug. Raises as `Route.get` does.

    A list that repeats itself instead of ending raises `NotTheServiceError`; two channels of one slug raise
    `RequestRefusedError`, as a mapping could not say which one it means.
    """
    found: dict[int, _Channel] = {}
    for number in range(1, MOST_PAGES + 1):
        page = await route.get(f"/channels?page={number}&limit={PAGE_SIZE}", _ChannelPage.read, "the list of channels")
        before = len(found)
        found.update((channel.id, channel) for channel in page.docs)
        if page.is_last(number):
            break
        if len(found) == before:
            raise NotTheServiceError(
                f"the list of channels does not end: a next page is announced, and page {number} brings nothing new",
                hint="ask the service's support; the list is not used, as it may be incomplete",
            )
    by_slug: dict[str, int] = {}
    for channel in found.values():
        if by_slug.setdefault(channel.slug, channel.id) != channel.id:
            message = f"channels {by_slug[channel.slug]} and {channel.id} share the slug {channel.slug}"
            raise RequestRefusedError(
                message, answer=Answer(200, message=message), hint="rename one of them on the service's pages"
            )
    return by_slug


async def classifications(without_key: Route, with_key: Route) -> Classifications:
    """Return the classification list. Raises as `Route.get` does.

    Whether the service wants a key here is not shown (spec, GET classifications; its example sends none): asked first
    without one, and with it where that is refused.
    """
    asked = "the list of classifications"
    try:
        listed = await without_key.get("/classifications", _ClassificationList.read, asked, has_key=False)
    except PermanentError:
        listed = await with_key.get("/classifications", _ClassificationList.read, asked)
    return Classifications(listed.version, frozenset(one.slug for one in listed.docs))


_MOST_SWEEPS = 3
_MOST_EVENT_PAGES = 100_000
_LARGEST_ID = (1 << 63) - 1
_READING = (
    "reading the list of events (GET /events) needs more than the scopes `channels:read` and `events:create`, and the name of"
    " that scope is not documented: ask the key's owner to add the one for reading events on the service's page"
    " /developers/keys; without it, look on the service's pages and use `eventsync resolve`"
)


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

    def __init__(self, route: Route) -> None:
        self._route = route
        self._seen: set[int] = set()
        self._has_shrunk = False
        self._in_sweep: set[int] = set()
        self._totals: set[int] = set()
        self.total: int | None = None
        self.without_id = 0
        self.is_whole = False

    @property
    def read(self) -> int:
        """How many events were seen so far."""
        return len(self._seen)

    async def pages(self) -> AsyncIterator[list[ListedEvent]]:
        """Yield what each page brings that was not seen before. Raises as `Route.get` does.

        A key that must not read events raises `ScopeMissingError` with what to ask for.
        """
        for _ in range(_MOST_SWEEPS):
            before = len(self._seen)
            async for page in self._sweep():
                yield page
                if self._has_all():
                    break
            is_steady = len(self._totals) <= 1
            in_sweep = len(self._in_sweep) + self.without_id
            self.is_whole = self._has_all() or (is_steady and in_sweep >= max(self._totals, default=0))
            if self.is_whole or (len(self._seen) == before and is_steady):
                return

    def _has_all(self) -> bool:
        """Whether nothing can be left: a list that only grows moves no event past the reader."""
        return self.total is not None and not self._has_shrunk and len(self._seen) + self.without_id >= self.total

    async def _sweep(self) -> AsyncIterator[list[ListedEvent]]:
        """Read from the first page to the last."""
        self._in_sweep, self._totals, self.without_id = set(), set(), 0
        last = [0]
        for number in range(1, _MOST_EVENT_PAGES + 1):
            page = await self._page(number)
            events = [ListedEvent(event_id, doc) for doc in page.docs if (event_id := _id_of(doc)) is not None]
            ids = [event.event_id for event in events]
            if not page.docs or ids == last:  # the very page before it: the service does not turn pages
                return
            last = ids or [0]
            self._has_shrunk |= (self.total or 0) > (page.total or 0)
            self.total = page.total
            self._totals.add(page.total or 0)
            self._in_sweep.update(ids)
            self.without_id += len(page.docs) - len(ids)
            fresh = {event.event_id: event for event in events if event.event_id not in self._seen}
            self._seen.update(fresh)
            yield list(fresh.values())
            if page.is_last(number):
                return

    async def _page(self, number: int) -> _EventPage:
        try:
            return await self._route.get(f"/events?page={number}&limit={PAGE_SIZE}", _EventPage.read, "the list of events")
        except (ScopeMissingError, RequestRefusedError) as refusal:
            if isinstance(refusal, RequestRefusedError) and refusal.answer.status != 403:
                raise
            raise ScopeMissingError(str(refusal), hint=_READING) from refusal


def _id_of(doc: Mapping[str, Any]) -> int | None:
    found = doc.get("id")
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) <= len(str(_LARGEST_ID)):
        found = int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 < found <= _LARGEST_ID else None

"""Lists of the account: channels, classifications with their version, and existing events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from connectors.errors import NotTheServiceError, RequestRefusedError, ScopeMissingError
from connectors.event_api.answers import WireModel, Words
from connectors.event_api.route import Route
from mappings.delivery import Answer
from mappings.errors import PermanentError

PAGE_SIZE = 100
"""The service's effective maximum (spec, Limits)."""
MOST_PAGES = 1000
"""The most pages of a list; a longer list means that the service counts pages wrongly."""


class _Channel(WireModel):
    """A channel to publish to, available to the key's owner (spec, Channel)."""

    id: int
    slug: str


class _Classification(WireModel):
    """A slug by which events may be classified (spec, Classification)."""

    slug: str
    name: Words = ""


class _ClassificationList(WireModel):
    """The classification list with its version, a date in the form YYYY-MM-DD."""

    version: str
    docs: tuple[_Classification, ...]


class _Page(WireModel):
    """A page with its position: in the full envelope, or the minimal one of the event list (spec, Pagination)."""

    docs: tuple[Any, ...]
    limit: int = 0
    total: int | None = Field(None, validation_alias="totalDocs")
    has_next: bool | None = Field(None, validation_alias="hasNextPage")

    def is_last(self, number: int) -> bool:
        """Return whether this is the last page; the list of events shows it by its total only (spec, GET events)."""
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
    """The slugs for classifying events, and the version of the list (YYYY-MM-DD). `names`: for people, by slug."""

    version: str
    slugs: frozenset[str]
    names: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)


async def channels(route: Route) -> dict[str, int]:
    """Return the ids of all channels available to the key's owner, by slug. Raises as `Route.get` does.

    A list that repeats itself instead of ending raises `NotTheServiceError`. Two channels with the same slug raise
    `RequestRefusedError`, since a mapping could not distinguish them.
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

    The spec does not say whether it needs a key (GET classifications; its example has none), so the key is sent only after a
    refusal without it.
    """
    asked = "the list of classifications"
    try:
        listed = await without_key.get("/classifications", _ClassificationList.read, asked, has_key=False)
    except PermanentError:
        listed = await with_key.get("/classifications", _ClassificationList.read, asked)
    names = {one.slug: one.name for one in listed.docs}
    return Classifications(listed.version, frozenset(names), names)


_MOST_EVENT_PAGES = 100_000
_LARGEST_ID = (1 << 63) - 1
_READING = (
    "reading the list of events (GET /events) needs more than the scopes `channels:read` and `events:create`, and the name of"
    " that scope is not documented: ask the key's owner to add the one for reading events on the service's page"
    " /developers/keys; without it, look on the service's pages and use `eventsync resolve`"
)


@dataclass(frozen=True, slots=True)
class ListedEvent:
    """One event of the list. The spec does not say which fields items have (Pagination envelope): `fields` are all it has."""

    event_id: int
    fields: Mapping[str, Any]


class EventList:
    """One read of the event list, page by page, in any order. Can be read once only.

    Growth of the list causes only repetitions; shrinking may move an event to a page already read. `is_whole`: by the totals
    that the service gives, no event is missing that was there all the time.
    """

    def __init__(self, route: Route) -> None:
        self._route = route
        self._seen: set[int] = set()
        self.total: int | None = None
        self.without_id = 0
        self.is_whole = False

    @property
    def read(self) -> int:
        """How many events were seen so far."""
        return len(self._seen)

    async def pages(self) -> AsyncIterator[list[ListedEvent]]:
        """Yield the events of each page that were not seen before. Raises as `Route.get` does.

        A key without the right to read events raises `ScopeMissingError` with a hint.
        """
        last, totals = [0], list[int]()
        for number in range(1, _MOST_EVENT_PAGES + 1):
            page = await self._page(number)
            totals.append(page.total or 0)
            events = [ListedEvent(event_id, doc) for doc in page.docs if (event_id := _id_of(doc)) is not None]
            ids = [event.event_id for event in events]
            if not page.docs or ids == last:  # the very page before it: the service does not turn pages
                break
            last = ids or [0]
            self.total = page.total
            self.without_id += len(page.docs) - len(ids)
            fresh = {event.event_id: event for event in events if event.event_id not in self._seen}
            self._seen.update(fresh)
            yield list(fresh.values())
            if page.is_last(number):
                break
        self.is_whole = totals == sorted(totals) and len(self._seen) + self.without_id >= totals[0]

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

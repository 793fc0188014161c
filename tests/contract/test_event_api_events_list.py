"""The list of events as GET /events gives it: whole, each event once, in whatever order, while it grows and shrinks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.connectors_api.wired import Scripted, Service, api_over, page, told
from virtual_time import at_once

from connectors.errors import (
    KeyRefusedError,
    NotTheServiceError,
    RequestRefusedError,
    ScopeMissingError,
    ServiceUnavailableError,
)
from connectors.event_api.lists import EventList, ListedEvent
from connectors.event_api.transport import LONGEST_BODY


@dataclass
class Listing:
    """A service that lists events, oldest first unless told otherwise; `between` happens before each page but the first."""

    ids: list[int]
    most: int = 100
    is_newest_first: bool = False
    between: Callable[[Listing], None] = lambda _listing: None
    left_out: tuple[str, ...] = ()
    asked: list[tuple[int, int]] = field(default_factory=list)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.asked:
            self.between(self)
        number, limit = int(request.url.params["page"]), min(int(request.url.params["limit"]), self.most)
        self.asked.append((number, limit))
        ordered = sorted(self.ids, reverse=self.is_newest_first)
        docs = [{"id": one, "title": f"Event {one}"} for one in ordered[(number - 1) * limit : number * limit]]
        envelope = {"docs": docs, "page": number, "limit": limit, "totalDocs": len(ordered)}
        return httpx.Response(200, json={name: value for name, value in envelope.items() if name not in self.left_out})


@dataclass(frozen=True)
class Reading:
    """What came of a reading."""

    events: list[ListedEvent]
    list: EventList

    @property
    def ids(self) -> list[int]:
        return [one.event_id for one in self.events]


def read(service: Callable[[httpx.Request], Awaitable[httpx.Response]]) -> Reading:
    async def main() -> Reading:
        api, http = api_over(service)
        async with http:
            listed = api.events()
            return Reading([one async for some in listed.pages() for one in some], listed)

    return at_once(main)


@pytest.mark.parametrize("number", [0, 1, 99, 100, 101, 250])
@pytest.mark.parametrize("is_newest_first", [False, True])
@pytest.mark.parametrize(
    ("most", "left_out"),
    [(100, ()), (30, ()), (30, ("totalDocs",)), (30, ("page",)), (100, ("limit", "totalDocs"))],
)
def test_every_event_is_read_once(number: int, most: int, left_out: tuple[str, ...], is_newest_first: bool) -> None:
    service = Listing(list(range(1, number + 1)), most, is_newest_first, left_out=left_out)
    found = read(service)
    assert sorted(found.ids) == service.ids
    assert (found.list.read, found.list.is_whole) == (number, True)
    assert len(service.asked) <= number // most + 2


def _grow(listing: Listing) -> None:
    listing.ids.append(max(listing.ids) + 1)


@pytest.mark.parametrize("is_newest_first", [False, True])
def test_a_list_that_grows_while_it_is_read_hides_nothing(is_newest_first: bool) -> None:
    service = Listing(list(range(1, 351)), 100, is_newest_first, _grow)
    found = read(service)
    assert set(range(1, 351)) <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))


def test_what_was_added_at_the_front_is_found_by_reading_the_first_page_again() -> None:
    growths = iter([_grow])

    def grow_once(listing: Listing) -> None:
        for grow in growths:
            grow(listing)

    service = Listing(list(range(1, 351)), 100, is_newest_first=True, between=grow_once)
    found = read(service)
    assert sorted(found.ids) == list(range(1, 352))
    assert found.list.is_whole
    assert [number for number, _ in service.asked] == [1, 2, 3, 4, 1]


def test_an_event_that_moves_past_the_reader_is_found_by_reading_again() -> None:
    removals = iter([50])

    def remove(listing: Listing) -> None:
        if (gone := next(removals, None)) is not None:
            listing.ids.remove(gone)

    found = read(Listing(list(range(1, 301)), 100, between=remove))
    assert set(range(1, 301)) - {50} <= set(found.ids)
    assert found.list.is_whole


def test_a_list_that_never_stands_still_is_read_three_times_and_told_to_be_incomplete() -> None:
    def churn(listing: Listing) -> None:
        listing.ids.pop(0)

    service = Listing(list(range(1, 801)), 100, between=churn)
    found = read(service)
    assert not found.list.is_whole
    assert [number for number, _ in service.asked].count(1) == 3


@settings(max_examples=60, deadline=None)
@given(
    changes=st.lists(st.integers(-3, 3), max_size=8),
    number=st.integers(0, 60),
    most=st.sampled_from([7, 10, 100]),
    newest=st.booleans(),
)
def test_whatever_happens_meanwhile_a_list_called_whole_has_every_event_that_was_there_all_the_time(
    changes: list[int], number: int, most: int, newest: bool
) -> None:
    pending: Iterator[int] = iter(changes)

    def change(listing: Listing) -> None:
        by = next(pending, 0)
        if by > 0:
            start = max(listing.ids, default=0) + 1
            listing.ids.extend(range(start, start + by))
        elif by < 0:
            del listing.ids[:-by]

    service = Listing(list(range(1, number + 1)), most, newest, change)
    found = read(service)
    assert len(found.ids) == len(set(found.ids))
    if found.list.is_whole:
        assert set(service.ids) & set(range(1, number + 1)) <= set(found.ids)


def test_a_service_that_does_not_turn_pages_is_not_asked_for_ever() -> None:
    same = httpx.Response(200, json={"docs": [{"id": 1}, {"id": 2}], "page": 1, "limit": 2, "totalDocs": 9})
    service = Service([same])
    found = read(service)
    assert (found.ids, found.list.is_whole) == ([1, 2], False)
    assert len(service.requests) < 10


def test_items_are_taken_as_they_come_and_those_without_an_id_are_counted() -> None:
    docs: list[Any] = [
        {"id": 1, "startAt": "x", "nested": {"a": [1]}},
        {"id": "17"},
        {"title": "no id"},
        {"id": True},
        {"id": None},
        {"id": 1 << 63},
        {"id": -4},
    ]
    found = read(Service([httpx.Response(200, json={"docs": docs, "page": 1, "limit": 100, "totalDocs": 7})]))
    assert found.ids == [1, 17]
    assert found.events[0].fields == docs[0]
    assert found.list.without_id == 5


def test_pages_longer_than_is_read_of_an_answer_are_asked_for_in_smaller_ones() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        number, limit = int(request.url.params["page"]), int(request.url.params["limit"])
        docs = [{"id": one, "description": "x" * 80_000} for one in range(1, 61)][(number - 1) * limit : number * limit]
        return httpx.Response(200, json={"docs": docs, "page": number, "limit": limit, "totalDocs": 60})

    assert sorted(read(answer).ids) == list(range(1, 61))


def test_an_item_that_is_longer_than_is_read_of_an_answer_ends_the_reading() -> None:
    long = httpx.Response(
        200, json={"docs": [{"id": 1, "description": "x" * LONGEST_BODY}], "page": 1, "limit": 1, "totalDocs": 1}
    )
    with pytest.raises(NotTheServiceError, match="has an item of more than"):
        read(Service([long]))


TROUBLES: dict[str, tuple[list[Scripted], type[Exception], str]] = {
    "a missing scope": ([told(403, "insufficient_scope")], ScopeMissingError, "ask the key's owner"),
    "a missing scope in other words": ([told(403, "forbidden")], ScopeMissingError, "ask the key's owner"),
    "a rejected key": ([told(401, "invalid_api_key")], KeyRefusedError, "EVENT_API_KEY"),
    "an invalid request": ([told(400, "invalid_request")], RequestRefusedError, "request id"),
    "another host's page": ([page(200)], NotTheServiceError, "EVENT_API_BASE_URL"),
    "a service that is down": ([told(500, "internal_error")], ServiceUnavailableError, "run again"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_list_that_is_not_told_says_what_would_help(trouble: str) -> None:
    answers, kind, hint = TROUBLES[trouble]
    with pytest.raises(kind) as raised:
        read(Service(answers))
    assert hint in raised.value.hint  # type: ignore[attr-defined]


def test_a_limit_on_reading_is_kept_and_everything_read() -> None:
    listing, turns = Listing(list(range(1, 301))), iter([True, False, True, True, False])

    async def answer(request: httpx.Request) -> httpx.Response:
        limited = next(turns, False)
        return told(429, "rate_limited", headers={"retry-after": "2"}) if limited else await listing(request)

    assert sorted(read(answer).ids) == listing.ids

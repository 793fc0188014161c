"""The account's lists as the service gives them: pages, versions, changes meanwhile, and every way in which they go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.connectors_api.wired import Handler, Scripted, Service, ask, created, intent, page, told

from connectors.errors import (
    KeyRefusedError,
    NotTheServiceError,
    PausedError,
    RedirectRefusedError,
    RequestRefusedError,
    ScopeMissingError,
    ServiceUnavailableError,
)
from connectors.event_api.delivery import EventApi
from connectors.event_api.lists import Classifications, EventList, ListedEvent
from mappings.delivery import Receipt

CHANNELS, CLASSIFICATIONS = methodcaller("channels"), methodcaller("classifications")
FULL = ("totalPages", "hasNextPage", "hasPrevPage")
"""What a minimal envelope lacks."""


@dataclass
class Listing:
    """A service that lists documents, oldest first by default; `between` happens before each page but the first."""

    ids: list[int]
    most: int = 100
    is_newest_first: bool = False
    between: Callable[[list[int]], object] = lambda _ids: None
    left_out: tuple[str, ...] = FULL
    asked: list[tuple[int, int]] = field(default_factory=list)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.asked:
            self.between(self.ids)
        number, limit = int(request.url.params["page"]), min(int(request.url.params["limit"]), self.most)
        self.asked.append((number, limit))
        ordered, pages = sorted(self.ids, reverse=self.is_newest_first), -(-len(self.ids) // limit)
        docs = [document(one) for one in ordered[(number - 1) * limit : number * limit]]
        envelope = {"docs": docs, "page": number, "limit": limit, "totalDocs": len(ordered), "totalPages": pages}
        envelope |= {"hasNextPage": number < pages, "hasPrevPage": number > 1}
        return httpx.Response(200, json={name: value for name, value in envelope.items() if name not in self.left_out})


def document(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"Channel {number}", "slug": f"channel-{number}", "followers": 3}


@pytest.mark.parametrize("number", [0, 1, 99, 100, 101, 250])
@pytest.mark.parametrize("most", [100, 30])
@pytest.mark.parametrize("left_out", [(), FULL])
def test_all_channels_are_found_however_they_are_paged(number: int, most: int, left_out: tuple[str, ...]) -> None:
    found = ask(Listing(list(range(1, number + 1)), most, left_out=left_out), CHANNELS)
    assert found == {f"channel-{one}": one for one in range(1, number + 1)}


def test_a_list_that_repeats_itself_is_refused_rather_than_believed() -> None:
    same = httpx.Response(200, json={"docs": [*map(document, (1, 2, 3))], "page": 1, "limit": 3, "hasNextPage": True})
    service = Service([same])
    with pytest.raises(NotTheServiceError, match="does not end"):
        ask(service, CHANNELS)
    assert len(service.requests) == 2


def test_two_channels_of_one_slug_are_not_guessed_between() -> None:
    docs = [{"id": 1, "name": "a", "slug": "x"}, {"id": 2, "name": "b", "slug": "x"}]
    with pytest.raises(RequestRefusedError, match="share the slug x"):
        ask(Service([httpx.Response(200, json={"docs": docs, "hasNextPage": False})]), CHANNELS)


def read(service: Handler) -> tuple[list[ListedEvent], list[int], EventList]:
    """Return the events, their ids, and what the list knows of itself."""

    async def reading(api: EventApi) -> tuple[list[ListedEvent], list[int], EventList]:
        listed = api.events()
        events = [one async for some in listed.pages() for one in some]
        return events, [one.event_id for one in events], listed

    return ask(service, reading)


@pytest.mark.parametrize(
    ("status", "code", "error", "of_events", "hint"),
    [
        (401, "invalid_api_key", KeyRefusedError, KeyRefusedError, "EVENT_API_KEY"),
        (403, "insufficient_scope", ScopeMissingError, ScopeMissingError, "ask the key's owner"),
        (403, "forbidden", RequestRefusedError, ScopeMissingError, "ask the key's owner"),
        (400, "invalid_request", RequestRefusedError, RequestRefusedError, "request id"),
    ],
)
def test_a_list_that_is_refused_says_what_would_help(
    status: int, code: str, error: type[Exception], of_events: type[Exception], hint: str
) -> None:
    service = Service([told(status, code)])
    for question in (CHANNELS, CLASSIFICATIONS):
        with pytest.raises(error) as refused:
            ask(service, question)
        assert refused.value.hint  # type: ignore[attr-defined]
    with pytest.raises(of_events) as raised:
        read(service)
    assert hint in raised.value.hint  # type: ignore[attr-defined]


TROUBLES: dict[str, tuple[Scripted, type[Exception]]] = {
    "a redirect": (httpx.Response(301, headers={"location": "https://www.example.org/"}), RedirectRefusedError),
    "another host's 404": (page(404), NotTheServiceError),
    "another host's page": (page(200), NotTheServiceError),
    "an id that is text": (httpx.Response(200, json={"docs": [{"id": "1", "slug": "x"}]}), NotTheServiceError),
    "an id that is a truth value": (httpx.Response(200, json={"docs": [{"id": True, "slug": "x"}]}), NotTheServiceError),
    "no list at all": (httpx.Response(200, json={}), NotTheServiceError),
    "a dead service": (page(503), ServiceUnavailableError),
    "nobody there": (httpx.ConnectError("refused"), ServiceUnavailableError),
    "silence": (httpx.ReadTimeout("silence"), ServiceUnavailableError),
    "a day's pause": (told(429, "rate_limited", headers={"retry-after": "86400"}), PausedError),
}


@pytest.mark.parametrize(("says", "error"), TROUBLES.values(), ids=TROUBLES.keys())
def test_each_trouble_has_its_error_and_a_hint(says: Scripted, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        ask(Service([says]), CHANNELS)
    assert raised.value.hint  # type: ignore[attr-defined]


def test_a_passing_trouble_is_waited_out() -> None:
    listed = httpx.Response(200, json={"docs": [document(1)], "hasNextPage": False})
    limited = told(429, "rate_limited", headers={"retry-after": "9"})
    assert ask(Service([page(502), httpx.ReadTimeout("x"), page(200), limited, listed]), CHANNELS) == {"channel-1": 1}


def test_the_lists_pauses_are_not_the_events_pauses() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        return created() if request.method == "POST" else told(429, "rate_limited", headers={"retry-after": "86400"})

    async def both(api: EventApi) -> object:
        with pytest.raises(PausedError):
            await api.channels()
        return await api.deliver(intent())

    assert isinstance(ask(answer, both), Receipt)


LIST = {"version": "2026-02-01", "docs": [{"slug": "music", "name": "Music", "description": "m"}, {"slug": "workshop"}]}


@pytest.mark.parametrize(
    "refusal", [*map(told, (401, 403, 403), ("invalid_api_key", "forbidden", "insufficient_scope")), page(401)]
)
def test_classifications_are_asked_with_the_key_where_it_is_wanted(refusal: httpx.Response) -> None:
    service = Service([refusal, httpx.Response(200, json=LIST)])
    assert ask(service, CLASSIFICATIONS) == Classifications("2026-02-01", frozenset({"music", "workshop"}))
    assert [("authorization" in request.headers) for request in service.requests] == [False, True]


@pytest.mark.parametrize("number", [0, 1, 99, 100, 101, 250])
@pytest.mark.parametrize("is_newest_first", [False, True])
@pytest.mark.parametrize(
    ("most", "left_out"),
    [(100, ()), (30, ()), (30, ("totalDocs",)), (30, ("page",)), (100, ("limit", "totalDocs"))],
)
def test_every_event_is_read_once(number: int, most: int, left_out: tuple[str, ...], is_newest_first: bool) -> None:
    service = Listing(list(range(1, number + 1)), most, is_newest_first, left_out=(*FULL, *left_out))
    _, ids, listed = read(service)
    assert sorted(ids) == service.ids
    assert (listed.read, listed.is_whole) == (number, True)
    assert len(service.asked) <= number // most + 2


CHANGES: dict[str, Callable[[list[int]], object]] = {
    "one more each time": lambda ids: ids.append(max(ids) + 1),
    "one more": lambda ids: ids.extend({351} - {*ids}),
    "one less": lambda ids: ids.__setitem__(slice(None), sorted({*ids} - {50})),
    "the first is gone each time": lambda ids: ids.pop(0),
}


@pytest.mark.parametrize(
    ("is_newest_first", "change", "is_whole"),
    [
        *((False, "one more each time", True), (True, "one more each time", True), (True, "one more", True)),
        *((False, "one less", False), (False, "the first is gone each time", False)),
    ],
)
def test_a_list_that_changes_while_it_is_read_hides_nothing_or_is_called_incomplete(
    change: str, *, is_newest_first: bool, is_whole: bool
) -> None:
    service = Listing(list(range(1, 351)), 100, is_newest_first, CHANGES[change])
    _, ids, listed = read(service)
    assert len(ids) == len(set(ids))
    assert listed.is_whole is is_whole
    assert not is_whole or set(range(1, 351)) <= set(ids)


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

    def change(present: list[int]) -> None:
        by = next(pending, 0)
        if by > 0:
            start = max(present, default=0) + 1
            present.extend(range(start, start + by))
        elif by < 0:
            del present[:-by]

    service = Listing(list(range(1, number + 1)), most, newest, change)
    _, ids, listed = read(service)
    assert len(ids) == len(set(ids))
    if listed.is_whole:
        assert set(service.ids) & set(range(1, number + 1)) <= set(ids)


def test_a_service_that_does_not_turn_pages_is_not_asked_for_ever() -> None:
    same = httpx.Response(200, json={"docs": [{"id": 1}, {"id": 2}], "page": 1, "limit": 2, "totalDocs": 9})
    service = Service([same])
    _, ids, listed = read(service)
    assert (ids, listed.is_whole) == ([1, 2], False)
    assert len(service.requests) < 10


def test_items_are_taken_as_they_come_and_those_without_an_id_are_counted() -> None:
    docs: list[Any] = [{"id": 1, "startAt": "x", "nested": {"a": [1]}}, {"id": "17"}, {"title": "no id"}]
    docs += [{"id": strange} for strange in (True, None, 1 << 63, -4)]
    events, ids, listed = read(Service([httpx.Response(200, json={"docs": docs, "page": 1, "limit": 100, "totalDocs": 7})]))
    assert ids == [1, 17]
    assert events[0].fields == docs[0]
    assert listed.without_id == 5

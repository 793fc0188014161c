"""The account's lists as the service gives them: pages, versions, and every way in which they go wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx
import pytest
from unit.connectors_api.wired import Scripted, Service, api_over, created, intent, page, told
from virtual_time import at_once

from connectors.errors import (
    KeyRefusedError,
    NotTheServiceError,
    PausedError,
    RedirectRefusedError,
    RequestRefusedError,
    ScopeMissingError,
    ServiceUnavailableError,
)
from connectors.event_api.client import EventApi
from connectors.event_api.lists import Classifications
from mappings.delivery import Receipt

T = TypeVar("T")


def asked(service: Callable[[httpx.Request], Awaitable[httpx.Response]], question: Callable[[EventApi], Awaitable[T]]) -> T:
    async def main() -> T:
        api, http = api_over(service)
        async with http:
            return await question(api)

    return at_once(main)


def channels(number: int) -> list[dict[str, Any]]:
    return [{"id": one, "name": f"Channel {one}", "slug": f"channel-{one}", "followers": 3} for one in range(1, number + 1)]


def paged(
    documents: list[dict[str, Any]], *, most: int = 100, is_minimal: bool = False
) -> Callable[[httpx.Request], Awaitable[httpx.Response]]:
    async def answer(request: httpx.Request) -> httpx.Response:
        number, limit = int(request.url.params["page"]), min(int(request.url.params["limit"]), most)
        docs = documents[(number - 1) * limit : number * limit]
        envelope = {"docs": docs, "page": number, "limit": limit, "totalDocs": len(documents)}
        pages = -(-len(documents) // limit)
        full = {"totalPages": pages, "hasNextPage": number < pages, "hasPrevPage": number > 1}
        return httpx.Response(200, json=envelope if is_minimal else envelope | full)

    return answer


@pytest.mark.parametrize("number", [0, 1, 99, 100, 101, 250])
@pytest.mark.parametrize("most", [100, 30])
@pytest.mark.parametrize("is_minimal", [False, True])
def test_all_channels_are_found_however_they_are_paged(number: int, most: int, is_minimal: bool) -> None:  # a parameter
    found = asked(paged(channels(number), most=most, is_minimal=is_minimal), lambda api: api.channels())
    assert found == {f"channel-{one}": one for one in range(1, number + 1)}


def test_a_list_that_repeats_itself_is_refused_rather_than_believed() -> None:
    same = httpx.Response(200, json={"docs": channels(3), "page": 1, "limit": 3, "hasNextPage": True})
    service = Service([same])
    with pytest.raises(NotTheServiceError, match="does not end"):
        asked(service, lambda api: api.channels())
    assert len(service.requests) == 2


def test_two_channels_of_one_slug_are_not_guessed_between() -> None:
    docs = [{"id": 1, "name": "a", "slug": "x"}, {"id": 2, "name": "b", "slug": "x"}]
    with pytest.raises(RequestRefusedError, match="share the slug x"):
        asked(Service([httpx.Response(200, json={"docs": docs, "hasNextPage": False})]), lambda api: api.channels())


TROUBLES: dict[str, tuple[list[Scripted], type[Exception]]] = {
    "a rejected key": ([told(401, "invalid_api_key")], KeyRefusedError),
    "a missing scope": ([told(403, "insufficient_scope")], ScopeMissingError),
    "forbidden": ([told(403, "forbidden")], RequestRefusedError),
    "an invalid request": ([told(400, "invalid_request")], RequestRefusedError),
    "a redirect": ([httpx.Response(301, headers={"location": "https://www.example.org/"})], RedirectRefusedError),
    "another host's 404": ([page(404)], NotTheServiceError),
    "another host's page": ([page(200)], NotTheServiceError),
    "an id that is text": ([httpx.Response(200, json={"docs": [{"id": "1", "slug": "x"}]})], NotTheServiceError),
    "an id that is a truth value": ([httpx.Response(200, json={"docs": [{"id": True, "slug": "x"}]})], NotTheServiceError),
    "no list at all": ([httpx.Response(200, json={})], NotTheServiceError),
    "a dead service": ([page(503)], ServiceUnavailableError),
    "nobody there": ([httpx.ConnectError("refused")], ServiceUnavailableError),
    "silence": ([httpx.ReadTimeout("silence")], ServiceUnavailableError),
    "a day's pause": ([told(429, "rate_limited", headers={"retry-after": "86400"})], PausedError),
}


@pytest.mark.parametrize(("says", "error"), TROUBLES.values(), ids=TROUBLES.keys())
def test_each_trouble_has_its_error_and_a_hint(says: list[Scripted], error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        asked(Service(says), lambda api: api.channels())
    assert raised.value.hint  # type: ignore[attr-defined]


def test_a_passing_trouble_is_waited_out() -> None:
    listed = httpx.Response(200, json={"docs": channels(1), "hasNextPage": False})
    service = Service(
        [page(502), httpx.ReadTimeout("x"), page(200), told(429, "rate_limited", headers={"retry-after": "9"}), listed]
    )
    assert asked(service, lambda api: api.channels()) == {"channel-1": 1}


def test_the_lists_pauses_are_not_the_events_pauses() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        return created() if request.method == "POST" else told(429, "rate_limited", headers={"retry-after": "86400"})

    async def both(api: EventApi) -> object:
        with pytest.raises(PausedError):
            await api.channels()
        return await api.deliver(intent())

    assert isinstance(asked(answer, both), Receipt)


LIST = {"version": "2026-02-01", "docs": [{"slug": "music", "name": "Music", "description": "m"}, {"slug": "workshop"}]}


def test_classifications_are_asked_without_the_key_first() -> None:
    service = Service([httpx.Response(200, json=LIST)])
    assert asked(service, lambda api: api.classifications()) == Classifications("2026-02-01", frozenset({"music", "workshop"}))
    assert "authorization" not in service.requests[0].headers


@pytest.mark.parametrize(
    "refusal", [told(401, "invalid_api_key"), told(403, "forbidden"), told(403, "insufficient_scope"), page(401)]
)
def test_classifications_are_asked_with_the_key_where_it_is_wanted(refusal: httpx.Response) -> None:
    service = Service([refusal, httpx.Response(200, json=LIST)])
    assert asked(service, lambda api: api.classifications()).version == "2026-02-01"
    assert [("authorization" in request.headers) for request in service.requests] == [False, True]


def test_a_key_that_is_refused_for_classifications_is_told() -> None:
    with pytest.raises(KeyRefusedError):
        asked(Service([told(401, "invalid_api_key")]), lambda api: api.classifications())

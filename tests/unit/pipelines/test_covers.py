"""Cover images on their way: what the service's answers to an upload mean for the image, for its row, and for the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from empty_books import lay_out
from unit.connectors_api.test_pictures import png
from unit.connectors_api.wired import api_over, intent, told
from virtual_time import at_once

from connectors.event_api.media import ImageFetcher, ImageLimits
from mappings.delivery import Answer, Blocked, Postponed, Receipt, Refusal, Verdict
from mappings.outcome import Cover
from pipelines.run.images import CoverImages, EventBody, names_cover
from state.database import open_database
from state.notes import MediaMemory

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
Answers = Callable[[httpx.Request], httpx.Response]
Fates = list[EventBody | Refusal | Postponed]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[MediaMemory]:
    engine = open_database(f"sqlite:///{lay_out(tmp_path / 'state.db')}")
    yield MediaMemory(engine, "https://events.example.org#tests")
    engine.dispose()


def dressed(memory: MediaMemory, service: Answers, *covers: Cover, in_turn: bool = True) -> tuple[Fates, list[httpx.Request]]:
    """Dress one row for each cover; each address shows a picture of its own, but for those of missing.example."""
    requests: list[httpx.Request] = []

    def pictures(request: httpx.Request) -> httpx.Response:
        if request.url.host == "missing.example":
            return httpx.Response(404)
        return httpx.Response(200, stream=httpx.ByteStream(png(40, 1 + int(request.url.path[1:]))))

    async def wire(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return service(request)

    async def main() -> Fates:
        api, http = api_over(wire)
        fetcher = ImageFetcher(ImageLimits(), sleep=asyncio.sleep, random=lambda: 0.0, transport=httpx.MockTransport(pictures))
        row = replace(intent(), body=b'{"title":"x"}')
        async with http:
            carried = CoverImages(fetcher, memory, "tests", lambda: NOW)
            asked = [carried.prepare(api, row, cover) for cover in covers]
            fates = [await one for one in asked] if in_turn else await asyncio.gather(*asked)
            await carried.close()
        return fates

    return at_once(main), requests


def at(number: int, on_error: str = "omit", host: str = "img.example") -> Cover:
    return Cover(f"https://{host}/{number}", on_error)


def lists(request: httpx.Request) -> httpx.Response | None:
    if request.url.path.endswith("/classifications"):
        return httpx.Response(200, json={"version": "2026-01-01", "docs": []})
    return None


def test_an_upload_whose_answer_is_lost_for_good_is_done_again_under_a_next_key(memory: MediaMemory) -> None:
    used: set[str] = set()

    def refuses_reuse(request: httpx.Request) -> httpx.Response:
        key = request.headers["idempotency-key"]
        if key in used:
            return told(409, "conflict")
        used.add(key)
        if len(used) == 1:
            raise httpx.ReadTimeout("lost")
        return httpx.Response(201, json={"doc": {"id": 9}})

    (fate,), requests = dressed(memory, refuses_reuse, at(1))
    assert fate == EventBody(b'{"coverImage":9,"title":"x"}')
    assert len(used) == 2
    assert len({request.content for request in requests}) == 1


def test_a_key_that_is_always_used_ends_in_the_rows_choice_and_names_the_image(memory: MediaMemory) -> None:
    (fate,), requests = dressed(memory, lambda _: told(409, "conflict"), at(1))
    assert isinstance(fate, EventBody)
    assert fate.body == b'{"title":"x"}'
    assert fate.missing is not None
    assert (fate.missing.found, "uploaded before" in fate.missing.hint) == ("https://img.example/1", True)
    assert len({request.headers["idempotency-key"] for request in requests}) == 3


def test_one_image_that_the_service_cannot_digest_holds_nothing_up(memory: MediaMemory) -> None:
    def stumbles(request: httpx.Request) -> httpx.Response:
        if png(40, 3) in request.content:
            return told(500, "internal_error")
        return lists(request) or httpx.Response(201, json={"doc": {"id": 9}})

    fates, _ = dressed(memory, stumbles, at(1), at(2))
    assert fates[0] == EventBody(b'{"coverImage":9,"title":"x"}')
    assert isinstance(fates[1], EventBody)
    assert fates[1].missing is not None


def test_a_service_that_is_down_costs_no_event_its_image(memory: MediaMemory) -> None:
    fates, _ = dressed(memory, lambda _: httpx.Response(503), at(1))
    assert isinstance(fates[0], Postponed)
    assert (fates[0].attempts, fates[0].is_unanswered) == (0, False)


def test_images_that_are_refused_one_after_the_other_are_an_outage_of_their_route(memory: MediaMemory) -> None:
    fates, _ = dressed(memory, lambda request: lists(request) or httpx.Response(500), at(1), at(2), at(3), at(4))
    assert [type(fate) for fate in fates] == [EventBody, EventBody, Postponed, Postponed]


@pytest.mark.parametrize("status", [401, 302])
def test_trouble_with_the_key_or_the_address_stops_the_route(memory: MediaMemory, status: int) -> None:
    answer = told(status, "invalid_api_key") if status == 401 else httpx.Response(302, headers={"location": "https://x.example/"})
    fates, _ = dressed(memory, lambda _: answer, at(1))
    assert isinstance(fates[0], Postponed)


def test_an_image_that_is_gone_is_uploaded_under_the_next_key_and_only_once_more_however_often_it_is_refused(
    memory: MediaMemory,
) -> None:
    kept: dict[str, int] = {}

    async def wire(request: httpx.Request) -> httpx.Response:
        number = kept.setdefault(request.headers["idempotency-key"], 7 + len(kept))
        return httpx.Response(201, json={"doc": {"id": number}})

    async def main() -> tuple[list[int | None], list[bool]]:
        api, http = api_over(wire)
        picture = httpx.MockTransport(lambda _: httpx.Response(200, stream=httpx.ByteStream(png(40, 30))))
        fetcher = ImageFetcher(ImageLimits(), sleep=asyncio.sleep, random=lambda: 0.0, transport=picture)
        row = replace(intent(), body=b'{"title":"x"}')
        async with http:
            covers = CoverImages(fetcher, memory, "tests", lambda: NOW)
            ids, is_worth_a_try = [], []
            for _ in range(3):
                fate = await covers.prepare(api, row, at(1))
                assert isinstance(fate, EventBody)
                assert fate.media_id is not None
                ids.append(fate.media_id)
                is_worth_a_try.append(await covers.forget(fate.media_id))
            await covers.close()
        return ids, is_worth_a_try

    assert at_once(main) == ([7, 8, 8], [True, False, False])
    assert len(kept) == 2


@pytest.mark.parametrize(
    ("verdict", "is_named"),
    [
        (Refusal(Answer(400, field="coverImage", issue="no media doc has the id 7")), True),
        (Refusal(Answer(422, field="body/coverImage", issue="unknown")), True),
        (Refusal(Answer(400, message="the cover image does not exist")), True),
        (Blocked(Answer(404, code="not_found", field="coverImage")), True),
        (Refusal(Answer(400, field="title", issue="the coverImage is fine, the title is not")), False),
        (Refusal(Answer(400, issue="too long")), False),
        (Blocked(Answer(404, code="not_found", message="no such channel")), False),
        (Refusal(Answer(0, field="coverImage"), attempts=0), False),
        (Receipt(1, Answer(201)), False),
    ],
)
def test_only_a_refusal_that_names_the_cover_image_is_about_it(verdict: Verdict, is_named: bool) -> None:
    assert names_cover(verdict) is is_named

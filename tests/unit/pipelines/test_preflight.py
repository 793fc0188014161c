"""The look ahead: one question without the key, remembered, and nothing that a page does can fail a run."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx
import pytest
from sqlalchemy import Engine
from unit.connectors_api.wired import SECRET, api_over
from unit.connectors_contract.test_contract import ROOT, SPECIFIED, changed
from virtual_time import at_once, clock

from mappings.event import Directory
from mappings.examples import example_bodies
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import load_feed
from pipelines.run.context import ServiceLists
from pipelines.run.preflight import CLEAR, Outlook, Preflight
from state.notes import ServiceNotes

HERE = "https://events.example.org#default"
MAPPING = load_feed(ROOT / "mappings" / "feeds" / "lisbon-agenda.yaml")


def _notes(engine: Engine) -> ServiceNotes:
    return ServiceNotes(engine, HERE, lambda: datetime(2026, 3, 1, tzinfo=UTC))


_ORGANIZER, _SHORT_TITLES = "event.required += organizer", "field.title.maxLength = 30"
BODIES = [body.replace(b'"title":"', b'"title":"' + b"x" * add) for body in example_bodies(MAPPING) for add in (0, 30)]


def _preflight(engine: Engine, mapping: FeedMapping = MAPPING) -> Preflight:
    return Preflight(_notes(engine), mapping, lambda: BODIES)


def _told(*changes: str, etag: str = "") -> httpx.Response:
    return httpx.Response(200, content=json.dumps(changed(" & ".join(changes))), headers={"etag": etag} if etag else {})


@dataclass
class Pages:
    """A service that has the given page and nothing else, and says so where the page is already known."""

    answer: httpx.Response | Exception
    wait_s: float = 0.0
    requests: list[httpx.Request] = field(default_factory=list)

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        await asyncio.sleep(self.wait_s)
        if isinstance(self.answer, Exception):
            raise self.answer
        tag = self.answer.headers.get("etag")
        if tag and request.headers.get("if-none-match") == tag:
            return httpx.Response(304)
        return httpx.Response(self.answer.status_code, headers=self.answer.headers, content=self.answer.content)


def _look(engine: Engine, pages: Pages, mapping: FeedMapping = MAPPING) -> tuple[Outlook, float]:
    """Look ahead once; tell what was seen and how many seconds it took."""

    async def look() -> tuple[Outlook, float]:
        api, http = api_over(pages)
        async with http:
            return await _preflight(engine, mapping).compare(api), clock()

    return at_once(look)


def test_the_page_is_asked_for_without_the_key_and_off_the_apis_prefix(engine: Engine) -> None:
    pages = Pages(httpx.Response(200, content=SPECIFIED))
    assert _look(engine, pages)[0] == Outlook(upload_field="file")
    (request,) = pages.requests
    assert request.url.path == "/api/developer/openapi/public-api-v1"
    assert "authorization" not in request.headers
    assert SECRET not in str(request.headers)


def test_an_announced_refusal_is_told_and_doubted_until_a_row_has_passed(engine: Engine) -> None:
    pages = Pages(_told(_ORGANIZER, etag='"1"'))
    for _ in range(2):
        outlook, _ = _look(engine, pages)
        (doubt,), (notice, *_) = outlook.expected, outlook.notices
        assert (doubt.fields, "`organizer` is required" in notice) == ({"organizer"}, True)
    _preflight(engine).disprove()
    outlook, _ = _look(engine, pages)
    assert (outlook.expected, outlook.notices) == ((), ())
    pages.answer = _told(_ORGANIZER, _SHORT_TITLES, etag='"2"')
    assert _look(engine, pages)[0].expected


LONG = f'"{"x" * 500}"'


@pytest.mark.parametrize(("etag", "asked"), [('"1"', [None, '"1"', None]), (LONG, [None] * 3)], ids=["", "too long to be kept"])
def test_a_known_page_is_asked_for_by_its_tag_and_only_for_the_mapping_it_was_compared_with(
    engine: Engine, etag: str, asked: list[str | None]
) -> None:
    pages = Pages(_told(_ORGANIZER, etag=etag))
    for mapping in (MAPPING, MAPPING, MAPPING.loaded(MAPPING.path, bytes(16), MAPPING.tables)):
        assert _look(engine, pages, mapping)[0].expected
    assert [request.headers.get("if-none-match") for request in pages.requests] == asked


def test_what_concerns_some_rows_is_told_once_when_the_page_changes(engine: Engine) -> None:
    for answer, notices in ((_told(), []), (_told(_SHORT_TITLES), [True]), (_told(_SHORT_TITLES), [])):
        assert ["has changed" in one for one in _look(engine, Pages(answer))[0].notices] == notices


ENVELOPE = {"error": {"code": "invalid_api_key", "message": "no", "requestId": "r"}}


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, json={"error": {"code": "not_found"}}),
        httpx.Response(200, content=b"openapi: 3.0.3\n" + b"# a comment\n" * 200_000),
        httpx.Response(200, content=b"["),
        httpx.Response(302, headers={"location": "https://elsewhere.example/"}),
        httpx.Response(304),
        httpx.Response(401, json=ENVELOPE),
        httpx.Response(429, headers={"retry-after": "3600"}),
        httpx.ReadError("the connection broke"),
    ],
    ids=lambda answer: str(getattr(answer, "status_code", type(answer).__name__)),
)
def test_whatever_lies_there_is_asked_for_once_and_fails_nothing(engine: Engine, answer: httpx.Response | Exception) -> None:
    pages = Pages(answer)
    assert _look(engine, pages) == (CLEAR, 0.0)
    assert len(pages.requests) == 1


def test_a_page_that_does_not_come_is_waited_for_briefly(engine: Engine) -> None:
    outlook, took_s = _look(engine, Pages(_told(_ORGANIZER), wait_s=3_600))
    assert (outlook, 0 < took_s <= 5) == (CLEAR, True)


@pytest.mark.parametrize("kept", ["", "{", "[]", '{"etag": 1}', '{"etag": "", "page": "", "mapping": "", "rules": "0"}'])
def test_a_note_of_another_version_is_no_note(engine: Engine, kept: str) -> None:
    _notes(engine).write(f"contract of {MAPPING.feed}", kept)
    _preflight(engine).disprove()
    assert _look(engine, Pages(_told(_ORGANIZER)))[0].expected


def test_a_list_that_is_empty_is_another_one_than_a_list_that_is_not_shown() -> None:
    lists = (Directory(classifications=slugs) for slugs in (None, frozenset[str](), frozenset({"music"})))
    assert len({ServiceLists(one, None).evidence for one in lists}) == 3

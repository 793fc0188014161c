"""The recipes of the page about sources, on servers that answer as the documentation of each service says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from contract.source_kinds import in_no_time
from lookalikes.rest_api import Request, rest_api
from lookalikes.web_files import web_server
from pydantic import SecretStr, TypeAdapter

from connectors.sources.catalogue import open_source
from connectors.sources.contract import Access, BadSourceError
from mappings.compiler.mapper import compile_feed
from mappings.event import Directory
from mappings.outcome import MappedRow
from mappings.positions import read_yaml
from mappings.spec.source import SourceSpec
from mappings.yaml.loader import parse_feed

SPEC: TypeAdapter[Any] = TypeAdapter(SourceSpec)
PAGE = (Path(__file__).parents[2] / "docs" / "sources.md").read_text("utf-8")
RECIPES = [
    found[1] for found in re.finditer(r"```yaml\n((?:feed: \S+\n)?source:.*?)```", PAGE, re.DOTALL) if "kind: rest" in found[1]
]
SECRETS = {f"REST_{name}": SecretStr(f"token-{name}") for name in ("EVENTBRITE", "AIRTABLE", "HUBSPOT", "NOTION", "OPENAGENDA")}
Answer = Callable[[Request], Mapping[str, Any]]


def recipe(mark: str) -> dict[str, Any]:
    document, slips = read_yaml(next(text for text in RECIPES if mark in text))
    assert isinstance(document, dict)
    assert not slips
    return dict(document["source"])


def read_at(answer: Answer, mark: str, since: str = "") -> tuple[list[str], str, list[Request]]:
    """Read a recipe from a server that answers so; give the ids, the cursor and what was asked."""
    with rest_api() as server:

        def checked(request: Request) -> tuple[int, Any]:
            return 200, answer(request)

        server.answer, words = checked, recipe(mark)
        words["url"] = re.sub("https://[^/]+", server.url.removesuffix("/events"), words["url"])
        spec, access = SPEC.validate_python(words), Access(secrets=SECRETS)
        key = "uid" if "agendas" in mark else "id"
        with open_source(spec, Path(), frozenset({key}), access=access, since=since, clock=in_no_time()).read() as reading:
            ids = [row.cells[key] + "†" * row.is_gone for row in reading.rows]
            assert not reading.ending().is_short
            return ids, reading.ending().cursor, server.asked


def start_of(mark: str, answer: Mapping[str, Any]) -> str:
    """Read an answer with the whole feed that the page shows; give its event's start, or nothing if it makes none."""
    text = next(text for text in RECIPES if mark in text)
    with rest_api() as server:
        server.answer = lambda _request: (200, answer)
        mapping = parse_feed(re.sub("https://[^/]+", server.url.removesuffix("/events"), text), Path("page.yaml"))
        mapper = compile_feed(mapping, Directory(), datetime(2026, 5, 3, tzinfo=UTC))
        access = Access(secrets=SECRETS)
        with open_source(mapping.source, Path(), mapper.columns, access=access, clock=in_no_time()).read() as reading:
            (outcome,) = mapper.over(reading.rows)
    return str(json.loads(outcome.body)["startAt"]) if isinstance(outcome, MappedRow) else ""


def test_the_events_calendar() -> None:
    """https://theeventscalendar.com/knowledgebase/introduction-to-the-events-calendar-rest-api/"""

    def answer(request: Request) -> Mapping[str, Any]:
        assert request.params["per_page"] == ["50"]
        page = int(request.params.get("page", ["1"])[0])
        onward = f"http://{request.headers['host']}{request.path}?page=2&per_page=50&start_date=2020-01-01"
        more = {"next_rest_url": onward} if page == 1 else {}
        count = 50 if page == 1 else 3
        return {"events": [{"id": page * 100 + n} for n in range(count)], "total": 53, "total_pages": 2, **more}

    assert len(read_at(answer, "tribe")[0]) == 53


def test_eventbrite() -> None:
    """https://www.eventbrite.com/developer/v3/api_overview/pagination/"""

    def answer(request: Request) -> Mapping[str, Any]:
        assert request.headers["authorization"] == "Bearer token-EVENTBRITE"
        is_last = request.params.get("continuation") == ["dGhpcyBp"]
        pagination = {"object_count": 3, "page_size": 50, "has_more_items": not is_last, "continuation": "dGhpcyBp"}
        return {"pagination": pagination, "events": [{"id": "3"}] if is_last else [{"id": "1"}, {"id": "2"}]}

    assert read_at(answer, "eventbriteapi")[0] == ["1", "2", "3"]


def test_the_whole_feeds_of_the_page_make_events() -> None:
    """https://www.eventbrite.com/platform/api#/reference/event, https://airtable.com/developers/web/api/field-model"""
    record = {"id": "rec1", "fields": {"Name": "Jazz", "Start": "2030-05-03T18:30:00.000Z"}}
    assert start_of("api.airtable.com", {"records": [record]}) == "2030-05-03T19:30:00+01:00"
    start = {"timezone": "Europe/Lisbon", "local": "2030-05-03T19:30:00", "utc": "2030-05-03T18:30:00Z"}
    event = {"id": "1", "name": {"text": "Jazz"}, "start": start, "venue": {"address": {"city": "Lisboa"}}}
    pagination = {"object_count": 1, "has_more_items": False}
    for status, becomes in (("live", "2030-05-03T19:30:00+01:00"), ("canceled", "")):
        answer = {"pagination": pagination, "events": [{**event, "status": status}]}
        assert start_of("eventbriteapi", answer) == becomes


def test_airtable() -> None:
    """https://support.airtable.com/docs/api-record-limits"""

    def answer(request: Request) -> Mapping[str, Any]:
        assert request.headers["authorization"] == "Bearer token-AIRTABLE"
        if request.params.get("offset") == ["itr/rec2"]:
            return {"records": [{"id": "rec2", "fields": {"Name": "Fado"}}]}
        return {"records": [{"id": "rec1", "fields": {"Name": "Jazz"}}], "offset": "itr/rec2"}

    assert read_at(answer, "airtable")[0] == ["rec1", "rec2"]


def test_hubspot() -> None:
    """https://developers.hubspot.com/docs/api-reference/crm-deals-v3/basic/get-crm-v3-objects-0-3"""

    def answer(request: Request) -> Mapping[str, Any]:
        assert request.params["properties"] == ["dealname,event_start"]
        if request.params.get("after") == ["NTI1Cg=="]:
            return {"results": [{"id": "2", "properties": {"dealname": "Fado"}}]}
        return {"results": [{"id": "1", "properties": {"dealname": "Jazz"}}], "paging": {"next": {"after": "NTI1Cg=="}}}

    assert read_at(answer, "hubapi")[0] == ["1", "2"]


def test_notion() -> None:
    """https://developers.notion.com/reference/query-a-data-source

    Its limit of 10,000 results: https://developers.notion.com/guides/data-apis/query-large-data-sources
    """

    def answer(request: Request) -> Mapping[str, Any]:
        assert (request.method, request.headers["notion-version"]) == ("POST", "2025-09-03")
        assert request.body["page_size"] == 100
        is_last = "start_cursor" in request.body
        one = {"id": "b" if is_last else "a", "last_edited_time": "2026-05-03T17:30:00.000Z", "in_trash": not is_last}
        return {"results": [one], "next_cursor": None if is_last else "c2", "has_more": not is_last}

    ids, cursor, asked = read_at(answer, "notion")
    assert ids == ["b"]
    assert "filter" not in asked[0].body
    ids, _, asked = read_at(answer, "notion", since=cursor)
    assert [request.body.get("start_cursor") for request in asked] == [None, "c2"]

    def capped(_: Request) -> Mapping[str, Any]:
        return {"results": [], "next_cursor": None, "has_more": False, "request_status": {"type": "incomplete"}}

    with pytest.raises(BadSourceError, match="left records out"):
        read_at(capped, "notion")


def test_notion_gives_what_changed() -> None:
    spec = SPEC.validate_python(recipe("notion"))
    meant = spec.since("2026-05-03T17:20:00Z")
    assert meant.body["filter"]["last_edited_time"] == {"on_or_after": "2026-05-03T17:20:00Z"}


def test_openagenda() -> None:
    """https://developers.openagenda.com/en/evenements/lecture"""

    def answer(request: Request) -> Mapping[str, Any]:
        assert request.headers["key"] == "token-OPENAGENDA"
        if request.params.get("after[]") == ["1780000000000", "7"]:
            return {"total": 2, "events": [{"uid": 8}], "after": None}
        return {"total": 2, "events": [{"uid": 7}], "after": [1780000000000, 7]}

    assert read_at(answer, "agendas/")[0] == ["7", "8"]


def test_an_opendatasoft_portal() -> None:
    """https://help.opendatasoft.com/apis/ods-explore-v2/"""
    with web_server() as web:
        path = "/api/explore/v2.1/catalog/datasets/agenda/exports/json"
        web.put(path, '[{"uid": "1", "title": "Jazz"}, {"uid": "2", "title": "Fado"}]')
        spec = SPEC.validate_python({"kind": "json", "path": web.address(path)})
        with open_source(spec, Path(), frozenset({"uid"})).read() as reading:
            assert [row.cells["uid"] for row in reading.rows] == ["1", "2"]

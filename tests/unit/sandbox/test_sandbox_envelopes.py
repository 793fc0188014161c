"""The routes that list, and the shape of every answer."""

from __future__ import annotations

import json
import re

import httpx
import pytest
import yaml
from unit.sandbox.bench import Bench, Event, Open

ENVELOPE = {"docs", "page", "limit", "totalDocs", "totalPages", "hasNextPage", "hasPrevPage"}


def refusal(answer: httpx.Response) -> tuple[int, str]:
    error = answer.json()["error"]
    assert set(error) <= {"code", "message", "requestId", "details"}
    assert error["message"]
    assert error["requestId"].startswith("req_")
    return answer.status_code, error["code"]


def test_channels_come_in_the_full_envelope_and_without_those_of_other_owners(bench: Bench) -> None:
    page = bench.http.get("/api/public/v1/channels").json()
    assert set(page) == ENVELOPE
    assert [set(doc) for doc in page["docs"]] == [{"id", "name", "slug"}] * 4
    assert "members-only" not in {doc["slug"] for doc in page["docs"]}


def test_channels_are_cut_into_pages(bench: Bench) -> None:
    page = bench.http.get("/api/public/v1/channels", params={"page": 2, "limit": 3}).json()
    assert [doc["slug"] for doc in page.pop("docs")] == ["kids-workshops"]
    assert page == {"page": 2, "limit": 3, "totalDocs": 4, "totalPages": 2, "hasNextPage": False, "hasPrevPage": True}


def test_a_page_beyond_the_last_is_empty_and_no_error(bench: Bench) -> None:
    answer = bench.http.get("/api/public/v1/channels", params={"page": 9})
    assert (answer.status_code, answer.json()["docs"]) == (200, [])


@pytest.mark.parametrize("route", ["channels", "events"])
def test_the_limit_is_capped_at_100(bench: Bench, route: str) -> None:
    assert bench.http.get(f"/api/public/v1/{route}", params={"limit": 500}).json()["limit"] == 100


@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=ten", "page=0", "page=1.5", "page=", "page=٣"])
def test_a_page_or_limit_that_is_no_whole_number_is_refused_by_its_name(bench: Bench, query: str) -> None:
    answer = bench.http.get(f"/api/public/v1/channels?{query}")
    assert refusal(answer) == (400, "invalid_request")
    assert answer.json()["error"]["details"]["field"] == query.partition("=")[0]


def test_classifications_have_a_version_in_date_form_and_need_no_key(bench: Bench) -> None:
    del bench.http.headers["Authorization"]
    found = bench.http.get("/api/public/v1/classifications").json()
    assert [len(part) for part in found["version"].split("-")] == [4, 2, 2]
    assert {"music", "workshop", "culture"} <= {doc["slug"] for doc in found["docs"]}
    assert all(set(doc) == {"slug", "name", "description"} for doc in found["docs"])


def test_events_are_listed_in_the_minimal_envelope_newest_first(bench: Bench, event: Event) -> None:
    for title in ("one", "two", "three"):
        bench.create(event | {"title": title})
    page = bench.http.get("/api/public/v1/events", params={"limit": 2}).json()
    assert set(page) == {"docs", "totalDocs", "limit", "page"}
    assert [doc["title"] for doc in page["docs"]] == ["three", "two"]
    assert page["totalDocs"] == 3


def test_event_items_may_be_full_and_oldest_first(open_bench: Open, event: Event) -> None:
    bench = open_bench("event_items=full", "event_order=oldest", "created_doc=full")
    created = bench.create(event | {"note": "kept"}).json()["doc"]
    bench.create(event | {"title": "later"})
    first = bench.http.get("/api/public/v1/events").json()["docs"][0]
    assert first == created
    assert first.items() >= (event | {"note": "kept"}).items()


def test_events_of_a_channel_that_was_taken_away_are_not_listed(bench: Bench, event: Event) -> None:
    bench.create(event)
    bench.admin("channels/access", {"channel": "city-agenda", "allowed": False})
    assert bench.http.get("/api/public/v1/events").json()["totalDocs"] == 0


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/public/v1/nothing", (404, "not_found")),
        ("GET", "/api/public/v1/events/", (404, "not_found")),
        ("GET", "/api/public/v1/events/100001", (404, "not_found")),
        ("DELETE", "/api/public/v1/events", (405, "invalid_request")),
        ("POST", "/api/public/v1/channels", (405, "invalid_request")),
    ],
)
def test_what_does_not_exist_is_refused_in_the_error_envelope(
    bench: Bench, method: str, path: str, expected: tuple[int, str]
) -> None:
    answer = bench.http.request(method, path)
    assert refusal(answer) == expected
    assert (expected[0] == 405) == ("allow" in answer.headers)


def test_the_openapi_page_names_the_fields_that_are_required(bench: Bench, event: Event) -> None:
    answer = bench.http.get("/api/developer/openapi/public-api-v1")
    assert answer.headers["content-type"].startswith("application/yaml")
    schemas = yaml.safe_load(answer.text)["components"]["schemas"]
    required = set(schemas["EventCreate"]["required"])
    for name in event.keys() | required:
        answer = bench.create({field: value for field, value in event.items() if field != name})
        assert (answer.status_code == 400) == (name in required), name
    city = event["approxLocation"]["city"]
    for name in city:
        rest = {field: value for field, value in city.items() if field != name}
        answer = bench.create(event | {"approxLocation": {"city": rest}})
        assert (answer.status_code == 400) == (name in schemas["City"]["required"]), name


def test_the_openapi_page_describes_every_route(bench: Bench) -> None:
    document = yaml.safe_load(bench.http.get("/api/developer/openapi/public-api-v1").text)
    for path, methods in document["paths"].items():
        for method in methods:
            answer = bench.http.request(method, document["servers"][0]["url"] + path)
            assert str(answer.status_code) in methods[method]["responses"], (method, path)


def test_every_reference_of_the_openapi_page_leads_somewhere(bench: Bench) -> None:
    document = yaml.safe_load(bench.http.get("/api/developer/openapi/public-api-v1").text)
    for outer, kind, name in re.findall(r'"\$ref": "#/(\w+)/(\w+)/(\w+)"', json.dumps(document)):
        assert document[outer][kind][name]

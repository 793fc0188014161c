"""The routes that list, the contract and its drift, the pages for visitors, images, and when a limited caller may return."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import escape
from unit.sandbox.conftest import API, EVENTS, PNG, Bench, Event, Open, refusal

from sandbox.service import FixedWindow, Meter, SlidingWindow, TokenBucket
from sandbox.switches import Rate

PAGE = "/api/developer/openapi/public-api-v1"


def _contract(bench: Bench) -> dict[str, Any]:
    answer = bench.http.get(PAGE)
    assert answer.headers["content-type"].startswith("application/yaml")
    document: dict[str, Any] = yaml.safe_load(answer.text)
    return document


def test_channels_come_in_the_full_envelope_in_pages_and_without_those_of_other_owners(bench: Bench) -> None:
    docs = bench.get("channels").json()["docs"]
    assert [set(doc) for doc in docs] == [{"id", "name", "slug"}] * 4
    assert "members-only" not in {doc["slug"] for doc in docs}
    page = bench.get("channels", page=2, limit=3).json()
    assert [doc["slug"] for doc in page.pop("docs")] == ["kids-workshops"]
    assert page == {"page": 2, "limit": 3, "totalDocs": 4, "totalPages": 2, "hasNextPage": False, "hasPrevPage": True}
    beyond = bench.get("channels", page=9, limit=500)
    assert (beyond.status_code, beyond.json()["docs"], beyond.json()["limit"]) == (200, [], 100)


@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=ten", "page=0", "page=1.5", "page=", "page=٣"])
def test_a_page_or_limit_that_is_no_whole_number_is_refused_by_its_name(bench: Bench, query: str) -> None:
    answer = bench.get(f"channels?{query}")
    assert refusal(answer) == (400, "invalid_request")
    assert answer.json()["error"]["details"]["field"] == query.partition("=")[0]


def test_events_are_listed_in_the_minimal_envelope_newest_first(bench: Bench, event: Event) -> None:
    for title in ("one", "two", "three"):
        bench.create(event | {"title": title})
    page = bench.get("events", limit=2).json()
    assert [doc["title"] for doc in page.pop("docs")] == ["three", "two"]
    assert page == {"totalDocs": 3, "limit": 2, "page": 1}


def test_what_does_not_exist_is_refused_in_the_error_envelope(bench: Bench) -> None:
    for path in ("nothing", "events/", "events/100001"):
        assert refusal(bench.get(path)) == (404, "not_found")
    for answer in (bench.http.delete(EVENTS), bench.http.post(f"{API}channels")):
        assert (refusal(answer), "allow" in answer.headers) == ((405, "invalid_request"), True)


def test_the_openapi_page_names_the_fields_that_are_required(bench: Bench, event: Event) -> None:
    schemas = _contract(bench)["components"]["schemas"]
    required = set(schemas["EventCreate"]["required"])
    for name in event.keys() | required:
        answer = bench.create({field: value for field, value in event.items() if field != name})
        assert (answer.status_code == 400) == (name in required), name
    city = event["approxLocation"]["city"]
    for name in city:
        rest = {field: value for field, value in city.items() if field != name}
        answer = bench.create(event | {"approxLocation": {"city": rest}})
        assert (answer.status_code == 400) == (name in schemas["City"]["required"]), name


def test_the_openapi_page_describes_every_route_and_every_reference_leads_somewhere(bench: Bench) -> None:
    document = _contract(bench)
    for path, methods in document["paths"].items():
        for method in methods:
            answer = bench.http.request(method, document["servers"][0]["url"] + path)
            assert str(answer.status_code) in methods[method]["responses"], (method, path)
    for outer, kind, name in re.findall(r'"\$ref": "#/(\w+)/(\w+)/(\w+)"', json.dumps(document)):
        assert document[outer][kind][name]


@pytest.mark.parametrize(
    ("contract", "field", "issue"),
    [
        ("new_required_field", "organizer", "is required"),
        ("shorter_titles", "title", "must not be longer than 40 characters"),
    ],
)
def test_a_drifted_contract_is_on_the_page_and_in_force(
    bench: Bench, event: Event, contract: str, field: str, issue: str
) -> None:
    long = event | {"title": "A title of more than forty characters, all told"}
    assert bench.create(long).status_code == 201
    bench.switch(contract=contract)
    refused = bench.create(long)
    assert refused.status_code == 400
    assert refused.json()["error"]["details"] == {"field": field, "issue": issue}
    schema = _contract(bench)["components"]["schemas"]["EventCreate"]
    assert schema["properties"][field]["type"] == "string"
    assert (field in schema["required"]) or schema["properties"]["title"]["maxLength"] == 40
    assert bench.create(event | {"organizer": "The town"}).status_code == 201


def test_the_page_alone_may_drift_and_is_sent_again_when_it_has(bench: Bench, event: Event) -> None:
    tag = bench.http.get(PAGE).headers["etag"]
    again = bench.http.get(PAGE, headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    bench.switch(contract="new_required_field", contract_rules="as_specified")
    assert bench.http.get(PAGE, headers={"If-None-Match": tag}).status_code == 200
    assert "organizer" in _contract(bench)["components"]["schemas"]["EventCreate"]["required"]
    assert bench.create(event).status_code == 201


def test_a_date_to_come_back_at_is_never_too_early(open_bench: Open, event: Event) -> None:
    bench = open_bench("rate_events=24/m", "rate_burst=1", "retry_after=date")
    bench.create(event)
    written = parsedate_to_datetime(bench.create(event).headers["retry-after"])
    assert written.replace(tzinfo=UTC).timestamp() == math.ceil(bench.clock.now + 2.5)


def test_what_is_left_may_be_shown_beside_every_answer(open_bench: Open, event: Event) -> None:
    bench = open_bench("rate_events=2/m", "rate_kind=window", "rate_headers=x-ratelimit")
    assert [bench.create(event).headers["x-ratelimit-remaining"] for _ in range(3)] == ["1", "0", "0"]
    bench.switch(rate_headers="ratelimit")
    assert bench.create(event).headers["ratelimit"].startswith('"default";r=0;t=')


RATES = st.builds(Rate, st.integers(1, 50), st.sampled_from(["s", "m"]))
METERS = st.builds(FixedWindow, RATES) | st.builds(SlidingWindow, RATES) | st.builds(TokenBucket, RATES, st.integers(1, 20))


@given(meter=METERS, gaps=st.lists(st.floats(0, 5), min_size=1, max_size=60))
def test_a_caller_that_waits_as_long_as_asked_is_admitted(meter: Meter, gaps: list[float]) -> None:
    now = 1_800_000_000.0
    for gap in gaps:
        now += gap
        wait_s = meter.take(now)
        if wait_s > 0:
            now += wait_s + 1e-6
            assert meter.take(now) == 0


HOSTILE = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>&amp;"


class Outline(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


def test_the_front_page_lists_the_channels_with_their_counts_and_drafts_are_marked(bench: Bench, event: Event) -> None:
    bench.create(event)
    assert "Draft" not in bench.agenda()
    bench.create(event | {"status": "draft"})
    assert bench.agenda().count("Draft: not public yet") == 1
    page = bench.http.get("/").text
    assert [part for part in ("City agenda", "Members only", "1 published · 1 in draft") if part not in page] == []


def test_an_event_is_shown_on_the_clocks_of_its_own_zone(bench: Bench, event: Event) -> None:
    bench.create(event | {"startAt": "2026-05-01T17:30:00Z", "endAt": "2026-05-02T00:15:00+02:00"})
    page = bench.agenda()
    assert "Fri 1 May 2026, 19:30 – Sat 2 May 2026, 00:15 (CEST)" in page
    shown = ("Jazz &amp; blues", "Piec Art, Kraków, PL", "Music", 'href="https://tickets.example/1"')
    assert [part for part in shown if part not in page] == []


@pytest.mark.parametrize("start", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
def test_the_ends_of_the_calendar_can_be_shown(bench: Bench, event: Event, start: str) -> None:
    del event["endAt"]
    assert bench.create(event | {"startAt": start}).status_code in {201, 400}
    assert bench.agenda()


def test_no_event_can_break_out_of_its_page(bench: Bench, event: Event) -> None:
    plain = Outline(bench.agenda())
    city, url = {"placeId": HOSTILE, "name": HOSTILE}, f"https://x.example/{HOSTILE.replace(' ', '')}"
    hostile = {
        "title": HOSTILE,
        "locationName": HOSTILE,
        "approxLocation": {"city": city},
        "offers": [{"name": HOSTILE, "url": url}],
    }
    bench.create(event | hostile)
    page = bench.http.get("/channels/city-agenda")
    outline = Outline(page.text)
    assert escape(HOSTILE) in page.text
    assert "script" not in outline.tags
    assert outline.tags.count("img") == plain.tags.count("img")
    assert not [name for name in outline.attributes if name.startswith("on")]
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_a_long_programme_is_cut_into_pages(bench: Bench, event: Event) -> None:
    for number in range(61):
        bench.create(event | {"title": f"Event {number:02}"})
    first, second = bench.agenda(), bench.agenda("?page=2")
    assert ("Event 59" in first, "Event 60" in first, "Later" in first) == (True, False, True)
    assert ("Event 60" in second, "Later" in second, "Earlier" in second) == (True, False, True)


def test_a_page_number_that_leads_nowhere_does_no_harm_and_a_channel_that_does_not_exist_is_a_page_too(bench: Bench) -> None:
    for query in ("?page=0", "?page=x", "?page=99999999999999999999", "?page=7"):
        assert bench.agenda(query)
    answer = bench.http.get("/channels/<b>")
    assert (answer.status_code, "No such channel" in answer.text, "<b>" in answer.text) == (404, True, False)


IMAGES = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0" + b"\0" * 20,
    "image/gif": b"GIF89a" + b"\0" * 20,
    "image/webp": b"RIFF\x10\0\0\0WEBPVP8 ",
}


@pytest.mark.parametrize("kind", IMAGES)
def test_an_image_is_recognised_by_its_content_and_shown_as_such(bench: Bench, kind: str) -> None:
    number = bench.upload(IMAGES[kind], "image/x-whatever").json()["doc"]["id"]
    shown = bench.http.get(f"/media/{number}")
    assert (shown.content, shown.headers["content-type"]) == (IMAGES[kind], kind)
    assert shown.headers["x-content-type-options"] == "nosniff"


def test_an_uploaded_image_can_be_a_cover(bench: Bench, event: Event) -> None:
    number = bench.form(PNG).json()["doc"]["id"]
    assert bench.create(event | {"coverImage": number}).status_code == 201
    assert f'src="/media/{number}"' in bench.agenda()


@pytest.mark.parametrize("declared", ["multipart/form-data", "multipart/form-data; boundary=x"])
def test_a_form_that_cannot_be_read_is_refused(bench: Bench, declared: str) -> None:
    assert bench.upload(b"--y\r\n nothing", declared).status_code == 400


def test_the_same_image_under_the_same_key_is_kept_once_whatever_the_forms_boundary(bench: Bench) -> None:
    first, second = bench.form(PNG, key="k"), bench.form(PNG, key="k")
    assert first.request.headers["content-type"] != second.request.headers["content-type"]
    assert first.content == second.content
    assert bench.upload(IMAGES["image/gif"], key="k").status_code == 409


@pytest.mark.parametrize("path", ["/media/1", f"/media/{2**70}", "/media/x"])
def test_an_image_that_does_not_exist_is_not_found(bench: Bench, path: str) -> None:
    assert bench.http.get(path).status_code == 404

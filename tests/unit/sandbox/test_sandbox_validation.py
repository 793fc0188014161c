"""What POST /events accepts, and how it names what it does not."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.sandbox.bench import Bench, Event, Open

CITY = "approxLocation.city"

REFUSED = [
    ({"channelId": None}, "channelId", "integer"),
    ({"channelId": "101"}, "channelId", "integer"),
    ({"channelId": True}, "channelId", "integer"),
    ({"title": 7}, "title", "string"),
    ({"title": " \t"}, "title", "blank"),
    ({"title": "x" * 301}, "title", "300"),
    ({"startAt": 1}, "startAt", "string"),
    ({"startAt": "2026-05-01"}, "startAt", "offset"),
    ({"startAt": "2026-05-01T19:30:00"}, "startAt", "offset"),
    ({"startAt": "2026-05-01 19:30:00+02:00"}, "startAt", "offset"),
    ({"startAt": "2026-05-01T19:30:00+0200"}, "startAt", "offset"),
    ({"startAt": "2026-02-30T19:30:00+02:00"}, "startAt", "exists"),
    ({"startAt": "2026-05-01T25:30:00+02:00"}, "startAt", "exists"),
    ({"endAt": None}, "endAt", "string"),
    ({"endAt": "2026-05-01T19:29:59+02:00"}, "endAt", "before"),
    ({"timezone": "CEST/Warsaw"}, "timezone", "IANA"),
    ({"timezone": "+02:00"}, "timezone", "IANA"),
    ({"timezone": 2}, "timezone", "string"),
    ({"status": "public"}, "status", "draft"),
    ({"classifications": "music"}, "classifications", "array"),
    ({"classifications": ["music", 3]}, "classifications", "array"),
    ({"classifications": []}, "classifications", "at least one"),
    ({"classifications": ["music", "polka"]}, "classifications", "polka"),
    ({"approxLocation": "Kraków"}, "approxLocation", "object"),
    ({"approxLocation": {}}, CITY, "required"),
    ({"approxLocation": {"city": None}}, CITY, "object"),
    ({"approxLocation": {"city": {"name": "Kraków"}}}, f"{CITY}.placeId", "required"),
    ({"approxLocation": {"city": {"placeId": ""}}}, f"{CITY}.placeId", "blank"),
    ({"approxLocation": {"city": {"placeId": "krk", "name": 1}}}, f"{CITY}.name", "string"),
    ({"approxLocation": {"city": {"placeId": "krk", "countryCode": "pl"}}}, f"{CITY}.countryCode", "uppercase"),
    ({"locationName": ["Piec Art"]}, "locationName", "string"),
    ({"coverImage": "5001"}, "coverImage", "integer"),
    ({"coverImage": 5001}, "coverImage", "5001"),
    ({"coverImage": 2**63}, "coverImage", "media"),
    ({"offers": {}}, "offers", "array"),
    ({"offers": ["free"]}, "offers[0]", "object"),
    ({"offers": [{}, {"name": 1}]}, "offers[1].name", "string"),
    ({"offers": [{"url": "javascript:alert(1)"}]}, "offers[0].url", "http"),
    ({"offers": [{"url": "https://"}]}, "offers[0].url", "http"),
    ({"offers": [{"availability": "sold out"}]}, "offers[0].availability", "available"),
    ({"offers": [{}] * 51}, "offers", "50"),
]


@pytest.mark.parametrize(("change", "field", "issue"), REFUSED)
def test_a_field_that_is_wrong_is_refused_by_its_path_with_the_issue(
    bench: Bench, event: Event, change: Event, field: str, issue: str
) -> None:
    answer = bench.create(event | change)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["details"]["field"]) == (400, "invalid_request", field)
    assert issue in error["details"]["issue"]
    assert bench.stored() == []


@pytest.mark.parametrize("name", ["channelId", "title", "startAt", "timezone", "classifications", "approxLocation"])
def test_a_required_field_that_is_missing_is_refused(bench: Bench, event: Event, name: str) -> None:
    del event[name]
    assert bench.create(event).json()["error"]["details"] == {"field": name, "issue": "is required"}


@pytest.mark.parametrize(
    "change",
    [
        {"startAt": "2026-05-01T17:30Z"},
        {"startAt": "2026-05-01T19:30:00.123456789+02:00"},
        {"endAt": "2026-05-01T17:30:00Z"},
        {"timezone": "Asia/Kathmandu"},
        {"timezone": "UTC"},
        {"offers": []},
        {"offers": [{}]},
        {"approxLocation": {"city": {"placeId": "krk"}}},
        {"description": {"anything": ["goes"]}},
        {"title": "雪まつり ❄️ — «кириллица»"},
    ],
)
def test_what_the_specification_allows_is_accepted_and_kept_as_it_came(bench: Bench, event: Event, change: Event) -> None:
    answer = bench.create(event | change, **{"Content-Type": "application/json; charset=utf-8"})
    assert answer.status_code == 201, answer.text
    (stored,) = bench.stored()
    assert stored["payload"] == event | change
    assert answer.json() == {"doc": {"id": stored["id"], "title": stored["title"]}}


@pytest.mark.parametrize(
    ("content", "issue"),
    [(b"", "JSON"), (b"{", "JSON"), (b"\xff{}", "JSON"), (b'{"a": NaN}', "JSON"), (b"[]", "object"), (b"null", "object")],
)
def test_a_body_that_is_no_json_object_is_refused(bench: Bench, content: bytes, issue: str) -> None:
    answer = bench.http.post("/api/public/v1/events", content=content, headers={"Content-Type": "application/json"})
    details = answer.json()["error"]["details"]
    assert (answer.status_code, details["field"]) == (400, "body")
    assert issue in details["issue"]


@pytest.mark.parametrize("declared", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_a_body_that_is_not_declared_as_json_is_refused_with_415(bench: Bench, declared: str) -> None:
    answer = bench.http.post("/api/public/v1/events", content=b"{}", headers={"Content-Type": declared})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "invalid_request")


def test_a_body_that_is_too_large_is_refused_with_413_declared_or_not(open_bench: Open) -> None:
    bench = open_bench("max_body_bytes=100")
    json = {"Content-Type": "application/json"}
    declared = bench.http.post("/api/public/v1/events", content=b"x" * 101, headers=json)
    streamed = bench.http.post("/api/public/v1/events", content=iter([b"x" * 60, b"x" * 60]), headers=json)
    assert [declared.status_code, streamed.status_code] == [413, 413]


@pytest.mark.parametrize(
    ("word", "change", "status"),
    [
        ("unknown_fields=refused", {"description": "x"}, 400),
        ("unknown_fields=refused", {}, 201),
        ("null_fields=omitted", {"endAt": None, "offers": None, "status": None, "coverImage": None, "locationName": None}, 201),
        ("null_fields=omitted", {"title": None}, 400),
        ("empty_classifications=accepted", {"classifications": []}, 201),
        ("availability=any", {"offers": [{"availability": "sold out"}]}, 201),
        ("max_title_chars=5", {"title": "longer"}, 400),
        ("max_offers=0", {}, 400),
    ],
)
def test_what_the_specification_leaves_open_is_a_switch(
    open_bench: Open, event: Event, word: str, change: Event, status: int
) -> None:
    assert open_bench(word).create(event | change).status_code == status


@pytest.mark.parametrize("default", ["draft", "published"])
def test_an_event_without_a_status_gets_the_switched_one(open_bench: Open, event: Event, default: str) -> None:
    bench = open_bench(f"default_status={default}", "success_status=200")
    del event["status"]
    assert bench.create(event).status_code == 200
    assert bench.stored()[0]["status"] == default


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_value_of_any_field_makes_the_service_fail(bench: Bench, event: Event, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted({*event, "coverImage", "unknown"})))
    answer = bench.create(event | {name: data.draw(JSON)})
    assert answer.status_code in {201, 400, 403, 404}

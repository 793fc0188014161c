"""What POST /events accepts, how it names what it does not, and what a used Idempotency-Key is answered."""

from __future__ import annotations

import asyncio

import httpx
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.sandbox.conftest import EVENTS, Bench, Event, refusal

from sandbox.server import app_of
from sandbox.service import Environment, open_sandbox
from sandbox.switches import Switches, parse_switches

REFUSED = """
channelId: GONE ~ title: GONE ~ startAt: GONE ~ timezone: GONE ~ classifications: GONE ~ approxLocation: GONE => is required
channelId: null ~ channelId: "101" ~ channelId: true => integer
title: 7 ~ startAt: 1 ~ endAt: null ~ timezone: 2 ~ locationName: [Piec Art] => string
title: " \t" => blank
title: LONG => 300
startAt: "2026-05-01" ~ startAt: "2026-05-01T19:30:00" => offset
startAt: "2026-05-01T19:30:00+0200" ~ startAt: "2026-05-01 19:30:00+02:00" => offset
startAt: "2026-02-30T19:30:00+02:00" ~ startAt: "2026-05-01T25:30:00+02:00" => exists
endAt: "2026-05-01T19:29:59+02:00" => before
timezone: CEST/Warsaw ~ timezone: "+02:00" => IANA
status: public => draft
classifications: music ~ classifications: [music, 3] => array
classifications: [] => at least one
classifications: [music, polka] => polka
approxLocation: Kraków => object
approxLocation: {} => .city: required
approxLocation: {city: null} => .city: object
approxLocation: {city: {name: Kraków}} => .city.placeId: required
approxLocation: {city: {placeId: ""}} => .city.placeId: blank
approxLocation: {city: {placeId: krk, name: 1}} => .city.name: string
approxLocation: {city: {placeId: krk, countryCode: pl}} => .city.countryCode: uppercase
coverImage: "5001" => integer
coverImage: 5001 => 5001
coverImage: 9223372036854775808 => media
offers: {} => array
offers: [free] => [0]: object
offers: [{}, {name: 1}] => [1].name: string
offers: [{url: "javascript:alert(1)"}] ~ offers: [{url: "https://"}] => [0].url: http
offers: [{availability: sold out}] => [0].availability: available
offers: MANY => 50
"""
WORDS = {"LONG": "x" * 301, "MANY": [{}] * 51, "GONE": ...}
PAIRS = (line.split(" => ") for line in REFUSED.strip().splitlines())


@pytest.mark.parametrize(("change", "becomes"), [(one, becomes) for changes, becomes in PAIRS for one in changes.split(" ~ ")])
def test_a_field_that_is_wrong_or_missing_is_refused_by_its_path_with_the_issue(
    bench: Bench, event: Event, change: str, becomes: str
) -> None:
    ((name, value),) = yaml.safe_load(change).items()
    value = WORDS.get(value, value) if isinstance(value, str) else value
    answer = bench.create({field: one for field, one in (event | {name: value}).items() if one is not ...})
    assert refusal(answer) == (400, "invalid_request")
    details, (path, _, issue) = answer.json()["error"]["details"], becomes.rpartition(": ")
    assert (details["field"], issue in details["issue"]) == (name + path, True)
    assert bench.stored() == []


@pytest.mark.parametrize(
    "change",
    [
        *({"startAt": start} for start in ("2026-05-01T17:30Z", "2026-05-01T19:30:00.123456789+02:00")),
        {"endAt": "2026-05-01T17:30:00Z"},
        *({"timezone": zone} for zone in ("Asia/Kathmandu", "UTC")),
        *({"offers": offers} for offers in ([], [{}])),
        {"approxLocation": {"city": {"placeId": "krk"}}},
        {"title": "雪まつり ❄️ — «кириллица»", "description": {"anything": ["goes"]}},
    ],
)
def test_what_the_specification_allows_is_accepted_and_kept_as_it_came(bench: Bench, event: Event, change: Event) -> None:
    answer = bench.create(event | change, **{"Content-Type": "application/json; charset=utf-8"})
    assert answer.status_code == 201, answer.text
    (stored,) = bench.stored()
    assert stored["payload"] == event | change
    assert answer.json() == {"doc": {"id": stored["id"], "title": stored["title"]}}


JSON_TYPE = "application/json"
MOST_BYTES = 256 * 1024


@pytest.mark.parametrize(
    ("content", "declared", "status", "issue"),
    [
        *((content, JSON_TYPE, 400, "JSON") for content in (b"", b"{", b"\xff{}", b'{"a": NaN}')),
        *((content, JSON_TYPE, 400, "object") for content in (b"[]", b"null")),
        *(
            (b"{}", declared, 415, "")
            for declared in ("", "text/plain", "application/x-www-form-urlencoded", "application/jsonx")
        ),
        (b"x" * (MOST_BYTES + 1), JSON_TYPE, 413, ""),
        ([b"x" * MOST_BYTES, b"x"], JSON_TYPE, 413, ""),
    ],
)
def test_a_body_that_is_no_json_object_or_too_large_is_refused(
    bench: Bench, content: bytes | list[bytes], declared: str, status: int, issue: str
) -> None:
    answer = bench.http.post(EVENTS, content=content, headers={"Content-Type": declared})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, "invalid_request")
    if issue:
        details = answer.json()["error"]["details"]
        assert (details["field"], issue in details["issue"]) == ("body", True)


SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=8)
JSON = st.recursive(
    SCALARS | TEXTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_value_of_any_field_makes_the_service_fail(bench: Bench, event: Event, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted({*event, "coverImage", "unknown"})))
    answer = bench.create(event | {name: data.draw(JSON)})
    assert answer.status_code in {201, 400, 403, 404}


async def _answers_to_two_at_once(event: Event, switches: Switches) -> list[httpx.Response]:
    """Send one request, the same again while the first is in progress, and once more after it."""
    arrived, may_go_on = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        arrived.set()
        await may_go_on.wait()

    app = app_of(open_sandbox(None, switches, "secret", Environment(sleep=sleep)))
    transport, headers = httpx.ASGITransport(app), {"Authorization": "Bearer secret", "Idempotency-Key": "k1"}
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as http:
        first = asyncio.create_task(http.post(EVENTS, json=event))
        await arrived.wait()
        second = await http.post(EVENTS, json=event)
        may_go_on.set()
        answers = [await first, second, await http.post(EVENTS, json=event)]
    app.state.sandbox.close()
    return answers


@pytest.mark.parametrize(("words", "wait"), [("", None), (" in_progress=retry_after retry_after=fraction", "0.200")])
def test_while_the_first_request_is_in_progress_the_second_is_a_conflict(event: Event, words: str, wait: str | None) -> None:
    switches = parse_switches(f"latency_ms=5{words}".split())
    first, second, third = asyncio.run(_answers_to_two_at_once(event, switches))
    assert (first.status_code, second.status_code, third.status_code) == (201, 409, 201)
    assert first.content == third.content
    assert second.headers.get("retry-after") == wait

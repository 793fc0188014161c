from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mappings.event import EVENT, judge
from mappings.plain_events import PLAIN, is_plainly, plain_test

ODD: list[Any] = [
    None,
    "",
    " ",
    "x",
    "\ud800",
    7,
    0,
    True,
    2.5,
    [],
    ["x"],
    ["", "x"],
    [7],
    {},
    {"x": 7},
    ("music",),
    {"music"},
    "é",
]
MOMENTS = [
    *("2027-05-01T20:00:00+01:00", "2027-05-01T20:00Z", "2027-05-01T20:00:00,5Z", "2027-02-30T20:00:00+01:00", "2027-05-01"),
    *("2027-W17-6T20:00:00+01:00", "2027-05-01 20:00:00+01:00", "2027-05-01T24:00:00+01:00", "2027-05-01T20:00:00+01:00\n"),
]
ZONES = ["Europe/Lisbon", "../x", "europe/lisbon"]
CITY = {"placeId": "pt-lisboa", "name": "Lisboa", "countryCode": "PT"}
OFFER = {"name": "12 €", "url": "https://example.org/a", "availability": "available", "more": "x"}
SOUND = {
    "channelId": 7,
    "title": "Café",
    "startAt": MOMENTS[0],
    "endAt": MOMENTS[1],
    "timezone": ZONES[0],
    "status": "draft",
    "classifications": ["music"],
    "approxLocation": {"city": CITY},
    "locationName": "Hall",
    "offers": [OFFER, {}],
    "subtitle": "more",
}
ODD_CITIES = [
    *({"city": CITY | {name: value}} for name in CITY for value in [*ODD, "pt", "PRT", "PT\n"]),
    *({"city": {key: value for key, value in CITY.items() if key != name}} for name in CITY),
    *({"city": value} for value in ODD),
]
ODD_OFFERS = [
    [OFFER | {name: value}]
    for name in OFFER
    for value in [*ODD, "https://a b", "http://", "ftp://x", "https://é.x", "https://x\n"]
]
CHANGES = st.one_of(
    st.tuples(st.sampled_from(sorted(SOUND)), st.sampled_from([*ODD, *MOMENTS, *ZONES])),
    st.tuples(st.sampled_from(["startAt", "endAt"]), st.sampled_from(MOMENTS)),
    st.tuples(st.just("approxLocation"), st.sampled_from(ODD_CITIES)),
    st.tuples(st.just("offers"), st.sampled_from([*ODD_OFFERS, [7], ["x"], [None]])),
    st.tuples(st.just("coverImage"), st.sampled_from([7, True, "7"])),
)
PAYLOADS = st.builds(
    lambda changes, left_out: {name: value for name, value in (SOUND | dict(changes)).items() if name not in left_out},
    st.lists(CHANGES, max_size=2),
    st.sets(st.sampled_from(sorted(SOUND)), max_size=2),
)


@settings(max_examples=500)
@given(PAYLOADS, st.frozensets(st.sampled_from(sorted(PLAIN))))
def test_what_is_plainly_an_event_is_what_the_model_takes(payload: dict[str, Any], looked_at: frozenset[str]) -> None:
    vouched = frozenset(path for path in looked_at if is_plainly(path, at(payload, path)))
    if plain_test(SOUND | {"coverImage": 7}, vouched)(payload):
        EVENT.validate_python(payload)
        assert judge(payload) == []


def at(payload: Any, path: str) -> Any:
    for name in path.split("."):
        payload = payload.get(name) if isinstance(payload, dict) else None
    return payload


@given(st.sets(st.sampled_from(["endAt", "status", "locationName", "offers", "subtitle"])))
def test_an_event_with_nothing_odd_about_it_is_plain(left_out: set[str]) -> None:
    assert plain_test(SOUND, frozenset())({name: value for name, value in SOUND.items() if name not in left_out})


@settings(max_examples=500)
@given(PAYLOADS)
def test_what_the_model_does_not_take_is_told(payload: dict[str, Any]) -> None:
    try:
        EVENT.validate_python(payload)
    except ValidationError:
        assert judge(payload)
    else:
        assert judge(payload) == []

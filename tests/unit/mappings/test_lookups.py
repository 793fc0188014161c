"""Lookups, maps, countries, yes and no, and damaged texts."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from unit.mappings.conftest import Mapper, Row, rejected

from mappings.outcome import MappedRow, RowOutcome
from mappings.reasons import ReasonCode

WORDS = "word,slug\njazz,music\nacid jazz,club\nexpo,art\nŁódź,city\n"


def field_of(outcome: RowOutcome, name: str = "x") -> Any:
    assert isinstance(outcome, MappedRow), outcome
    return orjson.loads(outcome.body).get(name)


@pytest.mark.parametrize(
    ("options", "text", "expected"),
    [
        ("match: prefix", "jazz & more", "music"),
        ("match: prefix", "acid jazz night", "club"),
        ("match: prefix, ignore: case", "EXPOsition", "art"),
        ("match: keyword", "late expo, then jazz", "music"),
        ("match: keyword, ignore: [case, accents]", "Acid Jâzz", "music"),
        ("ignore: [case, accents]", "łódź", "city"),
        ("ignore: [case, accents]", "LODZ", "city"),
        ("match: keyword, many: true", "acid jazz at the expo", ["music", "club", "art"]),
        ("match: keyword, on_miss: keep", "jazzy", "jazzy"),
        ("match: regex", "so much jazzy stuff", "music"),
        ("match: regex, ignore: [case]", "EXPO", "art"),
        ("on_miss: keep", "theatre", "theatre"),
    ],
)
def test_a_list_can_be_met_in_several_ways(mapper: Mapper, row: Row, options: str, text: str, expected: object) -> None:
    feed = mapper(event=f"x: {{from: KIND, do: [{{lookup: words.csv, {options}}}]}}", files={"words.csv": WORDS})
    assert field_of(feed(row(KIND=text))) == expected


def test_a_word_inside_another_word_is_not_met(mapper: Mapper, row: Row) -> None:
    feed = mapper(event="x: {from: KIND, do: [{lookup: words.csv, match: keyword}]}", files={"words.csv": WORDS})
    outcome = rejected(feed(row(KIND="jazzy exposition")))
    assert outcome.reasons[0].code is ReasonCode.NOT_IN_LOOKUP
    assert outcome.reasons[0].hint == 'the list has "jazz", "acid jazz", "expo", "Łódź"'


def test_a_lookup_of_several_columns_gives_its_parts_to_several_fields(mapper: Mapper, row: Row) -> None:
    files = {"cities.csv": "city,placeId,zone\nPorto,pt-porto,Europe/Lisbon\n"}
    top = "let: {city: {from: CITY, do: [{lookup: cities.csv}]}}\n"
    event = (
        "approxLocation.city: {placeId: {from: $city, do: [{part: placeId}]}, name: {from: CITY}}\n"
        "timezone: {from: $city, do: [{part: zone}]}\n"
        "x: {from: $city, do: [{part: zone}, {split: /}, count]}"
    )
    outcome = mapper(top=top, event=event, files=files)(row(CITY="Porto"))
    assert (field_of(outcome, "timezone"), field_of(outcome)) == ("Europe/Lisbon", 2)
    assert field_of(outcome, "approxLocation") == {"city": {"placeId": "pt-porto", "name": "Porto"}}


def test_a_value_may_become_several(mapper: Mapper, row: Row) -> None:
    feed = mapper(event="x: {from: KIND, do: [{split: ','}, {map: {fair: [market, food], jazz: music}}, unique]}")
    assert field_of(feed(row(KIND="fair,jazz,fair"))) == ["market", "food", "music"]
    assert field_of(feed(row(KIND="jazz"))) == ["music"]


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ({"LAND": "PT", "CITY": "Faro"}, ("CITY", "Faro", 'the list has "Lisboa", "Porto"')),
        ({"LAND": "ES", "CITY": "Porto"}, ("CITY", "Porto", 'the list has "Vigo"')),
        ({"LAND": "XX", "CITY": "Porto"}, ("LAND", "XX", 'the list has "PT", "ES"')),
        ({"LAND": "PT", "CITY": ""}, ("CITY", "", 'fill in the column "CITY"')),
        ({"LAND": "", "CITY": "Porto"}, ("LAND", "", 'fill in the column "LAND"')),
    ],
)
def test_of_several_key_values_the_first_that_is_unknown_is_told(
    mapper: Mapper, row: Row, cells: dict[str, str], told: tuple[str, str, str]
) -> None:
    files = {"cities.csv": "country,city,placeId\nPT,Lisboa,pt-lisboa\nPT,Porto,pt-porto\nES,Vigo,es-vigo\n"}
    event = "approxLocation.city.placeId: {lookup: cities.csv, by: [{from: LAND}, {from: CITY}], ignore: case}"
    outcome = rejected(mapper(event=event, files=files)(row(**cells)))
    assert [(reason.column, reason.found, reason.hint) for reason in outcome.reasons] == [told]


def test_a_default_after_other_steps_also_fills_a_named_value_that_is_left_out(mapper: Mapper, row: Row) -> None:
    top = "let: {hall: {from: HALL, on_empty: omit}}\n"
    assert field_of(mapper(top=top, event="x: {from: $hall, do: [trim, {default: Main}]}")(row())) == "Main"

"""Lists in the payload made of the row's own lists, and what is known of a row beside its cells."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson
import pytest

from mappings.compiler.mapper import compile_feed
from mappings.errors import ConfigError, MappingFileError
from mappings.event import Directory
from mappings.outcome import MappedRow, Rejection, RowLocation, RowOutcome, SourceRow
from mappings.reasons import ReasonCode
from mappings.spec.feed import FeedMapping

Build = Callable[..., FeedMapping]
Mapper = Callable[..., Callable[[SourceRow], RowOutcome]]
Row = Callable[..., SourceRow]

OF_ONE_CELL = """offers:
  for_each: {from: PRICES, do: [{split: ";"}], on_empty: omit}
  as: item
  give:
    name: {join: ["Ticket", $item]}
    url: {from: LINK, do: [url], on_empty: omit}
    price: {from: $item, do: [{price: ","}, {part: from}], on_error: omit}
  on_empty: omit
"""
SIDE_BY_SIDE = """offers:
  for_each: [{from: NAMES, do: [{split: ";", keep_empty: true}]}, {from: LINKS, do: [{split: ";", keep_empty: true}]}]
  as: [name, link]
  give: {name: {from: $name, on_empty: {use: Tickets}}, url: {from: $link, do: [url]}}
"""
OF_COLUMNS = """offers:
  for_each: [[{from: N1}, {from: N2}, {from: N3}], [{from: U1}, {from: U2}, {from: U3}]]
  as: [name, link]
  give: {name: $name, url: {from: $link, do: [url], on_empty: omit}, availability: available}
  on_empty: omit
"""


def event_of(outcome: RowOutcome) -> Any:
    assert isinstance(outcome, MappedRow), outcome
    return orjson.loads(outcome.body)


def test_each_item_of_a_cell_becomes_an_offer_with_numbers_that_are_numbers(mapper: Mapper, row: Row) -> None:
    mapper = partial(mapper, top="extra: [offers.price]\n")
    event = event_of(mapper(event=OF_ONE_CELL)(row(PRICES="12,50 €; free seats", LINK="ex.org/a")))
    assert event["offers"] == [
        {"name": "Ticket 12,50 €", "url": "https://ex.org/a", "price": 12.5},
        {"name": "Ticket free seats", "url": "https://ex.org/a", "price": 0},
    ]
    assert "offers" not in event_of(mapper(event=OF_ONE_CELL)(row(PRICES="")))


def test_lists_side_by_side_stay_side_by_side_where_a_part_is_empty(mapper: Mapper, row: Row) -> None:
    event = event_of(mapper(event=SIDE_BY_SIDE)(row(NAMES="Adult;;Child;", LINKS="ex.org/1;ex.org/2;ex.org/3;")))
    assert [(offer["name"], offer["url"][-1]) for offer in event["offers"]] == [("Adult", "1"), ("Tickets", "2"), ("Child", "3")]


def test_lists_of_different_lengths_are_refused(mapper: Mapper, row: Row) -> None:
    outcome = mapper(event=SIDE_BY_SIDE)(row(NAMES="Adult;Child", LINKS="ex.org/1"))
    assert isinstance(outcome, Rejection)
    (reason,) = outcome.reasons
    assert (reason.code, reason.field, reason.column) == (ReasonCode.UNEVEN, "offers", "NAMES")


def test_what_is_wrong_with_an_item_is_told_with_its_number(mapper: Mapper, row: Row) -> None:
    outcome = mapper(event=SIDE_BY_SIDE)(row(NAMES="a;b;c", LINKS="ex.org/1;mailto:x@y.z;tel:1"))
    assert isinstance(outcome, Rejection)
    assert [(reason.field, reason.code, reason.found) for reason in outcome.reasons] == [
        ("offers[1].url", ReasonCode.NOT_A_URL, "mailto:x@y.z"),
        ("offers[2].url", ReasonCode.NOT_A_URL, "tel:1"),
    ]


def test_repeated_columns_become_a_list_without_those_that_are_empty(mapper: Mapper, row: Row) -> None:
    event = event_of(mapper(event=OF_COLUMNS)(row(N1="A", N2="", N3="C", U1="ex.org/1", U2="", U3="")))
    assert event["offers"] == [
        {"name": "A", "url": "https://ex.org/1", "availability": "available"},
        {"name": "C", "availability": "available"},
    ]
    assert "offers" not in event_of(mapper(event=OF_COLUMNS)(row()))


def test_a_list_inside_a_list_and_a_list_of_texts(mapper: Mapper, row: Row) -> None:
    event = """days:
  for_each: {from: DAYS, do: [{split: "|"}]}
  as: day
  give:
    name: {from: $day, do: [{split: ":"}, first]}
    acts: {for_each: {from: $day, do: [{split: ":"}, last, {split: ","}]}, as: act, give: {from: $act, do: [upper]}}
"""
    assert event_of(mapper(event=event)(row(DAYS="Fri: a, b | Sat: c")))["days"] == [
        {"name": "Fri", "acts": ["A", "B"]},
        {"name": "Sat", "acts": ["C"]},
    ]


@pytest.mark.parametrize(
    ("top", "event", "problem"),
    [
        ("", "x: {for_each: {from: A}, as: item, give: $itme}", 'unknown name "$itme", did you mean "$item"'),
        ("let: {item: x}\n", "x: {for_each: {from: A}, as: item, give: $item}", "is the name of another value"),
        ("", "x: {for_each: {from: A}, as: [a, b], give: $a}", "and `for_each` not as many lists"),
        ("", "x: {for_each: {from: A}, as: [a], give: x}\ny: {from: $a}", 'unknown name "$a"'),
        ("let: {b: {from: $a}}\n", "x: {for_each: {from: A}, as: a, give: $b}", 'unknown name "$a"'),
        ("let: {b: {for_each: {from: A}, as: a, give: $a}}\n", "x: $b", "has its place in the payload only"),
    ],
)
def test_mistakes_in_lists_are_told_at_their_place(build: Build, top: str, event: str, problem: str) -> None:
    with pytest.raises(MappingFileError) as error:
        build(top=top, event=event)
    assert problem in str(error.value)


META = """source_row: {meta: row}
file: {meta: file, do: [upper]}
tab: {meta: tab, on_empty: omit}
imported: {meta: run_date, zone: Asia/Tokyo}
"""


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("events.csv:42", ("EVENTS.CSV", None)),
        ("2026/may.json:9 (record 3)", ("2026/MAY.JSON", None)),
        ("book.xlsx/Programme!A17", ("BOOK.XLSX", "Programme")),
    ],
)
def test_where_a_row_stands_and_when_the_run_began_can_be_values(
    build: Build, place: str, expected: tuple[str, str | None]
) -> None:
    feed = compile_feed(build(event=META), Directory(), datetime(2026, 5, 1, 20, tzinfo=UTC))
    event = event_of(feed(SourceRow(RowLocation(place, 17), {"ID": "1", "TITLE": "Jazz"})))
    assert (event["source_row"], event["file"], event.get("tab"), event["imported"]) == (17, *expected, "2026-05-02")


def test_the_day_of_a_run_needs_the_run_and_a_zone(build: Build) -> None:
    with pytest.raises(ConfigError, match="the moment of the run was not said"):
        compile_feed(build(event="x: {meta: run_date, zone: UTC}"), Directory())
    with pytest.raises(MappingFileError, match="a day belongs to a zone"):
        build(event="x: {meta: run_date}")


IMAGES = "coverImage: {image: [{from: BIG, do: [url]}, {from: SMALL, do: [{split: ' '}]}], on_error: draft}"


@pytest.mark.parametrize(
    ("big", "small", "url", "is_draft"),
    [
        ("ex.org/big.jpg", "ex.org/small.jpg", "https://ex.org/big.jpg", False),
        ("see below", "none ex.org/small.jpg", "https://ex.org/small.jpg", False),
        ("", "ex.org/small.jpg", "https://ex.org/small.jpg", False),
        ("see below", "", None, True),
        ("", "", None, False),
    ],
)
def test_the_first_usable_picture_of_several_is_taken(
    mapper: Mapper, row: Row, big: str, small: str, url: str | None, *, is_draft: bool
) -> None:
    outcome = mapper(event=IMAGES)(row(BIG=big, SMALL=small))
    assert isinstance(outcome, MappedRow)
    assert (None if outcome.cover is None else outcome.cover.url) == url
    assert (event_of(outcome).get("status") == "draft") is is_draft

"""Lists of objects in the payload, what is left out of them, and values put together of pieces."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson
import pytest
from unit.mappings.conftest import Build, Mapper, Row, event_of, mapped, reasons_of, rejected

from mappings.compiler.mapper import compile_feed, explain_row
from mappings.errors import ConfigError
from mappings.event import Directory
from mappings.outcome import MappedRow, RowLocation, SourceRow
from mappings.reasons import ReasonCode

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


def test_what_is_wrong_with_an_item_is_told_with_its_number(mapper: Mapper, row: Row) -> None:
    outcome = rejected(mapper(event=SIDE_BY_SIDE)(row(NAMES="a;b;c", LINKS="ex.org/1;mailto:x@y.z;tel:1")))
    assert [(reason.field, reason.code, reason.found) for reason in outcome.reasons] == [
        ("offers[1].url", ReasonCode.NOT_A_URL, "mailto:x@y.z"),
        ("offers[2].url", ReasonCode.NOT_A_URL, "tel:1"),
    ]


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
    outcome = mapped(mapper(event=IMAGES)(row(BIG=big, SMALL=small)))
    assert (None if outcome.cover is None else outcome.cover.url) == url
    assert (event_of(outcome).get("status") == "draft") is is_draft


TWO = """offers:
  - when: {column: SALE, equals: open}
    require: [url]
    name: {from: NAME, on_empty: {use: Tickets}}
    url: {from: LINK, do: [url]}
    availability: available
  - name: Box office
    url: {from: DESK, do: [url], on_empty: omit}
    availability: {from: LEFT, on_empty: omit}
"""


def offers_of(outcome: object) -> Any:
    assert isinstance(outcome, MappedRow), outcome
    return orjson.loads(outcome.body).get("offers")


def test_an_offer_is_left_out_where_its_condition_does_not_hold(mapper: Mapper, row: Row) -> None:
    told = mapper(event=TWO)
    link = {"LINK": "ex.org/a"}
    assert offers_of(told(row(SALE="open", **link))) == [
        {"name": "Tickets", "url": "https://ex.org/a", "availability": "available"}
    ]
    assert offers_of(told(row(SALE="closed", LINK="no address at all"))) is None


def test_an_offer_without_a_required_part_is_left_out_and_one_that_cannot_be_read_rejects(mapper: Mapper, row: Row) -> None:
    told = mapper(event=TWO)
    assert offers_of(told(row(SALE="open", LINK="", DESK="ex.org/desk"))) == [
        {"name": "Box office", "url": "https://ex.org/desk"}
    ]
    unreadable = rejected(told(row(SALE="open", LINK="mailto:a@ex.org")))
    assert [(reason.field, reason.code) for reason in unreadable.reasons] == [("offers[0].url", ReasonCode.NOT_A_URL)]


def test_an_offer_of_which_only_constants_are_left_is_left_out(mapper: Mapper, row: Row) -> None:
    told = mapper(event=TWO)
    assert offers_of(told(row(LEFT="", DESK=""))) is None
    assert offers_of(told(row(LEFT="few", DESK=""))) == [{"name": "Box office", "availability": "few"}]
    constant = mapper(event="offers: [{name: Box office, url: 'https://ex.org/desk'}]")
    assert offers_of(constant(row())) == [{"name": "Box office", "url": "https://ex.org/desk"}]


def test_each_object_of_a_loop_may_have_a_condition(mapper: Mapper, row: Row) -> None:
    event = """offers:
  for_each: {from: LINKS, do: [{split: ";"}]}
  as: link
  give: {when: {value: $link, contains: ex.org}, require: url, name: Tickets, url: {from: $link, do: [url], on_error: omit}}
  on_empty: omit
"""
    found = offers_of(mapper(event=event)(row(LINKS="ex.org/a;elsewhere.org;mailto:x@ex.org")))
    assert found == [{"name": "Tickets", "url": "https://ex.org/a"}]


def test_a_condition_that_cannot_be_decided_rejects_the_row(mapper: Mapper, row: Row) -> None:
    offers = mapper(event="offers: [{when: {column: LEFT, greater: '0'}, name: {from: NAME}}]")
    assert reasons_of(offers(row(LEFT="many", NAME="x"))) == [("offers[0]", ReasonCode.NOT_A_NUMBER, "")]


def test_explain_leaves_out_the_same_offers(build: Build, row: Row) -> None:
    mapping = build(event=TWO)
    for cells in ({"SALE": "open", "LINK": ""}, {"LEFT": "few"}, {"SALE": "open", "LINK": "ex.org/a"}):
        shown = explain_row(mapping, Directory(), row(**cells)).outcomes[0]
        assert offers_of(shown) == offers_of(compile_feed(mapping, Directory())(row(**cells)))


LET = "let: {base: 'https://ex.org/e/', word: {from: $base, do: [upper]}, number: {from: NO, on_empty: omit}}\n"


@pytest.mark.parametrize(
    "pieces",
    [
        '["place:us", {from: NO}]',
        '["a ", {from: NO, do: [trim]}, " b ", {first_of: [{from: NO}, {from: NO2}]}]',
        "[$base, $number]",
        "[$word, {from: NO}]",
        "[{join: [a, b]}, {join: [c, {from: NO}]}]",
        "[{first_of: [a, b]}, {from: NO}]",
    ],
)
def test_a_join_is_empty_where_all_its_pieces_but_the_constants_are(pieces: str, mapper: Mapper, row: Row) -> None:
    required = mapper(top=LET, event=f"locationName: {{join: {pieces}, with: ''}}")
    assert [reason[:2] for reason in reasons_of(required(row(NO=" ")))] == [("locationName", ReasonCode.REQUIRED)]
    omitted = mapper(top=LET, event=f"locationName: {{join: {pieces}, with: '', on_empty: omit}}")
    assert "locationName" not in event_of(omitted(row(NO="")))
    assert event_of(omitted(row(NO="7")))["locationName"].casefold().rstrip("b ").endswith("7")


def test_a_join_of_constants_is_one(mapper: Mapper, row: Row) -> None:
    assert event_of(mapper(top=LET, event="locationName: {join: [$base, seven], with: ''}")(row()))["locationName"] == (
        "https://ex.org/e/seven"
    )


@pytest.mark.parametrize(
    "step",
    [
        '{prefix: "place:us-"}',
        "{suffix: ' (repeat)'}",
        "{pad: 5}",
        "{hash: 12}",
        '{resolve: "https://ex.org/agenda/"}',
        '{url_template: "https://ex.org/e/{}"}',
        "{set_query: {from: agenda}}",
        "{regex_replace: '^', with: x}",
    ],
)
def test_no_step_makes_something_of_what_the_steps_before_it_left_empty(step: str, mapper: Mapper, row: Row) -> None:
    emptied = f"{{from: NO, do: [{{strip_prefix: none}}, {step}], on_empty: omit}}"
    compiled = mapper(event=f"locationName: {emptied}")
    assert "locationName" not in event_of(compiled(row(NO="none")))
    assert "locationName" not in event_of(compiled(row(NO="none  ")))
    listed = mapper(event=f"classifications: {{from: NO, do: [{{split: ';', keep_empty: true}}, {step}], on_empty: omit}}")
    assert len(event_of(listed(row(NO="a;;b")))["classifications"]) == 2


def test_a_default_acts_wherever_the_steps_before_it_leave_nothing(mapper: Mapper, row: Row) -> None:
    for steps in (
        "{strip_prefix: none}, {prefix: 'no. '}",
        "{map: {a: b}, on_miss: omit}",
        "{map: {a: b}, on_miss: omit}, upper",
    ):
        compiled = mapper(event=f"locationName: {{from: NO, do: [{steps}, {{default: unknown}}]}}")
        assert event_of(compiled(row(NO="none")))["locationName"] == "unknown"
        assert event_of(compiled(row(NO="")))["locationName"] == "unknown"


def test_an_item_with_several_meanings_stays_flat_beside_one_that_is_left_out(mapper: Mapper, row: Row) -> None:
    event = "classifications: {from: KIND, do: [{split: ','}, {map: {Fair: [market, food], Jazz: music}, on_miss: omit}]}"
    found = event_of(mapper(event=event)(row(KIND="Fair,Chess,Jazz")))["classifications"]
    assert found == ["market", "food", "music"]


def test_a_constant_beside_an_empty_item_makes_no_entry_of_a_list(mapper: Mapper, row: Row) -> None:
    event = """offers:
    for_each: [[Tickets, Members], [{from: A, on_empty: omit}, {from: B, on_empty: omit}]]
    as: [name, url]
    give: {name: $name, url: $url}
    on_empty: omit"""
    compiled = mapper(event=event)
    assert event_of(compiled(row(A="", B="https://ex.org/b")))["offers"] == [{"name": "Members", "url": "https://ex.org/b"}]
    assert "offers" not in event_of(compiled(row(A="", B="")))

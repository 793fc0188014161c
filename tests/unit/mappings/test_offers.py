"""Which items of a list of objects are wanted: `when`, `require`, and those of which only constants are left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from mappings.compiler.mapper import RowMapper, compile_feed, explain_row
from mappings.errors import MappingFileError
from mappings.event import Directory
from mappings.outcome import MappedRow, Rejection, SourceRow
from mappings.reasons import ReasonCode
from mappings.spec.feed import FeedMapping

Mapper = Callable[..., RowMapper]
Row = Callable[..., SourceRow]

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
    unreadable = told(row(SALE="open", LINK="mailto:a@ex.org"))
    assert isinstance(unreadable, Rejection)
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
    outcome = mapper(event="offers: [{when: {column: LEFT, greater: '0'}, name: {from: NAME}}]")(row(LEFT="many", NAME="x"))
    assert isinstance(outcome, Rejection)
    assert [(reason.field, reason.code) for reason in outcome.reasons] == [("offers[0]", ReasonCode.NOT_A_NUMBER)]


def test_explain_leaves_out_the_same_offers(build: Callable[..., FeedMapping], row: Row) -> None:
    mapping = build(event=TWO)
    for cells in ({"SALE": "open", "LINK": ""}, {"LEFT": "few"}, {"SALE": "open", "LINK": "ex.org/a"}):
        shown = explain_row(mapping, Directory(), row(**cells)).outcome
        assert offers_of(shown) == offers_of(compile_feed(mapping, Directory())(row(**cells)))


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ("offers: [{require: [ur], url: {from: L}}]", ':11:23: "ur" is no field of this object, did you mean "url"?'),
        ("offers: [{when: {colum: L, is: present}, url: {from: L}}]", 'unknown key "colum", did you mean "column"?'),
        ("approxLocation: {when: {column: L, is: present}, city: {placeId: x}}", "belong to an object in a list"),
        ("locationName: {when: {column: L, is: present}, require: x}", "belong to an object in a list"),
    ],
)
def test_a_mistake_in_a_condition_or_a_requirement_has_its_place(event: str, told: str, mapper: Mapper) -> None:
    with pytest.raises(MappingFileError) as caught:
        mapper(event=event)
    assert told in str(caught.value)

"""Constants alone make no value: what is put together of pieces is empty where all that comes from the row is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from mappings.compiler.mapper import RowMapper
from mappings.outcome import MappedRow, Rejection, RowOutcome, SourceRow
from mappings.reasons import ReasonCode

Mapper = Callable[..., RowMapper]
Row = Callable[..., SourceRow]


def event_of(outcome: RowOutcome) -> dict[str, Any]:
    assert isinstance(outcome, MappedRow), outcome
    event: dict[str, Any] = orjson.loads(outcome.body)
    return event


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
    rejected = mapper(top=LET, event=f"locationName: {{join: {pieces}, with: ''}}")(row(NO=" "))
    assert isinstance(rejected, Rejection)
    assert [(reason.field, reason.code) for reason in rejected.reasons] == [("locationName", ReasonCode.REQUIRED)]
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

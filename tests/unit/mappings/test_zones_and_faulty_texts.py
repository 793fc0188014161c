from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from mappings.compiler.mapper import RowMapper
from mappings.errors import MappingFileError
from mappings.outcome import MappedRow, Rejection, SourceRow
from mappings.reasons import Refusal
from mappings.spec.feed import FeedMapping
from mappings.steps.text import fix_mojibake
from mappings.steps.zones import read_zone

INSTANT = """
startAt: {in_zone: {moment: {from: START, do: [{datetime: "%Y-%m-%dT%H:%M:%S%z"}]}, zone: $zone}}
timezone: $zone
"""
ZONE = "let: {zone: {from: ZONE, do: [zone]}}\n"

Map = Callable[..., RowMapper]
Row = Callable[..., SourceRow]


def event_of(outcome: object) -> dict[str, Any]:
    assert isinstance(outcome, MappedRow), outcome
    event: dict[str, Any] = orjson.loads(outcome.body)
    return event


@pytest.mark.parametrize(
    ("named", "today"),
    [
        ("US/Eastern", "America/New_York"),
        ("Asia/Calcutta", "Asia/Kolkata"),
        ("Europe/Kiev", "Europe/Kyiv"),
        ("Europe/Stockholm", "Europe/Stockholm"),
        ("america/new york", "America/New_York"),
        ("India Standard Time", "Asia/Kolkata"),
        ("Etc/UTC", "UTC"),
        ("GMT", "UTC"),
        ("Japan", "Asia/Tokyo"),
    ],
)
def test_a_zones_name_becomes_todays(named: str, today: str) -> None:
    assert read_zone(named) == today


@pytest.mark.parametrize("named", ["EST", "CET", "UTC+2", "+02:00", "CEST", "Lisbon", ""])
def test_what_names_no_zone_is_refused(named: str) -> None:
    with pytest.raises(Refusal):
        read_zone(named)


def test_an_instant_is_shown_by_the_clocks_of_the_rows_own_zone(mapper: Map, row: Row) -> None:
    feed = mapper(event=INSTANT, top=ZONE)
    event = event_of(feed(row(START="2026-07-01T18:00:00Z", ZONE="Asia/Calcutta")))
    assert (event["startAt"], event["timezone"]) == ("2026-07-01T23:30:00+05:30", "Asia/Kolkata")


def test_a_zone_that_is_none_rejects_the_row_and_names_the_column(mapper: Map, row: Row) -> None:
    outcome = mapper(event=INSTANT, top=ZONE)(row(START="2026-07-01T18:00:00Z", ZONE="Asia/Calcuta"))
    assert isinstance(outcome, Rejection)
    (reason,) = outcome.reasons
    assert (reason.code, reason.column, reason.found) == ("not_a_zone", "ZONE", "Asia/Calcuta")
    assert reason.hint == 'did you mean "Asia/Calcutta"?'


def test_a_wall_time_is_no_instant(build: Callable[..., FeedMapping]) -> None:
    wall = INSTANT.replace("%z", "")
    with pytest.raises(MappingFileError, match="a date and time without zone does not fit here"):
        build(event=wall, top=ZONE)


@pytest.mark.parametrize("text", ["Café — “Jazz”", "Łódź, Cracóvia", "日本語 한국어", "St. Patrick’s"])
def test_mojibake_is_undone_however_often_it_happened(text: str) -> None:
    broken = text
    for _ in range(2):
        broken = "".join(
            chr(byte) if 0x80 <= byte <= 0x9F and byte in b"\x81\x8d\x8f\x90\x9d" else bytes([byte]).decode("cp1252")
            for byte in broken.encode()
        )
        assert fix_mojibake(broken) == text


@pytest.mark.parametrize("text", ["«CAFÉ»", "“MANHÔ", "Niño Ã", "naïve", "CafÃ© in Łódź", ""])
def test_a_text_that_is_not_broken_as_a_whole_is_left_alone(text: str) -> None:
    assert fix_mojibake(text) == text


def test_a_partners_word_for_nothing_counts_as_nothing(mapper: Map, row: Row) -> None:
    feed = mapper(event="locationName: {from: PLACE, do: [{empty_if: [n/a, '-'], ignore: case}, upper], on_empty: omit}")
    assert "locationName" not in event_of(feed(row(PLACE=" N/A ")))
    assert event_of(feed(row(PLACE="na rua")))["locationName"] == "NA RUA"


def test_spaces_inside_an_address_can_be_part_of_it(mapper: Map, row: Row) -> None:
    feed = mapper(event="offers: [{url: {from: LINK, do: [encode_spaces, url]}}]")
    event = event_of(feed(row(LINK=" http://example.org/my photo 1.jpg ")))
    assert event["offers"] == [{"url": "http://example.org/my%20photo%201.jpg"}]

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.event import Directory
from mappings.outcome import MappedRow, Rejection, RowLocation, SourceRow
from mappings.reasons import ReasonCode
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import parse_feed

FEED = r"""
feed: again
source: {kind: csv, path: again.csv}
key: [ID]
extra: [seats, row]
let:
  day: {from: DAY, do: [{date: "%Y-%m-%d"}], on_error: {use: "2027-01-01", warn: true}}
  clock: {from: HOUR, do: [{time: "%H:%M"}], on_empty: draft, on_error: warn}
  starts: {at: {day: $day, clock: $clock, zone: {from: ZONE}, all_day: "00:00"}}
rows:
  - explode: {columns: TIMES, by: ","}
event:
  channelId: 7
  title: {from: TITLE, do: [fix_mojibake]}
  startAt:
    choose: [{when: {column: TITLE, is: missing}, then: {at: {day: "2027-05-01", all_day: "00:00", zone: Asia/Tokyo}}}]
    otherwise: $starts
  endAt: {at: {day: $day, clock: {from: $item, do: [{time: "%H:%M"}], on_error: omit}, zone: {from: ZONE}, all_day: "23:59"}}
  timezone: {from: ZONE}
  classifications: {from: KIND, do: [{split: "/"}, {map: {music: music}, on_miss: warn}], on_empty: {use: [culture], draft: true}}
  approxLocation.city: {placeId: x}
  seats: {from: SEATS, do: [{number: ","}], on_error: draft, on_empty: omit}
  row: {meta: row}
"""
MAPPING = parse_feed(FEED, Path("again.yaml"))
LIKELY = {
    "ID": ["1", ""],
    "DAY": ["2026-03-29", "2026-06-01", "soon", ""],
    "HOUR": ["18:30", "02:30", "late", ""],
    "ZONE": ["Europe/Lisbon", "Asia/Tokyo", "CET+1"],
    "TIMES": ["19:00,21:00", "22:00", "x"],
    "TITLE": ["Jazz", "CafÃ©", ""],
    "KIND": ["music", "music/art", ""],
    "SEATS": ["12", "many", ""],
}
CELLS = st.fixed_dictionaries({name: st.sampled_from(likely) for name, likely in LIKELY.items()})


def compiled(mapping: FeedMapping = MAPPING) -> RowMapper:
    return compile_feed(mapping, Directory(), datetime(2026, 5, 1, tzinfo=UTC))


USED = compiled()


@given(st.lists(CELLS, min_size=1, max_size=4))
def test_a_mapper_that_has_seen_other_rows_makes_of_each_what_one_makes_that_has_seen_none(every: list[dict[str, str]]) -> None:
    for number, cells in enumerate(every, start=2):
        row = SourceRow(RowLocation(f"again.csv:{number}", number), cells)
        assert USED.outcomes(row) == compiled().outcomes(row)


def test_a_cell_that_is_not_there_is_empty_however_often_it_was_seen_before() -> None:
    cells = {name: likely[0] for name, likely in LIKELY.items()}
    lacking = {name: text for name, text in cells.items() if name != "ZONE"}
    for known in (cells, lacking, cells, lacking):
        row = SourceRow(RowLocation("again.csv:2", 2), known)
        assert USED.outcomes(row) == compiled().outcomes(row)


def test_a_value_that_the_service_does_not_take_is_refused_in_every_row_that_has_it() -> None:
    feed = FEED.replace("channelId: 7", 'channelId: {from: SEATS, do: [{number: ","}]}')
    mapper = compiled(parse_feed(feed, Path("again.yaml")))
    whole = {name: likely[0] for name, likely in LIKELY.items()}
    half = whole | {"SEATS": "12,5"}
    outcomes = [mapper.outcomes(SourceRow(RowLocation("x", 2), cells))[0] for cells in (half, half, whole, half)]
    assert [isinstance(outcome, MappedRow) for outcome in outcomes] == [False, False, True, False]
    told = [reason for outcome in outcomes if isinstance(outcome, Rejection) for reason in outcome.reasons]
    assert [(reason.code, reason.field) for reason in told] == [(ReasonCode.NOT_ACCEPTED, "channelId")] * 3

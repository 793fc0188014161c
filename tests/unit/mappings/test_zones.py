"""Wall times become moments: zones, changes of clocks, whole days, and ends past midnight."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.mappings.conftest import Build, Mapper, Row, event_of, mistakes, reasons_of, rejected

from mappings.compiler.mapper import RowMapper
from mappings.outcome import MappedRow, Rejection
from mappings.reasons import Refusal
from mappings.steps.text import fix_mojibake
from mappings.steps.zones import Gap, Overlap, localiser, read_zone
from mappings.zones import find_zone, zone_names

PAGE = Path(__file__).parents[3] / "docs" / "time.md"
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Change:
    """A change of clocks: the wall time in its middle that does not exist, or happens twice."""

    zone: str
    wall: str
    why: str


GAPS = (
    Change("Europe/Lisbon", "2025-03-30T01:30", "an hour in the night"),
    Change("America/New_York", "2025-03-09T02:30", "an hour in the night"),
    Change("Australia/Lord_Howe", "2025-10-05T02:15", "half an hour"),
    Change("America/Sao_Paulo", "2018-11-04T00:30", "the hour after midnight, for the last time"),
    Change("Africa/Casablanca", "2025-04-06T02:30", "summer time comes back after Ramadan"),
    Change("Asia/Tehran", "2022-03-22T00:30", "the hour after midnight, for the last time"),
    Change("Europe/Dublin", "2025-03-30T01:30", "to standard time, which is Ireland's summer"),
    Change("Pacific/Apia", "2011-12-30T12:00", "a whole day: Samoa crossed the date line"),
    Change("Antarctica/Troll", "2025-03-30T02:00", "two hours"),
)
OVERLAPS = (
    Change("Europe/Lisbon", "2025-10-26T01:30", "an hour in the night"),
    Change("America/New_York", "2025-11-02T01:30", "an hour in the night"),
    Change("Australia/Lord_Howe", "2025-04-06T01:45", "half an hour"),
    Change("America/Sao_Paulo", "2019-02-16T23:30", "the hour before midnight, for the last time"),
    Change("Africa/Casablanca", "2025-02-23T02:30", "summer time pauses for Ramadan"),
    Change("Asia/Tehran", "2022-09-21T23:30", "the hour before midnight, for the last time"),
    Change("Europe/Dublin", "2025-10-26T01:30", "from standard time"),
    Change("Antarctica/Troll", "2025-10-26T02:00", "two hours"),
)


def placed(change: Change, gap: Gap = "reject", overlap: Overlap = "earlier") -> str:
    zone = find_zone(change.zone)
    assert zone is not None
    return localiser(zone, gap, overlap)(datetime.fromisoformat(change.wall)).isoformat(timespec="minutes")


def walls_of(zone: str, around: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield what the clocks show at every minute of the two days around a wall time, with the moment."""
    place = find_zone(zone)
    begin = around.replace(tzinfo=UTC) - timedelta(days=2)
    for minute in range(4 * 24 * 60):
        moment = begin + minute * MINUTE
        shown = moment.astimezone(place)
        yield shown.replace(tzinfo=None, fold=0), shown


@pytest.mark.parametrize("change", GAPS, ids=lambda change: change.zone)
def test_a_time_in_a_gap_is_shown_by_no_clock_and_moves_by_the_length_of_the_gap(change: Change) -> None:
    wall = datetime.fromisoformat(change.wall)
    shown = list(walls_of(change.zone, wall))
    assert wall not in {clock for clock, _ in shown}
    with pytest.raises(Refusal) as refused:
        placed(change)
    assert refused.value.code == "no_such_time"
    last, first = next((one, two) for (one, _), (two, _) in pairwise(shown) if one < wall < two)
    length = first - last - MINUTE
    moments = {clock: moment.isoformat(timespec="minutes") for clock, moment in shown}
    assert placed(change, gap="later") == moments[wall + length]
    assert placed(change, gap="earlier") == moments[wall - length]


def test_the_page_about_time_shows_these_changes_as_the_code_makes_them() -> None:
    page = PAGE.read_text("utf-8")
    assert gap_table() in page
    assert overlap_table() in page


def gap_table() -> str:
    head = ["| zone | the clocks jump over | a feed says | `gap: later` | `gap: earlier` |", "|---|---|---|---|---|"]
    rows = [(each, placed(each, gap="later"), placed(each, gap="earlier")) for each in GAPS]
    return "\n".join([*head, *(f"| {e.zone} | {e.why} | {e.wall} | {later} | {earlier} |" for e, later, earlier in rows)])


def overlap_table() -> str:
    head = ["| zone | comes twice | a feed says | `overlap: earlier` | `overlap: later` |", "|---|---|---|---|---|"]
    rows = [(each, placed(each, overlap="earlier"), placed(each, overlap="later")) for each in OVERLAPS]
    return "\n".join([*head, *(f"| {e.zone} | {e.why} | {e.wall} | {first} | {second} |" for e, first, second in rows)])


@pytest.mark.parametrize(("zone", "wall"), [("Europe/Paris", "1905-01-01T12:00"), ("Africa/Monrovia", "1960-01-01T12:00")])
def test_a_time_when_a_zone_had_seconds_in_its_offset_is_refused(zone: str, wall: str) -> None:
    with pytest.raises(Refusal, match="not_a_date"):
        placed(Change(zone, wall, ""))


@pytest.mark.slow
def test_zones_come_from_the_projects_own_packages_whatever_the_machine_has() -> None:
    """A machine whose own database is missing, whose zone is odd and whose language is another reads the same."""
    code = (
        "from datetime import datetime\n"
        "from mappings.zones import find_zone\n"
        "from mappings.steps.zones import localiser\n"
        "from mappings.steps.dates import Date\n"
        "print(localiser(find_zone('Europe/Lisbon'))(datetime(2025, 7, 1, 18)).isoformat())\n"
        "print(Date(date='%d %B %Y').function()('3 May 2026'))"
    )
    odd = {"PYTHONTZPATH": "", "TZ": "Pacific/Apia", "LC_ALL": "C", "PYTHONHASHSEED": "7"}
    told = subprocess.run([sys.executable, "-c", code], env=os.environ | odd, capture_output=True, text=True, check=True)
    assert told.stdout == "2025-07-01T18:00:00+01:00\n2026-05-03\n"


def test_every_zone_of_the_database_opens_and_nothing_else_does() -> None:
    assert all(find_zone(name) is not None for name in zone_names())
    for name in ("", "europe/lisbon", "Europe", "../zones", "Europe/../Europe/Lisbon", "/etc/localtime", "EST5", "tzdata.zi"):
        assert find_zone(name) is None


DAY = "{from: DAY, do: [{date: '%Y-%m-%d'}]}"
STARTS = f"let:\n  starts: {{at: {{day: {DAY}, clock: {{from: FROM, do: [clock]}}, zone: Europe/Lisbon}}}}\n"
ENDS = """startAt: $starts
endAt:
  at: {{day: {day}, clock: {{from: TO, do: [{{clock: any, day_end: next_day}}]}}, zone: Europe/Lisbon{more}}}
"""


def ending(mapper: Mapper, more: str, day: str = DAY) -> RowMapper:
    return mapper(top=STARTS, event=ENDS.format(day=day, more=more))


def test_an_end_past_midnight_is_the_next_days_where_the_mapping_says_so(mapper: Mapper, row: Row) -> None:
    feed = ending(mapper, ", start: $starts, before_start: next_day")
    for start, end, sent in (("22", "02", "02T02"), ("20", "22", "01T22"), ("20", "20", "01T20"), ("20", "24", "02T00")):
        event = event_of(feed(row(DAY="2026-07-01", FROM=f"{start}:00", TO=f"{end}:00")))
        assert event["endAt"] == f"2026-07-{sent}:00:00+01:00"


def test_an_end_on_an_earlier_day_is_never_moved(mapper: Mapper, row: Row) -> None:
    feed = ending(mapper, ", start: $starts, before_start: next_day", day="{from: LAST, do: [{date: '%Y-%m-%d'}]}")
    outcome = feed(row(DAY="2026-07-02", LAST="2026-07-01", FROM="20:00", TO="19:00"))
    assert reasons_of(outcome) == [("endAt", "end_before_start", "TO")]


def test_an_end_past_midnight_may_fall_into_a_gap_of_the_next_night(mapper: Mapper, row: Row) -> None:
    feed = ending(mapper, ", start: $starts, before_start: next_day")
    assert reasons_of(feed(row(DAY="2026-03-28", FROM="22:00", TO="01:30"))) == [("endAt", "no_such_time", "TO")]


@pytest.mark.parametrize(("choice", "warnings", "status"), [("omit", 0, None), ("warn", 1, None), ("draft", 1, "draft")])
def test_an_end_before_the_start_may_be_dropped(mapper: Mapper, row: Row, choice: str, warnings: int, status: str | None) -> None:
    outcome = ending(mapper, f", start: $starts, before_start: {choice}")(row(DAY="2026-07-01", FROM="22:00", TO="02:00"))
    event = event_of(outcome)
    assert "endAt" not in event
    assert event.get("status") == status
    assert isinstance(outcome, MappedRow)
    assert [warning.code for warning in outcome.warnings] == ["end_before_start"] * warnings


def test_an_end_before_the_start_rejects_the_row_unless_said_otherwise(mapper: Mapper, row: Row) -> None:
    cells = {"DAY": "2026-07-01", "FROM": "22:00", "TO": "02:00"}
    assert reasons_of(ending(mapper, "")(row(**cells)))[0][:2] == ("endAt", "end_before_start")
    assert reasons_of(ending(mapper, ", start: $starts")(row(**cells))) == [("endAt", "end_before_start", "TO")]


def test_a_start_that_cannot_be_read_is_told_once(mapper: Mapper, row: Row) -> None:
    feed = ending(mapper, ", start: $starts, before_start: next_day")
    assert reasons_of(feed(row(DAY="2026-07-01", FROM="?", TO="02:00"))) == [("startAt", "not_a_time", "FROM")]


def all_day(mapper: Mapper, more: str, do: str = "{date: '%Y-%m-%d'}") -> RowMapper:
    return mapper(
        event=f"startAt: {{at: {{day: {{from: DAY, do: [{do}]}}, zone: $zone{more}}}}}", top="let: {zone: {from: ZONE}}\n"
    )


@pytest.mark.parametrize(
    ("zone", "day", "starts"),
    [
        ("Africa/Cairo", "2025-04-25", "2025-04-25T01:00:00+03:00"),
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04T01:00:00-02:00"),
        ("Pacific/Apia", "2011-12-30", "2011-12-31T00:00:00+14:00"),
        ("Africa/Cairo", "2025-04-26", "2025-04-26T00:00:00+03:00"),
    ],
)
def test_a_day_whose_midnight_the_clocks_jump_over_begins_when_they_show_a_time_again(
    mapper: Mapper, row: Row, zone: str, day: str, starts: str
) -> None:
    assert event_of(all_day(mapper, ', all_day: "00:00"')(row(DAY=day, ZONE=zone)))["startAt"] == starts


def test_midnight_at_the_end_of_a_day_is_no_stand_in_for_the_day(mapper: Mapper, row: Row) -> None:
    clock = ", clock: {from: FROM, do: [{clock: any, day_end: next_day}]}, all_day: '09:00', sentinels: '00:00'"
    feed = all_day(mapper, clock)
    assert event_of(feed(row(DAY="2026-07-01", FROM="24:00", ZONE="Europe/Lisbon")))["startAt"] == "2026-07-02T00:00:00+01:00"
    assert event_of(feed(row(DAY="2026-07-01", FROM="00:00", ZONE="Europe/Lisbon")))["startAt"] == "2026-07-01T09:00:00+01:00"


def test_days_and_clocks_may_stand_in_the_file_itself(mapper: Mapper, row: Row) -> None:
    feed = all_day(mapper, ', clock: "19:30"')
    assert event_of(feed(row(DAY="2026-07-01", ZONE="Europe/Lisbon")))["startAt"] == "2026-07-01T19:30:00+01:00"
    feed = all_day(mapper, ', clock: {from: FROM, do: [clock], on_empty: {use: "19:30", warn: true}, on_error: {use: "20:00"}}')
    for text, clock in (("", "19:30"), ("TBA", "20:00"), ("18h", "18:00")):
        outcome = feed(row(DAY="2026-07-01", FROM=text, ZONE="Europe/Lisbon"))
        assert event_of(outcome)["startAt"] == f"2026-07-01T{clock}:00+01:00"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (', clock: "7pm"', '"7pm" does not fit here'),
        (', clock: {from: FROM, do: [clock], on_empty: {use: "7pm"}}', '"7pm" cannot stand in here'),
        (', sentinels: "00:00"', "sentinels and exclusive speak of whole days"),
        (", exclusive: true", "sentinels and exclusive speak of whole days"),
        (', all_day: "00:00", before_start: omit', "before_start needs to know when the event starts"),
        (', all_day: "00:00", start: "x", before_start: next_day', "next_day is for ends that have a clock"),
        (', all_day: "00:00", start: {from: FROM}', "a text does not fit here"),
        (', all_day: "00:00", before: omit', 'unknown key "before"'),
    ],
)
def test_what_makes_no_sense_is_the_authors_mistake_with_its_place(build: Build, more: str, told: str) -> None:
    assert told in mistakes(build, event=f"startAt: {{at: {{day: {DAY}, zone: Europe/Lisbon{more}}}}}")


@pytest.mark.parametrize(
    ("do", "told"),
    [
        ("[{time: '%H:%M'}, {plus: 2h}]", 'the step "plus" cannot be used here: it works on dates'),
        ("[{plus: 2h}]", 'the step "plus" cannot be used here: it works on dates'),
        ("[{date: '%d/%m/%Y'}, {plus: 2h}]", "a date has no hours to add to"),
        ("[{date: '%d/%m/%Y'}, clock_of]", "a day alone has no time of day"),
        ("[day_of]", 'the step "day_of" cannot be used here'),
    ],
)
def test_a_step_that_cannot_work_on_what_reaches_it_is_told_before_any_row(build: Build, do: str, told: str) -> None:
    assert told in mistakes(build, event=f"locationName: {{from: PLACE, do: {do}}}")


CELLS = st.text(max_size=12) | st.sampled_from(
    ["2026-07-01", "2026-03-29", "9999-12-31", "19:00", "24:00", "7-9pm", "noon", "TBA"]
)
HARD = """startAt:
  at:
    day: {from: DAY, do: [{date: ["%Y-%m-%d", "%d %B"], year: 2026-09-01}]}
    clock: {from: FROM, do: [{clock_range: start}], on_empty: omit}
    zone: {from: ZONE, do: [zone]}
    all_day: "00:00"
    sentinels: "23:59"
endAt:
  at:
    day: {from: DAY, do: [{date_range: end, formats: "%Y-%m-%d"}]}
    clock: {from: TO, do: [{clock: any, day_end: next_day}]}
    zone: {from: ZONE, do: [zone]}
    start: {from: AT, do: [{iso: moment}]}
    before_start: next_day
  on_empty: omit
"""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(st.fixed_dictionaries(dict.fromkeys(("DAY", "FROM", "TO", "ZONE", "AT"), CELLS)))
def test_any_row_becomes_an_event_or_a_rejection(mapper: Mapper, row: Row, cells: dict[str, str]) -> None:
    feed = mapper(event=HARD)
    assert isinstance(feed(row(**cells)), MappedRow | Rejection)
    assert isinstance(feed(row(**cells | {"ZONE": "Africa/Cairo"})), MappedRow | Rejection)


STRICT = """startAt:
  at:
    day: {from: DAY, do: [{date: "%d/%m/%Y"}]}
    clock: {from: HOUR, do: [{time: "%H:%M"}], on_empty: omit}
    zone: Europe/Lisbon
    all_day: "00:00"
"""


@pytest.mark.parametrize(
    ("day", "hour", "reported"),
    [
        ("31/04/2026", "24:00", [("startAt", "not_a_date", "DAY"), ("startAt", "not_a_time", "HOUR")]),
        ("31/04/2026", "20:00", [("startAt", "not_a_date", "DAY")]),
        ("30/04/2026", "24:00", [("startAt", "not_a_time", "HOUR")]),
        ("29/03/2026", "01:30", [("startAt", "no_such_time", "HOUR")]),
        ("", "", [("startAt", "required", "DAY")]),
    ],
)
def test_a_bad_day_and_a_bad_clock_are_reported_at_once(
    mapper: Mapper, row: Row, day: str, hour: str, reported: list[tuple[str, str, str]]
) -> None:
    assert sorted(reasons_of(mapper(event=STRICT)(row(DAY=day, HOUR=hour)))) == reported


def test_a_policy_around_a_day_and_a_clock_still_decides(mapper: Mapper, row: Row) -> None:
    wall = "{at: {day: {from: DAY, do: [{date: '%d/%m/%Y'}]}, clock: {from: HOUR, do: [{time: '%H:%M'}]}, zone: Europe/Lisbon}}"
    feed = mapper(event=f"endAt: {{choose: [{{when: {{column: DAY, is: present}}, then: {wall}}}], on_error: omit}}")
    assert isinstance(feed(row(DAY="31/04/2026", HOUR="24:00")), MappedRow)


INSTANT = """
startAt: {in_zone: {moment: {from: START, do: [{datetime: "%Y-%m-%dT%H:%M:%S%z"}]}, zone: $zone}}
timezone: $zone
"""
ZONE = "let: {zone: {from: ZONE, do: [zone]}}\n"


@pytest.mark.parametrize(
    ("named", "today"),
    [
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


def test_an_instant_is_shown_by_the_clocks_of_the_rows_own_zone(mapper: Mapper, row: Row) -> None:
    feed = mapper(event=INSTANT, top=ZONE)
    event = event_of(feed(row(START="2026-07-01T18:00:00Z", ZONE="Asia/Calcutta")))
    assert (event["startAt"], event["timezone"]) == ("2026-07-01T23:30:00+05:30", "Asia/Kolkata")


def test_a_zone_that_is_none_rejects_the_row_and_names_the_column(mapper: Mapper, row: Row) -> None:
    outcome = rejected(mapper(event=INSTANT, top=ZONE)(row(START="2026-07-01T18:00:00Z", ZONE="Asia/Calcuta")))
    (reason,) = outcome.reasons
    assert (reason.code, reason.column, reason.found) == ("not_a_zone", "ZONE", "Asia/Calcuta")
    assert reason.hint == 'did you mean "Asia/Calcutta"?'


def test_a_wall_time_is_no_instant(build: Build) -> None:
    wall = INSTANT.replace("%z", "")
    assert "a date and time without zone does not fit here" in mistakes(build, event=wall, top=ZONE)


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

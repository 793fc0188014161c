from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mappings.compiler.mapper import RowMapper
from mappings.errors import MappingFileError
from mappings.outcome import MappedRow, Rejection, SourceRow
from mappings.spec.feed import FeedMapping

Map = Callable[..., RowMapper]
Row = Callable[..., SourceRow]
DAY = "{from: DAY, do: [{date: '%Y-%m-%d'}]}"
STARTS = f"let:\n  starts: {{at: {{day: {DAY}, clock: {{from: FROM, do: [clock]}}, zone: Europe/Lisbon}}}}\n"
ENDS = """startAt: $starts
endAt:
  at: {{day: {day}, clock: {{from: TO, do: [{{clock: any, day_end: next_day}}]}}, zone: Europe/Lisbon{more}}}
"""


def sent(outcome: object) -> dict[str, Any]:
    assert isinstance(outcome, MappedRow), outcome
    event: dict[str, Any] = orjson.loads(outcome.body)
    return event


def ending(mapper: Map, more: str, day: str = DAY) -> RowMapper:
    return mapper(top=STARTS, event=ENDS.format(day=day, more=more))


def codes(outcome: object) -> list[tuple[str, str, str]]:
    assert isinstance(outcome, Rejection), outcome
    return [(reason.field, reason.code, reason.column) for reason in outcome.reasons]


def test_an_end_past_midnight_is_the_next_days_where_the_mapping_says_so(mapper: Map, row: Row) -> None:
    feed = ending(mapper, ", start: $starts, before_start: next_day")
    assert sent(feed(row(DAY="2026-07-01", FROM="22:00", TO="02:00")))["endAt"] == "2026-07-02T02:00:00+01:00"
    assert sent(feed(row(DAY="2026-07-01", FROM="20:00", TO="22:00")))["endAt"] == "2026-07-01T22:00:00+01:00"
    assert sent(feed(row(DAY="2026-07-01", FROM="20:00", TO="20:00")))["endAt"] == "2026-07-01T20:00:00+01:00"
    assert sent(feed(row(DAY="2026-07-01", FROM="20:00", TO="24:00")))["endAt"] == "2026-07-02T00:00:00+01:00"


def test_an_end_on_an_earlier_day_is_never_moved(mapper: Map, row: Row) -> None:
    feed = ending(mapper, ", start: $starts, before_start: next_day", day="{from: LAST, do: [{date: '%Y-%m-%d'}]}")
    outcome = feed(row(DAY="2026-07-02", LAST="2026-07-01", FROM="20:00", TO="19:00"))
    assert codes(outcome) == [("endAt", "end_before_start", "TO")]


def test_an_end_past_midnight_may_fall_into_a_gap_of_the_next_night(mapper: Map, row: Row) -> None:
    feed = ending(mapper, ", start: $starts, before_start: next_day")
    assert codes(feed(row(DAY="2026-03-28", FROM="22:00", TO="01:30"))) == [("endAt", "no_such_time", "TO")]


@pytest.mark.parametrize(("choice", "warnings", "status"), [("omit", 0, None), ("warn", 1, None), ("draft", 1, "draft")])
def test_an_end_before_the_start_may_be_dropped(mapper: Map, row: Row, choice: str, warnings: int, status: str | None) -> None:
    outcome = ending(mapper, f", start: $starts, before_start: {choice}")(row(DAY="2026-07-01", FROM="22:00", TO="02:00"))
    event = sent(outcome)
    assert "endAt" not in event
    assert event.get("status") == status
    assert isinstance(outcome, MappedRow)
    assert [warning.code for warning in outcome.warnings] == ["end_before_start"] * warnings


def test_an_end_before_the_start_rejects_the_row_unless_said_otherwise(mapper: Map, row: Row) -> None:
    cells = {"DAY": "2026-07-01", "FROM": "22:00", "TO": "02:00"}
    assert codes(ending(mapper, "")(row(**cells)))[0][:2] == ("endAt", "end_before_start")
    assert codes(ending(mapper, ", start: $starts")(row(**cells))) == [("endAt", "end_before_start", "TO")]


def test_a_start_that_cannot_be_read_is_told_once(mapper: Map, row: Row) -> None:
    feed = ending(mapper, ", start: $starts, before_start: next_day")
    assert codes(feed(row(DAY="2026-07-01", FROM="?", TO="02:00"))) == [("startAt", "not_a_time", "FROM")]


def all_day(mapper: Map, more: str, do: str = "{date: '%Y-%m-%d'}") -> RowMapper:
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
    mapper: Map, row: Row, zone: str, day: str, starts: str
) -> None:
    assert sent(all_day(mapper, ', all_day: "00:00"')(row(DAY=day, ZONE=zone)))["startAt"] == starts


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("2026-07-01 00:01", "2026-07-01T09:00:00+01:00"),
        ("2026-07-01 23:59", "2026-07-01T09:00:00+01:00"),
        ("2026-07-01 00:02", "2026-07-01T00:02:00+01:00"),
    ],
)
def test_a_time_that_stands_for_the_whole_day_is_as_none(mapper: Map, row: Row, text: str, starts: str) -> None:
    feed = all_day(mapper, ', all_day: "09:00", sentinels: ["00:01", "23:59"]', "{datetime: '%Y-%m-%d %H:%M'}")
    assert sent(feed(row(DAY=text, ZONE="Europe/Lisbon")))["startAt"] == starts


def test_midnight_at_the_end_of_a_day_is_no_stand_in_for_the_day(mapper: Map, row: Row) -> None:
    clock = ", clock: {from: FROM, do: [{clock: any, day_end: next_day}]}, all_day: '09:00', sentinels: '00:00'"
    feed = all_day(mapper, clock)
    assert sent(feed(row(DAY="2026-07-01", FROM="24:00", ZONE="Europe/Lisbon")))["startAt"] == "2026-07-02T00:00:00+01:00"
    assert sent(feed(row(DAY="2026-07-01", FROM="00:00", ZONE="Europe/Lisbon")))["startAt"] == "2026-07-01T09:00:00+01:00"


def test_days_and_clocks_may_stand_in_the_file_itself(mapper: Map, row: Row) -> None:
    feed = all_day(mapper, ', clock: "19:30"')
    assert sent(feed(row(DAY="2026-07-01", ZONE="Europe/Lisbon")))["startAt"] == "2026-07-01T19:30:00+01:00"
    feed = all_day(mapper, ', clock: {from: FROM, do: [clock], on_empty: {use: "19:30", warn: true}, on_error: {use: "20:00"}}')
    for text, clock in (("", "19:30"), ("TBA", "20:00"), ("18h", "18:00")):
        outcome = feed(row(DAY="2026-07-01", FROM=text, ZONE="Europe/Lisbon"))
        assert sent(outcome)["startAt"] == f"2026-07-01T{clock}:00+01:00"


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
def test_what_makes_no_sense_is_the_authors_mistake_with_its_place(
    build: Callable[..., FeedMapping], more: str, told: str
) -> None:
    with pytest.raises(MappingFileError) as raised:
        build(event=f"startAt: {{at: {{day: {DAY}, zone: Europe/Lisbon{more}}}}}")
    assert told in str(raised.value)


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
def test_a_step_that_cannot_work_on_what_reaches_it_is_told_before_any_row(
    build: Callable[..., FeedMapping], do: str, told: str
) -> None:
    with pytest.raises(MappingFileError) as raised:
        build(event=f"locationName: {{from: PLACE, do: {do}}}")
    assert told in str(raised.value)


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
def test_any_row_becomes_an_event_or_a_rejection(mapper: Map, row: Row, cells: dict[str, str]) -> None:
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
    mapper: Map, row: Row, day: str, hour: str, reported: list[tuple[str, str, str]]
) -> None:
    assert sorted(codes(mapper(event=STRICT)(row(DAY=day, HOUR=hour)))) == reported


def test_a_policy_around_a_day_and_a_clock_still_decides(mapper: Map, row: Row) -> None:
    wall = "{at: {day: {from: DAY, do: [{date: '%d/%m/%Y'}]}, clock: {from: HOUR, do: [{time: '%H:%M'}]}, zone: Europe/Lisbon}}"
    feed = mapper(event=f"endAt: {{choose: [{{when: {{column: DAY, is: present}}, then: {wall}}}], on_error: omit}}")
    assert isinstance(feed(row(DAY="31/04/2026", HOUR="24:00")), MappedRow)

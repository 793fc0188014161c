from __future__ import annotations

from collections.abc import Callable

from mappings.compiler.mapper import RowMapper
from mappings.outcome import MappedRow, Rejection, SourceRow

STARTS = """startAt:
  at:
    day: {from: DAY, do: [{date: "%d/%m/%Y"}]}
    clock: {from: HOUR, do: [{time: "%H:%M"}], on_empty: omit}
    zone: Europe/Lisbon
    all_day: "00:00"
"""

Map = Callable[..., RowMapper]
Row = Callable[..., SourceRow]


def told(feed: RowMapper, row: SourceRow) -> list[tuple[str, str, str]]:
    outcome = feed(row)
    assert isinstance(outcome, Rejection)
    return sorted((str(reason.code), reason.column, reason.field) for reason in outcome.reasons)


def test_a_bad_day_and_a_bad_clock_are_told_at_once(mapper: Map, row: Row) -> None:
    assert told(mapper(event=STARTS), row(DAY="31/04/2026", HOUR="24:00")) == [
        ("not_a_date", "DAY", "startAt"),
        ("not_a_time", "HOUR", "startAt"),
    ]


def test_what_is_wrong_with_one_of_them_is_told_once(mapper: Map, row: Row) -> None:
    feed = mapper(event=STARTS)
    assert told(feed, row(DAY="31/04/2026", HOUR="20:00")) == [("not_a_date", "DAY", "startAt")]
    assert told(feed, row(DAY="30/04/2026", HOUR="24:00")) == [("not_a_time", "HOUR", "startAt")]
    assert told(feed, row(DAY="29/03/2026", HOUR="01:30")) == [("no_such_time", "HOUR", "startAt")]
    assert told(feed, row(DAY="", HOUR="")) == [("required", "DAY", "startAt")]


def test_a_policy_around_it_is_still_heard(mapper: Map, row: Row) -> None:
    wall = "{at: {day: {from: DAY, do: [{date: '%d/%m/%Y'}]}, clock: {from: HOUR, do: [{time: '%H:%M'}]}, zone: Europe/Lisbon}}"
    feed = mapper(event=f"endAt: {{choose: [{{when: {{column: DAY, is: present}}, then: {wall}}}], on_error: omit}}")
    assert isinstance(feed(row(DAY="31/04/2026", HOUR="24:00")), MappedRow)

"""Rows that stand for several events, and the order in which rules apply to rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from unit.mappings.conftest import Build, Mapper, Row, event_of, mistakes, said

from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.event import Directory
from mappings.outcome import MappedRow, Rejection, RowOutcome, Silence, Skipped, if_unknown

NOW = datetime(2026, 5, 6, 12, tzinfo=UTC)
"""A Wednesday."""
LET = """
let:
  first: {from: FIRST, do: [{date: "%Y-%m-%d"}]}
  last: {from: LAST, do: [{date: "%Y-%m-%d"}], on_empty: omit}
  clock: {from: CLOCK, do: [{time: "%H:%M"}], on_empty: omit}
  seats: {from: SEATS, do: [{number: "."}]}
rows:
"""
STARTS = 'startAt: {at: {day: $day, clock: $clock, zone: Europe/Lisbon, all_day: "00:00"}}'
RECUR = """  - recur:
      when: {column: DAYS, is: present}
      weekdays: {from: DAYS, do: [{split: ","}, {map: {SEG: MO, TER: TU, SEX: FR}}], on_empty: omit}
      from: $first
      until: $last
      except: {from: NOT, do: [{split: ";"}, {date: "%d/%m/%Y"}], on_empty: omit}
      extra: {from: ALSO, do: [{split: ";"}, {date: "%d/%m/%Y"}], on_empty: omit}
"""
HORIZON = RECUR + "      horizon: 9d\n  - window: {past: skip}\n"
NTH = "  - recur: {from: $first, until: $last, weekdays: MO, nth: {from: NTH, do: [{split: ','}]}}\n"
RRULE = "  - recur: {from: $first, until: $last, rrule: {from: RRULE}}\n"
LATE = """  - skip: {value: $day, after: "2026-05-11"}
    because: later in May
  - assert: {not: {value: $day, equals: $first}}
    message: the first day is a rehearsal
"""
EARLY = "  - skip: {value: $day, before: '2026-05-04'}\n    because: too early\n"
MAY = {"FIRST": "2026-05-04", "LAST": "2026-05-20", "DAYS": "SEG,SEX", "CLOCK": "19:30"}
YEAR = {"FIRST": "2026-05-01", "LAST": "2026-07-31"}


@pytest.fixture
def ruled(build: Build) -> Mapper:
    """Return a function from rules to a compiled feed."""

    def feed(rules: str, *, event: str = STARTS, now: datetime = NOW) -> RowMapper:
        return compile_feed(build(top=LET + rules, event=event), Directory(), now)

    return feed


def told(outcomes: Iterable[RowOutcome]) -> str:
    """Return the keys of all outcomes; what is no event, with why not."""
    each = ((outcome.row_key, said(if_unknown(outcome))) for outcome in outcomes)
    return "; ".join(key if what == "event" else f"{key} {what}" for key, what in each).replace("1|2026-", "").replace("  ", " ")


@pytest.mark.parametrize(
    ("rules", "cells", "becomes"),
    [
        (RECUR, MAY, "05-04; 05-08; 05-11; 05-15; 05-18"),
        (RECUR, MAY | {"LAST": "2026-05-08", "NOT": "04/05/2026;08/05/2026"}, "1 every day is excluded"),
        (
            RECUR,
            MAY | {"NOT": "11/05/2026;08/05/2026", "ALSO": "13/05/2026;18/05/2026;30/05/2026"},
            "05-04; 05-13; 05-15; 05-18; 05-30",
        ),
        (RECUR, MAY | {"NOT": "11/05/2026;Pfingsten"}, "1 not_a_date NOT"),
        (RECUR, MAY | {"DAYS": "SEG,DOMINGO"}, "1 not_in_lookup DAYS"),
        (RECUR, MAY | {"FIRST": "soon"}, "1 not_a_date FIRST"),
        (RECUR, MAY | {"FIRST": ""}, "1 required FIRST"),
        (RECUR, MAY | {"LAST": "2026-05-03"}, "1 end_before_start"),
        (RECUR, MAY | {"LAST": "2026-05-04", "DAYS": "TER"}, "1 no_day"),
        (RECUR, MAY | {"CLOCK": "25:00", "TITLE": ""}, "1 title required TITLE; startAt not_a_time CLOCK"),
        (
            RECUR,
            {"FIRST": "2026-03-28", "LAST": "2026-03-30", "DAYS": "SEG", "CLOCK": "01:30", "ALSO": "29/03/2026"},
            "03-29 startAt no_such_time CLOCK; 03-30",
        ),
        (HORIZON, MAY | {"LAST": ""}, "05-08; 05-11; 05-15"),
        (HORIZON, MAY | {"LAST": "2026-05-04"}, "1 already over"),
        (HORIZON, MAY | {"FIRST": "2026-09-01", "LAST": ""}, "1 beyond the horizon"),
        (RECUR + "      at_most: 2\n", MAY, "1 too_many"),
        (NTH, YEAR | {"NTH": "1,-1"}, "05-04; 05-25; 06-01; 06-29; 07-06; 07-27"),
        (NTH, YEAR | {"NTH": "6"}, "1 not_accepted"),
        (RRULE, YEAR | {"RRULE": "FREQ=WEEKLY;INTERVAL=2;BYDAY=FR;COUNT=3"}, "05-01; 05-15; 05-29"),
        (RRULE, YEAR | {"RRULE": "FREQ=HOURLY"}, "1 not_a_date"),
        (RECUR + LATE, MAY, "05-04 assertion; 05-08; 05-11; 05-15 later in May; 05-18 later in May"),
        (RECUR + LATE, MAY | {"FIRST": "soon"}, "1 not_a_date FIRST"),
        (EARLY + RECUR, MAY | {"FIRST": "2026-05-03"}, "1 too early"),
    ],
)
def test_a_row_that_recurs_is_an_event_each_day_or_says_why_not(
    rules: str, cells: dict[str, str], becomes: str, ruled: Mapper, row: Row
) -> None:
    outcomes = ruled(rules).outcomes(row(**cells))
    assert told(outcomes) == becomes
    assert {outcome.part.of for outcome in outcomes} == {len(outcomes)}
    assert all(event_of(one)["startAt"][5:10] == one.row_key[-5:] for one in outcomes if isinstance(one, MappedRow))
    if isinstance(outcomes[0], Rejection) and len(outcomes) == 1:
        assert outcomes[0].part.silence == Silence(outcomes[0].row_key)


def test_a_rolling_horizon_gives_more_days_in_later_runs_and_drops_those_that_are_over(ruled: Mapper, row: Row) -> None:
    later = ruled(HORIZON, now=NOW.replace(day=13))
    assert told(later.outcomes(row(**MAY | {"LAST": ""}))) == "05-15; 05-18; 05-22"
    assert later.days == ("2026-05-13", "2026-05-22")
    assert told(later.outcomes(row(**MAY | {"LAST": "2026-05-11"}))) == "1 already over"


def test_a_day_begins_where_the_feed_says_its_events_are(ruled: Mapper) -> None:
    assert ruled(HORIZON, now=datetime(2026, 5, 6, 23, 30, tzinfo=UTC)).days == ("2026-05-07", "2026-05-16")
    tokyo = ruled(HORIZON, event=STARTS + "\ntimezone: Asia/Tokyo", now=NOW.replace(hour=16))
    assert tokyo.days == ("2026-05-07", "2026-05-16")


@pytest.mark.parametrize("on_more", ["omit", "warn"])
def test_a_row_with_too_many_days_is_cut_where_the_file_says_so(on_more: str, ruled: Mapper, row: Row) -> None:
    outcomes = ruled(RECUR + f"      at_most: 2\n      on_more: {on_more}\n").outcomes(row(**MAY))
    assert told(outcomes) == "05-04; 05-08"
    assert outcomes[0].part.silence == Silence(outcomes[0].row_key[:1], "2026-05-08")  # type: ignore[arg-type] # a RowKey's beginning
    warned = [bool(outcome.warnings) for outcome in outcomes if isinstance(outcome, MappedRow)]
    assert warned == [on_more == "warn"] * 2


def test_a_rule_about_the_day_before_the_recurrence_looks_at_the_rows_own_day(ruled: Mapper, build: Build, row: Row) -> None:
    rules = EARLY + "  - recur: {from: $first, until: '2026-05-05'}\n"
    for first, becomes in (("2026-05-03", "1 too early"), ("2026-05-04", "05-04; 05-05"), ("soon", "1 not_a_date FIRST")):
        assert told(ruled(rules).outcomes(row(FIRST=first))) == becomes
    itself = "{choose: [{when: {column: A, is: present}, then: $day}], otherwise: $last}"
    top = LET.replace('{from: FIRST, do: [{date: "%Y-%m-%d"}]}', itself) + rules
    assert "$day cannot say on which day a recurrence begins" in mistakes(build, top=top, event=STARTS)


AT_DAY = """startAt:
  at:
    day: {from: DATES, do: [{date: "%d.%m.%Y"}]}
    clock: {from: TIMES, do: [{time: "%H:%M"}], on_empty: omit}
    zone: Europe/Lisbon
    all_day: "00:00"
"""
OBJECTS = AT_DAY.replace("{from: DATES,", "{from: DATES.on,") + "locationName: {from: DATES.hall.name}"
CELL = '[{"id": 7, "on": "03.05.2026", "hall": {"name": "Blue"}}, {"id": 8, "on": "04.05.2026", "hall": {"name": "Red"}}]'
THREE = "01.05.2026;02.05.2026;03.05.2026"
LISTS = '{columns: DATES, by: ";"}'
BOTH = '{columns: [DATES, TIMES], by: ["|", ";"]}'
JSON = "{columns: DATES, json: true}"


@pytest.mark.parametrize(
    ("rule", "cells", "becomes"),
    [
        (LISTS, {"DATES": "03.05.2026; 04.05.2026;"}, "1|03.05.2026; 1|04.05.2026"),
        (LISTS, {"DATES": "03.05.2026;4.6E+11"}, "1 bad_key DATES"),
        (LISTS, {"DATES": "soon;x"}, "1 startAt not_a_date DATES; startAt not_a_date DATES"),
        (LISTS, {"DATES": "soon;03.05.2026"}, "1|soon startAt not_a_date DATES; 1|03.05.2026"),
        (LISTS, {"DATES": "03.05.2026;04.05.2026", "ID": "9.18E+11"}, " bad_key ID"),
        ('{columns: DATES, by: ";", at_most: 2}', {"DATES": THREE}, "1 too_many DATES"),
        ('{columns: ALSO, by: ";"}', {"DATES": "03.05.2026", "ALSO": ""}, "1"),
        (BOTH, {"DATES": "03.05.2026|03.05.2026", "TIMES": "15:00|20:00"}, "1|03.05.2026|15:00; 1|03.05.2026|20:00"),
        (BOTH, {"DATES": "03.05.2026;04.05.2026", "TIMES": "15:00"}, "1|03.05.2026|15:00; 1|04.05.2026|15:00"),
        (BOTH, {"DATES": THREE, "TIMES": "15:00;16:00"}, "1 uneven TIMES"),
        (
            '{columns: [DATES, TIMES], by: ";", key: DATES}',
            {"DATES": "03.05.2026;04.05.2026", "TIMES": "15:00;20:00"},
            "1|03.05.2026; 1|04.05.2026",
        ),
        (JSON, {"DATES": '["03.05.2026", null, "04.05.2026"]'}, "1|03.05.2026; 1|04.05.2026"),
        (JSON, {"DATES": '[{"on": "03.05.2026"}]'}, "1 bad_key DATES"),
        *[(JSON, {"DATES": cell}, "1 bad_text DATES") for cell in ("{}", "3", "[1", '"x"', "[" * 2000, "nonsense")],
    ],
)
def test_a_row_that_carries_lists_is_an_event_of_each_item_or_says_why_not(
    rule: str, cells: dict[str, str], becomes: str, ruled: Mapper, row: Row
) -> None:
    mapper = ruled(f"  - explode: {rule}\n", event=AT_DAY)
    outcomes = mapper.outcomes(row(**cells))
    assert told(outcomes) == becomes
    for outcome in outcomes:
        if isinstance(outcome, MappedRow):
            assert event_of(outcome)["startAt"][8:10] == outcome.row_key[2:4] or "ALSO" in rule
            assert outcome.cells["DATES"] == cells["DATES"]


def test_a_json_array_is_one_event_for_each_object(ruled: Mapper, row: Row) -> None:
    mapper = ruled("  - explode: {columns: DATES, json: true, key: DATES.id}\n", event=OBJECTS)
    outcomes = mapper.outcomes(row(DATES=CELL))
    assert told(outcomes) == "1|7; 1|8"
    assert [said(outcome, "locationName") for outcome in outcomes] == ["Blue", "Red"]
    assert mapper.columns >= {"ID", "TITLE", "DATES", "TIMES"}
    (twice,) = mapper.outcomes(row(DATES='[{"id": 7, "id": 8}]'))
    assert isinstance(twice, Rejection)
    assert 'the name "id" stands twice' in twice.reasons[0].hint
    assert 'the name "id" stands twice' not in str(mapper.outcomes(row(DATES='[{"id": 7, "id": 7}]')))


def test_each_item_may_have_days_of_its_own(ruled: Mapper, row: Row) -> None:
    rules = '  - explode: {columns: HALLS, by: ";"}\n  - recur: {from: "2026-05-04", until: "2026-05-05"}\n'
    outcomes = ruled(rules, event=STARTS + "\nlocationName: $item").outcomes(row(HALLS="Blue;Red"))
    assert told(outcomes) == "1|Blue|2026-05-04; 1|Blue|2026-05-05; 1|Red|2026-05-04; 1|Red|2026-05-05"
    assert [said(outcome, "locationName") for outcome in outcomes] == ["Blue", "Blue", "Red", "Red"]


SKIP = "  - skip: {column: KIND, equals: online}\n    because: online only\n"
ASSERT = "  - assert: {column: PRICE, is: present}\n    message: a price is needed\n"
CANCELLED = "  - cancelled: {column: KIND, equals: 'off'}\n"
WINDOW = "  - window: {past: skip, horizon: 30d}\n"
KEPT = "  - window: {past: keep, horizon: 30d}\n"
FULL = "  - skip: {value: $seats, less: '1'}\n    because: sold out\n"
OVER, LATER = "2026-04-10T18:00:00+00:00", "2026-05-10T18:00:00+00:00"
ENDED = "2026-04-10T20:00:00+00:00"


@pytest.mark.parametrize(
    ("rules", "cells", "becomes"),
    [
        (SKIP + ASSERT, {"KIND": "online"}, "online only"),
        (ASSERT + SKIP, {"KIND": "online"}, "assertion PRICE"),
        (ASSERT + SKIP, {"KIND": "online", "PRICE": "5"}, "online only"),
        (CANCELLED + ASSERT, {"KIND": "off"}, "cancelled"),
        (ASSERT + CANCELLED, {"KIND": "off"}, "assertion PRICE"),
        (WINDOW + ASSERT, {"START": OVER}, "already over"),
        (ASSERT + WINDOW, {"START": OVER}, "assertion PRICE"),
        (WINDOW + SKIP, {"START": OVER, "KIND": "online"}, "online only"),
        (FULL + SKIP, {"KIND": "online", "SEATS": "many"}, "not_a_number SEATS"),
        (SKIP + FULL, {"KIND": "online", "SEATS": "many"}, "online only"),
        (WINDOW, {}, ""),
        (WINDOW, {"END": ENDED}, "endAt end_before_start END"),
        (WINDOW, {"START": OVER, "END": "2026-04-09T20:00:00+00:00"}, "endAt end_before_start END"),
        (WINDOW, {"START": OVER, "END": "soon"}, "endAt not_a_date END"),
        (WINDOW, {"START": OVER, "END": "2026-04-10T20:00:00"}, "endAt not_a_date END"),
        (WINDOW, {"START": "soon", "END": ENDED}, "startAt not_a_date START"),
        (WINDOW, {"START": OVER, "TITLE": ""}, "already over"),
        (WINDOW, {"START": OVER, "END": ENDED}, "already over"),
        (KEPT, {"START": "2026-09-01T18:00:00+00:00", "END": "soon"}, "beyond the horizon"),
    ],
)
def test_the_first_rule_that_rejects_a_row_or_leaves_it_out_decides(
    rules: str, cells: dict[str, str], becomes: str, ruled: Mapper, row: Row
) -> None:
    feed = ruled(rules, event="startAt: {from: START}\nendAt: {from: END, on_empty: omit}")
    assert told([feed(row(**{"START": LATER} | cells))]) == f"1 {becomes}".strip()


def test_days_outside_the_window_are_compared_by_their_own_keys(ruled: Mapper, row: Row) -> None:
    mapper = ruled("  - explode: {columns: DATES, by: ';'}\n" + WINDOW, event=AT_DAY)
    outcomes = mapper.outcomes(row(DATES="10.04.2026;11.04.2026"))
    assert [(outcome.row_key, outcome.outside) for outcome in outcomes if isinstance(outcome, MappedRow)] == [
        ("1|10.04.2026", "already over"),
        ("1|11.04.2026", "already over"),
    ]
    assert [outcome.part.is_further for outcome in outcomes] == [False, True]
    assert all(isinstance(if_unknown(outcome), Skipped) for outcome in outcomes)

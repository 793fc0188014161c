"""Rows that stand for several events, and the order in which rules apply to rows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from unit.mappings.conftest import Build, Mapper, Row

from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.errors import MappingFileError
from mappings.event import Directory
from mappings.outcome import MappedRow, Rejection, RowOutcome, Silence, Skipped, if_unknown
from mappings.reasons import ReasonCode

NOW = datetime(2026, 5, 6, 12, tzinfo=UTC)
"""A Wednesday."""
PARTNER = """
let:
  first: {from: FIRST, do: [{date: "%Y-%m-%d"}]}
  last: {from: LAST, do: [{date: "%Y-%m-%d"}], on_empty: omit}
  clock: {from: CLOCK, do: [{time: "%H:%M"}], on_empty: omit}
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


@pytest.fixture
def recurring(build: Build) -> Mapper:
    """Return a function to a feed whose rows recur."""

    def feed(more: str = "", *, rules: str = RECUR, event: str = STARTS, now: datetime | None = NOW) -> RowMapper:
        return compile_feed(build(top=PARTNER + rules + more, event=event), Directory(), now)

    return feed


def keys(outcomes: Iterable[RowOutcome]) -> list[str]:
    return [outcome.row_key for outcome in outcomes]


def events(outcomes: Iterable[RowOutcome]) -> list[dict[str, Any]]:
    return [orjson.loads(outcome.body) for outcome in outcomes if isinstance(outcome, MappedRow)]


def starts(outcomes: Iterable[RowOutcome]) -> list[str]:
    return [event["startAt"][:16] for event in events(outcomes)]


def refused(outcomes: Iterable[RowOutcome]) -> list[tuple[ReasonCode, str, str]]:
    (outcome,) = outcomes
    assert isinstance(outcome, Rejection), outcome
    return [(reason.code, reason.column, reason.found) for reason in outcome.reasons]


MAY = {"FIRST": "2026-05-04", "LAST": "2026-05-20", "DAYS": "SEG,SEX", "CLOCK": "19:30"}


def test_exclusions_and_extra_days_change_nothing_about_the_other_days(recurring: Mapper, row: Row) -> None:
    mapper = recurring()
    usual = {outcome.row_key: outcome for outcome in mapper.outcomes(row(**MAY))}
    edited = mapper.outcomes(row(**MAY, NOT="11/05/2026;08/05/2026", ALSO="13/05/2026;18/05/2026;30/05/2026"))
    assert keys(edited) == [f"1|2026-05-{day}" for day in ("04", "13", "15", "18", "30")]
    kept = [outcome for outcome in edited if outcome.row_key in usual]
    assert [outcome.body for outcome in kept] == [usual[outcome.row_key].body for outcome in kept]  # type: ignore[union-attr] # events


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ({"NOT": "11/05/2026;Pfingsten"}, [(ReasonCode.NOT_A_DATE, "NOT", "Pfingsten")]),
        ({"DAYS": "SEG,DOMINGO"}, [(ReasonCode.NOT_IN_LOOKUP, "DAYS", "DOMINGO")]),
        ({"FIRST": "soon"}, [(ReasonCode.NOT_A_DATE, "FIRST", "soon")]),
        ({"FIRST": ""}, [(ReasonCode.REQUIRED, "FIRST", "")]),
        ({"LAST": "2026-05-03"}, [(ReasonCode.END_BEFORE_START, "", "2026-05-03")]),
        ({"LAST": "2026-05-04", "DAYS": "TER"}, [(ReasonCode.NO_DAY, "", "")]),
        ({"CLOCK": "25:00", "TITLE": ""}, [(ReasonCode.REQUIRED, "TITLE", ""), (ReasonCode.NOT_A_TIME, "CLOCK", "25:00")]),
    ],
)
def test_a_row_whose_days_cannot_be_told_is_rejected_once_and_its_events_are_not_taken_for_gone(
    cells: dict[str, str], told: list[tuple[ReasonCode, str, str]], recurring: Mapper, row: Row
) -> None:
    outcomes = recurring().outcomes(row(**MAY | cells))
    assert refused(outcomes) == told
    assert outcomes[0].row_key == "1"
    assert outcomes[0].part.silence == Silence(outcomes[0].row_key)


def test_a_day_that_cannot_be_is_rejected_alone(recurring: Mapper, row: Row) -> None:
    outcomes = recurring().outcomes(row(FIRST="2026-03-28", LAST="2026-03-30", DAYS="SEG", CLOCK="01:30", ALSO="29/03/2026"))
    assert [type(outcome).__name__ for outcome in outcomes] == ["Rejection", "MappedRow"]
    assert keys(outcomes) == ["1|2026-03-29", "1|2026-03-30"]
    assert [outcome.part.of for outcome in outcomes] == [2, 2]


HORIZON = RECUR + "      horizon: 9d\n  - window: {past: skip}\n"


def test_a_rolling_horizon_gives_more_days_in_later_runs_and_drops_those_that_are_over(recurring: Mapper, row: Row) -> None:
    endless = row(**MAY | {"LAST": ""})
    first, later = (recurring(rules=HORIZON, now=NOW.replace(day=day)) for day in (6, 13))
    assert keys(first.outcomes(endless)) == ["1|2026-05-08", "1|2026-05-11", "1|2026-05-15"]
    assert keys(later.outcomes(endless)) == ["1|2026-05-15", "1|2026-05-18", "1|2026-05-22"]
    assert later.days == ("2026-05-13", "2026-05-22")
    long_over = later.outcomes(row(**MAY | {"LAST": "2026-05-11"}))
    assert [(outcome.because, outcome.row_key) for outcome in long_over if isinstance(outcome, Skipped)] == [
        ("already over", "1")
    ]
    too_far = later.outcomes(row(**MAY | {"FIRST": "2026-09-01", "LAST": ""}))
    assert [outcome.because for outcome in too_far if isinstance(outcome, Skipped)] == ["beyond the horizon"]


def test_a_day_begins_where_the_feed_says_its_events_are(recurring: Mapper) -> None:
    late = datetime(2026, 5, 6, 23, 30, tzinfo=UTC)
    assert recurring(rules=HORIZON, now=late).days == ("2026-05-07", "2026-05-16")
    tokyo = recurring(rules=HORIZON, event=STARTS + "\ntimezone: Asia/Tokyo", now=NOW.replace(hour=16))
    assert tokyo.days == ("2026-05-07", "2026-05-16")


@pytest.mark.parametrize(
    ("on_more", "days"),
    [("omit", ["1|2026-05-04", "1|2026-05-08"]), ("warn", ["1|2026-05-04", "1|2026-05-08"]), ("reject", ["1"])],
)
def test_a_row_with_too_many_days_is_rejected_unless_the_file_says_to_cut_it(
    on_more: str, days: list[str], recurring: Mapper, row: Row
) -> None:
    outcomes = recurring(f"      at_most: 2\n      on_more: {on_more}\n").outcomes(row(**MAY))
    assert keys(outcomes) == days
    if on_more == "reject":
        assert refused(outcomes) == [(ReasonCode.TOO_MANY, "", "more than 2")]
    else:
        assert outcomes[0].part.silence == Silence(outcomes[0].row_key[:1], "2026-05-08")  # type: ignore[arg-type] # a RowKey's beginning
        warned = [bool(outcome.warnings) for outcome in outcomes if isinstance(outcome, MappedRow)]
        assert warned == [on_more == "warn"] * 2


def test_every_day_excluded_is_left_out_and_said(recurring: Mapper, row: Row) -> None:
    (outcome,) = recurring().outcomes(row(**MAY | {"LAST": "2026-05-08"}, NOT="04/05/2026;08/05/2026"))
    assert isinstance(outcome, Skipped)
    assert outcome.because == "every day is excluded"


def test_the_nth_weekday_of_a_month_and_a_rule_of_calendars(recurring: Mapper, row: Row) -> None:
    nth = "  - recur: {from: $first, until: $last, weekdays: MO, nth: {from: NTH, do: [{split: ','}]}}\n"
    year = {"FIRST": "2026-05-01", "LAST": "2026-07-31"}
    assert keys(recurring(rules=nth).outcomes(row(**year, NTH="1,-1"))) == [
        f"1|2026-{day}" for day in ("05-04", "05-25", "06-01", "06-29", "07-06", "07-27")
    ]
    assert refused(recurring(rules=nth).outcomes(row(**year, NTH="6"))) == [(ReasonCode.NOT_ACCEPTED, "", "6")]
    rule = "  - recur: {from: $first, until: $last, rrule: {from: RRULE}}\n"
    found = recurring(rules=rule).outcomes(row(**year, RRULE="FREQ=WEEKLY;INTERVAL=2;BYDAY=FR;COUNT=3"))
    assert keys(found) == ["1|2026-05-01", "1|2026-05-15", "1|2026-05-29"]
    assert refused(recurring(rules=rule).outcomes(row(**year, RRULE="FREQ=HOURLY")))[0][0] is ReasonCode.NOT_A_DATE


def test_rules_after_the_recurrence_look_at_each_day(recurring: Mapper, row: Row) -> None:
    more = """  - skip: {value: $day, after: "2026-05-11"}
    because: later in May
  - assert: {not: {value: $day, equals: $first}}
    message: the first day is a rehearsal
"""
    outcomes = recurring(more).outcomes(row(**MAY))
    kinds = ["Rejection", "MappedRow", "MappedRow", "Skipped", "Skipped"]
    assert [type(outcome).__name__ for outcome in outcomes] == kinds


LISTS = 'let: {day: {from: DATES, do: [{date: "%d.%m.%Y"}]}}\nrows:\n'
AT_DAY = """startAt:
  at: {day: $day, clock: {from: TIMES, do: [{time: "%H:%M"}], on_empty: omit}, zone: Europe/Lisbon, all_day: "00:00"}"""


@pytest.fixture
def exploding(build: Build) -> Mapper:
    """Return a function to a feed whose rows carry lists."""

    def feed(rule: str, event: str = AT_DAY) -> RowMapper:
        return compile_feed(build(top=f"{LISTS}  - explode: {rule}\n", event=event), Directory(), NOW)

    return feed


def test_a_list_of_dates_is_one_event_each_told_apart_by_the_date_itself(exploding: Mapper, row: Row) -> None:
    mapper = exploding('{columns: DATES, by: ";"}')
    outcomes = mapper.outcomes(row(DATES="03.05.2026; 04.05.2026;"))
    assert (keys(outcomes), starts(outcomes)) == (["1|03.05.2026", "1|04.05.2026"], ["2026-05-03T00:00", "2026-05-04T00:00"])
    turned = {outcome.row_key: outcome for outcome in mapper.outcomes(row(DATES="04.05.2026;03.05.2026"))}
    assert [turned[outcome.row_key].body for outcome in outcomes] == [outcome.body for outcome in outcomes]  # type: ignore[union-attr] # events
    assert outcomes[0].cells["DATES"] == "03.05.2026; 04.05.2026;"  # type: ignore[union-attr] # an event has cells
    assert keys(mapper.outcomes(row(DATES="03.05.2026"))) == ["1|03.05.2026"]


def test_lists_that_belong_together_go_item_by_item_and_one_item_holds_for_all(exploding: Mapper, row: Row) -> None:
    mapper = exploding('{columns: [DATES, TIMES], by: ["|", ";"]}')
    both = mapper.outcomes(row(DATES="03.05.2026|03.05.2026", TIMES="15:00|20:00"))
    assert keys(both) == ["1|03.05.2026|15:00", "1|03.05.2026|20:00"]
    assert starts(mapper.outcomes(row(DATES="03.05.2026;04.05.2026", TIMES="15:00"))) == ["2026-05-03T15:00", "2026-05-04T15:00"]
    uneven = refused(mapper.outcomes(row(DATES="03.05.2026;04.05.2026;05.05.2026", TIMES="15:00;16:00")))
    assert uneven == [(ReasonCode.UNEVEN, "TIMES", "2 items")]
    by_date = exploding('{columns: [DATES, TIMES], by: ";", key: DATES}')
    assert keys(by_date.outcomes(row(DATES="03.05.2026;04.05.2026", TIMES="15:00;20:00"))) == ["1|03.05.2026", "1|04.05.2026"]


def test_an_item_in_which_a_name_stands_twice_and_says_different_things_rejects_its_row(exploding: Mapper, row: Row) -> None:
    objects = exploding("{columns: DATES, json: true, key: DATES.id}")
    (told,) = objects.outcomes(row(DATES='[{"id": 7, "id": 8}]'))
    assert isinstance(told, Rejection)
    assert 'the name "id" stands twice' in told.reasons[0].hint
    assert refused(objects.outcomes(row(DATES='[{"id": 7, "id": 7}]'))) != refused([told])


def test_a_json_array_is_one_event_for_each_text_or_object(exploding: Mapper, row: Row) -> None:
    texts = exploding("{columns: DATES, json: true}")
    assert keys(texts.outcomes(row(DATES='["03.05.2026", null, "04.05.2026"]'))) == ["1|03.05.2026", "1|04.05.2026"]
    on = AT_DAY.replace("$day", '{from: DATES.on, do: [{date: "%d.%m.%Y"}]}')
    objects = exploding("{columns: DATES, json: true, key: DATES.id}", on + "\nlocationName: {from: DATES.hall.name}")
    cell = '[{"id": 7, "on": "03.05.2026", "hall": {"name": "Blue"}}, {"id": 8, "on": "04.05.2026", "hall": {"name": "Red"}}]'
    outcomes = objects.outcomes(row(DATES=cell))
    assert (keys(outcomes), [event["locationName"] for event in events(outcomes)]) == (["1|7", "1|8"], ["Blue", "Red"])
    assert objects.columns == {"ID", "TITLE", "DATES", "TIMES"}


@pytest.mark.parametrize("cell", ["{}", "3", "[1", '"x"', "[" * 2000, "nonsense"])
def test_what_is_no_json_array_is_refused(cell: str, exploding: Mapper, row: Row) -> None:
    (told,) = refused(exploding("{columns: DATES, json: true}").outcomes(row(DATES=cell)))
    assert told[:2] == (ReasonCode.BAD_TEXT, "DATES")


def test_objects_without_a_key_and_mangled_items_are_refused(exploding: Mapper, row: Row) -> None:
    objects = exploding("{columns: DATES, json: true}").outcomes(row(DATES='[{"on": "03.05.2026"}]'))
    assert refused(objects)[0][:2] == (ReasonCode.BAD_KEY, "DATES")
    mangled = exploding('{columns: DATES, by: ";"}').outcomes(row(DATES="03.05.2026;4.6E+11"))
    assert refused(mangled)[0] == (ReasonCode.BAD_KEY, "DATES", "4.6E+11")
    many = exploding('{columns: DATES, by: ";", at_most: 2}').outcomes(row(DATES="01.05.2026;02.05.2026;03.05.2026"))
    assert refused(many) == [(ReasonCode.TOO_MANY, "DATES", "3")]


def test_a_row_without_a_list_is_one_event_under_its_own_key(build: Build, row: Row) -> None:
    top = f"{LISTS}  - explode: {{columns: ALSO, by: ';'}}\n"
    mapper = compile_feed(build(top=top, event=AT_DAY + "\nlocationName: {from: ALSO, on_empty: omit}"), Directory())
    assert keys(mapper.outcomes(row(DATES="03.05.2026", ALSO=""))) == ["1"]


def test_all_bad_items_of_a_row_are_told_in_one_rejection(exploding: Mapper, row: Row) -> None:
    mapper = exploding('{columns: DATES, by: ";"}')
    told = refused(mapper.outcomes(row(DATES="soon;later", TITLE="")))
    assert told == [
        (ReasonCode.REQUIRED, "TITLE", ""),
        (ReasonCode.NOT_A_DATE, "DATES", "soon"),
        (ReasonCode.NOT_A_DATE, "DATES", "later"),
    ]
    mixed = mapper.outcomes(row(DATES="soon;03.05.2026"))
    assert [type(outcome).__name__ for outcome in mixed] == ["Rejection", "MappedRow"]
    assert keys(mapper.outcomes(row(ID="9.18E+11", DATES="03.05.2026;04.05.2026"))) == [""]


def test_each_item_may_have_days_of_its_own(build: Build, row: Row) -> None:
    top = """rows:
  - explode: {columns: HALLS, by: ";"}
  - recur: {from: "2026-05-04", until: "2026-05-05"}
"""
    event = 'startAt: {at: {day: $day, zone: Europe/Lisbon, all_day: "20:00"}}\nlocationName: $item'
    mapper = compile_feed(build(top=top, event=event), Directory(), NOW)
    outcomes = mapper.outcomes(row(HALLS="Blue;Red"))
    assert keys(outcomes) == ["1|Blue|2026-05-04", "1|Blue|2026-05-05", "1|Red|2026-05-04", "1|Red|2026-05-05"]
    assert [event["locationName"] for event in events(outcomes)] == ["Blue", "Blue", "Red", "Red"]


JULY = datetime(2026, 7, 1, tzinfo=UTC)
START_AND_END = "startAt: {from: START}\nendAt: {from: END, on_empty: omit}"
SKIP = "  - skip: {column: KIND, equals: online}\n    because: online only\n"
ASSERT = "  - assert: {column: PRICE, is: present}\n    message: a price is needed\n"
CANCELLED = "  - cancelled: {column: KIND, equals: 'off'}\n"
WINDOW = "  - window: {past: skip, horizon: 30d}\n"


@pytest.fixture
def ruled(build: Build) -> Mapper:
    """Return a function from rules to a compiled feed."""

    def feed(rules: str, *, let: str = "", event: str = START_AND_END) -> RowMapper:
        return compile_feed(build(top=f"{let}rows:\n{rules}", event=event), Directory(), JULY)

    return feed


def told(outcome: RowOutcome) -> str:
    """Return the rule's label of a row that is left out, or the codes of a rejected one."""
    match if_unknown(outcome):
        case Skipped() as skipped:
            return skipped.because
        case Rejection() as rejection:
            return " ".join(reason.code for reason in rejection.reasons)
        case _:
            return "event"


LATER = {"START": "2026-07-10T18:00:00+00:00"}
OVER = {"START": "2026-06-10T18:00:00+00:00"}


@pytest.mark.parametrize(
    ("rules", "cells", "becomes"),
    [
        (SKIP + ASSERT, {"KIND": "online"}, "online only"),
        (ASSERT + SKIP, {"KIND": "online"}, "assertion"),
        (ASSERT + SKIP, {"KIND": "online", "PRICE": "5"}, "online only"),
        (CANCELLED + ASSERT, {"KIND": "off"}, "cancelled"),
        (ASSERT + CANCELLED, {"KIND": "off"}, "assertion"),
        (WINDOW + ASSERT, OVER, "already over"),
        (ASSERT + WINDOW, OVER, "assertion"),
        (WINDOW + SKIP, {**OVER, "KIND": "online"}, "online only"),
    ],
)
def test_the_first_rule_that_rejects_a_row_or_leaves_it_out_decides(
    rules: str, cells: dict[str, str], becomes: str, ruled: Mapper, row: Row
) -> None:
    assert told(ruled(rules)(row(**LATER | cells))) == becomes


def test_a_value_that_a_rule_cannot_read_rejects_the_row_and_no_later_rule_leaves_it_out(ruled: Mapper, row: Row) -> None:
    let = 'let: {seats: {from: SEATS, do: [{number: "."}]}}\n'
    full = "  - skip: {value: $seats, less: '1'}\n    because: sold out\n"
    assert told(ruled(full + SKIP, let=let)(row(**LATER, KIND="online", SEATS="many"))) == "not_a_number"
    assert told(ruled(SKIP + full, let=let)(row(**LATER, KIND="online", SEATS="many"))) == "online only"


@pytest.mark.parametrize(
    ("cells", "becomes"),
    [
        ({**LATER, "END": "2026-06-10T20:00:00+00:00"}, "end_before_start"),
        ({**OVER, "END": "2026-06-09T20:00:00+00:00"}, "end_before_start"),
        ({**OVER, "END": "soon"}, "not_a_date"),
        ({**OVER, "END": "2026-06-10T20:00:00"}, "not_a_date"),
        ({"START": "soon", "END": "2026-06-10T20:00:00+00:00"}, "not_a_date"),
        ({**OVER, "TITLE": ""}, "already over"),
        ({**OVER, "END": "2026-06-10T20:00:00+00:00"}, "already over"),
    ],
)
def test_the_window_leaves_no_row_out_whose_times_cannot_be_read(
    cells: dict[str, str], becomes: str, ruled: Mapper, row: Row
) -> None:
    assert told(ruled(WINDOW)(row(**cells))) == becomes


def test_a_window_that_does_not_look_at_the_end_leaves_out_what_is_too_far_ahead(ruled: Mapper, row: Row) -> None:
    window = "  - window: {past: keep, horizon: 30d}\n"
    assert told(ruled(window)(row(START="2026-09-01T18:00:00+00:00", END="soon"))) == "beyond the horizon"


LET = 'let: {first: {from: FIRST, do: [{date: "%Y-%m-%d"}]}}\n'
RECURS = "  - recur: {from: $first, until: '2026-07-12'}\n"
EARLY = "  - skip: {value: $day, before: '2026-07-11'}\n    because: too early\n"
AT = 'startAt: {at: {day: $day, zone: Europe/Lisbon, all_day: "20:00"}}'


def test_a_rule_about_the_day_hides_no_unreadable_recurrence(ruled: Mapper, row: Row) -> None:
    mapper = ruled(RECURS + EARLY, let=LET, event=AT)
    (outcome,) = mapper.outcomes(row(FIRST="soon"))
    assert told(outcome) == "not_a_date"
    assert [told(each) for each in mapper.outcomes(row(FIRST="2026-07-10"))] == ["too early", "event", "event"]


def test_a_rule_about_the_day_before_the_recurrence_looks_at_the_rows_own_day(ruled: Mapper, row: Row) -> None:
    mapper = ruled(EARLY + RECURS, let=LET, event=AT)
    assert [told(each) for each in mapper.outcomes(row(FIRST="2026-07-10"))] == ["too early"]
    assert [told(each) for each in mapper.outcomes(row(FIRST="2026-07-11"))] == ["event", "event"]
    (unreadable,) = mapper.outcomes(row(FIRST="soon"))
    assert isinstance(unreadable, Rejection)
    assert [reason.code for reason in unreadable.reasons] == [ReasonCode.NOT_A_DATE]


def test_a_recurrence_cannot_begin_on_a_day_that_it_gives_itself(ruled: Mapper) -> None:
    let = (
        'let: {first: {choose: [{when: {column: A, is: present}, then: $day}], otherwise: {from: B, do: [{date: "%Y-%m-%d"}]}}}\n'
    )
    with pytest.raises(MappingFileError, match=r"\$day cannot say on which day a recurrence begins"):
        ruled(EARLY + RECURS, let=let, event=AT)


def test_days_outside_the_window_are_compared_by_their_own_keys(ruled: Mapper, row: Row) -> None:
    explode = "  - explode: {columns: DATES, by: ';'}\n" + WINDOW
    event = 'startAt: {at: {day: {from: DATES, do: [{date: "%Y-%m-%d"}]}, zone: Europe/Lisbon, all_day: "20:00"}}'
    outcomes = ruled(explode, event=event).outcomes(row(DATES="2026-06-10;2026-06-11"))
    assert [(outcome.row_key, outcome.outside) for outcome in outcomes if isinstance(outcome, MappedRow)] == [
        ("1|2026-06-10", "already over"),
        ("1|2026-06-11", "already over"),
    ]
    assert [outcome.part.is_further for outcome in outcomes] == [False, True]

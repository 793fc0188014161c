"""Rows that stand for several events, rows of one key, and the order in which rules apply."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
import yaml
from pydantic import Field, TypeAdapter, ValidationError
from unit.mappings.conftest import Build, Mapper, Row, cases, cells_of, event_of, mistakes, rejected, said

from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.compiler.rows import TooManyHeldError, row_groups
from mappings.errors import ConfigError
from mappings.event import Directory, refusals
from mappings.outcome import Absorbed, MappedRow, Rejection, RowLocation, RowOutcome, Silence, Skipped, SourceRow, if_unknown
from mappings.row_key import RowKey
from mappings.sentences import Words

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
LATE = """  - skip: {value: $day, after: "2026-05-11"}
    because: later in May
  - assert: {not: {value: $day, equals: $first}}
    message: the first day is a rehearsal
"""
EARLY = "  - skip: {value: $day, before: '2026-05-04'}\n    because: too early\n"
WINDOW = "  - window: {past: skip, horizon: 30d}\n"
MOMENTS = """  - recur:
      from: {at: {day: $first, clock: "18:00", zone: Europe/Lisbon}}
      rrule: {from: RRULE}
      except: {from: NOT, do: [{iso: moment}], on_empty: omit}
      extra: {from: ALSO, do: [{iso: moment}], on_empty: omit}
      horizon: 400d
"""
RULES = {
    "recur": RECUR,
    "horizon": HORIZON,
    "at_most": RECUR + "      at_most: 2\n",
    "nth": "  - recur: {from: $first, until: $last, weekdays: MO, nth: {from: NTH, do: [{split: ','}]}}\n",
    "rrule": "  - recur: {from: $first, until: $last, rrule: {from: RRULE}}\n",
    "moments": MOMENTS,
    "late": RECUR + LATE,
    "early": EARLY + RECUR,
    "skip": "  - skip: {column: KIND, equals: online}\n    because: online only\n",
    "assert": "  - assert: {column: PRICE, is: present}\n    message: a price is needed\n",
    "cancelled": "  - cancelled: {column: KIND, equals: 'off'}\n",
    "window": WINDOW,
    "kept": "  - window: {past: keep, horizon: 30d}\n",
    "full": "  - skip: {value: $seats, less: '1'}\n    because: sold out\n",
}
MAY = {"FIRST": "2026-05-04", "LAST": "2026-05-20", "DAYS": "SEG,SEX", "CLOCK": "19:30"}


@pytest.fixture
def ruled(build: Build) -> Mapper:
    """Return a function from rules to a compiled feed."""

    def feed(rules: str, *, event: str = STARTS, now: datetime = NOW) -> RowMapper:
        return compile_feed(build(top=LET + rules, event=event), Directory(), now)

    return feed


def by_key(outcomes: Iterable[RowOutcome]) -> str:
    """Return the keys of all outcomes; what is no event, with why not."""
    each = ((outcome.row_key, said(if_unknown(outcome))) for outcome in outcomes)
    keys = "; ".join((key if what == "event" else f"{key} {what}").strip() for key, what in each)
    return keys.replace("1|2026-", "").replace("  ", " ")


RECURRING = cases("""
recur | EMPTY => 05-04; 05-08; 05-11; 05-15; 05-18 | LAST: 2026-05-08, NOT: 04/05/2026;08/05/2026 => 1 every day is excluded
recur | NOT: 11/05/2026;08/05/2026, ALSO: 13/05/2026;18/05/2026;30/05/2026 => 05-04; 05-13; 05-15; 05-18; 05-30
recur | NOT: 11/05/2026;Pfingsten => 1 not_a_date NOT | DAYS: "SEG,DOMINGO" => 1 not_in_lookup DAYS
recur | FIRST: soon => 1 not_a_date FIRST | FIRST: "" => 1 required FIRST | LAST: 2026-05-03 => 1 end_before_start
recur | LAST: 2026-05-04, DAYS: TER => 1 no_day | CLOCK: 25:00, TITLE: "" => 1 title required TITLE; startAt not_a_time CLOCK
recur | FIRST: 2026-03-28, LAST: 2026-03-30, DAYS: SEG, CLOCK: 01:30, ALSO: 29/03/2026 => 03-29 startAt no_such_time CLOCK; 03-30
horizon | LAST: "" => 05-08; 05-11; 05-15 | LAST: 2026-05-04 => 1 already over
horizon | FIRST: 2026-09-01, LAST: "" => 1 beyond the horizon | FIRST: 2569-05-04, LAST: "" => 1 startAt far_ahead
at_most | EMPTY => 1 too_many
nth | FIRST: 2026-05-01, LAST: 2026-07-31, NTH: "1,-1" => 05-04; 05-25; 06-01; 06-29; 07-06; 07-27 | NTH: 6 => 1 not_accepted
rrule | FIRST: 2026-05-01, LAST: 2026-07-31, RRULE: FREQ=WEEKLY;INTERVAL=2;BYDAY=FR;COUNT=3 => 05-01; 05-15; 05-29
horizon | ALSO: 13/05/2569 => 1 startAt far_ahead
rrule | RRULE: FREQ=HOURLY => 1 not_a_date
moments | RRULE: FREQ=WEEKLY;UNTIL=20260518T170000Z => 05-04; 05-11; 05-18
moments | RRULE: FREQ=WEEKLY;UNTIL=20260518T165959Z => 05-04; 05-11
moments | RRULE: FREQ=WEEKLY;UNTIL=20260517, ALSO: 2026-05-19T23:30:00Z => 05-04; 05-11; 05-20
moments | RRULE: FREQ=WEEKLY;UNTIL=20260518T170000Z, NOT: 2026-05-10T23:30:00Z => 05-04; 05-18
late | EMPTY => 05-04 assertion; 05-08; 05-11; 05-15 later in May; 05-18 later in May | FIRST: soon => 1 not_a_date FIRST
early | FIRST: 2026-05-03 => 1 too early
""")


@pytest.mark.parametrize(("rules", "cells", "becomes"), RECURRING)
def test_a_row_that_recurs_is_an_event_each_day_or_says_why_not(
    rules: str, cells: str, becomes: str, ruled: Mapper, row: Row
) -> None:
    outcomes = ruled(RULES[rules]).outcomes(row(**MAY | cells_of(cells)))
    assert by_key(outcomes) == becomes
    assert {outcome.part.of for outcome in outcomes} == {len(outcomes)}
    assert all(event_of(one)["startAt"][5:10] == one.row_key[-5:] for one in outcomes if isinstance(one, MappedRow))
    if isinstance(outcomes[0], Rejection) and len(outcomes) == 1:
        assert outcomes[0].part.silence == Silence(outcomes[0].row_key)


def test_a_rolling_horizon_gives_more_days_in_later_runs_and_drops_those_that_are_over(ruled: Mapper, row: Row) -> None:
    later = ruled(HORIZON, now=NOW.replace(day=13))
    assert by_key(later.outcomes(row(**MAY | {"LAST": ""}))) == "05-15; 05-18; 05-22"
    assert later.days == ("2026-05-13", "2026-05-22")
    assert by_key(later.outcomes(row(**MAY | {"LAST": "2026-05-11"}))) == "1 already over"


def test_a_day_begins_where_the_feed_says_its_events_are(ruled: Mapper) -> None:
    assert ruled(HORIZON, now=datetime(2026, 5, 6, 23, 30, tzinfo=UTC)).days == ("2026-05-07", "2026-05-16")
    tokyo = ruled(HORIZON, event=STARTS + "\ntimezone: Asia/Tokyo", now=NOW.replace(hour=16))
    assert tokyo.days == ("2026-05-07", "2026-05-16")


def test_a_rule_about_the_day_before_the_recurrence_looks_at_the_rows_own_day(ruled: Mapper, build: Build, row: Row) -> None:
    rules = EARLY + "  - recur: {from: $first, until: '2026-05-05'}\n"
    for first, becomes in (("2026-05-03", "1 too early"), ("2026-05-04", "05-04; 05-05"), ("soon", "1 not_a_date FIRST")):
        assert by_key(ruled(rules).outcomes(row(FIRST=first))) == becomes
    itself = "{choose: [{when: {column: A, is: present}, then: $day}], otherwise: $last}"
    top = LET.replace('{from: FIRST, do: [{date: "%Y-%m-%d"}]}', itself) + rules
    assert "$day cannot be the first day of a recurrence" in mistakes(build, top=top, event=STARTS)


AT_DAY = """startAt:
  at:
    day: {from: DATES, do: [{date: "%d.%m.%Y"}]}
    clock: {from: TIMES, do: [{time: "%H:%M"}], on_empty: omit}
    zone: Europe/Lisbon
    all_day: "00:00"
"""
OBJECTS = AT_DAY.replace("{from: DATES,", "{from: DATES.on,") + "locationName: {from: DATES.hall.name}"
CELL = '[{"id": 7, "on": "03.05.2026", "hall": {"name": "Blue"}}, {"id": 8, "on": "04.05.2026", "hall": {"name": "Red"}}]'
BOTH = '{columns: [DATES, TIMES], by: ["|", ";"]}'
JSON = "{columns: DATES, json: true}"
LISTS = cases("""
DATES | DATES: 03.05.2026; 04.05.2026; => 1|03.05.2026; 1|04.05.2026 | DATES: 03.05.2026;4.6E+11 => 1 bad_key DATES
DATES | DATES: soon;x => 1 startAt not_a_date DATES; startAt not_a_date DATES | DATES: 03.05.2026;x, ID: 9.18E+11 => bad_key ID
DATES | DATES: soon;03.05.2026 => 1|soon startAt not_a_date DATES; 1|03.05.2026
DATES, at_most: 2 | DATES: 01.05.2026;02.05.2026;03.05.2026 => 1 too_many DATES
ALSO | DATES: 03.05.2026, ALSO: "" => 1
BOTH | DATES: 03.05.2026|03.05.2026, TIMES: 15:00|20:00 => 1|03.05.2026|15:00; 1|03.05.2026|20:00
BOTH | DATES: 03.05.2026;04.05.2026, TIMES: 15:00 => 1|03.05.2026|15:00; 1|04.05.2026|15:00
BOTH | DATES: 01.05.2026;02.05.2026;03.05.2026, TIMES: 15:00;16:00 => 1 uneven TIMES
[DATES, TIMES], key: DATES | DATES: 03.05.2026;04.05.2026, TIMES: 15:00;20:00 => 1|03.05.2026; 1|04.05.2026
JSON | DATES: '["03.05.2026", null, "04.05.2026"]' => 1|03.05.2026; 1|04.05.2026 | DATES: '[{"on": "x"}]' => 1 bad_key DATES
JSON | DATES: "{}" ~ DATES: 3 ~ DATES: "[1" ~ DATES: '"x"' ~ DATES: "[[[…" ~ DATES: nonsense => 1 bad_text DATES
""")


@pytest.mark.parametrize(("rule", "cells", "becomes"), LISTS)
def test_a_row_that_carries_lists_is_an_event_of_each_item_or_says_why_not(
    rule: str, cells: str, becomes: str, ruled: Mapper, row: Row
) -> None:
    explode = {"BOTH": BOTH, "JSON": JSON}.get(rule, f"{{columns: {rule}, by: ';'}}")
    filled = cells_of(cells.replace("…", "[" * 2000))
    outcomes = ruled(f"  - explode: {explode}\n", event=AT_DAY).outcomes(row(**filled))
    assert by_key(outcomes) == becomes
    for outcome in outcomes:
        if isinstance(outcome, MappedRow):
            assert event_of(outcome)["startAt"][8:10] == outcome.row_key[2:4] or rule == "ALSO"
            assert outcome.cells["DATES"] == filled["DATES"]


def test_a_json_array_is_one_event_for_each_object(ruled: Mapper, row: Row) -> None:
    mapper = ruled("  - explode: {columns: DATES, json: true, key: DATES.id}\n", event=OBJECTS)
    outcomes = mapper.outcomes(row(DATES=CELL))
    assert by_key(outcomes) == "1|7; 1|8"
    assert [said(outcome, "locationName") for outcome in outcomes] == ["Blue", "Red"]
    assert mapper.columns >= {"ID", "TITLE", "DATES", "TIMES"}
    (twice,) = mapper.outcomes(row(DATES='[{"id": 7, "id": 8}]'))
    assert isinstance(twice, Rejection)
    assert 'the name "id" occurs twice' in twice.reasons[0].hint
    assert 'the name "id" occurs twice' not in str(mapper.outcomes(row(DATES='[{"id": 7, "id": 7}]')))


def test_each_item_may_have_days_of_its_own(ruled: Mapper, row: Row) -> None:
    rules = '  - explode: {columns: HALLS, by: ";"}\n  - recur: {from: "2026-05-04", until: "2026-05-05"}\n'
    outcomes = ruled(rules, event=STARTS + "\nlocationName: $item").outcomes(row(HALLS="Blue;Red"))
    assert by_key(outcomes) == "1|Blue|2026-05-04; 1|Blue|2026-05-05; 1|Red|2026-05-04; 1|Red|2026-05-05"
    assert [said(outcome, "locationName") for outcome in outcomes] == ["Blue", "Blue", "Red", "Red"]


OVER, ENDED = "2026-04-10T18:00:00+00:00", "2026-04-10T20:00:00+00:00"
ORDER = cases(f"""
skip assert | KIND: online => 1 online only
assert skip | KIND: online => 1 assertion PRICE | KIND: online, PRICE: 5 => 1 online only
cancelled assert | KIND: off => 1 cancelled
assert cancelled | KIND: off => 1 assertion PRICE
window assert | START: {OVER} => 1 already over
assert window | START: {OVER} => 1 assertion PRICE
window skip | START: {OVER}, KIND: online => 1 online only
full skip | KIND: online, SEATS: many => 1 not_a_number SEATS
skip full | KIND: online, SEATS: many => 1 online only
window | EMPTY => 1 | END: {ENDED} ~ START: {OVER}, END: 2026-04-09T20:00:00+00:00 => 1 endAt end_before_start END
window | START: {OVER}, END: soon ~ START: {OVER}, END: 2026-04-10T20:00:00 => 1 endAt not_a_date END
window | START: soon, END: {ENDED} => 1 startAt not_a_date START
window | START: {OVER}, TITLE: "" ~ START: {OVER}, END: {ENDED} => 1 already over
kept | START: 2026-09-01T18:00:00+00:00, END: soon => 1 beyond the horizon
window | START: 2569-05-10T18:00:00+00:00 => 1 startAt far_ahead START
kept | START: 2569-05-10T18:00:00+00:00 => 1 startAt far_ahead START
window | END: 2031-05-07T18:00:00+00:00 => 1 endAt far_ahead END
window | START: 2031-05-06T18:00:00+00:00 => 1 beyond the horizon
skip window | START: 2569-05-10T18:00:00+00:00, KIND: online => 1 online only
""")


@pytest.mark.parametrize(("rules", "cells", "becomes"), ORDER)
def test_the_first_rule_that_rejects_a_row_or_leaves_it_out_decides(
    rules: str, cells: str, becomes: str, ruled: Mapper, row: Row
) -> None:
    ordered = "".join(RULES[name] for name in rules.split())
    feed = ruled(ordered, event="startAt: {from: START}\nendAt: {from: END, on_empty: omit}")
    assert by_key([feed(row(**{"START": "2026-05-10T18:00:00+00:00"} | cells_of(cells)))]) == becomes


def test_a_year_that_no_event_can_have_is_explained_and_the_file_may_allow_it(build: Build, row: Row) -> None:
    event, far = "startAt: {from: START}", "2569-05-10T18:00:00+00:00"
    (reason,) = rejected(compile_feed(build(event=event), Directory(), NOW)(row(START=far))).reasons
    assert reason.hint.startswith(
        "2569-05-10 is more than 5 years after the run; 2569 looks like a year of the Buddhist calendar"
    )
    assert Words("en").problem(reason) == "10 May 2569: the year 2569 looks like one of the Buddhist calendar."
    assert Words("de").advice(reason) == "Schreiben Sie das Jahr 2026."
    (reason,) = rejected(compile_feed(build(event=event), Directory(), NOW)(row(START="2206-05-10T18:00:00+00:00"))).reasons
    assert Words("en").problem(reason).endswith("10 May 2206 is more than 5 years ahead.")
    allowed = build(event=event, top="publish: {years_ahead: 600}\n")
    assert said(compile_feed(allowed, Directory(), NOW)(row(START=far)), "startAt") == far
    assert said(compile_feed(build(event=event), Directory())(row(START=far)), "startAt") == far
    assert said(compile_feed(build(event=event), Directory(), NOW.replace(year=9999))(row(START=far)), "startAt") == far


def test_a_row_that_a_rule_leaves_out_names_the_rule_by_its_place_in_the_file(ruled: Mapper, row: Row) -> None:
    feed = ruled(RULES["skip"] + RULES["assert"] + RULES["full"], event="")
    left_out = [feed(row(**cells)) for cells in ({"KIND": "online"}, {"PRICE": "5", "SEATS": "0"}, {"ID": "", "TITLE": ""})]
    assert [one.rule for one in left_out if isinstance(one, Skipped)] == [1, 3, 0]


def test_days_outside_the_window_are_compared_by_their_own_keys(ruled: Mapper, row: Row) -> None:
    mapper = ruled("  - explode: {columns: DATES, by: ';'}\n" + WINDOW, event=AT_DAY)
    outcomes = mapper.outcomes(row(DATES="10.04.2026;11.04.2026"))
    outside = {outcome.row_key: outcome.outside for outcome in outcomes if isinstance(outcome, MappedRow)}
    assert outside == {"1|10.04.2026": "already over", "1|11.04.2026": "already over"}
    assert [outcome.part.is_further for outcome in outcomes] == [False, True]
    assert all(isinstance(if_unknown(outcome), Skipped) for outcome in outcomes)


GROUP = "rows:\n  - group: {collect: [offers, classifications]%s}\n"
OFFERS = """classifications: {from: KIND, on_empty: omit}
offers:
  - name: {from: OFFER, on_empty: omit}
    url: {from: LINK, do: [url], on_empty: omit}
"""
EACH_DAY = 'startAt: {at: {day: $day, zone: Europe/Lisbon, all_day: "20:00"}}'


def rows(*cells: dict[str, str]) -> list[SourceRow]:
    """Rows of a sheet, from its second line on; the key is 1 unless they say otherwise."""
    usual = {"ID": "1", "TITLE": "Jazz", "KIND": "music"}
    return [SourceRow(RowLocation(f"sample.csv:{line}", line), usual | one) for line, one in enumerate(cells, 2)]


def by_line(outcomes: Iterable[RowOutcome]) -> str:
    """Return each outcome's line, and what has become of it: its offers, what it was absorbed by, or why it is no event."""
    each = (
        (one.location.number, one.into.value if isinstance(one, Absorbed) else said(one, "offers").replace("name: ", ""))
        for one in outcomes
    )
    return "; ".join(f"{line} {what}".strip() for line, what in each)


CALLED_OFF = "  - cancelled: {column: STATE, equals: off}\n"
CHOOSE = f"rows:\n  - duplicates: {{%s}}\n{CALLED_OFF}    because: postponed\n"
TOPS = {
    "group": GROUP % "",
    "zones": "rows:\n  - group: {collect: [timezone]}\n",
    "keep out": f"{GROUP % ''}  - skip: {{column: KIND, equals: online}}\n    because: online only\n",
    "called off": GROUP % "" + CALLED_OFF,
    "first": CHOOSE % "keep: first",
    "last": CHOOSE % "keep: last",
    "newest": CHOOSE % "keep: newest, by: {from: ON, do: [{date: '%Y-%m-%d'}]}",
}
OLD, NEW = "{ON: 2026-05-01, OFFER: a}", "{ON: 2026-05-10, OFFER: b}"
VERSIONS = f"{OLD}, {{ID: 2}}, {NEW}, {{ON: 2026-04-30, OFFER: c}}"
TOGETHER = cases(
    """
group | {OFFER: Child}, {ID: 2}, {TITLE: "", OFFER: Adult}, {OFFER: Child, LINK: www.a.example} => 2 Child · Adult · Child, \
url: https://www.a.example; 4 grouped; 5 grouped; 3
group | {}, {LINK: "mailto:a@b.example"} => 2 offers[0].url not_a_url LINK; 3 grouped
zones | {}, {} => 2 timezone not_a_zone; 3 grouped
keep out | {KIND: online}, {ID: 9.18E+11}, {OFFER: Hall}, {ID: "", TITLE: "", KIND: ""} => 2 online only; 3 bad_key ID; \
5 blank row; 4 Hall
called off | {STATE: off, OFFER: Child}, {OFFER: Adult} => 3 Adult; 2 grouped
called off | {STATE: off}, {STATE: off} => 2 cancelled; 3 grouped
first | VERSIONS => 2 a; 3; 4 duplicate; 5 duplicate
last | VERSIONS => 2 duplicate; 4 duplicate; 5 c; 3
newest | VERSIONS => 2 duplicate; 4 b; 5 duplicate; 3
newest | NEW, {OFFER: c, ON: 2026-05-10} ~ NEW, {OFFER: c, ON: soon} ~ NEW, {OFFER: c, ON: ""} => 2 b; 3 c
newest | OLD, {ON: 2026-05-10, STATE: off} => 2 duplicate; 3 postponed
newest | OLD, {ON: 2026-05-10, TITLE: ""} => 2 duplicate; 3 title required TITLE
""".replace("VERSIONS", VERSIONS)
    .replace("OLD", OLD)
    .replace("NEW", NEW)
)


@pytest.mark.parametrize(("top", "cells", "becomes"), TOGETHER)
def test_rows_of_one_key_are_gathered_into_one_event_or_chosen_among(top: str, cells: str, becomes: str, mapper: Mapper) -> None:
    read = rows(*yaml.load(f"[{cells}]", yaml.BaseLoader))
    outcomes = list(mapper(top=TOPS[top], event=OFFERS).over(read))
    assert by_line(outcomes) == becomes
    bad = [reason for one in outcomes if isinstance(one, Rejection) for reason in one.reasons if reason.field == "offers[0].url"]
    assert all("the row at sample.csv:3" in reason.hint for reason in bad)


def test_what_any_row_of_a_group_says_counts_for_whether_it_has_changed(mapper: Mapper) -> None:
    grouping = mapper(top=GROUP % "", event=OFFERS)
    both = [next(iter(grouping.over(rows({}, {"OFFER": offer, "KIND": "art"})))) for offer in ("Child", "Adult")]
    assert [event_of(outcome)["classifications"] for outcome in both] == [["music", "art"]] * 2
    assert len({(outcome.row_digest, outcome.fingerprint) for outcome in both if isinstance(outcome, MappedRow)}) == 2


def test_a_sorted_file_is_grouped_as_it_comes(mapper: Mapper) -> None:
    read: list[str] = []

    def source() -> Iterable[SourceRow]:
        for row in rows({}, {"OFFER": "Adult"}, {"ID": "2"}, {"ID": "3"}):
            read.append(row.cells["ID"])
            yield row

    outcomes = mapper(top=GROUP % ", sorted: true", event=OFFERS).over(source())
    assert event_of(next(outcomes))["offers"] == [{"name": "Adult"}]
    assert read == ["1", "1", "2"]
    assert by_line(outcomes) == "3 grouped; 4; 5"


def test_more_rows_than_memory_should_hold_are_an_error_that_says_what_helps() -> None:
    with pytest.raises(TooManyHeldError, match="more than 2") as error:
        list(row_groups(rows({}, {}, {}), lambda _row: RowKey("1"), is_sorted=False, held_at_most=2))
    assert "sorted: true" in error.value.hint


def test_a_group_may_recur_and_each_event_of_a_row_that_is_called_off_is(build: Build) -> None:
    recur = '  - recur: {from: {from: DAY, do: [{date: "%Y-%m-%d"}]}, until: "2026-05-05"}\n'
    day = {"DAY": "2026-05-04"}
    mapper = compile_feed(build(top=GROUP % "" + recur, event=OFFERS + EACH_DAY), Directory(), NOW)
    assert by_line(mapper.over(rows(day | {"OFFER": "a"}, day | {"OFFER": "b"}))) == "2 a · b; 2 a · b; 3 grouped"
    mapper = compile_feed(build(top="rows:\n" + CALLED_OFF + recur, event=EACH_DAY), Directory(), NOW)
    outcomes = list(mapper.over(rows(day | {"STATE": "off"}, {"ID": "2", "STATE": "off", "DAY": "soon"})))
    called_off = [outcome.row_key for outcome in outcomes if isinstance(outcome, Skipped) and outcome.is_cancelled]
    assert called_off == ["1|2026-05-04", "1|2026-05-05", "2"]
    assert outcomes[2].part.silence is not None


@pytest.mark.parametrize(("severity", "status"), [("reject", None), ("warn", "published"), ("draft", "draft")])
def test_an_assertion_speaks_to_the_editor_and_weighs_what_the_file_says(
    severity: str, status: str | None, mapper: Mapper
) -> None:
    top = f"""rows:
  - assert: {{any: [{{column: PRICE, is: missing}}, {{column: PRICE, less: 500}}]}}
    message: five hundred is a typing error
    severity: {severity}
"""
    fine, dear = mapper(top=top, event="status: published").over(rows({"PRICE": "12"}, {"PRICE": "1200"}))
    assert said(fine, "status") == "published"
    assert isinstance(dear, Rejection if status is None else MappedRow)
    (reason,) = dear.reasons if isinstance(dear, Rejection) else dear.warnings
    assert (reason.code, reason.column, reason.found) == ("assertion", "PRICE", "1200")
    assert reason.hint == "five hundred is a typing error"
    assert status is None or said(dear, "status") == status


def test_an_event_that_lasts_too_long_is_rejected(build: Build) -> None:
    window = "rows:\n  - window: {longest: 400d}\n"
    feed = compile_feed(build(top=window, event="endAt: {from: END}"), Directory(), NOW)
    outcome = if_unknown(feed(rows({"END": "2036-07-01T18:00:00+01:00"})[0]))
    assert said(outcome) == "endAt assertion END"
    assert isinstance(outcome, Rejection)
    (reason,) = outcome.reasons
    assert (reason.found, reason.value) == ("2036-07-01T18:00:00+01:00", "3653 days")
    assert reason.hint == "at most 400 days from start to end are allowed"


@pytest.mark.parametrize(
    ("title", "bound"), [("Jazz night", "10 characters; at most 5 are"), ("J", "1 characters; at least 3 are")]
)
def test_a_text_of_the_wrong_length_for_the_event_is_refused_with_the_length_that_is_possible(title: str, bound: str) -> None:
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(dict[str, Annotated[str, Field(min_length=3, max_length=5)]]).validate_python({"title": title})
    ((path, refusal),) = refusals(raised.value)
    reason = refusal.reason(path)
    assert (path, reason.found) == ("title", title)
    assert Words("en").problem(reason).startswith(f"This text has {bound}")


class Faulty(dict[str, str]):
    """Cells of which one raises what it is given."""

    column, error = "", Exception()

    def __getitem__(self, column: str) -> str:
        if column == self.column:
            raise self.error
        return super().__getitem__(column)

    def get(self, column: str, default: Any = None) -> Any:
        return super().get(column, default) if column != self.column else self[column]


def with_fault(row: SourceRow, column: str, error: Exception) -> SourceRow:
    cells = Faulty(row.cells)
    cells.column, cells.error = column, error
    return replace(row, cells=cells)


@pytest.mark.parametrize(
    ("top", "column", "becomes"),
    [
        ("", "TITLE", "2 internal_error of 1; 3; 4"),
        ("", "ID", "2 internal_error of ; 3; 4"),
        ("rows:\n  - explode: {columns: KIND, by: '/'}\n", "KIND", "2 internal_error of 1; 3; 4"),
        (TOPS["group"], "TITLE", "2 internal_error of 1; 4 grouped; 3"),
        (TOPS["group"], "ID", "2 internal_error of ; 3; 4"),
        (TOPS["newest"], "ON", "4 internal_error of 1; 2 duplicate; 3"),
    ],
)
def test_a_fault_of_ours_in_one_row_rejects_that_row_and_logs_where(
    top: str, column: str, becomes: str, mapper: Mapper, capsys: pytest.CaptureFixture[str]
) -> None:
    several = rows({"ON": "2026-05-11"}, {"ID": "2", "ON": ""}, {"ON": "2026-05-12"})
    error = ArithmeticError("no code expects this \x1b[35m")
    outcomes = list(mapper(top=top, event=OFFERS).over([with_fault(several[0], column, error), *several[1:]]))
    known = {outcome.location.number: outcome.row_key for outcome in outcomes}
    found = re.sub(r"(\d) (internal_error)", lambda line: f"{line[0]} of {known[int(line[1])]}", by_line(outcomes))
    assert found == becomes
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("ArithmeticError") == 1
    assert "\x1b" not in printed.err
    assert "mapping the row at sample.csv:" in printed.err


@pytest.mark.parametrize("passing", [MemoryError(), ConfigError("stopped")])
def test_what_stops_a_whole_run_is_no_fault_of_a_row(passing: Exception, mapper: Mapper) -> None:
    with pytest.raises(type(passing)):
        list(mapper().over([with_fault(rows({})[0], "TITLE", passing)]))

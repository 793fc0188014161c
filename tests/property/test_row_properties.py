"""Rows that stand for several events, and several rows for one, whatever partners write and however they edit it."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from itertools import chain, islice
from pathlib import Path

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mappings.compiler.expand import read_rule, rule_days
from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.event import EVENT, Directory
from mappings.outcome import Absorbed, MappedRow, Rejection, RowLocation, RowOutcome, Skipped, SourceRow
from mappings.reasons import Refusal
from mappings.yaml.loader import parse_feed

NOW = datetime(2026, 5, 6, 12, tzinfo=UTC)
FEED = """
feed: many
source: {kind: csv, path: many.csv}
key: [ID]
let:
  first: {from: FROM, do: [{date: "%%Y-%%m-%%d"}]}
rows:
  - skip: {column: TITLE, equals: skip}
    because: not wanted
  - cancelled: {column: TITLE, equals: "off"}
%s
event:
  channelId: "7"
  title: {from: TITLE}
  startAt: {at: {day: %s, clock: {from: HOUR, do: [{time: "%%H:%%M"}], on_empty: omit}, zone: Europe/Lisbon, all_day: "00:00"}}
  endAt: {from: END, do: [{datetime: "%%Y-%%m-%%dT%%H:%%M:%%S%%z"}], on_empty: omit}
  timezone: Europe/Lisbon
  classifications: [music]
  approxLocation.city.placeId: pt-lisboa
  offers: [{name: {from: OFFER, on_empty: omit}}]
"""
RECUR = """
  - explode: {columns: [HALL, HOUR], by: "|", key: HALL}
  - recur:
      when: {column: UNTIL, is: present}
      from: $first
      until: {from: UNTIL, do: [{date: "%Y-%m-%d"}], on_empty: omit}
      weekdays: {from: DAYS, do: [{split: ","}], on_empty: omit}
      except: {from: NOT, do: [{split: ";"}, {date: "%Y-%m-%d"}], on_empty: omit}
      extra: {from: ALSO, do: [{split: ";"}, {date: "%Y-%m-%d"}], on_empty: omit}
      horizon: 60d
      at_most: 40
  - window: {past: skip, longest: 400d}
"""


def mapper(rules: str, day: str = "$day") -> RowMapper:
    return compile_feed(parse_feed(FEED % (rules, day), Path("many.yaml")), Directory(), NOW)


RECURRING = mapper(RECUR)
PLAIN_RECUR = """
  - recur:
      from: $first
      until: {from: UNTIL, do: [{date: "%Y-%m-%d"}]}
      except: {from: NOT, do: [{split: ";"}, {date: "%Y-%m-%d"}], on_empty: omit}
"""
RANGES = mapper(PLAIN_RECUR)
GROUPED, SORTED = (mapper(f"  - group: {{collect: offers{more}}}", "$first") for more in ("", ", sorted: true"))

LIKELY = {
    "ID": ["1", "2", "", "9.18E+11"],
    "TITLE": ["Jazz", "skip", "off", ""],
    "FROM": ["2026-05-04", "2026-03-29", "9999-12-31", "0001-01-01", "soon"],
    "UNTIL": ["2026-05-20", "9999-12-31", "2026-05-01", ""],
    "HALL": ["Blue|Red", "Blue|Blue", "Blue", "|", "a|9E+9", "\ud800|x"],
    "HOUR": ["19:30", "19:30|20:00", "1:30|2", ""],
    "DAYS": ["MO,FR", "MON", "su", ""],
    "NOT": ["2026-05-08;2026-05-11", "Pfingsten", ""],
    "ALSO": ["2026-05-13", "9999-12-31", ""],
    "END": ["2026-07-01T20:00:00Z", "2036-07-01T20:00:00Z", ""],
    "OFFER": ["a", "b", ""],
}
ANY_TEXT = st.text(st.characters(), max_size=20)
CELLS = st.fixed_dictionaries({name: st.one_of(st.sampled_from(likely), ANY_TEXT) for name, likely in LIKELY.items()})


def rows(cells: list[dict[str, str]]) -> list[SourceRow]:
    return [SourceRow(RowLocation(f"many.csv:{line}", line), one) for line, one in enumerate(cells, 2)]


def check(outcomes: list[RowOutcome], read: list[SourceRow]) -> None:
    """Every row is in exactly one outcome, or the first of several; every event is one that the service accepts."""
    assert sorted(outcome.location.number for outcome in outcomes if not outcome.part.is_further) == [
        one.location.number for one in read
    ]
    for outcome in outcomes:
        match outcome:
            case MappedRow():
                EVENT.validate_json(outcome.body)
                assert outcome.row_key
            case Rejection():
                assert outcome.reasons
                assert all(reason.hint or reason.column for reason in outcome.reasons)
            case Skipped():
                assert outcome.because
            case Absorbed():
                assert outcome.row_key


@given(st.lists(CELLS, max_size=3))
def test_any_row_becomes_events_that_the_service_accepts_or_says_why_not(cells: list[dict[str, str]]) -> None:
    read = rows(cells)
    outcomes = list(RECURRING.over(read))
    check(outcomes, read)
    assert outcomes == list(chain.from_iterable(RECURRING.outcomes(one) for one in read))
    for each in (RECURRING.outcomes(one) for one in read):
        assert len({outcome.part.of for outcome in each}) == 1
        assert each[0].part.of == len(each)


@given(st.lists(CELLS, max_size=6))
def test_any_rows_are_grouped_into_events_that_the_service_accepts_or_say_why_not(cells: list[dict[str, str]]) -> None:
    read = rows(cells)
    check(list(GROUPED.over(read)), read)


SOUND = {"TITLE": "Jazz", "FROM": "2026-05-04", "HOUR": "19:30"}
DAYS = st.dates(date(2026, 1, 1), date(2026, 6, 30))


def events(first: date, last: date, excluded: set[date]) -> dict[str, bytes]:
    cells = SOUND | {"ID": "1", "FROM": str(first), "UNTIL": str(last), "NOT": ";".join(map(str, sorted(excluded)))}
    found = [outcome for outcome in RANGES.outcomes(SourceRow(RowLocation("x"), cells)) if isinstance(outcome, MappedRow)]
    assert len({outcome.row_key for outcome in found}) == len(found)
    return {outcome.row_key: outcome.body for outcome in found}


@given(DAYS, st.integers(0, 90), DAYS, st.integers(0, 90), st.sets(DAYS, max_size=5))
def test_a_day_keeps_its_key_and_its_event_however_range_and_exclusions_are_edited(
    first: date, length: int, edited: date, other_length: int, excluded: set[date]
) -> None:
    before = events(first, first + timedelta(days=length), set())
    after = events(edited, edited + timedelta(days=other_length), excluded)
    wanted = {edited + timedelta(days=each) for each in range(other_length + 1)} - excluded
    assert set(after) == {f"1|{day}" for day in wanted}
    assert all(after[key] == before[key] for key in before.keys() & after.keys())


OFFERS = st.lists(st.tuples(st.sampled_from("123"), st.sampled_from("abc")), max_size=8)


@given(OFFERS)
def test_groups_do_not_depend_on_where_the_rows_of_other_keys_stand(offers: list[tuple[str, str]]) -> None:
    def grouped(which: RowMapper, order: list[tuple[str, str]]) -> dict[str, object]:
        found = which.over(rows([SOUND | {"ID": key, "OFFER": offer} for key, offer in order]))
        return {outcome.row_key: orjson.loads(outcome.body) for outcome in found if isinstance(outcome, MappedRow)}

    by_key = sorted(offers, key=lambda offer: offer[0])
    assert grouped(GROUPED, offers) == grouped(GROUPED, by_key) == grouped(SORTED, by_key)


PARTS = st.fixed_dictionaries(
    {"INTERVAL": st.integers(1, 5)},
    optional={
        "BYMONTH": st.lists(st.integers(1, 12), min_size=1, max_size=3),
        "BYMONTHDAY": st.lists(st.integers(-28, 28).filter(bool), min_size=1, max_size=3),
        "BYDAY": st.lists(st.sampled_from(["MO", "TU", "SA", "SU", "1MO", "-1FR", "2SU"]), min_size=1, max_size=3),
        "WKST": st.sampled_from(["MO", "SU", "WE"]),
        "BYSETPOS": st.lists(st.sampled_from([1, 2, -1]), min_size=1, max_size=2),
    },
)
RULES = (
    ("FREQ=DAILY;INTERVAL=3", "26-05-06 26-05-09 26-05-12 26-05-15"),
    ("FREQ=DAILY;BYMONTH=1,6;BYDAY=MO,SA", "26-06-01 26-06-06 26-06-08 26-06-13"),
    ("FREQ=DAILY;BYMONTHDAY=1,-1", "26-05-31 26-06-01 26-06-30 26-07-01"),
    ("FREQ=WEEKLY", "26-05-06 26-05-13 26-05-20 26-05-27"),
    ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,SU", "26-05-10 26-05-18 26-05-24 26-06-01"),
    ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,SU;WKST=SU", "26-05-17 26-05-18 26-05-31 26-06-01"),
    ("FREQ=WEEKLY;INTERVAL=3;BYDAY=TU;BYMONTH=5", "26-05-26 27-05-18 28-05-09 28-05-30"),
    ("FREQ=MONTHLY", "26-05-06 26-06-06 26-07-06 26-08-06"),
    ("FREQ=MONTHLY;INTERVAL=2;BYDAY=1MO,-1FR", "26-05-29 26-07-06 26-07-31 26-09-07"),
    ("FREQ=MONTHLY;BYMONTHDAY=31", "26-05-31 26-07-31 26-08-31 26-10-31"),
    ("FREQ=MONTHLY;BYMONTHDAY=-1,15", "26-05-15 26-05-31 26-06-15 26-06-30"),
    ("FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13", "26-11-13 27-08-13 28-10-13 29-04-13"),
    ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", "26-05-29 26-06-30 26-07-31 26-08-31"),
    ("FREQ=MONTHLY;BYDAY=SA,SU;BYSETPOS=1,2", "26-06-06 26-06-07 26-07-04 26-07-05"),
    ("FREQ=YEARLY", "26-05-06 27-05-06 28-05-06 29-05-06"),
    ("FREQ=YEARLY;INTERVAL=2;BYMONTH=1,10", "26-10-06 28-01-06 28-10-06 30-01-06"),
    ("FREQ=YEARLY;BYMONTH=10;BYDAY=2SU", "26-10-11 27-10-10 28-10-08 29-10-14"),
    ("FREQ=YEARLY;BYDAY=1MO,-1SU", "26-12-27 27-01-04 27-12-26 28-01-03"),
    ("FREQ=YEARLY;BYMONTH=5;BYDAY=SU;BYSETPOS=-1", "26-05-31 27-05-30 28-05-28 29-05-27"),
    ("FREQ=YEARLY;BYMONTHDAY=24;BYMONTH=12", "26-12-24 27-12-24 28-12-24 29-12-24"),
)
"""What each rule gives first from 6 May 2026 on, a Wednesday."""


@pytest.mark.parametrize(("text", "days"), RULES)
def test_a_rule_of_calendars_gives_its_days(text: str, days: str) -> None:
    begins = date(2026, 5, 6)
    found = rule_days(read_rule(text), begins, begins, date(2036, 1, 1))
    assert [f"{day:%y-%m-%d}" for day in islice(found, 4)] == days.split()


@given(st.sampled_from(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"]), PARTS, st.integers(1, 900))
def test_what_is_looked_at_changes_no_day(frequency: str, parts: dict[str, object], later: int) -> None:
    assume(frequency in {"MONTHLY", "YEARLY"} or not any(char.isdigit() for char in str(parts.get("BYDAY", ""))))
    told = [f"{name}={','.join(map(str, value)) if isinstance(value, list) else value}" for name, value in parts.items()]
    rule = read_rule(";".join([f"FREQ={frequency}", *told, "COUNT=25"]))
    begins = date(2025, 2, 7)
    first, last = begins + timedelta(days=later), begins + timedelta(days=1000)
    every = list(rule_days(rule, begins, begins, begins + timedelta(days=1400)))
    assert list(rule_days(rule, begins, first, last)) == [day for day in every if first <= day <= last]


@given(ANY_TEXT)
def test_any_text_is_a_rule_or_is_refused(text: str) -> None:
    for one in (text, f"FREQ={text}", f"FREQ=WEEKLY;BYDAY={text}", f"FREQ=MONTHLY;{text}"):
        with suppress(Refusal):
            rule = read_rule(one)
            assert all(day >= date(2026, 1, 1) for day in rule_days(rule, date(2026, 1, 1), date(2026, 1, 1), date(2026, 3, 1)))

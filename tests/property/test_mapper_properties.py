"""What the mapper makes of any row, of rows that stand for several events, and of any wall time of a zone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import chain, islice
from pathlib import Path
from zoneinfo import ZoneInfo

import orjson
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mappings.compiler.expand import read_rule, rule_days
from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.event import EVENT, Directory, dump
from mappings.outcome import Absorbed, MappedRow, Rejection, RowLocation, RowOutcome, Skipped, SourceRow
from mappings.reasons import ReasonCode, Refusal
from mappings.spec.feed import FeedMapping
from mappings.steps.zones import Gap, Localise, Overlap, localiser
from mappings.yaml.loader import parse_feed

FEED = r"""
feed: everything
source: {kind: csv, path: everything.csv}
key: [ID, {column: HOUR, optional: true}]
steps:
  plain: [html_unescape, {unescape: backslash}, {normalize: NFKC}, fix_mojibake, collapse]
let:
  today: {meta: run_date, zone: Asia/Tokyo}
  day: {from: DAY, do: [{date: ["%Y-%m-%d", "%d %B %Y"], locale: pt}]}
  clock: {from: HOUR, do: [{time: ["%H:%M", "%I.%M%p"]}], on_empty: draft, on_error: warn}
rows:
  - skip: {any: [{column: KIND, contains: online}, {column: TITLE, matches: "^TEST"}]}
    because: not wanted
extra: [slug, land, cost, words, imported, place, description, price, more]
event:
  channelId: {channel: city-agenda}
  title: {from: TITLE, do: [fix_mojibake, html_unescape, strip_control, collapse, {truncate: 40}]}
  slug: {from: TITLE, do: [{use: plain}, {sentence: true, locale: tr}, slugify, {length: {at_most: 60}}], on_error: warn}
  land: {from: CITY, do: [{country: [en, local]}], on_error: omit}
  cost: {from: PRICE, do: [{price: either, currency: USD}], on_empty: omit, on_error: draft}
  words:
    from: PLACE
    do: [markdown_to_text, {regex_split: '\s'}, {map: {hall: H}, match: keyword, on_miss: keep}, sort]
    on_empty: omit
  imported: $today
  place: {meta: file, on_empty: omit}
  startAt: {at: {day: $day, clock: $clock, zone: {from: ZONE, do: [{default: Europe/Lisbon}]}, all_day: "00:00"}}
  endAt: {from: END, do: [{datetime: "%Y-%m-%dT%H:%M:%S%z"}, {in_zone: Asia/Tokyo}], on_empty: omit, on_error: draft}
  timezone: {from: ZONE, do: [{default: Europe/Lisbon}]}
  classifications:
    from: KIND
    do: [{split: ["/", ","]}, {map: {music: music, art: culture}, ignore: [case], on_miss: warn}]
    on_empty: {use: [culture], draft: true}
  approxLocation.city: {placeId: {from: CITY}, name: {from: CITY, do: [title]}}
  locationName: {from: PLACE, do: [html_to_text, {newlines: ", "}], on_empty: omit}
  coverImage: {image: {from: IMG, do: [url]}, on_error: draft}
  description: {from: PLACE, on_empty: omit}
  price: {from: PRICE, do: [{number: ","}], on_empty: omit, on_error: warn}
  more:
    for_each: [{from: KIND, do: [{split: "/", keep_empty: true}]}, {from: PLACE, do: [{split: "/", keep_empty: true}]}]
    as: [kind, hall]
    give: {kind: $kind, free: {from: $hall, do: [{boolean: {true: x, false: ""}}], on_error: omit}}
    on_error: omit
    on_empty: omit
  offers:
    - name: {first_of: [{from: PRICE}, Tickets]}
      url: {from: IMG, do: [url], on_empty: omit, on_error: omit}
"""


@cache
def parsed(feed: str) -> FeedMapping:
    return parse_feed(feed, Path("everything.yaml"))


def compiled(feed: str = FEED) -> RowMapper:
    return compile_feed(
        parsed(feed), Directory(classifications=frozenset({"music", "culture"})), datetime(2026, 5, 1, tzinfo=UTC)
    )


MAPPER = compiled()
LIKELY = {
    "ID": ["1", " 9.18E+11", "#REF!"],
    "HOUR": ["18:30", "7.00pm", "24:00", "02:30", ""],
    "DAY": ["2026-03-29", "3 maio 2026", "2026-02-30", "9999-12-31", "0001-01-01"],
    "ZONE": ["Europe/Lisbon", "America/Sao_Paulo", "Pacific/Apia", "CET+1", "../x", ""],
    "END": ["2026-07-01T20:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", ""],
    "KIND": ["music", "ART/x", "online", "music/", ""],
    "TITLE": ["Jazz &amp;amp; blues", "CafÃ©", "TEST", "a\u0300" * 50, "&#x110000;", "<b>"],
    "CITY": ["Lisboa", "\u00a0"],
    "PLACE": ["<p>Hall</p>\r\n<p>Porto", "x\ud800", "/x", "\\ud83d/[a](b", ""],
    "IMG": ["http://[::1", "www.example.org/é", "https://xn--\u00fc.example", "mailto:a@b.c", "https://例え.jp/%zz"],
    "PRICE": ["1.250,50", "12,5€", "-0", "$5-$10", "kids free, 5 €", "kr 1,2,3", ""],
}
ANY_TEXT = st.text(st.characters(), max_size=30)
ROWS = st.fixed_dictionaries({name: st.one_of(st.sampled_from(likely), ANY_TEXT) for name, likely in LIKELY.items()})


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


@given(ROWS)
def test_any_row_becomes_an_event_that_the_service_accepts_or_says_why_not(cells: dict[str, str]) -> None:
    row = SourceRow(RowLocation("everything.csv:2", 2), cells)
    outcome = MAPPER(row)
    check([outcome], [row])
    if isinstance(outcome, MappedRow):
        assert dump(orjson.loads(outcome.body)) == outcome.body
        assert (MAPPER.key_of(row), MAPPER.digest(row)) == (outcome.row_key, outcome.row_digest)
        assert not has_empty_text(orjson.loads(outcome.body))
    if isinstance(outcome, Skipped):
        assert outcome.because in {"not wanted", "blank row"}
    if isinstance(outcome, Rejection):
        assert all(reason.hint for reason in outcome.reasons)
        assert [(reason.found + reason.hint).encode() for reason in outcome.reasons]
    assert MAPPER(row) == outcome


def has_empty_text(value: object) -> bool:
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return not value or any(map(has_empty_text, parts))
    return value is None or (isinstance(value, str) and not value.strip())


EXPLODED = FEED.replace("rows:\n", "rows:\n  - explode: {columns: KIND, by: '/'}\n")
USED = compiled(EXPLODED)
CELLS = {name: st.sampled_from(likely) for name, likely in LIKELY.items()}


@given(st.lists(st.fixed_dictionaries({}, optional=CELLS), min_size=1, max_size=4))
def test_a_mapper_that_has_seen_other_rows_makes_of_each_what_one_makes_that_has_seen_none(every: list[dict[str, str]]) -> None:
    for number, cells in enumerate(every, start=2):
        row = SourceRow(RowLocation(f"again.csv:{number}", number), cells)
        assert USED.outcomes(row) == compiled(EXPLODED).outcomes(row)


def test_a_value_that_the_service_does_not_take_is_refused_in_every_row_that_has_it() -> None:
    mapper = compiled(FEED.replace("channelId: {channel: city-agenda}", 'channelId: {from: PRICE, do: [{number: ","}]}'))
    whole = {name: likely[0] for name, likely in LIKELY.items()} | {"PRICE": "12"}
    half = whole | {"PRICE": "12,5"}
    outcomes = [mapper(SourceRow(RowLocation("x", 2), cells)) for cells in (half, half, whole, half)]
    assert [isinstance(outcome, MappedRow) for outcome in outcomes] == [False, False, True, False]
    reasons = [reason for outcome in outcomes if isinstance(outcome, Rejection) for reason in outcome.reasons]
    assert [(reason.code, reason.field) for reason in reasons] == [(ReasonCode.NOT_ACCEPTED, "channelId")] * 3


ZONES = (
    *("Europe/Lisbon", "Europe/Warsaw", "Europe/Dublin", "America/New_York", "America/Sao_Paulo", "America/St_Johns"),
    *("Asia/Tokyo", "Asia/Beirut", "Asia/Kathmandu", "Asia/Tehran", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"),
    "Antarctica/Troll",
)


@pytest.mark.parametrize("name", ZONES)
def test_every_quarter_hour_around_a_change_of_clocks_is_the_moment_that_the_zone_database_says(name: str) -> None:
    for day in [date(1995, 5, 5), *changes(ZoneInfo(name))]:  # a day like any other, too
        start = datetime.combine(day, datetime.min.time()) - timedelta(hours=12)
        for quarter in range(4 * 36):
            check_wall_time(name, start + timedelta(minutes=15 * quarter))


def changes(zone: ZoneInfo) -> Iterator[date]:
    day = datetime(2009, 1, 1, tzinfo=UTC)
    while day.year < 2028:
        following = day + timedelta(days=1)
        if day.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            yield day.date()
        day = following


@cache
def placed(name: str, gap: Gap = "reject", overlap: Overlap = "earlier") -> Localise:
    return localiser(ZoneInfo(name), gap, overlap)


def moments_of(wall: datetime, zone: ZoneInfo) -> list[datetime]:
    """The moments at which the clocks of the zone show a time, by asking the zone database backwards."""
    candidates = {wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return sorted(moment for moment in candidates if moment.astimezone(zone).replace(tzinfo=None, fold=0) == wall)


def check_wall_time(name: str, wall: datetime) -> None:
    moments = moments_of(wall, ZoneInfo(name))
    if moments:
        assert placed(name)(wall) == moments[0]
        assert placed(name, overlap="later")(wall) == moments[-1]
        assert placed(name)(wall).replace(tzinfo=None) == wall
        refused_as = ReasonCode.AMBIGUOUS_TIME if len(moments) == 2 else None
    else:
        later, earlier = placed(name, "later")(wall), placed(name, "earlier")(wall)
        assert later.replace(tzinfo=None) > wall > earlier.replace(tzinfo=None)
        assert later.astimezone(ZoneInfo(name)).replace(tzinfo=None, fold=0) == later.replace(tzinfo=None)
        refused_as = ReasonCode.NO_SUCH_TIME
    if refused_as is not None:
        with pytest.raises(Refusal) as refused:
            placed(name, overlap="reject")(wall)
        assert refused.value.code is refused_as


NOW = datetime(2026, 5, 6, 12, tzinfo=UTC)
MANY = """
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
    return compile_feed(parse_feed(MANY % (rules, day), Path("many.yaml")), Directory(), NOW)


RECURRING = mapper(RECUR)
PLAIN_RECUR = """
  - recur:
      from: $first
      until: {from: UNTIL, do: [{date: "%Y-%m-%d"}]}
      except: {from: NOT, do: [{split: ";"}, {date: "%Y-%m-%d"}], on_empty: omit}
"""
RANGES = mapper(PLAIN_RECUR)
GROUPED, SORTED = (mapper(f"  - group: {{collect: offers{more}}}", "$first") for more in ("", ", sorted: true"))

ODD = {
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
MANY_CELLS = st.fixed_dictionaries({name: st.one_of(st.sampled_from(likely), ANY_TEXT) for name, likely in ODD.items()})


def rows(cells: list[dict[str, str]]) -> list[SourceRow]:
    return [SourceRow(RowLocation(f"many.csv:{line}", line), one) for line, one in enumerate(cells, 2)]


@given(st.lists(MANY_CELLS, max_size=3))
def test_any_row_becomes_events_that_the_service_accepts_or_says_why_not(cells: list[dict[str, str]]) -> None:
    read = rows(cells)
    outcomes = list(RECURRING.over(read))
    check(outcomes, read)
    assert outcomes == list(chain.from_iterable(RECURRING.outcomes(one) for one in read))
    for each in (RECURRING.outcomes(one) for one in read):
        assert len({outcome.part.of for outcome in each}) == 1
        assert each[0].part.of == len(each)


@given(st.lists(MANY_CELLS, max_size=6))
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


@settings(max_examples=40)  # of rules that have no day in years, each takes a second
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

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mappings.compiler.mapper import RowMapper, compile_feed
from mappings.event import EVENT, Directory, dump
from mappings.outcome import MappedRow, Rejection, RowLocation, Skipped, SourceRow
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


@given(ROWS)
def test_any_row_becomes_an_event_that_the_service_accepts_or_says_why_not(cells: dict[str, str]) -> None:
    row = SourceRow(RowLocation("everything.csv:2", 2), cells)
    outcome = MAPPER(row)
    match outcome:
        case MappedRow():
            EVENT.validate_json(outcome.body)
            assert dump(orjson.loads(outcome.body)) == outcome.body
            assert MAPPER.key_and_digest(row) == (outcome.row_key, outcome.row_digest)
            assert not has_empty_text(orjson.loads(outcome.body))
        case Rejection():
            assert outcome.reasons
            assert all(reason.hint for reason in outcome.reasons)
            assert [(reason.found + reason.hint).encode() for reason in outcome.reasons]
        case Skipped():
            assert outcome.because in {"not wanted", "blank row"}
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

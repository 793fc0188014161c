"""Wall times become moments: zones, changes of clocks, whole days, and ends past midnight."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime

import pytest
from unit.mappings.conftest import Build, Mapper, Row, cases, event_of, mistakes, rejected, said

from mappings.outcome import MappedRow
from mappings.reasons import Refusal
from mappings.steps.zones import localiser
from mappings.zones import find_zone, zone_names


@pytest.mark.parametrize(("zone", "wall"), [("Europe/Paris", "1905-01-01T12:00"), ("Africa/Monrovia", "1960-01-01T12:00")])
def test_a_time_when_a_zone_had_seconds_in_its_offset_is_refused(zone: str, wall: str) -> None:
    place = find_zone(zone)
    assert place is not None
    with pytest.raises(Refusal, match="not_a_date"):
        localiser(place)(datetime.fromisoformat(wall))


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


CHANGES = """
gap Europe/Lisbon 2025-03-30T01:30 2025-03-30T00:30+00:00 2025-03-30T02:30+01:00
gap America/New_York 2025-03-09T02:30 2025-03-09T01:30-05:00 2025-03-09T03:30-04:00
gap Australia/Lord_Howe 2025-10-05T02:15 2025-10-05T01:45+10:30 2025-10-05T02:45+11:00
gap America/Sao_Paulo 2018-11-04T00:30 2018-11-03T23:30-03:00 2018-11-04T01:30-02:00
gap Africa/Casablanca 2025-04-06T02:30 2025-04-06T01:30+00:00 2025-04-06T03:30+01:00
gap Asia/Tehran 2022-03-22T00:30 2022-03-21T23:30+03:30 2022-03-22T01:30+04:30
gap Europe/Dublin 2025-03-30T01:30 2025-03-30T00:30+00:00 2025-03-30T02:30+01:00
gap Pacific/Apia 2011-12-30T12:00 2011-12-29T12:00-10:00 2011-12-31T12:00+14:00
gap Antarctica/Troll 2025-03-30T02:00 2025-03-30T00:00+00:00 2025-03-30T04:00+02:00
overlap Europe/Lisbon 2025-10-26T01:30 2025-10-26T01:30+01:00 2025-10-26T01:30+00:00
overlap America/New_York 2025-11-02T01:30 2025-11-02T01:30-04:00 2025-11-02T01:30-05:00
overlap Australia/Lord_Howe 2025-04-06T01:45 2025-04-06T01:45+11:00 2025-04-06T01:45+10:30
overlap America/Sao_Paulo 2019-02-16T23:30 2019-02-16T23:30-02:00 2019-02-16T23:30-03:00
overlap Africa/Casablanca 2025-02-23T02:30 2025-02-23T02:30+01:00 2025-02-23T02:30+00:00
overlap Asia/Tehran 2022-09-21T23:30 2022-09-21T23:30+04:30 2022-09-21T23:30+03:30
overlap Europe/Dublin 2025-10-26T01:30 2025-10-26T01:30+01:00 2025-10-26T01:30+00:00
overlap Antarctica/Troll 2025-10-26T02:00 2025-10-26T02:00+02:00 2025-10-26T02:00+00:00
""".strip().splitlines()


@pytest.mark.parametrize("change", CHANGES)
def test_a_time_that_clocks_skip_or_repeat_is_moved_as_asked_or_refused(change: str) -> None:
    choice, name, wall, *expected = change.split(" ")
    zone, moment = find_zone(name), datetime.fromisoformat(wall)
    assert zone is not None
    found = [localiser(zone, **{choice: way})(moment).isoformat(timespec="minutes") for way in ("earlier", "later")]
    assert found == expected
    with pytest.raises(Refusal):
        localiser(zone, **{choice: "reject"})(moment)


DAY = "{from: DAY, do: [{date: '%Y-%m-%d'}]}"
STARTS = f"let:\n  starts: {{at: {{day: {DAY}, clock: {{from: FROM, do: [clock]}}, zone: Europe/Lisbon}}}}\n"
ENDS = """startAt: $starts
endAt:
  at:
    day: {from: LAST, do: [{date: '%Y-%m-%d'}]}
    clock: {from: TO, do: [{clock: any, day_end: next_day}]}
    zone: Europe/Lisbon
"""
ENDINGS = cases("""
next_day | 07-01 22:00 07-01 02:00 => 2026-07-02T02:00 | 07-01 20:00 07-01 22:00 => 2026-07-01T22:00
next_day | 07-01 20:00 07-01 20:00 => 2026-07-01T20:00 | 07-01 20:00 07-01 24:00 => 2026-07-02T00:00
next_day | 03-28 22:00 03-28 01:30 => endAt no_such_time TO | 07-01 ? 07-01 02:00 => startAt not_a_time FROM
next_day | 07-02 20:00 07-01 19:00 => endAt end_before_start TO
reject | 07-01 22:00 07-01 02:00 => endAt end_before_start TO
nothing | 07-01 22:00 07-01 02:00 => endAt end_before_start LAST
omit | 07-01 22:00 07-01 02:00 => left out
warn | 07-01 22:00 07-01 02:00 => left out endAt end_before_start
draft | 07-01 22:00 07-01 02:00 => left out draft endAt end_before_start
""")


@pytest.mark.parametrize(("before_start", "cells", "expected"), ENDINGS)
def test_an_end_before_the_start_is_the_next_days_or_dropped_where_the_mapping_says_so(
    mapper: Mapper, row: Row, before_start: str, cells: str, expected: str
) -> None:
    more = "" if before_start == "nothing" else f"    start: $starts\n    before_start: {before_start}\n"
    day, start, last, end = cells.split(" ")
    outcome = mapper(top=STARTS, event=ENDS + more)(row(DAY=f"2026-{day}", FROM=start, LAST=f"2026-{last}", TO=end))
    found = [said(outcome)]
    if isinstance(outcome, MappedRow):
        event = event_of(outcome)
        found = [event.get("endAt", "left out").removesuffix(":00+01:00"), *([event["status"]] if "status" in event else [])]
        found += [f"{warning.field} {warning.code}" for warning in outcome.warnings]
    assert " ".join(found) == expected


DAYS = cases("""
all_day: "00:00" | Africa/Cairo 2025-04-25 => 2025-04-25T01:00:00+03:00 | Africa/Cairo 2025-04-26 => 2025-04-26T00:00:00+03:00
all_day: "00:00" | America/Sao_Paulo 2018-11-04 => 2018-11-04T01:00:00-02:00
all_day: "00:00" | Pacific/Apia 2011-12-30 => 2011-12-31T00:00:00+14:00
clock: {from: FROM, do: [{clock: any, day_end: next_day}]}, all_day: '09:00', sentinels: '00:00' | UTC 2026-07-01 24:00 => 02T00
clock: {from: FROM, do: [{clock: any, day_end: next_day}]}, all_day: '09:00', sentinels: '00:00' | UTC 2026-07-01 00:00 => 01T09
clock: "19:30" | Europe/Lisbon 2026-07-01 => 2026-07-01T19:30:00+01:00
clock: {from: FROM, do: [clock], on_empty: {use: "19:30", warn: true}, on_error: {use: "20:00"}} | UTC 2026-07-01 => 01T19:30
clock: {from: FROM, do: [clock], on_empty: {use: "19:30", warn: true}, on_error: {use: "20:00"}} | UTC 2026-07-01 TBA => 01T20:00
clock: {from: FROM, do: [clock], on_empty: {use: "19:30", warn: true}, on_error: {use: "20:00"}} | UTC 2026-07-01 18h => 01T18:00
""")


@pytest.mark.parametrize(("more", "cells", "expected"), DAYS)
def test_a_day_without_a_clock_begins_when_the_mapping_says_or_when_the_clocks_show_a_time_again(
    mapper: Mapper, row: Row, more: str, cells: str, expected: str
) -> None:
    zone, day, clock = f"{cells} ".split(" ")[:3]
    feed = mapper(event=f"startAt: {{at: {{day: {DAY}, zone: $zone, {more}}}}}", top="let: {zone: {from: ZONE}}\n")
    assert expected in said(feed(row(DAY=day, ZONE=zone, FROM=clock)), "startAt")


NO_SENSE = cases("""
clock | "7pm" => "7pm" does not fit here | {from: FROM, do: [clock], on_empty: {use: "7pm"}} => "7pm" cannot stand in here
sentinels | "00:00" => sentinels and exclusive speak of whole days
exclusive | true => sentinels and exclusive speak of whole days
all_day | "00:00", before_start: omit => before_start needs to know when the event starts
all_day | "00:00", start: "x", before_start: next_day => next_day is for ends that have a clock
all_day | "00:00", start: {from: FROM} => a text does not fit here | "00:00", before: omit => unknown key "before"
all_day | "29:00" => "29:00" is not a time of day
gap | reject => a day alone is no moment: it has no time of day
""")


@pytest.mark.parametrize(("key", "written", "problem"), NO_SENSE)
def test_what_makes_no_sense_is_the_authors_mistake_with_its_place(build: Build, key: str, written: str, problem: str) -> None:
    assert problem in mistakes(build, event=f"startAt: {{at: {{day: {DAY}, zone: Europe/Lisbon, {key}: {written}}}}}")


WALL = "{day: {from: DAY, do: [{date: '%d/%m/%Y'}]}, clock: {from: HOUR, do: [{time: '%H:%M'}]MORE}, zone: Europe/Lisbon}"
BAD = cases("""
31/04/2026 | 24:00 => startAt not_a_time HOUR; startAt not_a_date DAY | 20:00 => startAt not_a_date DAY
30/04/2026 | 24:00 => startAt not_a_time HOUR
29/03/2026 | 01:30 => startAt no_such_time HOUR
EMPTY | EMPTY => startAt required DAY
""")


@pytest.mark.parametrize(("day", "hour", "reported"), BAD)
def test_a_bad_day_and_a_bad_clock_are_reported_at_once(mapper: Mapper, row: Row, day: str, hour: str, reported: str) -> None:
    cells = {"DAY": day, "HOUR": hour}
    strict = WALL.replace("MORE}", ", on_empty: omit}").removesuffix("}") + ', all_day: "00:00"}'
    assert said(mapper(event=f"startAt: {{at: {strict}}}")(row(**cells))) == reported
    choices = f"[{{when: {{column: DAY, is: present}}, then: {{at: {WALL.replace('MORE', '')}}}}}]"
    lenient = mapper(event=f"endAt: {{choose: {choices}, on_error: omit}}")
    assert isinstance(lenient(row(**cells)), MappedRow)


INSTANT = """
startAt: {in_zone: {moment: {from: START, do: [{datetime: "%Y-%m-%dT%H:%M:%S%z"}]}, zone: $zone}}
timezone: $zone
"""
ZONE = "let: {zone: {from: ZONE, do: [zone]}}\n"


def test_an_instant_is_shown_by_the_clocks_of_the_rows_own_zone(mapper: Mapper, row: Row) -> None:
    feed = mapper(event=INSTANT, top=ZONE)
    outcome = feed(row(START="2026-07-01T18:00:00Z", ZONE="Asia/Calcutta"))
    assert said(outcome, "startAt", "timezone") == "2026-07-01T23:30:00+05:30 | Asia/Kolkata"
    (reason,) = rejected(feed(row(START="2026-07-01T18:00:00Z", ZONE="Asia/Calcuta"))).reasons
    assert (reason.code, reason.column, reason.found) == ("not_a_zone", "ZONE", "Asia/Calcuta")
    assert reason.hint == 'did you mean "Asia/Calcutta"?'


def test_a_wall_time_is_no_instant(build: Build) -> None:
    wall = INSTANT.replace("%z", "")
    assert "a date and time without zone does not fit here" in mistakes(build, event=wall, top=ZONE)

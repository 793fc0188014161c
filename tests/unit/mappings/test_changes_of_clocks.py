"""Every kind of gap and overlap that zones have, held against the zone database itself, and shown in docs/time.md."""

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

from mappings.reasons import Refusal
from mappings.zones import Gap, Overlap, find_zone, localiser, zone_names

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


@pytest.mark.parametrize("change", OVERLAPS, ids=lambda change: change.zone)
def test_a_time_in_an_overlap_is_one_of_the_two_moments_at_which_clocks_show_it(change: Change) -> None:
    wall = datetime.fromisoformat(change.wall)
    moments = [moment.isoformat(timespec="minutes") for clock, moment in walls_of(change.zone, wall) if clock == wall]
    assert [placed(change, overlap="earlier"), placed(change, overlap="later")] == moments
    with pytest.raises(Refusal) as refused:
        placed(change, overlap="reject")
    assert refused.value.code == "ambiguous_time"


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
        "from mappings.zones import localiser\n"
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

"""Drafts of small files made after public bug reports: what `eventsync init` is sure of is right, each judged by a person."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.cli.conftest import Desk
from unit.cli.test_cli_init import drafted

from connectors.sources.catalogue import open_source
from mappings.spec.source import SOURCES

CASES = Path(__file__).parents[2] / "field_cases"
DAY_AND_TIME = {"startAt: date", "startAt: time", "title: title"}
TABLE = {*DAY_AND_TIME, "locationName: venue"}
CALENDAR = {"source.series", "endAt: DTEND", "title: SUMMARY"}
SERIES = (
    *("all-day-equal-end.ics", "google-this-and-following.ics", "rdate.ics", "series-over-several-days.ics"),
    *("start-outside-rule.ics", "this-and-future.ics", "utc-exdate.ics"),
)
SURE: dict[str, set[str]] = {
    "access-times.csv": TABLE,
    "attributes-only.xml": {"source.records", "startAt: @start", "title: @title"},
    "by-id.json": {"source.records", "startAt: start", "title: title", "locationName: venue"},
    "frab-rooms.json": {"source.records", "startAt: date", "endAt: duration", "title: title", "locationName: room"},
    "json-ld-places.json": {
        "source.records",
        "source.join_lists",
        "title: name",
        "classifications: @type",
        "status: eventStatus",
    },
    "kartenhaus.json": {
        *("source.records", "source.join_lists", "title: title.de", "classifications: genre", "locationName: venue.name"),
    },
    "korean-times.csv": {"startAt: 날짜", "startAt: 시간", "endAt: 시간", "title: 행사명", "locationName: 장소"},
    "month13.csv": {"title: title", "approxLocation.city: city"},
    "no-uid.ics": CALENDAR,
    "raw-newline.ics": CALENDAR | {"key: UID", "locationName: LOCATION"},
    "repeated-header-after.csv": DAY_AND_TIME - {"title: title"} | {"approxLocation.city: city", "offers: url"},
    "repeated-header-before.csv": DAY_AND_TIME | {"approxLocation.city: city", "offers: url"},
    "semicolon.csv": {"title: title"},
    "space-before-quote.csv": TABLE | {"source.skip_blanks"},
    "thai-years.csv": {"startAt: เวลา", "title: ชื่องาน", "locationName: สถานที่"},
    "theatre.xlsx": {
        "source.header",
        "source.merged",
        "source.headings",
        "key: Réf.",
        "locationName: Salle",
        "offers: Réservation",
    },
    "ticketmaster-venues.json": {"source.records", "timezone: dates.timezone", "startAt: dates.start.dateTime", "title: name"},
    "yoga.tsv": {"source.header", "source.unpivot"},
    **dict.fromkeys(SERIES, CALENDAR | {"key: UID"}),
}


@pytest.mark.parametrize("name", SURE)
def test_what_a_draft_is_sure_of_is_right(desk: Desk, name: str) -> None:
    said = desk.run("init", str(CASES / name), "--feed", "drafted", "--json", code=0).document
    sure = {f"{one['about']}: {one['column']}".removesuffix(": ") for one in said["guesses"] if one["surety"] == "sure"}
    assert sure - {"source.kind"} == SURE[name]


@pytest.mark.parametrize(("name", "count"), [("theatre.xlsx", 10), ("yoga.tsv", 10)])
def test_a_table_in_a_shape_that_people_type_is_read_event_by_event(desk: Desk, name: str, count: int) -> None:
    feed, _ = drafted(desk, str(CASES / name))
    spec = SOURCES[feed["source"]["kind"]].model_validate(feed["source"])
    with open_source(spec, desk.folder / "feeds", frozenset(), folders=[CASES]).read() as reading:  # type: ignore[arg-type]
        assert sum(any(row.cells.values()) for row in reading.rows) == count


def test_a_day_below_its_month_is_drafted_and_a_30th_of_february_refused(desk: Desk) -> None:
    drafted(desk, str(CASES / "theatre.xlsx"))
    said = desk.run("preview", "drafted", "--as-of", "2026-12-01", "--json").document
    days = [row["event"]["startAt"][:10] for row in said["rows"] if "event" in row]
    assert days == ["2027-01-08", "2027-01-09", "2027-01-10", "2027-01-20", "2027-02-02", "2027-02-03"]


def test_a_title_that_says_cancelled_is_one_rule(desk: Desk) -> None:
    feed, _ = drafted(desk, str(CASES / "yoga.tsv"))
    assert len([rule for rule in feed["rows"] if "cancelled" in rule]) == 1

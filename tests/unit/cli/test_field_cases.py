"""Drafts of small files made after public bug reports: what `eventsync init` is sure of is right, each judged by a person."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.cli.conftest import Desk

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
    "theatre.xlsx": {"source.header", "key: Réf.", "locationName: Salle", "offers: Réservation"},
    "ticketmaster-venues.json": {"source.records", "timezone: dates.timezone", "startAt: dates.start.dateTime", "title: name"},
    "yoga.tsv": {"source.header"},
    **dict.fromkeys(SERIES, CALENDAR | {"key: UID"}),
}
NOT_READ = {
    "theatre.xlsx": ("rows", '4 rows have one filled cell, such as "JANVIER 2027"'),
    "yoga.tsv": ("columns", "these names are days or times"),
}
"""Shapes of rows that no mapping reads as they are: what the draft says of them."""


@pytest.mark.parametrize("name", SURE)
def test_what_a_draft_is_sure_of_is_right(desk: Desk, name: str) -> None:
    said = desk.run("init", str(CASES / name), "--feed", "drafted", "--json", code=0).document
    sure = {f"{one['about']}: {one['column']}".removesuffix(": ") for one in said["guesses"] if one["surety"] == "sure"}
    assert sure - {"source.kind"} == SURE[name]
    about, why = NOT_READ.get(name, ("", ""))
    assert not about or any(one["about"] == about and one["why"].startswith(why) for one in said["guesses"])

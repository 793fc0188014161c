"""The job that every peer does: a row of the CSV becomes an event of twelve fields, and has a key of its own.

It is what a script would write by hand: it checks nothing and tells nothing. How the events are sent is each peer's own part.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

PATH = "/api/public/v1/events"
SECRET = "benchmark-key-of-the-bench"
HEADERS = {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"}

Cells = dict[str, str]
Event = dict[str, Any]


def read(folder: Path) -> Iterator[Cells]:
    with (folder / "rows.csv").open(newline="", encoding="utf-8") as source:
        yield from csv.DictReader(source)


def key(cells: Cells) -> str:
    return f"bench-{cells['id']}"


def headers(cells: Cells) -> dict[str, str]:
    return {**HEADERS, "Idempotency-Key": key(cells)}


def mapping(folder: Path) -> Callable[[Cells], Event]:
    """Return the mapping, its two lookup tables read."""
    with (folder / "categories.csv").open(encoding="utf-8", newline="") as table:
        slugs = dict(csv.reader(table))
    with (folder / "cities.csv").open(encoding="utf-8", newline="") as table:
        places = {(one["country"], one["city"]): one for one in csv.DictReader(table)}
    zone = ZoneInfo("Europe/Lisbon")

    def moment(day: str, clock: str) -> str:
        parts = int(day[6:]), int(day[3:5]), int(day[:2]), int(clock[:2]), int(clock[3:])
        return datetime(*parts, tzinfo=zone).isoformat()

    def event(cells: Cells) -> Event:
        place = places[cells["country"], cells["city"]]
        return {
            "channelId": 7,
            "title": cells["title"].replace("&amp;", "&").strip(),
            "startAt": moment(cells["first"], cells["opens"]),
            "endAt": moment(cells["last"], cells["closes"]),
            "timezone": "Europe/Lisbon",
            "status": "published",
            "classifications": [slugs[cells["category"]]],
            "approxLocation": {"city": {name: place[name] for name in ("placeId", "name", "countryCode")}},
            "locationName": cells["venue"].strip(),
            "offers": [{"name": cells["price"], "url": cells["link"], "availability": "available"}],
        }

    return event

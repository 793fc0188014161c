"""A calendar's series from its file to the service: occurrences are delivered once, and none out of reach has vanished."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from integration.desk import FEED, Desk
from integration.service import Service

pytestmark = pytest.mark.slow

MAPPING = f"""\
feed: {FEED}
source: {{kind: ics, path: choir.ics, series: {{from: -30d, to: 100d}}}}
key: [UID, {{column: RECURRENCE-ID, optional: true}}]
event:
  channelId: {{channel: city-agenda}}
  title: {{from: SUMMARY}}
  startAt: {{at: {{day: {{from: DTSTART, do: [{{iso: wall}}]}}, zone: Europe/Warsaw}}}}
  timezone: Europe/Warsaw
  status: published
  classifications: [music]
  approxLocation: {{city: {{placeId: krk}}}}
publish: {{brakes: {{rejected: off, shrink: off, changed: off}}}}
"""
FIRST = date.today() + timedelta(days=30)  # noqa: DTZ011  # far from midnight in every zone
ZONE = "TZID=Europe/Warsaw"


def at(week: int, clock: str = "190000") -> str:
    return f"{FIRST + timedelta(weeks=week):%Y%m%d}T{clock}"


def key(week: int) -> str:
    return f"choir|{FIRST + timedelta(weeks=week)}T19:00:00"


def calendar(desk: Desk, *more: str, rule: str = "FREQ=WEEKLY", others: str = "", zone: str = ZONE) -> None:
    series = ["UID:choir", "SUMMARY:Choir", f"DTSTART;{zone}:{at(0)}", f"RRULE:{rule}", *more]
    lines = ["BEGIN:VCALENDAR", "BEGIN:VEVENT", *series, "END:VEVENT", *others.split(), "END:VCALENDAR", ""]
    (desk.folder / "feeds" / "choir.ics").write_text("\r\n".join(lines))


def test_occurrences_are_delivered_once_and_those_out_of_reach_have_not_vanished(desk: Desk, service: Service) -> None:
    (desk.folder / "feeds" / "town.yaml").write_text(MAPPING)
    calendar(desk)
    first = desk.run(code=0).run["read"]
    known = desk.states()
    assert (first["read"], first["new"], set(known)) == (11, 10, {key(week) for week in range(10)})
    assert len(service.events()) == len(service.requests()) == 10

    assert desk.run(code=0).run["read"]["new"] == 0
    calendar(desk, f"EXDATE;{ZONE}:{at(1)}")
    assert desk.run().run["standing"]["vanished"]["first"] == [key(1)]
    moved = f"BEGIN:VEVENT UID:choir SUMMARY:Choir RECURRENCE-ID;{ZONE}:{at(2)} DTSTART;{ZONE}:{at(2, '203000')} END:VEVENT"
    calendar(desk, others=moved)
    run = desk.run().run
    assert (run["read"]["new"], run["read"]["drifted"], run["vanished"]) == (0, 1, 0)

    calendar(desk, "SEQUENCE:3", zone='TZID="Central European Standard Time"')
    run = desk.run().run
    assert (run["read"]["new"], run["read"]["drifted"], run["vanished"]) == (0, 0, 0)

    desk.edit("to: 100d", "to: 60d")
    run = desk.run().run
    assert (run["read"]["new"], run["vanished"]) == (0, 0)
    calendar(desk, rule="FREQ=SECONDLY")
    run = desk.run().run
    assert (run["read"]["rejected"], run["rejections"][0]["reasons"][0]["code"], run["vanished"]) == (1, "bad_series", 0)
    assert len(service.events()) == len(service.requests()) == 10

"""When a feed's schedule ticks, worked out from the calendar alone, as a person would: what Dagster's ticks are held against."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta

from month.play import Span
from month.story import ZONE

TIMES = (time(2, 30), time(14, 30))


def expected_ticks(span: Span) -> Iterator[datetime]:
    """Yield the moments, in UTC: twice a day by the feed's own clock, whatever becomes of that clock."""
    for number in range(span.days):
        day = span.first + timedelta(days=number)
        yield from (_moment(datetime.combine(day, clock)) for clock in TIMES)


def _moment(wall: datetime) -> datetime:
    """A time that clocks skip is the moment to which they go; one that they show twice is the second."""
    at = wall.replace(tzinfo=ZONE, fold=1)
    there = at.astimezone(UTC).astimezone(ZONE).replace(tzinfo=None)
    if there != wall:  # it is not on any clock of that day
        return wall.replace(hour=wall.hour + 1, minute=0, tzinfo=ZONE).astimezone(UTC)
    return at.astimezone(UTC)

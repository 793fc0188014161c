"""Compute the ticks of a cron line: those of a day, and the last one before a given time.

Does not import Dagster, because the command line needs it for notifications and must start fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from mappings.spec.feed import MONTHS, WEEKDAYS, Schedule, cron_values

HOUR, DAY = 60, 24 * 60
"""Minutes of an hour and of a day."""
ANY = "*"
_LONGEST = timedelta(days=8 * 366)
"""Longest gap between two ticks: around 2100, a 29th of February is eight years after the one before."""


def ticks_of_day(cron: str) -> Sequence[int]:
    """Return the ticks of a day as minutes since midnight, earliest first."""
    minute, hour, *_ = cron.split()
    return [HOUR * each + minutes for each in cron_values(hour, 0, 23) for minutes in cron_values(minute, 0, 59)]


def gaps_of_day(ticks: Sequence[int]) -> set[int]:
    """Return the different gaps between two ticks in minutes, including that to the next day's first tick."""
    return {after - before for before, after in pairwise((*ticks, ticks[0] + DAY))}


def last_tick(schedule: Schedule, before: datetime) -> datetime | None:
    """Return the last tick of a schedule at or before a given time; None without a cron line.

    It may be an hour off in an hour that daylight saving time skips or repeats.
    """
    if schedule.cron is None:
        return None
    zone, ticks = ZoneInfo(schedule.timezone), ticks_of_day(schedule.cron)
    day = before.astimezone(zone).date()
    earliest = day - _LONGEST
    while day > earliest:
        if _is_day_of(schedule.cron, day):
            moments = (_moment(day, minute, zone) for minute in reversed(ticks))
            if found := next((moment for moment in moments if moment <= before), None):
                return found
        day -= timedelta(days=1)
    return None


def _moment(day: date, minute: int, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(minute // HOUR, minute % HOUR), zone).astimezone(UTC)


def _is_day_of(cron: str, day: date) -> bool:
    """Return whether a cron line ticks on a day. Of days of the month and of the week, either is enough (cron's rule)."""
    _, _, days, months, weekdays = cron.split()
    if day.month not in cron_values(months, 1, 12, MONTHS):
        return False
    is_day = day.day in cron_values(days, 1, 31)
    is_weekday = day.isoweekday() % 7 in cron_values(weekdays, 0, 7, WEEKDAYS)
    return is_day or is_weekday if ANY not in {days, weekdays} else is_day and is_weekday

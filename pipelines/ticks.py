"""The moments that a cron line names, computed from the calendar: those of a day, and the last before a moment.

Imports no Dagster, because notifications need them on the command line, which has to start fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from mappings.spec.feed import MONTHS, WEEKDAYS, Schedule, cron_values

HOUR, DAY = 60, 24 * 60
"""In minutes."""
ANY = "*"
_LONGEST = timedelta(days=8 * 366)
"""Around 2100 the ticks of a line that names the 29th of February are eight years apart."""


def ticks_of_day(cron: str) -> Sequence[int]:
    """Return the minutes of a day at which a line ticks, on the days on which it does, the earliest first."""
    minute, hour, *_ = cron.split()
    return [HOUR * each + minutes for each in cron_values(hour, 0, 23) for minutes in cron_values(minute, 0, 59)]


def gaps_of_day(ticks: Sequence[int]) -> set[int]:
    """Return how many minutes lie between two ticks, one of which may be the next day's first."""
    return {after - before for before, after in pairwise((*ticks, ticks[0] + DAY))}


def last_tick(schedule: Schedule, before: datetime) -> datetime | None:
    """Return the last tick of a schedule at or before a moment; None without a cron line.

    In an hour that daylight saving time skips or repeats, it may be wrong by that hour.
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
    """Whether a line ticks on a day: where it names days of the month and of the week, either is enough, as in cron."""
    _, _, days, months, weekdays = cron.split()
    if day.month not in cron_values(months, 1, 12, MONTHS):
        return False
    is_day = day.day in cron_values(days, 1, 31)
    is_weekday = day.isoweekday() % 7 in cron_values(weekdays, 0, 7, WEEKDAYS)
    return is_day or is_weekday if ANY not in {days, weekdays} else is_day and is_weekday

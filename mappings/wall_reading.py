"""What a day and a clock make on the wall: all-day rules, times that only stand for "all day", 24:00, ends written exclusively.

In which zone that wall hangs is `moment_values`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from mappings.day_end import DAY_END
from mappings.evaluation import Getter, RowState, required
from mappings.refusals import Refusal
from mappings.spec.values import Wall
from mappings.vocabulary import ReasonCode

_CLOCK = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_A_DAY = timedelta(days=1)


class OnTheWall(NamedTuple):
    """What the clocks show, in no zone yet. `is_all_day`: the time is the feed's own, not the partner's."""

    local: datetime
    is_all_day: bool = False


ReadWall = Callable[[RowState], OnTheWall | None]
"""Returns a row's wall time, None where it has no day; raises Refusal."""


def wall_reader(day: Getter, clock: Getter | None, wall: Wall, clock_column: str) -> ReadWall:
    """Compile how a row's day and clock (None where they are empty) are read together."""
    all_day = None if wall.all_day is None else time.fromisoformat(wall.all_day)
    sentinels = frozenset(_minute(time.fromisoformat(each)) for each in wall.sentinels)

    def read(row: RowState) -> OnTheWall | None:
        on = day(row)
        if on is None:
            return None
        shown = _own_clock(on) if clock is None else _shown(clock(row))
        if shown is not None and not (sentinels and _minute(shown) in sentinels):
            return OnTheWall(on if clock is None else together(on, shown))
        if all_day is None:
            raise required(clock_column, "a time of day is needed, or all_day in the mapping")
        return OnTheWall(together(on, all_day, back=1 if wall.exclusive else 0), is_all_day=True)

    return read


def together(day: Any, clock: time, back: int = 0) -> datetime:
    """Return a day at a time of day, `back` days earlier; 24:00 is the next day's midnight."""
    if type(day) is str:
        day = day_from_text(day)
    if isinstance(day, datetime):
        day = day.date()
    if not isinstance(day, date):
        raise Refusal(ReasonCode.NOT_A_DATE, "a date and a time of day are needed here", found=str(day))
    if clock is DAY_END:
        return shifted(datetime.combine(day, time()), 1 - back)
    wall = datetime.combine(day, clock)
    return shifted(wall, -back) if back else wall


def shifted(wall: datetime, days: int) -> datetime:
    """Return the same time of day so many days later."""
    try:
        return wall + days * _A_DAY
    except OverflowError:
        raise Refusal(ReasonCode.NOT_A_DATE, "a day up to 9999-12-31 would be accepted", found=wall.isoformat()) from None


@lru_cache(maxsize=256)
def clock_from_text(text: str) -> time:
    """Read a time that stands in the mapping file itself: 19:00."""
    if not _CLOCK.fullmatch(text):
        raise Refusal(ReasonCode.NOT_A_TIME, 'a time of day like "19:00" is needed here', found=text)
    return time.fromisoformat(text)


@lru_cache(maxsize=256)
def day_from_text(text: str) -> date:
    """Read a day that stands in the mapping file itself: 2026-07-01."""
    try:
        day = date.fromisoformat(text) if _DAY.fullmatch(text) else None
    except ValueError:
        day = None
    if day is None:
        raise Refusal(ReasonCode.NOT_A_DATE, 'a date like "2026-07-01" is needed here', found=text)
    return day


def _own_clock(on: Any) -> time | None:
    return on.time() if isinstance(on, datetime) else None


def _shown(clock: Any) -> time | None:
    if clock is None or isinstance(clock, time):
        return clock
    if type(clock) is str:
        return clock_from_text(clock)
    raise Refusal(ReasonCode.NOT_A_TIME, "a time of day is needed here", found=str(clock))


def _minute(clock: time) -> int:
    """The minute of the day; 24:00 is none of the day's own."""
    return -1 if clock is DAY_END else clock.hour * 60 + clock.minute

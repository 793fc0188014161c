"""When a feed is overdue, by its own schedule: Dagster's freshness policy of what is published.

That a policy is looked at at all is said in `dagster_home`; who is told of a stale feed is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import lru_cache
from itertools import pairwise

from dagster import FreshnessPolicy

from mappings.publishing import Schedule

GRACE = (60, 45, 30, 20, 15, 10, 5, 2, 1)
"""How many minutes a run may take before its feed counts as stale: the most of these that the schedule leaves room for."""

_HOUR, _DAY = 60, 24 * 60
_ANY = "*"


@lru_cache(maxsize=512)
def freshness_of(schedule: Schedule | None) -> FreshnessPolicy | None:
    """Return the policy of a feed that runs by a clock: stale once a tick is an hour old, and no run has published since.

    Where ticks come more often than hourly, the next one is the deadline of the one before. None where the feed runs when it
    is asked to, or when its source changes: nobody knows when that should be.

    Ticks that come evenly all day need no calendar: Dagster counts a thousand ticks of each cron line wherever it meets one.
    """
    if schedule is None or schedule.cron is None:
        return None
    minute, hour, *days = schedule.cron.split()
    ticks = [_HOUR * each + minutes for each in _values(hour, 23) for minutes in _values(minute, 59)]
    gaps = {after - before for before, after in pairwise((*ticks, ticks[0] + _DAY))}
    if days == [_ANY] * 3 and len(gaps) == 1 and min(gaps) < _DAY:
        (every,) = gaps
        return FreshnessPolicy.time_window(timedelta(minutes=every + min(every, GRACE[0])))
    deadline, grace_min = _deadline(schedule.cron, ticks, min(gaps))
    return FreshnessPolicy.cron(deadline, timedelta(minutes=grace_min), schedule.timezone)


def _deadline(cron: str, ticks: Sequence[int], shortest: int) -> tuple[str, int]:
    """Return the cron line of the moments by which something must be published, and by how many minutes they come later.

    `ticks` are the minutes of a day, `shortest` the least between two. Where no line says those moments (an hour around
    midnight, on some days only), the next tick is the deadline of the last: it is then stale too soon, while its run works.
    """
    _, _, *days = cron.split()
    for grace_min in dict.fromkeys((min(shortest, GRACE[0]), *GRACE)):
        later = _later(ticks, grace_min, is_daily=days == [_ANY] * 3) if grace_min <= shortest else None
        if later is not None:
            return " ".join((*later, *days)), grace_min
    return cron, shortest


def _later(ticks: Iterable[int], grace_min: int, *, is_daily: bool) -> tuple[str, str] | None:
    """Return the fields of minutes and hours that say all these minutes of a day, but later; None if none can."""
    later = {tick + grace_min for tick in ticks}
    if max(later) >= _DAY and not is_daily:
        return None
    minutes, hours = {tick % _HOUR for tick in later}, {tick % _DAY // _HOUR for tick in later}
    return (_field(minutes, _HOUR), _field(hours, 24)) if len(minutes) * len(hours) == len(later) else None


def _field(values: set[int], all_there_are: int) -> str:
    return _ANY if len(values) == all_there_are else ",".join(map(str, sorted(values)))


def _values(field: str, most: int) -> list[int]:
    """Return what a field of a cron line means, which was checked when its file was read."""
    return sorted({value for part in field.split(",") for value in _span(part, most)})


def _span(part: str, most: int) -> list[int]:
    """Return the values of a part; a range that ends before it begins goes on at 0: 22-6 is the night."""
    span, _, step = part.partition("/")
    first, _, last = (f"0-{most}" if span == _ANY else span).partition("-")
    begin, end = int(first), int(last or (most if step else first))
    return [value % (most + 1) for value in range(begin, end + 1 if end >= begin else end + most + 2, int(step or 1))]

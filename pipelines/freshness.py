"""When a feed is overdue, by its own schedule: Dagster's freshness policy of what is published.

That a policy is looked at at all is said in `launching.dagster_home`; whom we tell that no run comes, in `telling.overdue`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import lru_cache

from dagster import FreshnessPolicy

from mappings.spec.feed import Schedule
from pipelines.ticks import ANY, DAY, HOUR, gaps_of_day, ticks_of_day

GRACE = (60, 45, 30, 20, 15, 10, 5, 2, 1)
"""How many minutes a run may take before its feed counts as stale: the most of these that the schedule leaves room for."""


@lru_cache(maxsize=512)
def freshness_of(schedule: Schedule | None) -> FreshnessPolicy | None:
    """Return the policy of a feed that runs by a clock: stale once a tick is an hour old, and no run has published since.

    Where ticks come more often than hourly, the next one is the deadline of the one before. None where the feed runs when it
    is asked to, or when its source changes: nobody knows when that should be.

    Ticks that come evenly all day need no calendar: Dagster counts a thousand ticks of each cron line wherever it meets one.
    """
    if schedule is None or schedule.cron is None:
        return None
    _, _, *days = schedule.cron.split()
    ticks = ticks_of_day(schedule.cron)
    gaps = gaps_of_day(ticks)
    if days == [ANY] * 3 and len(gaps) == 1 and min(gaps) < DAY:
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
        later = _later(ticks, grace_min, is_daily=days == [ANY] * 3) if grace_min <= shortest else None
        if later is not None:
            return " ".join((*later, *days)), grace_min
    return cron, shortest


def _later(ticks: Iterable[int], grace_min: int, *, is_daily: bool) -> tuple[str, str] | None:
    """Return the fields of minutes and hours that say all these minutes of a day, but later; None if none can."""
    later = {tick + grace_min for tick in ticks}
    if max(later) >= DAY and not is_daily:
        return None
    minutes, hours = {tick % HOUR for tick in later}, {tick % DAY // HOUR for tick in later}
    return (_field(minutes, HOUR), _field(hours, 24)) if len(minutes) * len(hours) == len(later) else None


def _field(values: set[int], all_there_are: int) -> str:
    return ANY if len(values) == all_there_are else ",".join(map(str, sorted(values)))

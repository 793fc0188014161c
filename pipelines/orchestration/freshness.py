"""When the asset `published` of a scheduled feed counts as stale."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache

import dagster as dg

from mappings.spec.feed import Schedule
from pipelines.ticks import ANY, DAY, HOUR, gaps_of_day, ticks_of_day

GRACE = (60, 45, 30, 20, 15, 10, 5, 2, 1)
"""Minutes that a run may take before its feed counts as stale: the largest that the schedule's gaps allow."""


@lru_cache(maxsize=512)
def freshness_of(schedule: Schedule | None) -> dg.FreshnessPolicy | None:
    """Return the freshness policy of a scheduled feed: stale if no run has published an hour after a tick, or by the next tick.

    None for a feed that runs on request or when its source changes. Evenly spaced ticks get a time window, because Dagster checks
    a cron policy by counting a thousand ticks. If no cron line can express the deadlines (an hour around midnight, on some days
    only), the next tick is the deadline; the feed is then stale while its run works.
    """
    if schedule is None or schedule.cron is None:
        return None
    _, _, *days = schedule.cron.split()
    ticks, is_daily = ticks_of_day(schedule.cron), days == [ANY] * 3
    gaps = gaps_of_day(ticks)
    shortest = min(gaps)
    if is_daily and len(gaps) == 1 and shortest < DAY:
        return dg.FreshnessPolicy.time_window(timedelta(minutes=shortest + min(shortest, GRACE[0])))
    deadline, grace_min = schedule.cron, shortest
    for minutes in dict.fromkeys((min(shortest, GRACE[0]), *GRACE)):
        fields = _later(ticks, minutes, is_daily=is_daily) if minutes <= shortest else None
        if fields is not None:
            deadline, grace_min = " ".join((*fields, *days)), minutes
            break
    return dg.FreshnessPolicy.cron(deadline, timedelta(minutes=grace_min), schedule.timezone)


def _later(ticks: Sequence[int], grace_min: int, *, is_daily: bool) -> tuple[str, str] | None:
    """Return the cron fields for minutes and hours of all ticks plus `grace_min`; None if one cron line cannot express them."""
    later = {tick + grace_min for tick in ticks}
    minutes, hours = {tick % HOUR for tick in later}, {tick % DAY // HOUR for tick in later}
    if (max(later) >= DAY and not is_daily) or len(minutes) * len(hours) != len(later):
        return None
    return _field(minutes, HOUR), _field(hours, 24)


def _field(values: set[int], count: int) -> str:
    return ANY if len(values) == count else ",".join(map(str, sorted(values)))

"""Each feed's schedule and freshness policy, as its mapping file says them.

A tick that finds the feed still at work is skipped, not queued; one that finds a backfill at work gets in between two slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import lru_cache

import dagster as dg

from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping, Schedule
from pipelines.orchestration import names
from pipelines.run.backfill import BACKFILL, SCHEDULE
from pipelines.ticks import ANY, DAY, HOUR, gaps_of_day, ticks_of_day

Tick = Callable[[dg.ScheduleEvaluationContext], dg.RunRequest | dg.SkipReason]
AT_WORK = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
"""Not `NOT_STARTED`: a process that died before its run began would leave it so for ever."""


def feed_schedules(mapping: FeedMapping) -> list[dg.ScheduleDefinition]:
    """Return a feed's schedule, if it has one: running from the start, in its own time zone, never two runs at once."""

    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        return at_work(context.instance, mapping.feed) or dg.RunRequest(tags={names.LAUNCHED_BY_TAG: SCHEDULE})

    return schedules_of_job(names.job_of(mapping.feed), mapping.schedule, tick)


def schedules_of_job(job_name: str, schedule: Schedule | None, tick: Tick) -> list[dg.ScheduleDefinition]:
    """Return the schedule of a job by the cron line of a mapping file, if there is one; `tick` is called at each tick."""
    if schedule is None or schedule.cron is None:
        return []
    return [
        dg.ScheduleDefinition(
            name=names.schedule_of_job(job_name),
            job_name=job_name,
            cron_schedule=schedule.cron,
            execution_timezone=schedule.timezone,
            execution_fn=tick,
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
    ]


def at_work(instance: dg.DagsterInstance, feed: FeedName) -> dg.SkipReason | None:
    """Return which run of a feed has not ended yet; None if all have, or if only a backfill has not."""
    found = instance.get_run_records(dg.RunsFilter(tags={names.FEED_TAG: feed}, statuses=AT_WORK))
    runs = [record.dagster_run for record in found if record.dagster_run.tags.get(names.LAUNCHED_BY_TAG) != BACKFILL]
    return dg.SkipReason(f"run {runs[0].run_id} of {feed} has not ended yet") if runs else None


GRACE = (60, 45, 30, 20, 15, 10, 5, 2, 1)
"""How many minutes a run may take before its feed counts as stale: the most of these that the schedule leaves room for."""


@lru_cache(maxsize=512)
def freshness_of(schedule: Schedule | None) -> dg.FreshnessPolicy | None:
    """Return the policy of a feed that runs by a clock: stale once a tick is an hour old, and no run has published since.

    Where ticks come more often than hourly, the next one is the deadline of the one before. None where the feed runs on
    request, or when its source changes: when that should be is unknown.

    Ticks that come evenly all day get a time window: of each cron line Dagster counts a thousand ticks to check it.
    """
    if schedule is None or schedule.cron is None:
        return None
    _, _, *days = schedule.cron.split()
    ticks = ticks_of_day(schedule.cron)
    gaps = gaps_of_day(ticks)
    if days == [ANY] * 3 and len(gaps) == 1 and min(gaps) < DAY:
        (every,) = gaps
        return dg.FreshnessPolicy.time_window(timedelta(minutes=every + min(every, GRACE[0])))
    deadline, grace_min = _deadline(schedule.cron, ticks, min(gaps))
    return dg.FreshnessPolicy.cron(deadline, timedelta(minutes=grace_min), schedule.timezone)


def _deadline(cron: str, ticks: Sequence[int], shortest: int) -> tuple[str, int]:
    """Return the cron line of the moments by which something must be published, and how many minutes after a tick they are.

    `ticks` are the minutes of a day, `shortest` the least between two. Where no line can name those moments (an hour
    around midnight, on some days only), the next tick is the deadline of the last; the feed is then stale while its run works.
    """
    _, _, *days = cron.split()
    for grace_min in dict.fromkeys((min(shortest, GRACE[0]), *GRACE)):
        later = _later(ticks, grace_min, is_daily=days == [ANY] * 3) if grace_min <= shortest else None
        if later is not None:
            return " ".join((*later, *days)), grace_min
    return cron, shortest


def _later(ticks: Iterable[int], grace_min: int, *, is_daily: bool) -> tuple[str, str] | None:
    """Return the cron fields for minutes and hours of all these ticks, but later; None if there are none."""
    later = {tick + grace_min for tick in ticks}
    if max(later) >= DAY and not is_daily:
        return None
    minutes, hours = {tick % HOUR for tick in later}, {tick % DAY // HOUR for tick in later}
    return (_field(minutes, HOUR), _field(hours, 24)) if len(minutes) * len(hours) == len(later) else None


def _field(values: set[int], count: int) -> str:
    return ANY if len(values) == count else ",".join(map(str, sorted(values)))

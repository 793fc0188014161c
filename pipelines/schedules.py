"""Each feed's own clock, as its mapping file says it. A tick that finds the feed still at work is skipped, not queued; one that
finds a backfill at work comes in between two of its slices.

What runs a feed when its source has changed is `sensors`'.
"""

from __future__ import annotations

from collections.abc import Callable

from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    DefaultScheduleStatus,
    RunRequest,
    RunsFilter,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
)

from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping, Schedule
from pipelines import names
from pipelines.run.backfill import BACKFILL, SCHEDULE

Tick = Callable[[ScheduleEvaluationContext], RunRequest | SkipReason]

AT_WORK = [DagsterRunStatus.QUEUED, DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
"""Not `NOT_STARTED`: a process that died before its run began would leave it so for ever."""


def feed_schedules(mapping: FeedMapping) -> list[ScheduleDefinition]:
    """Return a feed's schedule, if it has one: running from the start, in its own time zone, never two runs at once."""

    def tick(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        return at_work(context.instance, mapping.feed) or RunRequest(tags={names.LAUNCHED_BY_TAG: SCHEDULE})

    return clock_of(names.job_of(mapping.feed), mapping.schedule, tick)


def clock_of(job_name: str, schedule: Schedule | None, tick: Tick) -> list[ScheduleDefinition]:
    """Return the schedule of a job by the clock that a mapping file names, if it does; `tick` says what happens at each tick."""
    if schedule is None or schedule.cron is None:
        return []
    return [
        ScheduleDefinition(
            name=names.schedule_of_job(job_name),
            job_name=job_name,
            cron_schedule=schedule.cron,
            execution_timezone=schedule.timezone,
            execution_fn=tick,
            default_status=DefaultScheduleStatus.RUNNING,
        )
    ]


def at_work(instance: DagsterInstance, feed: FeedName) -> SkipReason | None:
    """Return which run of a feed has not ended yet, None if all have, or if it is a backfill's only."""
    found = instance.get_run_records(RunsFilter(tags={names.FEED_TAG: feed}, statuses=AT_WORK))
    runs = [record.dagster_run for record in found if record.dagster_run.tags.get(names.LAUNCHED_BY_TAG) != BACKFILL]
    return SkipReason(f"run {runs[0].run_id} of {feed} has not ended yet") if runs else None

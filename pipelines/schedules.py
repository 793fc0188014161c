"""Each feed's own clock, as its mapping file says it. A tick that finds the feed still at work is skipped, not queued; one that
finds a backfill at work comes in between two of its slices.
"""

from __future__ import annotations

from dagster import (
    DagsterRunStatus,
    DefaultScheduleStatus,
    RunRequest,
    RunsFilter,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SkipReason,
)

from mappings.publishing import Schedule
from mappings.schema import FeedMapping
from pipelines import names
from pipelines.giving_way import BACKFILL, SCHEDULE

AT_WORK = [DagsterRunStatus.QUEUED, DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
"""Not `NOT_STARTED`: a process that died before its run began would leave it so for ever."""


def feed_schedule(mapping: FeedMapping, schedule: Schedule) -> ScheduleDefinition:
    """Return a feed's schedule: running from the start, in its own time zone, never two runs at once."""

    def tick(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
        found = context.instance.get_run_records(RunsFilter(tags={names.FEED_TAG: mapping.feed}, statuses=AT_WORK))
        runs = [record.dagster_run for record in found if record.dagster_run.tags.get(names.LAUNCHED_BY_TAG) != BACKFILL]
        if runs:
            return SkipReason(f"run {runs[0].run_id} of {mapping.feed} has not ended yet")
        return RunRequest(tags={names.LAUNCHED_BY_TAG: SCHEDULE})

    return ScheduleDefinition(
        name=names.schedule_of_job(names.job_of(mapping.feed)),
        job_name=names.job_of(mapping.feed),
        cron_schedule=schedule.cron,
        execution_timezone=schedule.timezone,
        execution_fn=tick,
        default_status=DefaultScheduleStatus.RUNNING,
    )

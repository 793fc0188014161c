"""A job that deletes old runs from Dagster's own history, with their logs; its schedule is off until it is switched on.

Annotations are not postponed here, because Dagster reads those of an op's function.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

import dagster as dg
from pydantic import Field

from pipelines.clock import now
from pipelines.orchestration import names

JOB = "forget_old_runs"
CRON = "20 3 * * *"
ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_AT_ONCE = 200


class KeepFor(dg.Config):
    """Which part of the history stays."""

    days: int = Field(default=90, ge=7, description="Runs that began more days ago are forgotten; what feeds have sent is not.")


def history_definitions() -> dg.Definitions:
    """Return the job and its daily schedule, which is off: history is deleted only on request."""

    @dg.op(description="Deletes old runs, their events and what they printed; the newest event of each asset stays.")
    def forget(context: dg.OpExecutionContext, config: KeepFor) -> None:
        count = sum(1 for _ in forget_runs(context.instance, now() - timedelta(days=config.days)))
        context.log.info("%s runs that began more than %s days ago are forgotten", count, config.days)

    @dg.job(name=JOB, description="Forgets old runs in Dagster; the state DB is `eventsync prune`'s.")
    def forget_old_runs() -> None:
        forget()

    schedule = dg.ScheduleDefinition(name=names.schedule_of_job(JOB), job=forget_old_runs, cron_schedule=CRON)
    return dg.Definitions(jobs=[forget_old_runs], schedules=[schedule])


def forget_runs(instance: dg.DagsterInstance, before: datetime) -> Iterator[str]:
    """Delete the runs that began before a moment and have ended, and yield their ids."""
    old = dg.RunsFilter(statuses=ENDED, created_before=before)
    while runs := instance.get_run_records(old, limit=_AT_ONCE, ascending=True):
        for record in runs:
            run_id = record.dagster_run.run_id
            instance.compute_log_manager.delete_logs(prefix=[run_id])
            instance.delete_run(run_id)
            yield run_id

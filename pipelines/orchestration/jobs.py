"""Jobs beside the feeds' own: backfills of past days, and forgetting old runs of Dagster's history.

Backfills are apart from `staged` and `published`, as a window of the past says nothing of whether a feed is fresh. Annotations
are not postponed here, because Dagster reads those of a step's function.
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import dagster as dg
from pydantic import Field

from mappings.errors import ConfigError
from mappings.spec.feed import FeedMapping
from pipelines.clock import now
from pipelines.orchestration import names
from pipelines.orchestration.assets import StepContext, as_failures, interrupted_for_good
from pipelines.orchestration.automation import ENDED
from pipelines.run.backfill import FIRST_SHOWN, default_way, has_days
from pipelines.run.brakes import brake_error
from pipelines.run.context import BACKFILL, OpenContext
from pipelines.run.feed_run import FeedRun, RunIdentity
from pipelines.run.options import RunOptions, Window

DAYS = dg.DailyPartitionsDefinition(start_date=FIRST_SHOWN.isoformat(), end_offset=1)
"""Every day from the first that may be backfilled to today, in UTC."""
JOB = "forget_old_runs"
CRON = "20 3 * * *"
_AT_ONCE = 200


def backfill_definitions(mapping: FeedMapping, open_run_context: OpenContext) -> dg.Definitions:
    """Return the job that backfills one feed, and where the source has days the asset whose partitions they are."""
    name, tags, group = names.backfill_job_of(mapping.feed), {names.FEED_TAG: mapping.feed}, names.group_of(mapping.feed)

    if not has_days(mapping):

        @dg.op(name=f"window_of_{group}", pool="event-api")
        def backfill_window(context: dg.OpExecutionContext, options: dg.ResourceParam[RunOptions]) -> None:
            context.add_output_metadata(_backfill(context, open_run_context, mapping, options))

        @dg.job(name=name, tags=tags, description=f"Backfill a window of {mapping.feed}, by its events.")
        def window_job() -> None:
            backfill_window()

        return dg.Definitions(jobs=[window_job])

    key = dg.AssetKey(names.backfilled_path(mapping.feed))
    with warnings.catch_warnings():
        # That one run makes many days is called beta; the UI's backfills of these assets depend on it.
        warnings.simplefilter("ignore", dg.BetaWarning)

        @dg.asset(
            key=key,
            deps=[dg.AssetKey(names.source_path(mapping.feed))],
            group_name=group,
            owners=names.owners_of(mapping.owner),
            kinds={"python", "http"},
            pool="event-api",
            partitions_def=DAYS,
            backfill_policy=dg.BackfillPolicy.single_run(),
            description=f"Past days, by {default_way(mapping.source)}, that were read again and sent: every row once.",
        )
        def backfilled(context: dg.AssetExecutionContext, options: dg.ResourceParam[RunOptions]) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster looks for the bare class
            if options.window is None and (context.has_partition_key or context.has_partition_key_range):
                # Partitions chosen in the UI cannot ask the run to wait for a scheduled one, so it always does.
                days = context.partition_key_range
                window = Window.model_validate({"by": default_way(mapping.source), "first": days.start, "last": days.end})
                options = options.model_copy(update={"window": window, "wait": True})
            return dg.MaterializeResult(metadata=_backfill(context, open_run_context, mapping, options))

        job = dg.define_asset_job(name, selection=[key], tags=tags, description=f"Backfill past days of {mapping.feed}.")
        return dg.Definitions(assets=[backfilled], jobs=[job])


def _backfill(
    context: StepContext, open_run_context: OpenContext, mapping: FeedMapping, options: RunOptions
) -> Mapping[str, Any]:
    """Stage and publish one window; return its accounts as numbers."""
    launched_by = context.run.tags.get(names.LAUNCHED_BY_TAG, BACKFILL)
    identity = RunIdentity(context.run.run_id, launched_by, context.run.run_id)
    with as_failures(context), interrupted_for_good(context), open_run_context() as run_context:
        window = options.window
        if window is None:
            message, hint = f"no days of {mapping.feed} were named", "set `window` of the resource `options`"
            raise ConfigError(message, hint=f"{hint}: {{by: event, first: DAY, last: DAY}}; or choose partitions, if it has any")
        run = FeedRun(run_context, mapping, identity, options)
        staged = run.stage()
        if staged.stopping:
            raise brake_error(staged.stopping, mapping.feed)
        published = run.publish()
        if published.cause is not None:
            raise published.cause
    answered = {name: count for name, count in asdict(published.account).items() if name != "new"}
    return {"days": str(window), "by": window.by, **asdict(staged.report.account), **answered}


class KeepFor(dg.Config):
    """Which part of the history stays."""

    days: int = Field(default=90, ge=7, description="Runs that began more days ago are forgotten; what feeds have sent is not.")


def history_definitions() -> dg.Definitions:
    """Return the job that deletes old runs with their logs, and its daily schedule, which is off until it is switched on."""

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

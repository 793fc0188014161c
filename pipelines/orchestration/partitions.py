"""Windows of a feed's past as Dagster sees them: days of the asset `backfilled`, or a job of its own where a source has no days.

They stand apart from `staged` and `published`, as a window of the past says nothing of whether a feed is fresh. Annotations are
not postponed here, because Dagster looks at those of a step's function.
"""

import warnings
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    BackfillPolicy,
    BetaWarning,
    DailyPartitionsDefinition,
    Definitions,
    JobDefinition,
    MaterializeResult,
    OpExecutionContext,
    ResourceParam,
    asset,
    define_asset_job,
    job,
    op,
)

from mappings.errors import ConfigError
from mappings.spec.feed import FeedMapping
from pipelines.orchestration import names
from pipelines.orchestration.failures import StepContext, as_failures, interrupted_for_good
from pipelines.run.backfill import BACKFILL, FIRST_SHOWN, has_days, usual_way
from pipelines.run.brakes import raise_if_braked
from pipelines.run.context import OpenContext, RunContext
from pipelines.run.feed_run import FeedRun, RunIdentity
from pipelines.run.options import RunOptions, Window
from pipelines.run.publish import PublishReport
from pipelines.run.stage import Staged

DAYS = DailyPartitionsDefinition(start_date=FIRST_SHOWN.isoformat(), end_offset=1)
"""Every day from the first that anybody may want back, up to today, in UTC."""


def backfill_definitions(mapping: FeedMapping, open_workshop: OpenContext) -> Definitions:
    """Return what brings windows of one feed's past in: a job, and the asset whose days it makes where the source has days."""
    if not has_days(mapping):
        return Definitions(jobs=[_window_job(mapping, open_workshop)])
    key = AssetKey(names.backfilled_path(mapping.feed))
    whole = define_asset_job(
        names.backfill_job_of(mapping.feed),
        selection=[key],
        tags={names.FEED_TAG: mapping.feed},
        description=f"Bring days of {mapping.feed} in that are past.",
    )
    with warnings.catch_warnings():
        # That one run makes many days is called beta, and is what the UI's backfills here depend on.
        warnings.simplefilter("ignore", BetaWarning)
        return Definitions(assets=[_backfilled(mapping, open_workshop, key)], jobs=[whole])


def _backfilled(mapping: FeedMapping, open_workshop: OpenContext, key: AssetKey) -> AssetsDefinition:
    @asset(
        key=key,
        deps=[AssetKey(names.source_path(mapping.feed))],
        group_name=names.group_of(mapping.feed),
        owners=names.owners_of(mapping.owner),
        kinds={"python", "http"},
        pool="event-api",
        partitions_def=DAYS,
        backfill_policy=BackfillPolicy.single_run(),
        description=f"Days of the past, by {usual_way(mapping.source)}, that were read once more and said: every row once.",
    )
    def backfilled(context: AssetExecutionContext, options: ResourceParam[RunOptions]) -> MaterializeResult:  # type: ignore[type-arg]  # Dagster looks for the bare class
        with as_failures(context), interrupted_for_good(context), open_workshop() as workshop:
            return MaterializeResult(metadata=_bring_in(context, workshop, mapping, _with_days(context, mapping, options)))

    return backfilled


def _window_job(mapping: FeedMapping, open_workshop: OpenContext) -> JobDefinition:
    name = names.backfill_job_of(mapping.feed)

    @op(name=f"window_of_{names.group_of(mapping.feed)}", pool="event-api")
    def bring_in(context: OpExecutionContext, options: ResourceParam[RunOptions]) -> None:
        with as_failures(context), interrupted_for_good(context), open_workshop() as workshop:
            if options.window is None:
                message = f"no window of {mapping.feed} was named"
                raise ConfigError(message, hint="set `window` of the resource `options`: {by: event, first: DAY, last: DAY}")
            context.add_output_metadata(_bring_in(context, workshop, mapping, options))

    @job(name=name, tags={names.FEED_TAG: mapping.feed}, description=f"Bring a window of {mapping.feed} in, by its events.")
    def window_job() -> None:
        bring_in()

    return window_job


def _with_days(context: AssetExecutionContext, mapping: FeedMapping, options: RunOptions) -> RunOptions:
    """Return the options with the window that the partitions of a run make, unless they name one.

    Who chooses partitions in the UI cannot say that the run should wait for a scheduled one: it does.
    """
    if options.window is not None:
        return options
    if not context.has_partition_key and not context.has_partition_key_range:
        message = f"no days of {mapping.feed} were named"
        raise ConfigError(message, hint="choose partitions, or set `window` of the resource `options`")
    days = context.partition_key_range
    window = Window.model_validate({"by": usual_way(mapping.source), "first": days.start, "last": days.end})
    return options.model_copy(update={"window": window, "wait": True})


def _bring_in(context: StepContext, workshop: RunContext, mapping: FeedMapping, options: RunOptions) -> Mapping[str, Any]:
    """Stage and publish one window; return its accounts as numbers."""
    ticket = RunIdentity(context.run.run_id, context.run.tags.get(names.LAUNCHED_BY_TAG, BACKFILL), context.run.run_id)
    work = FeedRun(workshop, mapping, ticket, options)
    staged = work.stage()
    raise_if_braked(staged.stopping, mapping.feed)
    published = work.publish()
    if published.cause is not None:
        raise published.cause
    return _metadata(options, staged, published)


def _metadata(options: RunOptions, staged: Staged, published: PublishReport) -> Mapping[str, Any]:
    window = options.window
    answered = {name: count for name, count in asdict(published.account).items() if name != "new"}
    days = {"days": str(window), "by": window.by if window else ""}
    return {**days, **asdict(staged.report.account), **answered}

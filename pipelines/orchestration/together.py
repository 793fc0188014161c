"""Feeds that are due at the same time share a run: the process of a run takes seconds to start, a small feed less than one.

Each feed is a step with its own accounts, checks, retries and failure; the others go on. The job is not an asset job: its process
loads the mapping files of its own feeds only, and logs the events that the feeds' assets would.

No `from __future__ import annotations` here: Dagster reads the annotations of a step's function at run time.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from mappings.errors import ConfigError, SyncError
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping, Schedule
from mappings.yaml.loader import load_folder
from pipelines.orchestration import names
from pipelines.orchestration.assets import SOURCE_RETRIES, as_failures, code_version, publish_feed, stage_feed
from pipelines.orchestration.dagster_private import plan_asset, switched_off, version_tags
from pipelines.orchestration.run_tags import feed_tags, feeds_at_work
from pipelines.run.context import SCHEDULE, OpenContext
from pipelines.run.options import RunOptions
from pipelines.settings import Settings
from state.queries import last_read_rows

FEWEST_FEEDS = 20
"""So many feeds with the same cron line and time zone share a schedule; fewer have one each."""
MOST_FEEDS = 50
"""Feeds of one run."""
MOST_ROWS = 1_000
"""A feed whose last read had more rows gets a run alone, so that it delays no other."""


class DueFeeds(dg.Config):
    """The feeds of one run."""

    feeds: list[str] = Field(description="Names of the feeds to stage and publish, one after another.")


def due_feeds_job(settings: Settings, open_run_context: OpenContext) -> dg.JobDefinition:
    """Build the job that stages and publishes several feeds, one after another in one process."""

    @dg.op(out=dg.DynamicOut(dg.Nothing), description="Starts one step for each feed of its config.")
    def list_feeds(context: dg.OpExecutionContext, config: DueFeeds) -> Iterator[dg.DynamicOutput[None]]:
        context.instance.add_run_tags(context.run.run_id, feed_tags(config.feeds))  # as a run launched by hand has none
        for feed in config.feeds:
            yield dg.DynamicOutput(None, mapping_key=names.group_of(FeedName(feed)))

    @dg.op(
        ins={"listed": dg.In(dg.Nothing)},
        out=dg.Out(dg.Nothing),
        pool="event-api",
        description="Stages and publishes one feed. A brake, or a source that fails, stops this feed only.",
    )
    def sync(context: dg.OpExecutionContext) -> Iterator[Any]:
        # Retries are requested here: with a `RetryPolicy`, Dagster would retry an interrupted step instead of ending the run.
        with as_failures(context):
            mapping = _load(settings, context.get_mapping_key() or "")
        run_id, code = context.run.run_id, code_version(mapping)
        source, staged, published = (dg.AssetKey([mapping.feed, name]) for name in ("source", "staged", "published"))
        for key in (staged, published):
            plan_asset(context.instance, context.run, names.step_of(mapping.feed), key)
        try:
            result, failure = stage_feed(context, mapping, open_run_context, RunOptions())
        except dg.Failure as error:
            if error.allow_retries and context.retry_number < SOURCE_RETRIES.max_retries:
                wait_s = SOURCE_RETRIES.calculate_delay(context.retry_number + 1)
                raise dg.RetryRequested(SOURCE_RETRIES.max_retries, wait_s) from error
            raise
        yield from _events(staged, result, version_tags(code, run_id, {source: None}))
        if failure is not None:
            raise failure
        result = publish_feed(context, mapping, open_run_context, RunOptions())
        yield from _events(published, result, version_tags(code, run_id, {staged: run_id}))
        yield dg.Output(None)

    @dg.job(
        name=names.DUE_FEEDS_JOB,
        executor_def=dg.in_process_executor,
        description=f"Stage and publish feeds that share a schedule, up to {MOST_FEEDS} in one process.",
    )
    def due_feeds() -> None:
        list_feeds().map(sync)

    return due_feeds


def _load(settings: Settings, group: str) -> FeedMapping:
    """Load the mapping file of one feed.

    Raises:
        MappingFileError: the file is broken.
        ConfigError: there is no such feed.
    """
    folder = load_folder(settings.feeds, wanted=[group], folders=settings.files, warns=False)
    mapping = next((one for one in folder.feeds if names.group_of(one.feed) == group), None)
    if mapping is None:
        missing = ConfigError(f"there is no feed {group} in {settings.feeds}", hint="`eventsync feeds` lists the feeds")
        raise next(iter(folder.broken), missing)
    return mapping


def _events(
    key: dg.AssetKey, result: dg.MaterializeResult[Any], tags: Mapping[str, str]
) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    """Yield the events that Dagster would log for the result of an asset's step."""
    yield dg.AssetMaterialization(key, metadata=result.metadata, tags=tags)
    for check in result.check_results or ():
        yield dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=str(check.check_name),
            passed=check.passed,
            severity=check.severity,
            description=check.description,
            metadata=check.metadata,
        )


def sharing(mappings: Iterable[FeedMapping], broken: Iterable[Schedule | None] = ()) -> Mapping[Schedule, Sequence[FeedName]]:
    """Return the feeds that share a schedule, by their cron line and time zone.

    `broken`: schedules of broken mapping files, which count, so that a mistake in one file moves no other feed.
    """
    found: dict[Schedule, list[FeedName]] = defaultdict(list)
    for mapping in mappings:
        if clock := _clock_of(mapping.schedule):
            found[clock].append(mapping.feed)
    others = Counter(map(_clock_of, broken))
    return {clock: feeds for clock, feeds in found.items() if len(feeds) + others[clock] >= FEWEST_FEEDS}


def _clock_of(schedule: Schedule | None) -> Schedule | None:
    """Return the part of a schedule that feeds can share; None if it has no cron line, or is to stay alone."""
    if schedule is None or schedule.cron is None or schedule.alone:
        return None
    return Schedule(cron=schedule.cron, timezone=schedule.timezone)


def shared_schedules(
    shared: Mapping[Schedule, Sequence[FeedName]], settings: Settings, open_run_context: OpenContext
) -> dg.Definitions:
    """Build a schedule for all feeds with the same cron line and time zone, and their job; empty if no feeds share one."""
    if not shared:
        return dg.Definitions()
    job = due_feeds_job(settings, open_run_context)
    schedules = [_schedule(clock, feeds, job, open_run_context) for clock, feeds in shared.items()]
    return dg.Definitions(jobs=[job], schedules=schedules)


def _schedule(
    clock: Schedule, feeds: Sequence[FeedName], job: dg.JobDefinition, open_run_context: OpenContext
) -> dg.ScheduleDefinition:
    def tick(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        (busy, backfilled), off = feeds_at_work(context.instance, open_run_context), switched_off(context.instance)
        ready = [feed for feed in feeds if feed not in busy and names.schedule_of_job(names.job_of(feed)) not in off]
        if not ready:
            yield dg.SkipReason(f"none of {len(feeds)} feeds can run: runs of them are at work, or they are switched off")
        slow = backfilled | _large_feeds(open_run_context)
        small = [feed for feed in ready if feed not in slow]
        count = -(-len(small) // MOST_FEEDS)
        for run in [*([feed] for feed in ready if feed in slow), *(small[number::count] for number in range(count))]:
            yield dg.RunRequest(
                run_key=run[0],  # a feed is asked for once in a tick, also if the daemon crashes in it and repeats it
                run_config={"ops": {"list_feeds": {"config": {"feeds": run}}}},
                tags={names.LAUNCHED_BY_TAG: SCHEDULE, **feed_tags(run)},
            )

    return dg.ScheduleDefinition(
        name=f"{job.name}_{_name_of(clock)}",
        job=job,
        cron_schedule=clock.cron,
        execution_timezone=clock.timezone,
        execution_fn=tick,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Runs the {len(feeds)} feeds that have this schedule, except those at work.",
    )


def _name_of(clock: Schedule) -> str:
    """Return a cron line and its time zone as part of a name, different for each."""
    cron = str.maketrans({" ": "_", "*": "x", "/": "by", "-": "to", ",": "and"})
    zone = str.maketrans({"/": "_", "-": "minus", "+": "plus"})
    return f"{str(clock.cron).translate(cron)}_{clock.timezone.translate(zone)}"


def _large_feeds(open_run_context: OpenContext) -> frozenset[FeedName]:
    """Return the feeds whose last read was large; none if the state DB does not answer, which each run reports itself."""
    try:
        with open_run_context() as run_context:
            rows = last_read_rows(run_context.engine, run_context.settings.destination)
    except SyncError:
        return frozenset()
    return frozenset(feed for feed, count in rows.items() if count > MOST_ROWS)

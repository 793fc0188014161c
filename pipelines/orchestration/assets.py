"""The three assets of a feed (source, staged, published) with their checks and freshness. The brakes are the checks of `staged`.

Whether a retry can help is decided once, for all three retry mechanisms:

* a request (`connectors.retry`) retries after a `TransientError`, until its attempts are used up;
* a step (`RetryPolicy`) retries after such an error that asks for no longer wait than the step's own delays;
* a run (`run_retries` of the daemon) is retried unless the tag `dagster/retry_on_asset_or_op_failure` is false, as after a
  permanent error.

No `from __future__ import annotations` here: Dagster reads the annotations of a step's function at run time.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from functools import lru_cache, partial
from typing import Any

import dagster as dg
from pydantic import Field, ValidationError

from connectors.sources.catalogue import probe_source
from mappings.errors import ConfigError, SyncError, TransientError
from mappings.spec.feed import FeedMapping, Schedule
from mappings.spec.source import GoogleSheetsSource, SourceSpec
from pipelines.clock import monotonic_s
from pipelines.orchestration import names
from pipelines.orchestration.dagster_private import RETRY_ON_ASSET_OR_OP_FAILURE_TAG, AssetExecutionType, set_origin
from pipelines.orchestration.metadata import (
    PUBLISH_CHECKS,
    brake_results,
    publish_results,
    published_metadata,
    speed_metadata,
    staged_metadata,
    waiting_first,
    waiting_metadata,
    waiting_rows,
)
from pipelines.orchestration.run_tags import tag_feeds
from pipelines.run.backfill import FIRST_SHOWN, default_way, has_days
from pipelines.run.brakes import brake_error
from pipelines.run.context import BACKFILL, OpenContext
from pipelines.run.feed_run import FeedRun, RunIdentity
from pipelines.run.options import BRAKE_TEXTS, RunOptions, Window
from pipelines.run.outcome import ExitCode, faults_as_errors, outcome_of
from pipelines.run.publish import outcome_of_publish
from pipelines.run.stage import UNCHANGED
from pipelines.safe_output import replaced
from pipelines.ticks import ANY, DAY, HOUR, gaps_of_day, ticks_of_day
from state.errors import HeldByAnotherError, LeaseLostError

Step = Callable[[dg.AssetExecutionContext, Any], Iterator[Any]]
StepContext = dg.AssetExecutionContext | dg.OpExecutionContext
"""The context of a step, with or without an asset."""
STEP_DELAY_S = 10.0
"""Seconds before a step's second attempt; twice as many before the third."""
SOURCE_RETRIES = dg.RetryPolicy(max_retries=2, delay=STEP_DELAY_S, backoff=dg.Backoff.EXPONENTIAL)
"""Retries of a step after a transient error; a permanent failure sets `allow_retries=False`."""
DAYS = dg.DailyPartitionsDefinition(start_date=FIRST_SHOWN.isoformat(), end_offset=1)
"""One partition per day in UTC, from the first day that may be backfilled to today."""
_STAGED_FIRST = ("read", "new", "unchanged", "rejected")
_PUBLISHED_FIRST = ("delivered", "waiting for a person", "rejected", "changed", "new", "pending")
"""Counts that the pages of the assets always show, and show first."""
_KINDS = {"google_sheets": "googlesheets", "xlsx": "excel"}
"""Dagster's own names of source kinds, for which it has icons."""


class LaunchOptions(dg.ConfigurableResource[RunOptions]):
    """The options of one run, typed and described in the launchpad; never a secret."""

    limit: int | None = Field(default=None, description="Send at most this many rows; the rest stay pending for the next run.")
    row_keys: list[str] = Field(default=[], description="Only these row keys, as `eventsync rows` shows them. Empty: all rows.")
    as_draft: bool = Field(default=False, description="Send every event as a draft, whatever the mapping says.")
    accept: list[str] = Field(
        default=[],
        description="Brakes that this one run may pass: rejected, shrink, left_out, new, copies, scope, keys, changed.",
    )
    wait: bool = Field(default=False, description="If another run holds the feed, wait for it to end.")
    full: bool = Field(default=False, description="Read the whole source, even if it is normally read incrementally.")
    window: dict[str, str] = Field(
        default={},
        description="Only rows of these days: `{by: event, first: 2031-05-01, last: 2031-05-31}`, by cursor, file or event;"
        " no bookmark moves, and no row counts as vanished.",
    )
    publish_only: bool = Field(default=False, description="Only send what is staged; the brakes named above are accepted.")

    def create_resource(self, context: object) -> RunOptions:  # noqa: ARG002  # as Dagster calls it
        """Return the options as `RunOptions`; a wrong value fails the run before anything is read."""
        same = {name: getattr(self, name) for name in ("limit", "full", "wait", "publish_only")}
        lists = {"keys": tuple(self.row_keys), "accept": tuple(self.accept)}
        others = {"status": "draft" if self.as_draft else None, "window": self.window or None}
        try:
            return RunOptions.model_validate({**same, **lists, **others})
        except ValidationError as error:
            wrong = [(".".join(map(str, one["loc"])), one["msg"].removeprefix("Value error, ")) for one in error.errors()]
            problems = "; ".join(f"{option}: {problem}" if option else problem for option, problem in wrong)
            # An error of Dagster's own is shown as it is, any other only as the cause of another.
            raise dg.DagsterInvariantViolationError(f"the run's options cannot be used: {problems}") from None


@contextmanager
def as_failures(context: StepContext) -> Iterator[None]:
    """Raise every error of the block as a Dagster `Failure` with a hint, and with retries allowed only if one can help.

    A retry within seconds can help after a transient error, except another run's lease or a long pause.
    """
    set_origin(context.instance, context.run.run_id)
    tag_feeds(context.instance, context.run)
    try:
        with faults_as_errors("at work", context.run.run_id, passing=(dg.Failure,)):
            yield
    except SyncError as error:
        error.args = tuple(replaced(one) if isinstance(one, str) else one for one in error.args)  # Dagster prints the cause, too
        raise _failure_of(context, error) from error


def _failure_of(context: StepContext, error: SyncError) -> dg.Failure:
    """Return a step's failure with its hint; after a permanent error also stop the daemon from retrying the run."""
    outcome, retry_in_s = outcome_of(error), float("inf")
    if not isinstance(error, TransientError):
        forbid_run_retry(context)
    elif not isinstance(error, HeldByAnotherError | LeaseLostError):
        retry_in_s = error.retry_after_s or 0.0
    return dg.Failure(
        description=replaced(outcome.text),
        metadata={
            "outcome": outcome.name,
            "exit_code": int(outcome.exit_code),
            "what to do": dg.MetadataValue.text(replaced(error.hint) or "see the message"),
        },
        allow_retries=retry_in_s <= STEP_DELAY_S,
    )


@contextmanager
def interrupted_for_good(context: StepContext) -> Iterator[None]:
    """Raise a `Failure` without retries if the block is interrupted: Dagster would retry an interrupted step with a
    `RetryPolicy`.
    """
    try:
        yield
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError) as interruption:
        forbid_run_retry(context)
        raise dg.Failure("interrupted; the state is intact: the next run continues", allow_retries=False) from interruption


def forbid_run_retry(context: StepContext) -> None:
    """Tag the run so that the daemon does not retry it."""
    context.instance.add_run_tags(context.run.run_id, {RETRY_ON_ASSET_OR_OP_FAILURE_TAG: "false"})


def brake_specs(key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """Return the check specifications of the brakes; each blocks."""
    return [dg.AssetCheckSpec(name, asset=key, blocking=True, description=text) for name, text in BRAKE_TEXTS.items()]


def publish_specs(key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """Return the check specifications of `published`; none blocks, because no asset depends on it."""
    return [dg.AssetCheckSpec(name, asset=key, description=text) for name, text in PUBLISH_CHECKS.items()]


def feed_assets(mapping: FeedMapping, open_run_context: OpenContext, state_kind: str) -> tuple[dg.AssetsDefinition, ...]:
    """Build the assets of one feed, in a group of its name; `state_kind`: the kind of database that rows are staged in.

    There are three, and a partitioned one if the source can be read by days.
    """
    feed = mapping.feed
    spec = partial(dg.AssetSpec, group_name=names.group_of(feed), owners=names.owners_of(mapping.owner))
    source_key, staged_key, published_key = (dg.AssetKey([feed, name]) for name in ("source", "staged", "published"))
    staged_spec = spec(
        staged_key,
        deps=[source_key],
        kinds={"python", state_kind},
        code_version=code_version(mapping),
        description="All rows are read, mapped and recorded. The checks are the brakes: they stop a run before it sends.",
    )
    published_spec = spec(
        published_key,
        deps=[staged_key],
        kinds={"python", "http"},
        code_version=code_version(mapping),
        freshness_policy=freshness_of(mapping.schedule),
        description="Every due row is sent and answered.",
    )

    def observe(context: dg.AssetExecutionContext, _: object) -> Iterator[dg.ObserveResult]:
        with as_failures(context), open_run_context() as run_context:
            probe = probe_source(mapping.source, mapping.path.parent, access=run_context.settings.access, folders=mapping.folders)
        seen = {"not checked": probe.blind} if probe.blind else {"files": len(probe.marks)}
        yield dg.ObserveResult(asset_key=source_key, metadata=seen)

    def stage(context: dg.AssetExecutionContext, _: object) -> Iterator[dg.MaterializeResult[Any]]:
        with interrupted_for_good(context):
            result, failure = stage_feed(context, mapping, open_run_context, context.resources.options)
        yield result
        if failure is not None:  # else Dagster fails the step itself, without the brake's sentence
            raise failure

    def publish(context: dg.AssetExecutionContext, _: object) -> Iterator[dg.MaterializeResult[Any]]:
        yield publish_feed(context, mapping, open_run_context, context.resources.options)

    def backfill(context: dg.AssetExecutionContext, _: object) -> Iterator[dg.MaterializeResult[Any]]:
        options: RunOptions = context.resources.options
        if options.window is None and (context.has_partition_key or context.has_partition_key_range):
            # The UI has no option for it, so such a run always waits for a scheduled one.
            days = context.partition_key_range
            window = Window.model_validate({"by": default_way(mapping.source), "first": days.start, "last": days.end})
            options = options.model_copy(update={"window": window, "wait": True})
        yield dg.MaterializeResult(metadata=_backfill(context, open_run_context, mapping, options))

    assets = (
        _asset(observe, _source_spec(mapping, spec(source_key)), execution_type=AssetExecutionType.OBSERVATION),
        _asset(stage, staged_spec, brake_specs(staged_key), retry_policy=SOURCE_RETRIES),
        _asset(publish, published_spec, publish_specs(published_key), pool="event-api"),
    )
    if not has_days(mapping):
        return assets
    backfilled_spec = spec(
        dg.AssetKey([feed, "backfilled"]),
        deps=[source_key],
        kinds={"python", "http"},
        partitions_def=DAYS,
        description=f"Past days (by {default_way(mapping.source)}) that were read again and sent, each row once.",
    )
    return *assets, _asset(backfill, backfilled_spec, pool="event-api", backfill_policy=dg.BackfillPolicy.single_run())


def _asset(  # noqa: PLR0913  # what Dagster's decorators take
    step: Step,
    spec: dg.AssetSpec,
    checks: Sequence[dg.AssetCheckSpec] = (),
    *,
    retry_policy: dg.RetryPolicy | None = None,
    pool: str | None = None,
    execution_type: AssetExecutionType = AssetExecutionType.MATERIALIZATION,
    backfill_policy: dg.BackfillPolicy | None = None,
) -> dg.AssetsDefinition:
    """Build an asset from its parts: Dagster's decorators take three times as long (2,000 feeds in 5 s)."""
    name, before = spec.key.path[-1], {dep.asset_key.path[-1]: dep.asset_key for dep in spec.deps}
    op = dg.OpDefinition(
        step,
        name=f"{spec.group_name}__{name}",
        ins=dict.fromkeys(before, dg.In(dg.Nothing)),
        outs=dict.fromkeys([name, *(check.name for check in checks)], dg.Out(dg.Nothing)),
        required_resource_keys=set() if execution_type is AssetExecutionType.OBSERVATION else {"options"},
        retry_policy=retry_policy,
        pool=pool,
    )
    with warnings.catch_warnings():
        # Observations, and one run for many partitions, are in beta, and so bound to the version that pyproject.toml allows.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.AssetsDefinition(
            node_def=op,
            keys_by_input_name=before,
            keys_by_output_name={name: spec.key},
            check_specs_by_output_name={check.name: check for check in checks},
            specs=[spec],
            execution_type=execution_type,
            backfill_policy=backfill_policy,
        )


def code_version(mapping: FeedMapping) -> str:
    """Return the code version of a feed's assets: an edited mapping shows as unsynced."""
    return mapping.digest.hex()[:12]


def stage_feed(
    context: StepContext, mapping: FeedMapping, open_run_context: OpenContext, options: RunOptions
) -> tuple[dg.MaterializeResult[Any], dg.Failure | None]:
    """Stage a feed and log an observation of its source; return what `staged` shows, and the failure if a brake stopped it."""
    feed, key, began_s = mapping.feed, dg.AssetKey([mapping.feed, "staged"]), monotonic_s()
    with as_failures(context), open_run_context() as run_context:
        result = FeedRun(run_context, mapping, _identity(context), options).stage()
        is_last = bool(result.stopping) or options.stage_only
        waiting = waiting_metadata(*waiting_rows(run_context, mapping)) if is_last else {}
    rows = result.report.account.read
    pace = speed_metadata(rows, monotonic_s() - began_s)
    read = "all rows" if result.report.is_whole else "some rows: those changed, or those selected"
    version = {"version": result.version} if result.version else {}
    seen: dict[str, Any] = {"dagster/row_count": rows, "rows": rows, **pace, "read": read, **version}
    context.log_event(dg.AssetObservation([feed, "source"], metadata=seen))
    _log(context, result.notices)
    metadata = _without_zeros(context, key, {**staged_metadata(result), **pace, **waiting}, _STAGED_FIRST)
    failure = _failure_of(context, brake_error(result.stopping, feed)) if result.stopping else None
    return dg.MaterializeResult(asset_key=key, metadata=metadata, check_results=brake_results(key, result)), failure


def publish_feed(
    context: StepContext, mapping: FeedMapping, open_run_context: OpenContext, options: RunOptions
) -> dg.MaterializeResult[Any]:
    """Publish what is staged of a feed; return what `published` shows."""
    key = dg.AssetKey([mapping.feed, "published"])
    with as_failures(context), open_run_context() as run_context:
        result = FeedRun(run_context, mapping, _identity(context), options).publish()
        _log(context, result.outlook.notices)
        if result.cause is not None:
            raise result.cause
        counts, differing = waiting_rows(run_context, mapping)
    outcome = outcome_of_publish(result, mapping)
    if outcome.message:
        log = context.log.info if outcome.exit_code is ExitCode.DONE else context.log.warning
        log("%s: %s", outcome.name, replaced(outcome.text))
    metadata = waiting_first(counts, result) | published_metadata(result) | waiting_metadata(counts, differing)
    return dg.MaterializeResult(
        asset_key=key,
        metadata=_without_zeros(context, key, metadata, _PUBLISHED_FIRST),
        check_results=publish_results(key, result, outcome, counts),
    )


def _source_spec(mapping: FeedMapping, spec: dg.AssetSpec) -> dg.AssetSpec:
    source, address = mapping.source, _address_of(mapping.source)
    return spec.replace_attributes(
        kinds={_KINDS.get(source.kind, source.kind)},
        description=f"The source of {mapping.feed}. Observing checks whether it changed; it reads no rows.",
        metadata={
            "source": dg.MetadataValue.url(address) if address else source.place,
            "mapping file": dg.MetadataValue.path(mapping.path),
            "schedule": str(mapping.schedule) if mapping.schedule else "none",
        },
    )


def _address_of(source: SourceSpec) -> str:
    """Return the web address of a source that a browser can open, without secrets; "" if it has none."""
    if isinstance(source, GoogleSheetsSource):
        tab = "" if source.tab_number is None else f"/edit#gid={source.tab_number}"
        return f"https://docs.google.com/spreadsheets/d/{source.spreadsheet_id}{tab}"
    return source.place if source.place.startswith(("http://", "https://")) else ""


def _log(context: StepContext, notices: Iterable[str]) -> None:
    """Log a run's notices as warnings; that the source is unchanged is information only."""
    for notice in notices:
        (context.log.info if notice.startswith(UNCHANGED) else context.log.warning)(replaced(notice))


def _without_zeros(
    context: StepContext, key: dg.AssetKey, metadata: Mapping[str, Any], first: Sequence[str]
) -> Mapping[str, Any]:
    """Return the metadata without zeros, the `first` names leading; the zeros go into an observation, for the plots."""
    ordered = {name: metadata[name] for name in first if name in metadata} | dict(metadata)
    zeros = {name: value for name, value in ordered.items() if value == 0 and name not in first}
    if zeros:
        context.log_event(dg.AssetObservation(key, metadata=zeros, description="Counts that are zero."))
    return {name: value for name, value in ordered.items() if name not in zeros}


def _identity(context: StepContext) -> RunIdentity:
    by_default = "schedule" if "dagster/schedule_name" in context.run.tags else "dagster"
    return RunIdentity(context.run.run_id, context.run.tags.get(names.LAUNCHED_BY_TAG) or by_default, context.run.run_id)


def feed_jobs(mapping: FeedMapping, open_run_context: OpenContext) -> dg.Definitions:
    """Build the jobs of one feed: one that stages and publishes, one that backfills."""
    feed, tags = mapping.feed, {names.FEED_TAG: mapping.feed}
    sync = dg.define_asset_job(
        names.job_of(feed),
        selection=[dg.AssetKey([feed, name]) for name in ("staged", "published")],
        tags=tags,
        description=f"Stage and publish {feed}.",
    )
    name = names.backfill_job_of(feed)
    if has_days(mapping):
        selection, description = [dg.AssetKey([feed, "backfilled"])], f"Backfill past days of {feed}."
        return dg.Definitions(jobs=[sync, dg.define_asset_job(name, selection=selection, tags=tags, description=description)])

    @dg.op(name=f"window_of_{names.group_of(feed)}", pool="event-api")
    def backfill_window(context: dg.OpExecutionContext, options: dg.ResourceParam[RunOptions]) -> None:
        context.add_output_metadata(_backfill(context, open_run_context, mapping, options))

    @dg.job(name=name, tags=tags, description=f"Backfill a window of {feed}, by its events.")
    def window_job() -> None:
        backfill_window()

    return dg.Definitions(jobs=[sync, window_job])


def _backfill(
    context: StepContext, open_run_context: OpenContext, mapping: FeedMapping, options: RunOptions
) -> Mapping[str, Any]:
    """Stage and publish one window; return its accounts as metadata."""
    launched_by = context.run.tags.get(names.LAUNCHED_BY_TAG, BACKFILL)
    identity = RunIdentity(context.run.run_id, launched_by, context.run.run_id)
    with as_failures(context), interrupted_for_good(context), open_run_context() as run_context:
        window = options.window
        if window is None:
            message, hint = f"no days of {mapping.feed} were selected", "set `window` of the resource `options`"
            raise ConfigError(
                message, hint=f"{hint}: {{by: event, first: DAY, last: DAY}}; or select partitions, if there are any"
            )
        run = FeedRun(run_context, mapping, identity, options)
        staged = run.stage()
        if staged.stopping:
            raise brake_error(staged.stopping, mapping.feed)
        published = run.publish()
        if published.cause is not None:
            raise published.cause
    answered = {name: count for name, count in asdict(published.account).items() if name != "new"}
    return {"days": str(window), "by": window.by, **asdict(staged.report.account), **answered}


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

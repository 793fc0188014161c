"""The assets of a feed: source, staged and published, and days that are backfilled. The brakes are the checks of `staged`.

Whether a retry can help is decided once, for all three retry mechanisms:

* a request (`connectors.retry`) retries after a `TransientError`, until its attempts are used up;
* a step (`RetryPolicy`) retries after such an error that asks for no longer wait than the step's own delays;
* a run (`run_retries` of the daemon) is retried unless the tag `dagster/retry_on_asset_or_op_failure` is false, as after a
  permanent error.

No `from __future__ import annotations` here: Dagster reads the annotations of a step's function at run time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import date
from functools import cache, partial
from typing import Any

import dagster as dg
from pydantic import Field, ValidationError

from mappings.errors import SyncError, TransientError
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping
from pipelines.clock import monotonic_s
from pipelines.orchestration import names
from pipelines.orchestration.automation import probe_feed
from pipelines.orchestration.dagster_private import DATA_VERSION_TAG, set_origin, tags_of_read
from pipelines.orchestration.layout import FeedSpecs, Layout, code_version
from pipelines.orchestration.metadata import (
    ACCEPTING,
    EVENTS_SHOWN,
    PUBLISH_CHECKS,
    WHAT_TO_DO,
    accepting,
    brake_results,
    publish_results,
    published_metadata,
    speed_metadata,
    staged_metadata,
    waiting_first,
    waiting_metadata,
    waiting_rows,
)
from pipelines.orchestration.run_tags import tag_feed
from pipelines.run.backfill import DAYS_OF_A_RUN, window_of
from pipelines.run.brakes import brake_error, possible_brakes
from pipelines.run.context import BACKFILL, OpenContext
from pipelines.run.feed_run import FeedRun, RunIdentity
from pipelines.run.options import BRAKE_TEXTS, RunOptions
from pipelines.run.outcome import BrakeError, ExitCode, faults_as_errors, outcome_of
from pipelines.run.publish import outcome_of_publish
from pipelines.run.signals import signals_raised
from pipelines.run.stage import UNCHANGED
from pipelines.safe_output import replaced
from state.errors import HeldByAnotherError, LeaseLostError
from state.ledger.standing import FeedScope
from state.queries import LedgerQueries

STEP_DELAY_S = 10.0
"""Seconds before a step's second attempt; twice as many before the third."""
SOURCE_RETRIES = dg.RetryPolicy(max_retries=2, delay=STEP_DELAY_S, backoff=dg.Backoff.EXPONENTIAL)
"""Retries of a step after a transient error; a permanent failure sets `allow_retries=False`."""
_STAGED_FIRST = ("read", "new", "unchanged", "rejected")
_PUBLISHED_FIRST = ("delivered", "waiting for a person", "rejected", "changed", "new", "pending")
"""Counts that the pages of the assets always show, and show first."""


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
    publish_only: bool = Field(default=False, description="Only send what is staged; the brakes named above are accepted.")

    def create_resource(self, context: object) -> RunOptions:  # noqa: ARG002  # as Dagster calls it
        """Return the options as `RunOptions`; a wrong value fails the run before anything is read."""
        same = {name: getattr(self, name) for name in ("limit", "full", "wait", "publish_only")}
        lists = {"keys": tuple(self.row_keys), "accept": tuple(self.accept)}
        others = {"status": "draft" if self.as_draft else None}
        try:
            return RunOptions.model_validate({**same, **lists, **others})
        except ValidationError as error:
            wrong = [(".".join(map(str, one["loc"])), one["msg"].removeprefix("Value error, ")) for one in error.errors()]
            problems = "; ".join(f"{option}: {problem}" if option else problem for option, problem in wrong)
            # An error of Dagster's own is shown as it is, any other only as the cause of another.
            raise dg.DagsterInvariantViolationError(f"the run's options cannot be used: {problems}") from None


class BackfillWay(dg.Config):
    """How a backfill decides a row's day."""

    by: str = Field(default="", description="What decides a row's day: cursor, file or event. Empty: what fits the feed.")
    column: str = Field(default="", description="With cursor: the column with the time of a row's last change.")


@contextmanager
def as_failures(context: dg.AssetExecutionContext, feed: FeedName) -> Iterator[None]:
    """Raise every error of the block as a Dagster `Failure` with a hint, and with retries allowed only if one can help.

    A retry within seconds can help after a transient error, except another run's lease or a long pause.
    """
    run = context.instance.get_run_by_id(context.run.run_id) or context.run  # with the tags that other steps have added
    set_origin(context.instance, run)
    tag_feed(context.instance, run, feed)
    try:
        with faults_as_errors("at work", context.run.run_id, passing=(dg.Failure,)):
            yield
    except SyncError as error:
        error.args = tuple(replaced(one) if isinstance(one, str) else one for one in error.args)  # Dagster prints the cause, too
        raise _failure_of(context, error) from error


def _failure_of(context: dg.AssetExecutionContext, error: SyncError) -> dg.Failure:
    """Return a step's failure with its hint; after a permanent error also stop the daemon from retrying the run."""
    outcome, retry_in_s = outcome_of(error), float("inf")
    if not isinstance(error, TransientError):
        forbid_run_retry(context)
    elif not isinstance(error, HeldByAnotherError | LeaseLostError):
        retry_in_s = error.retry_after_s or 0.0
    text, metadata = replaced(outcome.text), {WHAT_TO_DO: replaced(error.hint) or "see the message"}
    if isinstance(error, BrakeError):
        text += f"\n{ACCEPTING}: {accepting(error.brakes)}"  # the page of a run folds metadata
        metadata |= {ACCEPTING: accepting(error.brakes)}
    return dg.Failure(
        description=text,
        metadata={**metadata, "outcome": outcome.name, "exit_code": int(outcome.exit_code)},
        allow_retries=retry_in_s <= STEP_DELAY_S,
    )


@contextmanager
def interrupted_for_good(context: dg.AssetExecutionContext) -> Iterator[None]:
    """Raise a `Failure` without retries if the block is interrupted: Dagster would retry an interrupted step with a
    `RetryPolicy`.
    """
    try:
        yield
    except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError) as interruption:
        forbid_run_retry(context)
        raise dg.Failure("interrupted; the state is intact: the next run continues", allow_retries=False) from interruption


def forbid_run_retry(context: dg.AssetExecutionContext) -> None:
    """Tag the run so that the daemon does not retry it."""
    context.instance.add_run_tags(context.run.run_id, {names.RUN_RETRY_TAG: "false"})


def feed_assets(specs: FeedSpecs, layout: Layout, open_run_context: OpenContext, pool: str) -> Iterator[dg.AssetsDefinition]:
    """Build the assets of one feed. `pool`: the one that the requests of all feeds to a service share."""
    mapping = specs.mapping
    step = partial(names.step_of, mapping.feed)
    with_options = partial(dg.multi_asset, resource_defs={names.OPTIONS: _options()}, required_resource_keys={names.OPTIONS})

    @dg.multi_observable_source_asset(name=layout.named(step("source")), specs=[specs.source])  # type: ignore[untyped-decorator]
    def source(context: dg.AssetExecutionContext) -> Iterator[dg.ObserveResult]:
        with as_failures(context, mapping.feed), open_run_context() as run:
            probe = probe_feed(mapping, run.settings.access)
        seen = {"not checked": probe.blind} if probe.blind else {"files": len(probe.marks)}
        version = dg.DataVersion(probe.version) if probe.version else None
        yield dg.ObserveResult(asset_key=specs.source.key, metadata=seen, data_version=version)

    @with_options(
        name=layout.named(step("staged")),
        specs=[specs.staged],
        check_specs=[
            dg.AssetCheckSpec(name, asset=specs.staged.key, blocking=True, description=BRAKE_TEXTS[name])
            for name in possible_brakes(mapping)
        ],
        can_subset=True,
        retry_policy=SOURCE_RETRIES,
    )
    def staged(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        _require_selected(context, specs.staged.key)
        with interrupted_for_good(context):
            result, failure = stage_feed(context, specs, open_run_context, _options_of(context))
        yield result
        if failure is not None:  # else Dagster fails the step itself, without the brake's sentence
            raise failure

    @with_options(
        name=layout.named(step("published")),
        specs=[specs.published],
        check_specs=[
            dg.AssetCheckSpec(name, asset=specs.published.key, description=text) for name, text in PUBLISH_CHECKS.items()
        ],
        can_subset=True,
        pool=pool,
    )
    def published(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        _require_selected(context, specs.published.key)
        yield publish_feed(context, specs, open_run_context, _options_of(context))

    @with_options(
        name=layout.named(step("backfilled")),
        specs=[specs.backfilled],
        partitions_def=specs.backfilled.partitions_def,
        pool=pool,
        backfill_policy=dg.BackfillPolicy.multi_run(DAYS_OF_A_RUN),
    )
    def backfilled(context: dg.AssetExecutionContext, config: BackfillWay) -> Iterator[dg.MaterializeResult[Any]]:
        yield dg.MaterializeResult(metadata=_backfill(context, open_run_context, mapping, config))

    yield from (source, staged, published, backfilled)


@cache
def _options() -> dg.ResourceDefinition:
    """Return the resource with the options of a run, the same for all assets: two of one name cannot be in one job."""
    return LaunchOptions.configure_at_launch().get_resource_definition()


def _options_of(context: dg.AssetExecutionContext) -> RunOptions:
    options: RunOptions = getattr(context.resources, names.OPTIONS)
    return options


def stage_feed(
    context: dg.AssetExecutionContext, specs: FeedSpecs, open_run_context: OpenContext, options: RunOptions
) -> tuple[dg.MaterializeResult[Any], dg.Failure | None]:
    """Stage a feed and log an observation of its source; return what `staged` shows, and the failure if a brake stopped it."""
    mapping, feed, key, began_s = specs.mapping, specs.feed, specs.staged.key, monotonic_s()
    with as_failures(context, feed), open_run_context() as run_context:
        version = ""
        # Probed before it is read, so that a later change is never missed. Trouble and interruptions are left to the read.
        with suppress(SyncError, KeyboardInterrupt), faults_as_errors("probing", context.run.run_id), signals_raised():
            version = probe_feed(mapping, run_context.settings.access).version
        result = FeedRun(run_context, mapping, _identity(context), options).stage()
        is_last = bool(result.stopping) or options.stage_only
        waiting = waiting_metadata(*waiting_rows(run_context, mapping)) if is_last else {}
    rows = result.report.account.read
    pace = speed_metadata(rows, monotonic_s() - began_s)
    read = "all rows" if result.report.is_whole else "some rows: those changed, or those selected"
    seen: dict[str, Any] = {"dagster/row_count": rows, "rows": rows, **pace, "read": read}
    tags = {DATA_VERSION_TAG: version} if version else {}
    context.log_event(dg.AssetObservation(specs.source.key, metadata=seen, tags=tags))
    _log(context, result.notices)
    metadata = _without_zeros(context, key, {**staged_metadata(result, feed), **pace, **waiting}, _STAGED_FIRST)
    failure = _failure_of(context, brake_error(result.stopping, feed)) if result.stopping else None
    is_usual = not (options.keys or options.window)  # otherwise the other rows stay as they were, from the version before
    staged = dg.MaterializeResult[Any](
        asset_key=key,
        metadata=metadata,
        check_results=_unlogged(context, brake_results(key, result, mapping)),
        data_version=dg.DataVersion(f"{code_version(mapping)} {version}") if version and is_usual else None,
        tags=tags_of_read(specs.source.key, version) if is_usual else None,
    )
    return staged, failure


def publish_feed(
    context: dg.AssetExecutionContext, specs: FeedSpecs, open_run_context: OpenContext, options: RunOptions
) -> dg.MaterializeResult[Any]:
    """Publish what is staged of a feed; return what `published` shows."""
    mapping, key = specs.mapping, specs.published.key
    with as_failures(context, mapping.feed), open_run_context() as run_context:
        result = FeedRun(run_context, mapping, _identity(context), options).publish()
        _log(context, result.outlook.notices)
        if result.cause is not None:
            raise result.cause
        counts, differing = waiting_rows(run_context, mapping)
        scope = FeedScope(run_context.settings.destination, mapping.feed)
        delivered = LedgerQueries(run_context.engine).delivered(scope, context.run.run_id, EVENTS_SHOWN)
    outcome = outcome_of_publish(result, mapping)
    if outcome.message:
        log = context.log.info if outcome.exit_code is ExitCode.DONE else context.log.warning
        log("%s: %s", outcome.name, replaced(outcome.text))
    metadata = waiting_first(counts, result) | published_metadata(result, delivered) | waiting_metadata(counts, differing)
    return dg.MaterializeResult(
        asset_key=key,
        metadata=_without_zeros(context, key, metadata, _PUBLISHED_FIRST),
        data_version=dg.DataVersion(delivered.version),
        check_results=_unlogged(context, publish_results(key, result, outcome, counts)),
    )


def _require_selected(context: dg.AssetExecutionContext, key: dg.AssetKey) -> None:
    """Check that the asset itself is to be made: a check that a person executes alone must not read or send anything."""
    if key not in context.selected_asset_keys:
        forbid_run_retry(context)
        message = f"a check cannot be executed alone: each run of the feed evaluates it. Materialize {key.path[-1]} instead"
        raise dg.Failure(message, allow_retries=False)


def _unlogged(context: dg.AssetExecutionContext, evaluations: Iterable[dg.AssetCheckEvaluation]) -> list[dg.AssetCheckResult]:
    """Log evaluations of checks, and return those that the run has planned, which Dagster logs itself.

    Our runs plan none: so a check that is not reached is not shown as one that failed, and a run has far fewer events.
    """
    planned = list[dg.AssetCheckResult]()
    for one in evaluations:
        if one.asset_check_key in context.selected_asset_check_keys:
            same = partial(dg.AssetCheckResult, passed=one.passed, severity=one.severity, metadata=one.metadata)
            planned.append(same(asset_key=one.asset_key, check_name=one.check_name, description=one.description))
        else:
            context.log_event(one)
    return planned


def _log(context: dg.AssetExecutionContext, notices: Iterable[str]) -> None:
    """Log a run's notices as warnings, but for the one that the source is unchanged, which metadata show."""
    for notice in notices:
        if not notice.startswith(UNCHANGED):
            context.log.warning(replaced(notice))


def _without_zeros(
    context: dg.AssetExecutionContext, key: dg.AssetKey, metadata: Mapping[str, Any], first: Sequence[str]
) -> Mapping[str, Any]:
    """Return the metadata without counts that were always zero, the `first` names leading; a plot goes on once it has begun."""
    last = context.instance.get_latest_materialization_event(key)
    plotted = last.asset_materialization.metadata if last and last.asset_materialization else {}
    ordered = {name: metadata[name] for name in first if name in metadata} | dict(metadata)
    return {name: value for name, value in ordered.items() if value != 0 or name in {*first, *plotted}}


def _identity(context: dg.AssetExecutionContext) -> RunIdentity:
    by_default = "schedule" if "dagster/schedule_name" in context.run.tags else "dagster"
    return RunIdentity(context.run.run_id, context.run.tags.get(names.LAUNCHED_BY_TAG) or by_default, context.run.run_id)


def _backfill(
    context: dg.AssetExecutionContext, open_run_context: OpenContext, mapping: FeedMapping, way: BackfillWay
) -> Mapping[str, Any]:
    """Stage and publish the days of the run's partitions; return their accounts as metadata."""
    launched_by = context.run.tags.get(names.LAUNCHED_BY_TAG, BACKFILL)
    identity = RunIdentity(context.run.run_id, launched_by, context.run.run_id)
    with as_failures(context, mapping.feed), interrupted_for_good(context), open_run_context() as run_context:
        days = context.partition_key_range
        window = window_of(mapping, (date.fromisoformat(days.start), date.fromisoformat(days.end)), way.by, way.column)
        # Several runs of a backfill may begin at once, and scheduled ones come between.
        run = FeedRun(run_context, mapping, identity, _options_of(context).model_copy(update={"window": window, "wait": True}))
        staged = run.stage()
        if staged.stopping:
            raise brake_error(staged.stopping, mapping.feed)
        published = run.publish()
        if published.cause is not None:
            raise published.cause
    counts = {**asdict(published.account), **asdict(staged.report.account)}
    first = ("read", "new", "delivered")
    others = {name: count for name, count in counts.items() if count and name not in first}
    return {"days": str(window), "by": window.by, **{name: counts[name] for name in first}, **others}

"""The three assets of a feed: source, staged and published, with their checks. The brakes are the checks of `staged`."""

import warnings

import dagster as dg

from connectors.sources.catalogue import probe_source
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import LoadedFeed
from pipelines.clock import monotonic_s
from pipelines.control_characters import replaced
from pipelines.orchestration import names
from pipelines.orchestration.failures import STEP_DELAY_S, as_failures, forbid_run_retry, interrupted_for_good
from pipelines.orchestration.metadata import (
    WaitingRows,
    observed_metadata,
    probe_metadata,
    published_metadata,
    source_metadata,
    staged_metadata,
    waiting_metadata,
    waiting_rows,
)
from pipelines.orchestration.schedules import freshness_of
from pipelines.run.brakes import brake_error
from pipelines.run.context import OpenContext
from pipelines.run.feed_run import FeedRun, RunIdentity
from pipelines.run.options import BRAKE_TEXTS, RunOptions
from pipelines.run.outcome import ExitCode, Outcome, outcome_of
from pipelines.run.publish import PublishReport
from pipelines.run.stage import Staged
from pipelines.run.standing import outcome_of_publish

PUBLISH_CHECKS = {
    "balanced": "Every row owed ended in exactly one outcome.",
    "no_conflicts": "No key was answered as used for something else.",
    "within_limits": "Refused, blocked and uncertain rows stay within what the feed allows.",
    "drift": "What was delivered is what its source still says, but for what a person has ignored.",
    "contract": "The service's own page does not announce that what we send will be refused.",
}
SOURCE_RETRIES = dg.RetryPolicy(max_retries=2, delay=STEP_DELAY_S, backoff=dg.Backoff.EXPONENTIAL)
"""A source that is away for a moment is read again; a permanent failure says `allow_retries=False`."""


def brake_specs(key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """Return one blocking check per brake."""
    return [dg.AssetCheckSpec(name, asset=key, blocking=True, description=text) for name, text in BRAKE_TEXTS.items()]


def brake_results(key: dg.AssetKey, staged: Staged) -> list[dg.AssetCheckResult]:
    """Return each brake's verdict; one that a person accepted warns instead of blocking."""
    return [
        dg.AssetCheckResult(
            asset_key=key,
            check_name=verdict.name,
            passed=not verdict.is_tripped,
            severity=dg.AssetCheckSeverity.ERROR if verdict.stops else dg.AssetCheckSeverity.WARN,
            description=replaced(verdict.sentence),
            metadata={
                "verdict": replaced(verdict.sentence),
                "measured": round(verdict.measured, 4),
                "allowed": round(verdict.allowed, 4),
                "accepted": verdict.is_accepted,
            },
        )
        for verdict in staged.brakes
    ]


def publish_specs(key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """Return the checks of a drain; none blocks, because nothing comes after it."""
    return [dg.AssetCheckSpec(name, asset=key, description=text) for name, text in PUBLISH_CHECKS.items()]


def publish_results(
    key: dg.AssetKey, published: PublishReport, outcome: Outcome, waiting: WaitingRows
) -> list[dg.AssetCheckResult]:
    """Return the results of a drain's checks."""
    differing = {name: waiting.counts.get(name, 0) for name in ("drift", "vanished")}
    passed = {
        "balanced": published.account.imbalance() == 0,
        "no_conflicts": published.standing.conflict.count == 0,
        "drift": not any(differing.values()),
        "within_limits": outcome.exit_code is ExitCode.DONE,
        "contract": not published.outlook.errors,
    }
    failed = {
        "contract": "\n".join(published.outlook.notices),
        "drift": f"{differing['drift']} changed and {differing['vanished']} gone since they were delivered;"
        " `eventsync diff` shows in what",
    }
    return [
        dg.AssetCheckResult(
            asset_key=key,
            check_name=name,
            passed=passed[name],
            severity=dg.AssetCheckSeverity.ERROR if name == "balanced" else dg.AssetCheckSeverity.WARN,
            description=text if passed[name] else replaced(failed.get(name, outcome.message)),
            metadata=differing if name == "drift" else {},
        )
        for name, text in PUBLISH_CHECKS.items()
    ]


def feed_assets(feed: LoadedFeed, open_run_context: OpenContext, state_kind: str) -> tuple[dg.AssetsDefinition, ...]:
    """Return the three assets of one feed, in a group of its name; `state_kind` is the database that rows are staged in."""
    mapping = feed.mapping
    return _source(feed, open_run_context), _staged(mapping, open_run_context, state_kind), _published(mapping, open_run_context)


def _source(feed: LoadedFeed, open_run_context: OpenContext) -> dg.AssetsDefinition:
    mapping = feed.mapping
    spec = dg.AssetSpec(
        dg.AssetKey(names.source_path(mapping.feed)),
        group_name=names.group_of(mapping.feed),
        owners=names.owners_of(mapping.owner),
        kinds={names.kind_of(mapping.source.kind)},
        description=f"Where the rows of {mapping.feed} come from. Each run reports what it saw; to observe it is to probe it.",
        metadata=source_metadata(feed),
    )

    def observe(context: dg.AssetExecutionContext) -> dg.ObserveResult:
        with as_failures(context), open_run_context() as run_context:
            probe = probe_source(mapping.source, mapping.path.parent, access=run_context.settings.access)
        return dg.ObserveResult(asset_key=spec.key, metadata=probe_metadata(probe))

    with warnings.catch_warnings():  # in beta, and so bound to the version of Dagster that pyproject.toml allows
        warnings.simplefilter("ignore", dg.BetaWarning)
        observable = dg.multi_observable_source_asset(name=f"{names.group_of(mapping.feed)}__source", specs=[spec])
        source: dg.AssetsDefinition = observable(observe)
    return source


def _staged(mapping: FeedMapping, open_run_context: OpenContext, state_kind: str) -> dg.AssetsDefinition:
    key = dg.AssetKey(names.staged_path(mapping.feed))

    @dg.asset(
        key=key,
        deps=[dg.AssetKey(names.source_path(mapping.feed))],
        group_name=names.group_of(mapping.feed),
        owners=names.owners_of(mapping.owner),
        kinds={"python", state_kind},
        code_version=mapping.digest.hex()[:12],
        check_specs=brake_specs(key),
        retry_policy=SOURCE_RETRIES,
        description="Every row is read, mapped and recorded: it is known what to send. The brakes are its checks.",
    )
    def staged(context: dg.AssetExecutionContext, options: dg.ResourceParam[RunOptions]) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster looks for the bare class
        began_s = monotonic_s()
        with as_failures(context), interrupted_for_good(context), open_run_context() as run_context:
            result = FeedRun(run_context, mapping, _identity(context), options).stage()
            is_last = bool(result.stopping) or options.stage_only
            waiting = waiting_metadata(waiting_rows(run_context, mapping)) if is_last else {}
        seconds = monotonic_s() - began_s
        context.log_event(dg.AssetObservation(names.source_path(mapping.feed), metadata=observed_metadata(result, seconds)))
        for notice in result.notices:
            context.log.warning(replaced(notice))
        if result.stopping:
            forbid_run_retry(context)
            context.log.error(replaced(outcome_of(brake_error(result.stopping, mapping.feed)).told))
        metadata = {**staged_metadata(result, seconds), **waiting}
        return dg.MaterializeResult(metadata=metadata, check_results=brake_results(key, result))

    return staged


def _published(mapping: FeedMapping, open_run_context: OpenContext) -> dg.AssetsDefinition:
    key = dg.AssetKey(names.published_path(mapping.feed))

    @dg.asset(
        key=key,
        deps=[dg.AssetKey(names.staged_path(mapping.feed))],
        group_name=names.group_of(mapping.feed),
        owners=names.owners_of(mapping.owner),
        kinds={"python", "http"},
        code_version=mapping.digest.hex()[:12],
        pool="event-api",
        freshness_policy=freshness_of(mapping.schedule),
        check_specs=publish_specs(key),
        description="Every owed row is sent, and its answer is recorded.",
    )
    def published(context: dg.AssetExecutionContext, options: dg.ResourceParam[RunOptions]) -> dg.MaterializeResult:  # type: ignore[type-arg]  # Dagster looks for the bare class
        with as_failures(context), open_run_context() as run_context:
            result = FeedRun(run_context, mapping, _identity(context), options).publish()
            for notice in result.outlook.notices:
                context.log.warning(replaced(notice))
            if result.cause is not None:
                raise result.cause
            waiting = waiting_rows(run_context, mapping)
        outcome = outcome_of_publish(result, mapping)
        if outcome.message:
            log = context.log.info if outcome.exit_code is ExitCode.DONE else context.log.warning
            log("%s: %s", outcome.name, replaced(outcome.told))
        return dg.MaterializeResult(
            metadata=published_metadata(result, waiting), check_results=publish_results(key, result, outcome, waiting)
        )

    return published


def _identity(context: dg.AssetExecutionContext) -> RunIdentity:
    by_default = "schedule" if "dagster/schedule_name" in context.run.tags else "dagster"
    return RunIdentity(context.run.run_id, context.run.tags.get(names.LAUNCHED_BY_TAG) or by_default, context.run.run_id)

"""One feed becomes three assets: its source (external), `staged` (we know what to say) and `published` (it has been said).

The assets are thin: what they do is told in `feed_run` and `sync`, what they show in `showing`. Annotations are not
postponed here, because Dagster looks at those of an asset's function.
"""

import warnings

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetObservation,
    AssetsDefinition,
    AssetSpec,
    Backoff,
    BetaWarning,
    MaterializeResult,
    ObserveResult,
    ResourceParam,
    RetryPolicy,
    asset,
    multi_observable_source_asset,
)

from connectors.sources.glances import glance_at
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import LoadedFeed
from pipelines import names
from pipelines.checks import brake_results, brake_specs, publish_results, publish_specs
from pipelines.clock import monotonic_s
from pipelines.control_characters import replaced
from pipelines.failures import STEP_DELAY_S, as_failures, forbid_run_retry, interrupted_for_good
from pipelines.freshness import freshness_of
from pipelines.left_open import left_open
from pipelines.run.brakes import brake_error
from pipelines.run.context import OpenWorkshop
from pipelines.run.feed_run import FeedAtWork, RunTicket
from pipelines.run.options import RunOptions
from pipelines.run.outcome import ExitCode, outcome_of
from pipelines.run.standing import outcome_of_publish
from pipelines.showing import (
    glance_metadata,
    observed_metadata,
    published_metadata,
    source_metadata,
    staged_metadata,
    waiting_metadata,
)

SOURCE_RETRIES = RetryPolicy(max_retries=2, delay=STEP_DELAY_S, backoff=Backoff.EXPONENTIAL)
"""A source that is away for a moment is read again; a permanent failure says `allow_retries=False`."""


def feed_assets(feed: LoadedFeed, open_workshop: OpenWorkshop, state_kind: str) -> tuple[AssetsDefinition, ...]:
    """Return the three assets of one feed, in a group of its name; `state_kind` is the database that rows are staged in."""
    return _source(feed, open_workshop), _staged(feed.mapping, open_workshop, state_kind), _published(feed.mapping, open_workshop)


def _source(feed: LoadedFeed, open_workshop: OpenWorkshop) -> AssetsDefinition:
    mapping = feed.mapping
    spec = AssetSpec(
        AssetKey(names.source_path(mapping.feed)),
        group_name=names.group_of(mapping.feed),
        owners=names.owners_of(mapping.owner),
        kinds={names.kind_of(mapping.source.kind)},
        description=f"Where the rows of {mapping.feed} come from. Each run tells what it saw; to observe it is a glance at it.",
        metadata=source_metadata(feed),
    )

    def glance(context: AssetExecutionContext) -> ObserveResult:
        with as_failures(context), open_workshop() as workshop:
            seen = glance_at(mapping.source, mapping.path.parent, access=workshop.settings.access)
        return ObserveResult(asset_key=spec.key, metadata=glance_metadata(seen))

    with warnings.catch_warnings():  # in beta, and so bound to the version of Dagster that pyproject.toml allows
        warnings.simplefilter("ignore", BetaWarning)
        observable = multi_observable_source_asset(name=f"{names.group_of(mapping.feed)}__source", specs=[spec])
        made: AssetsDefinition = observable(glance)
    return made


def _staged(mapping: FeedMapping, open_workshop: OpenWorkshop, state_kind: str) -> AssetsDefinition:
    key = AssetKey(names.staged_path(mapping.feed))

    @asset(
        key=key,
        deps=[AssetKey(names.source_path(mapping.feed))],
        group_name=names.group_of(mapping.feed),
        owners=names.owners_of(mapping.owner),
        kinds={"python", state_kind},
        code_version=mapping.digest.hex()[:12],
        check_specs=brake_specs(key),
        retry_policy=SOURCE_RETRIES,
        description="Every row read, mapped and recorded: we know what to say. The brakes are its checks.",
    )
    def staged(context: AssetExecutionContext, options: ResourceParam[RunOptions]) -> MaterializeResult:  # type: ignore[type-arg]  # Dagster looks for the bare class
        began_s = monotonic_s()
        with as_failures(context), interrupted_for_good(context), open_workshop() as workshop:
            result = FeedAtWork(workshop, mapping, _ticket(context), options).stage()
            is_last = bool(result.stopping) or options.stage_only
            waiting = waiting_metadata(left_open(workshop, mapping)) if is_last else {}
        seconds = monotonic_s() - began_s
        context.log_event(AssetObservation(names.source_path(mapping.feed), metadata=observed_metadata(result, seconds)))
        for notice in result.notices:
            context.log.warning(replaced(notice))
        if result.stopping:
            forbid_run_retry(context)
            context.log.error(replaced(outcome_of(brake_error(result.stopping, mapping.feed)).told))
        metadata = {**staged_metadata(result, seconds), **waiting}
        return MaterializeResult(metadata=metadata, check_results=brake_results(key, result))

    return staged


def _published(mapping: FeedMapping, open_workshop: OpenWorkshop) -> AssetsDefinition:
    key = AssetKey(names.published_path(mapping.feed))

    @asset(
        key=key,
        deps=[AssetKey(names.staged_path(mapping.feed))],
        group_name=names.group_of(mapping.feed),
        owners=names.owners_of(mapping.owner),
        kinds={"python", "http"},
        code_version=mapping.digest.hex()[:12],
        pool="event-api",
        freshness_policy=freshness_of(mapping.schedule),
        check_specs=publish_specs(key),
        description="Every owed row sent and settled: it has been said.",
    )
    def published(context: AssetExecutionContext, options: ResourceParam[RunOptions]) -> MaterializeResult:  # type: ignore[type-arg]  # Dagster looks for the bare class
        with as_failures(context), open_workshop() as workshop:
            result = FeedAtWork(workshop, mapping, _ticket(context), options).publish()
            for notice in result.outlook.notices:
                context.log.warning(replaced(notice))
            if result.cause is not None:
                raise result.cause
            left = left_open(workshop, mapping)
        outcome = outcome_of_publish(result, mapping)
        if outcome.message:
            tell = context.log.info if outcome.exit_code is ExitCode.DONE else context.log.warning
            tell("%s: %s", outcome.name, replaced(outcome.told))
        return MaterializeResult(
            metadata=published_metadata(result, left), check_results=publish_results(key, result, outcome, left)
        )

    return published


def _ticket(context: AssetExecutionContext) -> RunTicket:
    launched_by = context.run.tags.get(names.LAUNCHED_BY_TAG) or _launcher_of(context)
    return RunTicket(context.run.run_id, launched_by, context.run.run_id)


def _launcher_of(context: AssetExecutionContext) -> str:
    return "schedule" if "dagster/schedule_name" in context.run.tags else "dagster"

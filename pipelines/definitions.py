"""Dagster's entry point: every feed of the folder as assets, a job and its schedule; a broken file as a broken feed."""

from __future__ import annotations

import os
from collections.abc import Collection

import dagster as dg

from mappings.yaml.loader import load_folder
from pipelines.orchestration import names
from pipelines.orchestration.assets import LaunchOptions, feed_assets
from pipelines.orchestration.automation import feed_schedules, feed_sensors, notices_sensors
from pipelines.orchestration.broken_feeds import broken_definitions, broken_feeds
from pipelines.orchestration.dagster_private import own_job
from pipelines.orchestration.jobs import backfill_definitions, history_definitions
from pipelines.run.context import OpenContext, open_context
from pipelines.settings import Settings, current_settings
from pipelines.telemetry.logs import configure_logs
from state.private_files import keep_private


@dg.definitions
def defs() -> dg.Definitions:
    """Build the definitions from the environment; evaluated when Dagster loads the location, not at import.

    The process of one run builds only those of its feed, if it knows which: hundreds of feeds take seconds.
    """
    keep_private()
    settings = current_settings()
    configure_logs(settings)
    job = own_job()
    if group := names.group_of_job(job):
        built = build_definitions(settings, lambda: open_context(settings), wanted=[group])
        if any(one.name == job for one in built.jobs or ()):
            return built
    is_strict = bool(os.getenv("DAGSTER_IS_DEFS_VALIDATION_CLI"))
    return build_definitions(settings, lambda: open_context(settings), is_strict=is_strict)


def build_definitions(
    settings: Settings, open_run_context: OpenContext, *, is_strict: bool = False, wanted: Collection[str] = ()
) -> dg.Definitions:
    """Return the definitions of a folder of feeds; `wanted` names the feeds, if only some are needed.

    A broken mapping file is shown as an asset of the group `broken_feeds`, its check red, and leaves the others running.

    Raises:
        MappingFileError: the first broken file, if `is_strict` (validation, where a broken file must be red).
    """
    folder = load_folder(settings.feeds, wanted)
    if is_strict and folder.broken:
        raise folder.broken[0]
    parts = [broken_definitions(broken_feeds(folder)), history_definitions()]
    for mapping in folder.feeds:
        paths = names.staged_path(mapping.feed), names.published_path(mapping.feed)
        job = dg.define_asset_job(
            names.job_of(mapping.feed),
            selection=[dg.AssetKey(path) for path in paths],
            tags={names.FEED_TAG: mapping.feed},
            description=f"Stage and publish {mapping.feed}.",
        )
        assets = feed_assets(mapping, open_run_context, settings.state_kind)
        sensors = feed_sensors(mapping, settings.access)
        parts.append(dg.Definitions(assets=assets, jobs=[job], schedules=feed_schedules(mapping), sensors=sensors))
        parts.append(backfill_definitions(mapping, open_run_context))
    shared = dg.Definitions(
        executor=dg.in_process_executor,
        resources={"options": LaunchOptions.configure_at_launch()},
        sensors=notices_sensors(folder, settings, open_run_context),
    )
    return dg.Definitions.merge(*parts, shared)

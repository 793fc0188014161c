"""Dagster's entry point: the feeds of the folder, notices to their owners, and a job that deletes old runs."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

import dagster as dg

from pipelines.logs import configure_logs
from pipelines.orchestration.feeds import build_definitions, feeds_of_runs, load_feeds
from pipelines.orchestration.instance import instance_definitions
from pipelines.run.context import OpenContext, open_context
from pipelines.settings import Settings, current_settings
from state.private_files import keep_private


@dg.definitions
@cache  # the process of a run asks twice
def defs() -> dg.Definitions:
    """Return the definitions of the application, for the settings of the environment."""
    keep_private()
    settings = current_settings()
    configure_logs(settings)
    return application(settings, lambda: open_context(settings), wanted=feeds_of_runs())


def application(settings: Settings, open_run_context: OpenContext, *, wanted: Collection[str] = ()) -> dg.Definitions:
    """Build the definitions of the application; `wanted` names the feeds, if only some are needed.

    A broken mapping file becomes an asset of the group `broken_feeds` with a failed check; the other feeds run.

    Raises:
        MappingFileError: the first broken file, where definitions are validated (`dagster definitions validate`).
    """
    folder = load_feeds(settings, wanted)
    return dg.Definitions.merge(
        build_definitions(folder, settings, open_run_context),
        instance_definitions(folder, settings, open_run_context),
        dg.Definitions(executor=dg.in_process_executor),
    )

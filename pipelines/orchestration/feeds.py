"""The definitions of a folder of feeds: assets, the job `sync`, schedules, sensors, and what is shown of broken mapping files.

Nothing of it belongs to a Dagster instance or a code location as a whole, so that it merges with the definitions of a team.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from urllib.parse import urlsplit

import dagster as dg
import structlog

from mappings.errors import ConfigError, MappingFileError
from mappings.positions import MappingProblem
from mappings.row_key import FeedName
from mappings.yaml.loader import FeedFolder, at_places, load_folder
from pipelines.logs import configure_logs
from pipelines.orchestration import names
from pipelines.orchestration.assets import feed_assets
from pipelines.orchestration.automation import feed_schedules, feed_sensors
from pipelines.orchestration.broken import broken_assets, broken_definitions, broken_feeds
from pipelines.orchestration.layout import FeedSpecs, FeedTranslator, Layout
from pipelines.orchestration.run_tags import WAITING, feeds_of
from pipelines.orchestration.workers import BEGUN
from pipelines.run.context import OpenContext, open_context
from pipelines.settings import Settings, current_settings

_RUNS = {"execute_run", "execute_run_with_structured_logs", "execute_step"}
"""Commands of `dagster api` that execute a run."""


def feeds_definitions(
    folder: str | Path | None = None, *, key_prefix: Sequence[str] = (), translator: FeedTranslator | None = None
) -> dg.Definitions:
    """Return the definitions of a folder of feeds (default: EVENTSYNC_FEEDS), to be merged with those of a team.

    `key_prefix` comes before the keys of all assets, and tells two folders apart. A process that executes a run builds only the
    feeds of the runs at work.

    Raises:
        ConfigError: there is no such folder.
        MappingFileError: the first broken file, where definitions are validated; else it is shown, and the others run.
    """
    settings = current_settings()
    if folder is not None:
        if not Path(folder).is_dir():
            raise ConfigError(f"there is no folder of feeds at {Path(folder).absolute()}")
        settings = settings.model_copy(update={"feeds": Path(folder)})
    if not structlog.is_configured():  # it would print a line for each row, without masking secrets
        configure_logs(settings)
    layout = Layout(tuple(key_prefix), translator or FeedTranslator(), settings.state_kind)
    return build_definitions(load_feeds(settings, feeds_of_runs()), settings, lambda: open_context(settings), layout)


def load_feeds(settings: Settings, wanted: Collection[str] = ()) -> FeedFolder:
    """Load the mapping files of the folder; `wanted` names the feeds, if only some are needed.

    Raises:
        MappingFileError: the first broken file, where definitions are validated (`dagster definitions validate`).
    """
    folder = load_folder(settings.feeds, wanted, folders=settings.files, warns=False)
    if folder.broken and os.getenv("DAGSTER_IS_DEFS_VALIDATION_CLI"):
        raise folder.broken[0]
    return folder


def feeds_of_runs() -> Collection[str]:
    """Return the feeds of the runs at work if this process was started to execute one; none if all feeds are needed.

    All are needed if a run was launched neither by us nor by a schedule of ours: its tags may name some of its feeds only.
    """
    is_of_run = multiprocessing.parent_process() is not None or _RUNS & {*sys.argv}
    if not is_of_run or "DAGSTER_HOME" not in os.environ:  # as under `dagster dev`, whose instance is temporary
        return ()
    with dg.DagsterInstance.get() as instance:
        runs = instance.get_runs(dg.RunsFilter(statuses=[*WAITING, *BEGUN]))
    selected = [names.group_of(feed) for run in runs for feed in feeds_of(run)]
    return selected if all(names.LAUNCHED_BY_TAG in run.tags and feeds_of(run) for run in runs) else ()


def build_definitions(
    folder: FeedFolder, settings: Settings, open_run_context: OpenContext, layout: Layout | None = None
) -> dg.Definitions:
    """Build the definitions of loaded mapping files."""
    layout = layout or Layout(state_kind=settings.state_kind)
    every = [*map(layout.specs_of, folder.feeds)]
    circular = find_circular(every)
    feeds = [one for one in every if one.feed not in circular]
    broken = broken_feeds(FeedFolder(tuple(one.mapping for one in feeds), (*folder.broken, *circular.values())))
    pool = pool_of(settings)
    with warnings.catch_warnings():
        # Observations, own resources, and one run for many partitions are in beta: pyproject.toml binds us to their version.
        warnings.simplefilter("ignore", dg.BetaWarning)
        assets = [asset for specs in feeds for asset in feed_assets(specs, layout, open_run_context, pool)]
    failing, selections = broken_assets(broken, layout)
    selection = [key for one in (*(specs.selection for specs in feeds), *selections) for key in one]
    shown = broken_definitions(broken, layout, settings.files)
    if not selection:
        return shown
    job = dg.define_asset_job(
        layout.named(names.JOB),
        selection=selection,
        executor_def=dg.in_process_executor,
        description="Stages and publishes the feeds whose assets are selected, or all.",
    )
    ours = dg.Definitions(
        assets=[*assets, *failing],
        jobs=[job],
        schedules=feed_schedules(feeds, (one.schedule for one in broken), layout, open_run_context),
        sensors=feed_sensors(feeds, settings.access, layout, open_run_context),
    )
    return dg.Definitions.merge(ours, shown)


def find_circular(feeds: Sequence[FeedSpecs]) -> Mapping[FeedName, MappingFileError]:
    """Return the feeds whose `after` leads back to themselves, the last of each circle: it would stop the whole location from
    loading.
    """
    mappings, owners = {one.feed: one.mapping for one in feeds}, {key: one.feed for one in feeds for key in one.keys}
    before = {one.feed: [owners[key] for key in one.after if key in owners] for one in feeds}
    found = dict[FeedName, MappingFileError]()
    while True:
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            last: FeedName = max(error.args[1])
            problem = MappingProblem(("after",), "after leads back to this feed", "leave out the asset that is made from it")
            found[last] = MappingFileError(mappings[last].path, at_places(mappings[last], [problem]))
            del before[last]
        else:
            return found


def pool_of(settings: Settings) -> str:
    """Return the name of the pool that the runs of all feeds to one service share: its host."""
    return urlsplit(settings.base_url).netloc or "event-api"

"""Dagster's entry point: assets, a job and a schedule for each feed of the folder, and assets for broken mapping files."""

from __future__ import annotations

import gc
import hashlib
import os
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import dagster as dg
from pydantic import TypeAdapter, ValidationError

from mappings.errors import MappingFileError
from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping, FeedText, Schedule
from mappings.yaml.loader import FeedFolder, load_feed, load_folder, readable_document
from pipelines.logs import configure_logs
from pipelines.orchestration import names
from pipelines.orchestration.assets import LaunchOptions, feed_assets, feed_jobs
from pipelines.orchestration.automation import (
    feed_schedules,
    feed_sensors,
    history_definitions,
    notices_sensors,
    schedules_of_job,
)
from pipelines.orchestration.together import due_feeds_job, shared_schedules, sharing
from pipelines.run.context import OpenContext, RunContext, open_context
from pipelines.safe_output import replaced
from pipelines.settings import Settings, current_settings
from state.private_files import keep_private

GROUP = "broken_feeds"
CHECK = "loads"
SENSOR = "broken_mapping_files"
EVERY_S = 60
WIDTH = 96
"""Characters of a problem that fit into one line of an asset's page; Dagster cuts off the rest."""
_NOT_IN_A_NAME = re.compile("[^A-Za-z0-9_-]")
"""Characters that Dagster allows in no name; one of them would stop the whole location from loading."""
_NAME: TypeAdapter[str] = TypeAdapter(FeedText)
_SCHEDULE = TypeAdapter(Schedule)


class FeedRepository(dg.RepositoryData):
    """The definitions of the folder of feeds, built when Dagster asks for them, not at import.

    A feed's jobs are resolved among its own assets: Dagster's time for one job grows with the assets it is resolved among. While
    nothing else was asked for, a feed's job is built from its own mapping file, so that a run's process loads no other feed.
    """

    @cached_property
    def _settings(self) -> Settings:
        keep_private()
        settings = current_settings()
        configure_logs(settings)
        return settings

    @cached_property
    def _folder(self) -> tuple[Sequence[_Feed], dg.RepositoryDefinition]:
        """The feeds, and the definitions that belong to none."""
        is_strict = bool(os.getenv("DAGSTER_IS_DEFS_VALIDATION_CLI"))
        with _nothing_collected():
            feeds, rest = _load_definitions(self._settings, self._open_run_context, is_strict=is_strict)
            return feeds, rest.get_repository_def()

    @cached_property
    def _whole(self) -> dg.RepositoryDefinition:
        """The assets of all feeds, and Dagster's implicit job of them."""
        assets, checks = (
            dict.fromkeys(one.values()) for one in (self.get_assets_defs_by_key(), self.get_asset_checks_defs_by_key())
        )
        with _nothing_collected():
            whole = dg.Definitions.merge(dg.Definitions(assets=[*assets], asset_checks=[*checks]), _common())
            return whole.get_repository_def()

    @cached_property
    def _jobs(self) -> Mapping[str, dg.JobDefinition]:
        """All jobs by name, with Dagster's implicit job of all assets in place of those of each feed."""
        (feeds, rest), whole = self._folder, self._whole
        with _nothing_collected():
            whole_feeds = (dg.Definitions.merge(*one.definitions(self._open_run_context)) for one in feeds)
            parts = [whole, *(one.get_repository_def() for one in whole_feeds), rest]
            owners = {name: part for part in reversed(parts) for name in part.job_names}
            return {name: part.get_job(name) for name, part in owners.items()}

    def _open_run_context(self) -> AbstractContextManager[RunContext]:
        return open_context(self._settings)

    def get_job(self, job_name: str) -> dg.JobDefinition:
        """Return a job; load only its feed, unless all are loaded."""
        if job_name == names.DUE_FEEDS_JOB and "_folder" not in vars(self):  # its steps load the files of their feeds themselves
            return due_feeds_job(self._settings, self._open_run_context)
        group = names.group_of_job(job_name)
        if group and "_folder" not in vars(self):
            alone = build_definitions(self._settings, self._open_run_context, wanted=[group])
            if alone.get_repository_def().has_job(job_name):
                return alone.resolve_job_def(job_name)
        for part in (self._whole, self._folder[1]):  # a process that runs assets from their pages needs no other job
            if part.has_job(job_name):
                return part.get_job(job_name)
        if job_name not in self._jobs:
            raise dg.DagsterInvariantViolationError(f"there is no job {job_name}: no mapping file has its feed")
        return self._jobs[job_name]

    def get_all_jobs(self) -> Sequence[dg.JobDefinition]:
        """Return the jobs of all feeds."""
        return [*self._jobs.values()]

    def get_all_schedules(self) -> Sequence[dg.ScheduleDefinition]:
        """Return the schedules of all feeds."""
        feeds, rest = self._folder
        return [*(schedule for one in feeds for schedule in one.schedules), *rest.schedule_defs]

    def get_all_sensors(self) -> Sequence[dg.SensorDefinition]:
        """Return the sensors of all feeds."""
        feeds, rest = self._folder
        return [*(sensor for one in feeds for sensor in one.sensors), *rest.sensor_defs]

    def get_assets_defs_by_key(self) -> Mapping[dg.AssetKey, dg.AssetsDefinition]:
        """Return the assets of all feeds."""
        feeds, rest = self._folder
        return {key: asset for one in feeds for asset in one.assets for key in asset.keys} | dict(rest.assets_defs_by_key)

    def get_asset_checks_defs_by_key(self) -> Mapping[dg.AssetCheckKey, dg.AssetChecksDefinition]:
        """Return the checks that are defined apart from their assets."""
        return self._folder[1].asset_checks_defs_by_key

    def get_top_level_resources(self) -> Mapping[str, dg.ResourceDefinition]:
        """Return the options of a run."""
        return self._folder[1].get_top_level_resources()

    def get_env_vars_by_top_level_resource(self) -> Mapping[str, AbstractSet[str]]:
        """Return the environment variables that those options come from."""
        return self._folder[1].get_env_vars_by_top_level_resource()


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Keep the garbage collector from the definitions, which stay: it would take a third of the time to build them."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


defs = dg.RepositoryDefinition(names.REPOSITORY, repository_data=FeedRepository())


def build_definitions(
    settings: Settings, open_run_context: OpenContext, *, is_strict: bool = False, wanted: Collection[str] = ()
) -> dg.Definitions:
    """Build the definitions of a folder of feeds; `wanted` names the feeds, if only some are needed.

    A broken mapping file becomes an asset of the group `broken_feeds` with a failed check; the other feeds run.

    Raises:
        MappingFileError: the first broken file, if `is_strict` (for `dagster definitions validate`).
    """
    feeds, rest = _load_definitions(settings, open_run_context, is_strict=is_strict, wanted=wanted)
    return dg.Definitions.merge(*(part for one in feeds for part in one.definitions(open_run_context)), rest)


class _Feed(NamedTuple):
    """The definitions of one feed but its jobs, which take as long again."""

    mapping: FeedMapping
    assets: Sequence[dg.AssetsDefinition]
    schedules: Sequence[dg.ScheduleDefinition]
    sensors: Sequence[dg.SensorDefinition]

    def definitions(self, open_run_context: OpenContext) -> Sequence[dg.Definitions]:
        """Return all definitions of the feed, its jobs among them."""
        parts = dg.Definitions(assets=self.assets, schedules=self.schedules, sensors=self.sensors)
        return parts, feed_jobs(self.mapping, open_run_context), _common()


@cache
def _common() -> dg.Definitions:
    """Return what all feeds share; no name of this module holds it, because Dagster would take it for the entry point."""
    return dg.Definitions(executor=dg.in_process_executor, resources={"options": LaunchOptions.configure_at_launch()})


def _load_definitions(
    settings: Settings, open_run_context: OpenContext, *, is_strict: bool, wanted: Collection[str] = ()
) -> tuple[Sequence[_Feed], dg.Definitions]:
    """Build the definitions of each feed, and those that belong to no feed."""
    folder = load_folder(settings.feeds, wanted, folders=settings.files, warns=False)
    if is_strict and folder.broken:
        raise folder.broken[0]
    broken = broken_feeds(folder)
    shared = sharing(folder.feeds, (one.schedule for one in broken))
    together = {feed for feeds in shared.values() for feed in feeds}
    notices = dg.Definitions(sensors=notices_sensors(folder, settings, open_run_context))
    schedules = shared_schedules(shared, settings, open_run_context)
    feeds = [
        _Feed(
            mapping,
            feed_assets(mapping, open_run_context, settings.state_kind),
            feed_schedules(mapping, open_run_context) if mapping.feed not in together else [],
            feed_sensors(mapping, settings.access, open_run_context),
        )
        for mapping in folder.feeds
    ]
    unusable = broken_definitions(broken, settings.files)
    return feeds, dg.Definitions.merge(unusable, history_definitions(), schedules, notices, _common())


@dataclass(frozen=True, slots=True)
class BrokenFeed:
    """A broken mapping file, with its feed's name and schedule; None if unreadable, or if another file has the name."""

    error: MappingFileError
    feed: FeedName | None = None
    schedule: Schedule | None = None

    @property
    def key(self) -> dg.AssetKey:
        """The key of the asset that shows the file."""
        name = self.error.path.name.replace(".", "_")
        return dg.AssetKey([GROUP, _NOT_IN_A_NAME.sub(lambda found: f"_{ord(found[0]):x}_", name)])

    @property
    def message(self) -> str:
        """All problems of the file, and what to do."""
        return replaced(f"{self.error}\n{self.error.hint}")


def broken_feeds(folder: FeedFolder) -> list[BrokenFeed]:
    """Return the broken files of a folder; a name claimed by several files goes to the valid feed, else to the first file."""
    taken = {names.group_of(mapping.feed) for mapping in folder.feeds}
    feeds: list[BrokenFeed] = []
    for error in folder.broken:
        document, broken = readable_document(error.path), BrokenFeed(error)
        with suppress(ValidationError):
            name = FeedName(_NAME.validate_python(document.get("feed")))
            if names.group_of(name) not in taken:
                taken.add(names.group_of(name))
                broken = BrokenFeed(error, name)
                broken = replace(broken, schedule=_SCHEDULE.validate_python(document.get("schedule")))
        feeds.append(broken)
    return feeds


def broken_definitions(feeds: Sequence[BrokenFeed], folders: Sequence[Path] = ()) -> dg.Definitions:
    """Build the definitions of broken files; empty if there are none. `folders`: those in which they may name files, too."""
    if not feeds:
        return dg.Definitions()
    parts = [_broken_file(one, folders) for one in feeds]
    parts += [_failing_feed(one, one.feed) for one in feeds if one.feed is not None]
    return dg.Definitions.merge(dg.Definitions(sensors=[_checks_sensor(feeds)]), *parts)


def _broken_file(broken: BrokenFeed, folders: Sequence[Path]) -> dg.Definitions:
    """Build the asset of a broken file, and the check that a person may run after correcting it, without a reload."""
    error = broken.error
    problems = (str(replace(problem, path=Path(problem.path.name))) for problem in error.problems)
    lines = "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False) for line in problems)
    asset = dg.AssetSpec(
        broken.key,
        group_name=GROUP,
        kinds={"yaml"},
        tags={"eventsync/state": "broken"},
        description=replaced(f"```\n{lines}\n```\n{error.hint}"),
        metadata={"file": dg.MetadataValue.path(error.path), "problems": len(error.problems)},
    )

    @dg.asset_check(asset=broken.key, name=CHECK, description="The mapping file can be used.")
    def loads() -> dg.AssetCheckResult:
        try:
            load_feed(error.path, folders=folders)
        except MappingFileError as still:
            return dg.AssetCheckResult(passed=False, description=replaced(str(still)), metadata={"problems": len(still.problems)})
        return dg.AssetCheckResult(
            passed=True, description="The file is corrected: run `eventsync reload`, then the feed runs again."
        )

    return dg.Definitions(assets=[asset], asset_checks=[loads])


def _checks_sensor(feeds: Sequence[BrokenFeed]) -> dg.SensorDefinition:
    """Build the sensor that fails the checks of broken files without running them, once for each new set of mistakes."""
    digest = hashlib.blake2b("\n".join(one.message for one in feeds).encode(), digest_size=12).hexdigest()
    red = [
        dg.AssetCheckEvaluation(
            one.key,
            CHECK,
            passed=False,
            severity=dg.AssetCheckSeverity.ERROR,
            description=replaced(str(one.error)),
            metadata={"problems": len(one.error.problems)},
        )
        for one in feeds
    ]

    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if context.cursor == digest:
            return dg.SkipReason(f"{len(feeds)} mapping file(s) still broken; the checks of {GROUP} show why")
        return dg.SensorResult(asset_events=red, cursor=digest)

    return dg.SensorDefinition(
        name=SENSOR,
        evaluation_fn=tick,
        minimum_interval_seconds=EVERY_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Fails the check of each broken mapping file.",
    )


def _failing_feed(broken: BrokenFeed, feed: FeedName) -> dg.Definitions:
    """Build the assets of a broken feed, which cannot be materialized, and its job and schedule, which fail with the problems."""
    group = names.group_of(feed)

    @dg.op(name=f"{group}__broken")
    def refuse() -> None:
        raise dg.Failure(broken.message, allow_retries=False)

    @dg.job(name=names.job_of(feed), tags={names.FEED_TAG: feed}, description="Fails: the mapping file of the feed is broken.")
    def failing() -> None:
        refuse()

    def tick(_context: dg.ScheduleEvaluationContext) -> dg.SkipReason:
        raise dg.Failure(f"The feed did not run: its mapping file is broken.\n{broken.message}")

    description = f"The feed's mapping file is broken.\n\n{broken.message}"
    keys = [dg.AssetKey([feed, name]) for name in ("source", "staged", "published")]
    return dg.Definitions(
        assets=[dg.AssetSpec(key, group_name=group, description=description) for key in keys],
        jobs=[failing],
        schedules=schedules_of_job(failing.name, broken.schedule, tick),  # a missed tick then shows as failed
    )

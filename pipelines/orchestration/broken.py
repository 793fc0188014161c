"""Broken mapping files in Dagster: assets of the group `broken_feeds` with a failed check, and feeds that fail with the cause."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import dagster as dg
from pydantic import TypeAdapter, ValidationError

from mappings.errors import MappingFileError
from mappings.row_key import FeedName
from mappings.spec.feed import FeedText, Schedule
from mappings.yaml.loader import FeedFolder, load_feed, readable_document
from pipelines.orchestration import names
from pipelines.orchestration.layout import Layout
from pipelines.safe_output import replaced

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


@dataclass(frozen=True, slots=True)
class BrokenFeed:
    """A broken mapping file, and what can be read of it. `feed`, `schedule`: None if another file has the name."""

    error: MappingFileError
    feed: FeedName | None = None
    schedule: Schedule | None = None
    owner: str = ""

    def key_in(self, layout: Layout) -> dg.AssetKey:
        """Return the key of the asset that shows the file."""
        name = self.error.path.name.replace(".", "_")
        return layout.key_of(GROUP, _NOT_IN_A_NAME.sub(lambda found: f"_{ord(found[0]):x}_", name))

    @property
    def message(self) -> str:
        """All problems of the file, and what to do."""
        return replaced(f"{self.error}\n{self.error.hint}")


def broken_feeds(folder: FeedFolder) -> list[BrokenFeed]:
    """Return the broken files of a folder; a name claimed by several files goes to the valid feed, else to the first file."""
    taken = {names.group_of(mapping.feed) for mapping in folder.feeds}
    feeds: list[BrokenFeed] = []
    for error in folder.broken:
        document = readable_document(error.path)
        owner = document.get("owner")
        broken = BrokenFeed(error, owner=replaced(owner) if isinstance(owner, str) else "")
        with suppress(ValidationError):
            name = FeedName(_NAME.validate_python(document.get("feed")))
            if names.group_of(name) not in taken:
                taken.add(names.group_of(name))
                broken = replace(broken, feed=name)
                broken = replace(broken, schedule=_SCHEDULE.validate_python(document.get("schedule")))
        feeds.append(broken)
    return feeds


def broken_definitions(feeds: Sequence[BrokenFeed], layout: Layout, folders: Sequence[Path] = ()) -> dg.Definitions:
    """Build what shows broken files; empty if there are none. `folders`: those in which they may name files, too."""
    if not feeds:
        return dg.Definitions()
    schedules = [
        _failing_schedule(one, one.feed, one.schedule, layout) for one in feeds if one.feed and one.schedule and one.schedule.cron
    ]
    sensor = dg.Definitions(sensors=[_checks_sensor(feeds, layout)], schedules=schedules)
    return dg.Definitions.merge(sensor, *(_broken_file(one, layout, folders) for one in feeds))


def broken_assets(
    feeds: Sequence[BrokenFeed], layout: Layout
) -> tuple[Sequence[dg.AssetsDefinition | dg.AssetSpec], Sequence[Sequence[dg.AssetKey]]]:
    """Build the assets of broken feeds, which fail with the problems of their files; and the keys of each feed that a run makes.

    So a run that was started before its file was broken says what is wrong with it.
    """
    assets, selections = list[dg.AssetsDefinition | dg.AssetSpec](), list[Sequence[dg.AssetKey]]()
    for one in feeds:
        if one.feed is not None:
            assets += [
                _spec(one, one.feed, layout, "source"),
                *(_failing(one, one.feed, layout, phase) for phase in names.PHASES),
            ]
            selections.append([layout.key_of(one.feed, phase) for phase in names.PHASES])
    return assets, selections


def _spec(broken: BrokenFeed, feed: FeedName, layout: Layout, phase: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        layout.key_of(feed, phase),
        group_name=names.group_of(feed),
        owners=names.owners_of(broken.owner),
        description=f"The feed's mapping file is broken.\n\n{broken.message}",
    )


def _failing(broken: BrokenFeed, feed: FeedName, layout: Layout, phase: str) -> dg.AssetsDefinition:
    @dg.multi_asset(name=layout.named(names.step_of(feed, phase)), specs=[_spec(broken, feed, layout, phase)])
    def fail() -> None:
        raise dg.Failure(broken.message, allow_retries=False)

    return fail


def _failing_schedule(broken: BrokenFeed, feed: FeedName, schedule: Schedule, layout: Layout) -> dg.ScheduleDefinition:
    """Build the schedule of a broken feed, whose ticks fail: a missed run then shows."""

    def tick(_context: dg.ScheduleEvaluationContext) -> dg.SkipReason:
        raise dg.Failure(f"The feed did not run: its mapping file is broken.\n{broken.message}")

    return layout.schedule(names.schedule_of(feed), schedule, tick, "Fails: the feed's mapping file is broken.")


def _broken_file(broken: BrokenFeed, layout: Layout, folders: Sequence[Path]) -> dg.Definitions:
    """Build the asset of a broken file, and the check that a person may run after correcting it, without a reload."""
    error = broken.error
    problems = (str(replace(problem, path=Path(problem.path.name))) for problem in error.problems)
    lines = "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False) for line in problems)
    asset = dg.AssetSpec(
        broken.key_in(layout),
        group_name=GROUP,
        owners=names.owners_of(broken.owner),
        kinds={"yaml"},
        tags={"eventsync/state": "broken"},
        description=replaced(f"```\n{lines}\n```\n{error.hint}"),
        metadata={"file": dg.MetadataValue.path(error.path), "problems": len(error.problems)},
    )

    @dg.asset_check(asset=asset.key, name=CHECK, description="The mapping file can be used.")
    def loads() -> dg.AssetCheckResult:
        try:
            load_feed(error.path, folders=folders)
        except MappingFileError as still:
            return dg.AssetCheckResult(passed=False, description=replaced(str(still)), metadata={"problems": len(still.problems)})
        return dg.AssetCheckResult(
            passed=True, description="The file is corrected: run `eventsync reload`, then the feed runs again."
        )

    return dg.Definitions(assets=[asset], asset_checks=[loads])


def _checks_sensor(feeds: Sequence[BrokenFeed], layout: Layout) -> dg.SensorDefinition:
    """Build the sensor that fails the checks of broken files without running them, once for each new set of mistakes."""
    digest = hashlib.blake2b("\n".join(one.message for one in feeds).encode(), digest_size=12).hexdigest()
    red = [
        dg.AssetCheckEvaluation(
            one.key_in(layout),
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

    return layout.sensor(SENSOR, EVERY_S, tick, "Fails the check of each broken mapping file.")

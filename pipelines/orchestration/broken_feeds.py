"""What Dagster shows of a mapping file that cannot be used: the file with its mistakes and a red check, its feed's schedule kept.

What is wrong with the file is the loader's to say; feeds that can run are `definitions`'.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from dagster import (
    AssetCheckEvaluation,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetKey,
    AssetSpec,
    DefaultSensorStatus,
    Definitions,
    Failure,
    JobDefinition,
    MetadataValue,
    ScheduleEvaluationContext,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    asset_check,
    job,
    op,
)
from pydantic import TypeAdapter, ValidationError

from mappings.errors import MappingFileError
from mappings.row_key import FeedName
from mappings.spec.feed import FeedText, Schedule
from mappings.yaml.loader import FeedFolder, load_feed, readable_document
from pipelines.control_characters import replaced
from pipelines.orchestration import names
from pipelines.orchestration.schedules import clock_of

GROUP = "broken_feeds"
_NOT_IN_A_NAME = re.compile("[^A-Za-z0-9_-]")
"""What Dagster allows in no name; one such character would stop the whole location."""
CHECK = "loads"
SENSOR = "broken_mapping_files"
EVERY_S = 60
WIDTH = 96
"""So many characters of a mistake stand side by side on an asset's page; what is beyond is cut off there."""

T = TypeVar("T")

_NAME: TypeAdapter[str] = TypeAdapter(FeedText)
_SCHEDULE = TypeAdapter(Schedule)


@dataclass(frozen=True, slots=True)
class BrokenFeed:
    """A broken file, and what can still be read of it: its feed's name, its schedule; None what cannot, or is another's."""

    error: MappingFileError
    feed: FeedName | None
    schedule: Schedule | None

    @property
    def key(self) -> AssetKey:
        """The asset that stands for the file."""
        name = self.error.path.name.replace(".", "_")
        return AssetKey([GROUP, _NOT_IN_A_NAME.sub(lambda found: f"_{ord(found[0]):x}_", name)])

    @property
    def told(self) -> str:
        """All that is wrong, and what would help."""
        return replaced(f"{self.error}\n{self.error.hint}")


def broken_feeds(folder: FeedFolder) -> list[BrokenFeed]:
    """Return what can still be read of a folder's broken files; a name that several claim is a sound feed's, or the first's."""
    taken = {names.group_of(feed.mapping.feed) for feed in folder.feeds}
    return [_broken_feed(error, taken) for error in folder.broken]


def _broken_feed(error: MappingFileError, taken: set[str]) -> BrokenFeed:
    """Return what can still be read of one. `taken`: the groups of other feeds, which keep their names; its own is added."""
    document = readable_document(error.path)
    name = _read(_NAME, document.get("feed"))
    if name is None or (group := names.group_of(FeedName(name))) in taken:
        return BrokenFeed(error, None, None)
    taken.add(group)
    return BrokenFeed(error, FeedName(name), _read(_SCHEDULE, document.get("schedule")))


def broken_definitions(feeds: Sequence[BrokenFeed]) -> Definitions:
    """Return what is shown of the broken files; nothing at all where there are none."""
    if not feeds:
        return Definitions()
    kept = [_kept(one, one.feed) for one in feeds if one.feed is not None]
    shown = Definitions(
        assets=[_file_asset(one) for one in feeds],
        asset_checks=[_file_check(one) for one in feeds],
        sensors=[_teller(feeds)],
    )
    return Definitions.merge(shown, *kept)


def _file_asset(broken: BrokenFeed) -> AssetSpec:
    error = broken.error
    return AssetSpec(
        broken.key,
        group_name=GROUP,
        kinds={"yaml"},
        tags={"eventsync/state": "broken"},
        description=replaced(f"```\n{_lines(error)}\n```\n{error.hint}"),
        metadata={"file": MetadataValue.path(error.path), "problems": len(error.problems)},
    )


def _lines(error: MappingFileError) -> str:
    """Return the mistakes in lines that a page has room for, each file by its name: where it lies is told beside them."""
    named = (str(replace(problem, path=Path(problem.path.name))) for problem in error.problems)
    return "\n".join(textwrap.fill(told, WIDTH, subsequent_indent="    ", break_on_hyphens=False) for told in named)


def _file_check(broken: BrokenFeed) -> AssetChecksDefinition:
    """Return the check that a person may run once the file is mended, without waiting for a reload."""

    @asset_check(asset=broken.key, name=CHECK, description="The mapping file can be used.")
    def loads() -> AssetCheckResult:
        try:
            load_feed(broken.error.path)
        except MappingFileError as error:
            return AssetCheckResult(passed=False, description=replaced(str(error)), metadata={"problems": len(error.problems)})
        return AssetCheckResult(passed=True, description="mended: `eventsync reload` lets the feed run again")

    return loads


def _teller(feeds: Sequence[BrokenFeed]) -> SensorDefinition:
    """Return what turns the checks red without anybody running them: once for each new set of mistakes."""
    told = [
        AssetCheckEvaluation(
            one.key,
            CHECK,
            passed=False,
            severity=AssetCheckSeverity.ERROR,
            description=replaced(str(one.error)),
            metadata={"problems": len(one.error.problems)},
        )
        for one in feeds
    ]
    digest = hashlib.blake2b("\n".join(one.told for one in feeds).encode(), digest_size=12).hexdigest()

    def tell(context: SensorEvaluationContext) -> SensorResult | SkipReason:
        if context.cursor == digest:
            return SkipReason(f"{len(feeds)} mapping file(s) still broken; the checks of {GROUP} tell why")
        return SensorResult(asset_events=told, cursor=digest)

    return SensorDefinition(
        name=SENSOR,
        evaluation_fn=tell,
        minimum_interval_seconds=EVERY_S,
        default_status=DefaultSensorStatus.RUNNING,
        description="Turns the check of each mapping file that cannot be used red.",
    )


def _kept(broken: BrokenFeed, feed: FeedName) -> Definitions:
    """Return the feed's assets as they are known, none of which can be made, its job and its schedule, which fail and say why."""
    paths = (names.source_path(feed), names.staged_path(feed), names.published_path(feed))
    job = _failing_job(broken, feed)

    def tick(_context: ScheduleEvaluationContext) -> SkipReason:
        raise Failure(f"not run: its mapping file is broken\n{broken.told}")

    return Definitions(
        assets=[
            AssetSpec(
                AssetKey(path), group_name=names.group_of(feed), description=f"Its mapping file is broken.\n\n{broken.told}"
            )
            for path in paths
        ],
        jobs=[job],
        schedules=clock_of(job.name, broken.schedule, tick),  # a tick that it misses is a red one, not one that never was
    )


def _failing_job(broken: BrokenFeed, feed: FeedName) -> JobDefinition:
    @op(name=f"{names.group_of(feed)}__broken")
    def refuse() -> None:
        raise Failure(broken.told, allow_retries=False)

    @job(name=names.job_of(feed), tags={names.FEED_TAG: feed}, description="Fails: the mapping file of the feed is broken.")
    def failing() -> None:
        refuse()

    return failing


def _read(adapter: TypeAdapter[T], value: object) -> T | None:
    try:
        return adapter.validate_python(value)
    except ValidationError:
        return None

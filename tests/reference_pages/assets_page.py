"""The page about what Dagster sees of a feed, written from the definitions of one: assets, checks, jobs, what launches them.

What it is good for is told by hand, in docs/dagster.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
from reference_pages.tables import page, table

from pipelines.definitions import CHECK, GROUP, build_definitions
from pipelines.orchestration import names
from pipelines.orchestration.assets import LaunchOptions, brake_specs, publish_specs
from pipelines.run.context import open_context
from pipelines.settings import read_settings

_FEED = "town-hall"
_MAPPING = """\
feed: town-hall
owner: agenda@example.org
source: {kind: csv, path: "in/agenda-{date:%Y%m%d}.csv"}
schedule: {cron: "15 */2 * * *", timezone: Europe/Warsaw, look_every: 5m}
key: [ID]
event:
  channelId: {channel: city-agenda}
  title: {from: TITLE, do: [collapse]}
  startAt: {at: {day: {from: DAY, do: [{date: "%Y-%m-%d"}]}, clock: {from: HOUR, do: [{time: "%H:%M"}]}, zone: Europe/Warsaw}}
  timezone: Europe/Warsaw
  classifications: {from: GENRE, do: [{map: {concert: music}}]}
  approxLocation: {city: {placeId: krk}}
"""
_ENVIRON = {
    "EVENT_API_BASE_URL": "https://events.example.org",
    "EVENTSYNC_FEEDS": "feeds",
    "EVENTSYNC_NOTIFY": "json://alerts.example.org",
    "DAGSTER_HOME": "dagster",
}

_OPENING = f"""\
# Assets, checks, jobs

What Dagster sees of a feed, so that scripts and alerts can name it: here of `{_FEED}`, whose source is a dated file, whose
schedule has a cron line and `look_every`, and whose owner is told of trouble. In names of groups, jobs, schedules and sensors
a `-` of the feed becomes `_`. This page is written from the definitions (`make reference`); a test keeps the two alike. What
it is good for: [dagster.md](dagster.md)."""

_BROKEN = f"""\
A mapping file that cannot be used is an asset of the group `{GROUP}` in place of these, with one check, `{CHECK}`, which is
red for as long as the file is broken."""

_LAUNCHING = """\
Options of the resource `options` in the launchpad of `sync_` and `backfill_` jobs, the same as of `eventsync run`. Secrets
are no part of a run's configuration."""

_SEQUENCES = "A schedule that is on from the start runs without anybody's doing; each of them can be switched in the UI."


def write_assets() -> str:
    """The whole page, as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        definitions = _definitions(Path(folder))
        specs = sorted(definitions.resolve_all_asset_specs(), key=_as_a_row_goes)
        repository = definitions.get_repository_def()
        return page(
            _OPENING,
            "## Assets",
            table(("asset", "group", "kinds", "what it says"), map(_asset, specs)),
            _BROKEN,
            "## Checks",
            table(("asset", "check", "blocks what comes after", "passes if"), _checks()),
            "## Jobs",
            table(("job", "does"), ((f"`{job.name}`", job.description or "") for job in _jobs(repository))),
            "## Schedules and sensors",
            _SEQUENCES,
            table(("name", "when", "on from the start", "starts"), (*_schedules(repository), *_sensors(repository))),
            "## Launch options",
            _LAUNCHING,
            table(("option", "without it", "says"), _options()),
            "## Tags",
            table(("tag of a run", "says"), _tags()),
        )


def _definitions(folder: Path) -> dg.Definitions:
    (folder / "feeds").mkdir()
    (folder / "feeds" / f"{_FEED}.yaml").write_text(_MAPPING, "utf-8")
    settings = read_settings(_ENVIRON, folder)
    return build_definitions(settings, lambda: open_context(settings))


def _as_a_row_goes(spec: dg.AssetSpec) -> int:
    return ("source", "staged", "published", "backfilled").index(spec.key.path[-1])


def _asset(spec: dg.AssetSpec) -> tuple[str, str, str, str]:
    kinds = ", ".join(f"`{kind}`" for kind in sorted(spec.kinds))
    return f"`{'/'.join(spec.key.path)}`", f"`{spec.group_name}`", kinds, spec.description or ""


def _checks() -> Iterator[tuple[str, str, str, str]]:
    staged, published = (dg.AssetKey([_FEED, name]) for name in ("staged", "published"))
    for spec in (*brake_specs(staged), *publish_specs(published)):
        yield f"`{spec.asset_key.path[-1]}`", f"`{spec.name}`", "yes" if spec.blocking else "no", spec.description or ""


def _jobs(repository: dg.RepositoryDefinition) -> list[dg.JobDefinition]:
    return sorted((job for job in repository.get_all_jobs() if not job.name.startswith("__")), key=lambda job: job.name)


def _schedules(repository: dg.RepositoryDefinition) -> Iterator[tuple[str, str, str, str]]:
    for one in sorted(repository.schedule_defs, key=lambda one: one.name):
        zone = f", {one.execution_timezone}" if one.execution_timezone else ""
        is_on = one.default_status is dg.DefaultScheduleStatus.RUNNING
        yield f"`{one.name}`", f"`{one.cron_schedule}`{zone}", "yes" if is_on else "no", f"`{one.job_name}`"


def _sensors(repository: dg.RepositoryDefinition) -> Iterator[tuple[str, str, str, str]]:
    for one in sorted(repository.sensor_defs, key=lambda one: one.name):
        is_on = one.default_status is dg.DefaultSensorStatus.RUNNING
        yield f"`{one.name}`", f"every {one.minimum_interval_seconds} s", "yes" if is_on else "no", one.description or ""


def _options() -> Iterator[tuple[str, str, str]]:
    for name, field in LaunchOptions.model_fields.items():
        yield f"`{name}`", f"`{field.get_default(call_default_factory=True)}`", field.description or ""


def _tags() -> Iterator[tuple[str, str]]:
    yield f"`{names.FEED_TAG}`", "The feed that it works on."
    yield (
        f"`{names.LAUNCHED_BY_TAG}`",
        "Who asked for it: `schedule` (also by a changed source), `backfill`, `cli`, or `dagster` for a launch in the UI.",
    )

"""What the assets of feeds are called and belong to in Dagster: by default, and as a team wants it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from mappings.row_key import FeedName
from mappings.spec.feed import FeedMapping, Schedule
from mappings.spec.source import GoogleSheetsSource, SourceSpec
from pipelines.orchestration import names
from pipelines.orchestration.freshness import freshness_of
from pipelines.run.backfill import FIRST_SHOWN, days_ahead, default_way

_KINDS = {"google_sheets": "googlesheets", "xlsx": "excel"}
"""Dagster's own names of source kinds, for which it has icons."""
_NOT_IN_A_NAME = re.compile(r"\W", re.ASCII)


class FeedTranslator:
    """Decides what the assets of feeds are called and belong to; a team overrides `get_asset_spec`."""

    def get_asset_spec(self, feed: FeedMapping, spec: dg.AssetSpec) -> dg.AssetSpec:  # noqa: ARG002  # for those who override it
        """Return the spec of one asset of a feed: the default `spec`, with another key, group, owner, tag, dependency or
        automation condition. The feed's own assets are made dependencies of one another afterwards.
        """
        return spec


@dataclass(frozen=True, slots=True)
class FeedSpecs:
    """The specs of a feed's assets."""

    mapping: FeedMapping
    source: dg.AssetSpec
    staged: dg.AssetSpec
    published: dg.AssetSpec
    backfilled: dg.AssetSpec

    @property
    def feed(self) -> FeedName:
        """The feed's name."""
        return self.mapping.feed

    @property
    def keys(self) -> list[dg.AssetKey]:
        """All assets of the feed."""
        return [one.key for one in (self.source, self.staged, self.published, self.backfilled)]

    @property
    def after(self) -> list[dg.AssetKey]:
        """The assets from which the source is made."""
        return [one.asset_key for one in self.source.deps]

    @property
    def selection(self) -> list[dg.AssetKey]:
        """The assets that a run of the feed makes."""
        return [self.staged.key, self.published.key]


@dataclass(frozen=True, slots=True)
class Layout:
    """The place of a folder's feeds among a team's definitions. `state_kind`: the kind of database that rows are staged in."""

    key_prefix: tuple[str, ...] = ()
    translator: FeedTranslator = field(default_factory=FeedTranslator)
    state_kind: str = "sqlite"

    def named(self, name: str) -> str:
        """Return a name of a job, step, schedule or sensor, different for each key prefix."""
        return "_".join((*(_NOT_IN_A_NAME.sub("_", part) for part in self.key_prefix), name))

    def key_of(self, feed: str, phase: str) -> dg.AssetKey:
        """Return the default key of an asset."""
        return dg.AssetKey([*self.key_prefix, feed, phase])

    def schedule(self, name: str, clock: Schedule, tick: Callable[..., Any], description: str) -> dg.ScheduleDefinition:
        """Return a schedule of the job `sync`, on from the start."""
        return dg.ScheduleDefinition(
            name=self.named(name),
            job_name=self.named(names.JOB),
            cron_schedule=clock.cron,
            execution_timezone=clock.timezone,
            execution_fn=tick,
            default_status=dg.DefaultScheduleStatus.RUNNING,
            description=description,
        )

    def sensor(
        self, name: str, every_s: float, tick: Callable[..., Any], description: str, job: str | None = None
    ) -> dg.SensorDefinition:
        """Return a sensor, on from the start. `job`: the job that it starts."""
        return dg.SensorDefinition(
            name=self.named(name),
            job_name=self.named(job) if job else None,
            evaluation_fn=tick,
            minimum_interval_seconds=round(every_s),
            default_status=dg.DefaultSensorStatus.RUNNING,
            description=description,
        )

    def specs_of(self, mapping: FeedMapping) -> FeedSpecs:
        """Return the specs of a feed's assets, as the translator wants them."""
        group, owners = names.group_of(mapping.feed), names.owners_of(mapping.owner)

        def spec(phase: str, *before: dg.AssetSpec, **attributes: Any) -> dg.AssetSpec:
            key = self.key_of(mapping.feed, phase)
            made = dg.AssetSpec(key, **{"group_name": group, "owners": owners, **attributes})
            made = self.translator.get_asset_spec(mapping, made)
            return made.replace_attributes(deps=[*made.deps, *(dg.AssetDep(one.key) for one in before)])

        address = _address_of(mapping.source)
        version = code_version(mapping)
        source = spec(
            "source",
            deps=[dg.AssetKey(one.split("/")) for one in mapping.after],
            kinds={_KINDS.get(mapping.source.kind, mapping.source.kind)},
            description="Observing checks whether the source has changed; no row is read.",
            metadata={
                "source": dg.MetadataValue.url(address) if address else mapping.source.place,
                "mapping file": dg.MetadataValue.path(mapping.path),
                "schedule": str(mapping.schedule) if mapping.schedule else "none",
            },
        )
        staged = spec(
            "staged",
            source,
            kinds={self.state_kind},
            code_version=version,
            description="All rows are read, mapped and recorded. The checks are the brakes: they stop a run before it sends.",
        )
        published = spec(
            "published",
            staged,
            kinds={"http"},
            code_version=version,
            freshness_policy=freshness_of(mapping.schedule),
            description="Every due row is sent and answered.",
        )
        backfilled = spec(
            "backfilled",
            source,
            group_name=names.BACKFILLS,
            kinds={"http"},
            partitions_def=dg.DailyPartitionsDefinition(
                start_date=FIRST_SHOWN.isoformat(), end_offset=1 + days_ahead(mapping.source)
            ),
            description=f"Days (by {default_way(mapping.source)}) read again and sent, each row once.",
        )
        return FeedSpecs(mapping, source, staged, published, backfilled)


def code_version(mapping: FeedMapping) -> str:
    """Return the code version of a feed's assets: an edited mapping shows as unsynced."""
    return mapping.digest.hex()[:12]


def _address_of(source: SourceSpec) -> str:
    """Return the web address of a source that a browser can open, without secrets; "" if it has none."""
    if isinstance(source, GoogleSheetsSource):
        tab = "" if source.tab_number is None else f"/edit#gid={source.tab_number}"
        return f"https://docs.google.com/spreadsheets/d/{source.spreadsheet_id}{tab}"
    return source.place if source.place.startswith(("http://", "https://")) else ""

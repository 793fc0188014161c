"""Feeds that run when their source has changed: a file that has come, a sheet that somebody has edited.

What is looked at is `connectors.sources.glances`'; feeds that run by the clock are `schedules`'.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import orjson
from dagster import (
    DefaultSensorStatus,
    Failure,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
)

from connectors.sources.access import Access
from connectors.sources.glances import Glance, glance_at
from mappings.errors import SyncError, TransientError
from mappings.spec.feed import FeedMapping
from pipelines import names
from pipelines.run.backfill import SCHEDULE
from pipelines.schedules import at_work


@dataclass(frozen=True, slots=True)
class Seen:
    """What a sensor has seen last: its cursor. `turn` counts the runs that it has asked for: each has a key of its own."""

    turn: int
    marks: frozenset[str]

    def __str__(self) -> str:
        """The text that Dagster keeps."""
        return orjson.dumps({"turn": self.turn, "marks": sorted(self.marks)}).decode()


def parse_seen(cursor: str | None) -> Seen | None:
    """Return what a cursor says, None for one that is not ours: a person may write anything there, to have the feed run."""
    try:
        kept = orjson.loads(cursor or "null")
        return Seen(int(kept["turn"]), frozenset(map(str, kept["marks"])))
    except (ValueError, TypeError, KeyError):
        return None


def feed_sensors(mapping: FeedMapping, access: Access) -> list[SensorDefinition]:
    """Return what looks at a feed's source as often as its schedule says, if it does: running from the start."""
    schedule = mapping.schedule
    if schedule is None or schedule.look_every_s is None:
        return []

    def look(context: SensorEvaluationContext) -> SensorResult | SkipReason:
        busy = at_work(context.instance, mapping.feed)
        if busy is not None:  # and looked at again later, with what it knows now: a file may come while a run is at work
            return busy
        try:
            glance = glance_at(mapping.source, mapping.path.parent, access=access)
        except TransientError as error:
            return SkipReason(f"{error}; looked at again later")
        except SyncError as error:
            raise Failure(f"{error}\n{error.hint}") from error
        return _judged(mapping, parse_seen(context.cursor), glance)

    return [
        SensorDefinition(
            name=names.sensor_of_job(names.job_of(mapping.feed)),
            job_name=names.job_of(mapping.feed),
            evaluation_fn=look,
            minimum_interval_seconds=round(schedule.look_every_s),
            default_status=DefaultSensorStatus.RUNNING,
            description=f"Runs {mapping.feed} when {mapping.source.place} has come or changed.",
        )
    ]


def _judged(mapping: FeedMapping, seen: Seen | None, glance: Glance) -> SensorResult | SkipReason:
    """Ask for a run where there is news; the first look is always some, as nobody knows what earlier runs have read."""
    if glance.blind:
        return SkipReason(glance.blind)
    if seen is not None and not glance.is_news_to(seen.marks):
        return SensorResult(skip_reason=f"as it was: {mapping.source.place}", cursor=str(Seen(seen.turn, glance.marks)))
    now = Seen(seen.turn + 1 if seen else 1, glance.marks)
    digest = hashlib.blake2b(str(now).encode(), digest_size=9).hexdigest()
    # Looked at from its start again, the cursor having been taken away by a person, it runs whatever ran before.
    run_key = f"{mapping.feed} {digest}" if seen else None
    request = RunRequest(run_key=run_key, tags={names.LAUNCHED_BY_TAG: SCHEDULE})  # it comes between a backfill's slices, too
    return SensorResult(run_requests=[request], cursor=str(now))

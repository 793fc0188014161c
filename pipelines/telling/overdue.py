"""Feeds whose runs do not come: a tick of their schedule is an hour old, and no run has come since.

Told from the books alone. Runs that come and do not get through say why themselves, see `causes`; Dagster's own view of a feed
that is not fresh is `pipelines.freshness`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from mappings.spec.feed import Schedule
from mappings.vocabulary import FeedName
from pipelines.backfills.giving_way import BACKFILL
from pipelines.telling.causes import SILENT, Cause, Concern
from pipelines.ticks import HOUR, gaps_of_day, last_tick, ticks_of_day
from state.database import StateDb
from state.milestones import last_came

_SPELT = "%Y-%m-%d %H:%M UTC"


def runs_came(engine: StateDb, destination: str) -> Mapping[FeedName, datetime]:
    """Return when each feed last ran, but for backfills: a window of the past says nothing of the feed's freshness.

    Raises:
        SyncError: the state DB cannot be read.
    """
    return last_came(engine, destination, SILENT, BACKFILL)


def overdue(feed: FeedName, schedule: Schedule | None, came: datetime | None, now: datetime) -> Concern | None:
    """Return that a feed's run has not come, None where it has, or where nobody knows when it should.

    A tick counts once it is an hour old; where ticks come more often, once the next one has come. A feed that never ran
    may be new.
    """
    if schedule is None or came is None:
        return None
    due = _due(schedule, now)
    if due is None or came >= due:
        return None
    told = f"no run has come since {came:{_SPELT}}: one was due at {due:{_SPELT}} by its schedule, {schedule}"
    hint = f"is the daemon running, and its schedule on? `eventsync status {feed}` tells whether a run is still at work"
    return Concern(Cause.OVERDUE, told, f"{hint}; `eventsync run {feed}` runs it now")


def _due(schedule: Schedule, now: datetime) -> datetime | None:
    """Return the last tick that is old enough."""
    if schedule.cron is None:
        return None
    grace_min = min(HOUR, *gaps_of_day(ticks_of_day(schedule.cron)))
    return last_tick(schedule, now - timedelta(minutes=grace_min))

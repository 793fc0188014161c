"""The names of a feed in Dagster: of groups, jobs, schedules, sensors, asset paths and tags.

Imports nothing of Dagster, so that the command line starts fast.
"""

from __future__ import annotations

import re

from mappings.row_key import FeedName

LOCATION = "eventsync"
FEED_TAG = "eventsync/feed"
LAUNCHED_BY_TAG = "eventsync/launched_by"

AssetPath = tuple[str, str]

_MAIL = re.compile(r"\w[A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}", re.ASCII)
_RUN, _BACKFILL = "sync_", "backfill_"
_KINDS = {"google_sheets": "googlesheets", "xlsx": "excel"}


def group_of(feed: FeedName) -> str:
    """Return the group of a feed's assets; Dagster allows letters, digits and underscores only."""
    return feed.replace("-", "_")


def job_of(feed: FeedName) -> str:
    """Return the name of the job that stages and publishes a feed."""
    return f"{_RUN}{group_of(feed)}"


def group_of_job(job: str) -> str:
    """Return the group of the feed that a job runs, "" of a job that runs none."""
    return next((job.removeprefix(one) for one in (_RUN, _BACKFILL) if job.startswith(one)), "")


def schedule_of_job(job: str) -> str:
    """Return the name of a job's schedule."""
    return f"{job}_schedule"


def sensor_of_job(job: str) -> str:
    """Return the name of the sensor that runs a job when its source has changed."""
    return f"{job}_when_changed"


def owners_of(owner: str) -> list[str]:
    """Return an owner as Dagster takes one: a mail address as it is, anything else as a team; none if none is named."""
    if not owner:
        return []
    return [owner if _MAIL.fullmatch(owner) else f"team:{owner.removeprefix('team:') or owner}"]


def backfill_job_of(feed: FeedName) -> str:
    """Return the name of the job that backfills a feed."""
    return f"{_BACKFILL}{group_of(feed)}"


def kind_of(source_kind: str) -> str:
    """Return Dagster's word for a kind of source; it has icons for the words that it knows."""
    return _KINDS.get(source_kind, source_kind)


def source_path(feed: FeedName) -> AssetPath:
    """Return the path of the external asset that stands for the feed's source."""
    return feed, "source"


def staged_path(feed: FeedName) -> AssetPath:
    """Return the path of the asset for rows that are read, mapped and recorded."""
    return feed, "staged"


def published_path(feed: FeedName) -> AssetPath:
    """Return the path of the asset for rows that are sent."""
    return feed, "published"


def backfilled_path(feed: FeedName) -> AssetPath:
    """Return the path of the asset whose partitions are backfilled days."""
    return feed, "backfilled"

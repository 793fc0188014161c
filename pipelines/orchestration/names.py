"""The names of a feed in Dagster: of groups, jobs, schedules, sensors, asset paths and tags.

Imports nothing of Dagster, so that the command line starts fast.
"""

from __future__ import annotations

import re

from mappings.row_key import FeedName

LOCATION = "eventsync"
REPOSITORY = "__repository__"
"""What Dagster calls the definitions of a location."""
FEED_TAG = "eventsync/feed"
LAUNCHED_BY_TAG = "eventsync/launched_by"

_MAIL = re.compile(r"\w[A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}", re.ASCII)
_RUN, _BACKFILL = "sync_", "backfill_"


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


def owners_of(owner: str) -> list[str]:
    """Return an owner as Dagster takes one: a mail address as it is, anything else as a team; none if none is named."""
    if not owner:
        return []
    return [owner if _MAIL.fullmatch(owner) else f"team:{owner.removeprefix('team:') or owner}"]


def backfill_job_of(feed: FeedName) -> str:
    """Return the name of the job that backfills a feed."""
    return f"{_BACKFILL}{group_of(feed)}"

"""Names of a feed in Dagster: groups, jobs, schedules, sensors, asset paths and tags.

Does not import Dagster, so that the command line starts fast.
"""

from __future__ import annotations

import re

from mappings.row_key import FeedName

REPOSITORY = "__repository__"
"""Dagster's name for the definitions of a location."""
FEED_TAG = "eventsync/feed"
LAUNCHED_BY_TAG = "eventsync/launched_by"
DUE_FEEDS_JOB = "due_feeds"
"""The job of feeds that share a schedule. Unlike those of feeds, its name does not begin with `sync_`."""

_MAIL = re.compile(r"\w[A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}", re.ASCII)
_RUN, _BACKFILL = "sync_", "backfill_"


def group_of(feed: FeedName) -> str:
    """Return the group name of a feed's assets; Dagster allows only letters, digits and underscores."""
    return feed.replace("-", "_")


def job_of(feed: FeedName) -> str:
    """Return the name of the job that stages and publishes a feed."""
    return f"{_RUN}{group_of(feed)}"


def group_of_job(job: str) -> str:
    """Return the group name of the feed that a job runs, "" for any other job."""
    return next((job.removeprefix(one) for one in (_RUN, _BACKFILL) if job.startswith(one)), "")


def schedule_of_job(job: str) -> str:
    """Return the name of a job's schedule."""
    return f"{job}_schedule"


def owners_of(owner: str) -> list[str]:
    """Return an owner in Dagster's form: a mail address unchanged, anything else as a team; empty without an owner."""
    if not owner:
        return []
    return [owner if _MAIL.fullmatch(owner) else f"team:{owner.removeprefix('team:') or owner}"]


def backfill_job_of(feed: FeedName) -> str:
    """Return the name of the job that backfills a feed."""
    return f"{_BACKFILL}{group_of(feed)}"


def step_of(feed: FeedName) -> str:
    """Return the key of a feed's step in a run of several feeds."""
    return f"sync[{group_of(feed)}]"

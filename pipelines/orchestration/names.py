"""Names of a feed in Dagster: groups, jobs, schedules, sensors, asset paths and tags.

Does not import Dagster, so that the command line starts fast.
"""

from __future__ import annotations

import re

from mappings.row_key import FeedName

REPOSITORY = "__repository__"
"""Dagster's name for the definitions of a location."""
FEED_TAG = "eventsync/feed"
FEEDS_TAG = "eventsync/feeds"
"""The number of feeds of a run of several, whose names are in hidden tags."""
LAUNCHED_BY_TAG = "eventsync/launched_by"
RUN_RETRY_TAG = "dagster/retry_on_asset_or_op_failure"
"""Whether the daemon may retry a run in which a step has failed: https://docs.dagster.io/deployment/execution/run-retries."""
PLAN_TAG = "eventsync/days"
"""The plan of a backfill that the command launched."""
OPTIONS = "eventsync_options"
"""The resource with the options of a run."""
JOB = "sync"
"""The job of all feeds; a run selects the assets of its own."""
BACKFILLS = "backfills"
"""The group of the assets `backfilled`: they have partitions, so they cannot be made together with a feed's others."""
PHASES = ("staged", "published")
"""The assets of a feed that a run makes."""

_MAIL = re.compile(r"\w[A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}", re.ASCII)


def group_of(feed: FeedName) -> str:
    """Return the group name of a feed's assets; Dagster allows only letters, digits and underscores."""
    return feed.replace("-", "_")


def schedule_of(feed: FeedName) -> str:
    """Return the name of a feed's schedule."""
    return f"sync_{group_of(feed)}_schedule"


def owners_of(owner: str) -> list[str]:
    """Return an owner in Dagster's form: a mail address unchanged, anything else as a team; empty without an owner."""
    if not owner:
        return []
    return [owner if _MAIL.fullmatch(owner) else f"team:{owner.removeprefix('team:') or owner}"]


def step_of(feed: FeedName, phase: str) -> str:
    """Return the name of the step that makes an asset of a feed: `source`, `staged`, `published` or `backfilled`."""
    return f"{group_of(feed)}__{phase}"

"""Tags by which Dagster's runs name their feeds, and the runs of a feed, found by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg

from mappings.row_key import FeedName
from pipelines.orchestration import names
from pipelines.orchestration.dagster_private import HIDDEN_TAG_PREFIX
from pipelines.run.context import BACKFILL

AT_WORK = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
"""Statuses of a run at work. `NOT_STARTED` is missing: a process that died before its run began leaves it so for ever."""


def feed_tags(feeds: Sequence[str]) -> Mapping[str, str]:
    """Return the tags of a run that name its feeds; if there are several, the UI hides them."""
    if len(feeds) == 1:
        return {names.FEED_TAG: feeds[0]}
    return {tag_of(feed): feed for feed in feeds}


def feeds_of(run: dg.DagsterRun) -> list[FeedName]:
    """Return the feeds of a run."""
    return [FeedName(feed) for tag, feed in run.tags.items() if tag in {names.FEED_TAG, tag_of(feed)}]


def tag_feeds(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Tag a run of assets launched from their pages with its feeds: it has no job that names them."""
    feeds = sorted({key.path[0] for key in run.asset_selection or () if key.path[-1] != "source"})
    if feeds and not feeds_of(run):
        instance.add_run_tags(run.run_id, feed_tags(feeds))


def tag_of(feed: str) -> str:
    """Return the hidden tag of a feed in a run of several."""
    return f"{HIDDEN_TAG_PREFIX}feed.{feed[-58:]}"  # Dagster allows 63 characters after the slash


def records_of(
    instance: dg.DagsterInstance, feed: FeedName, statuses: Sequence[dg.DagsterRunStatus] = (), limit: int | None = None
) -> list[dg.RunRecord]:
    """Return the runs of a feed, alone or with others, newest first; `limit`: at most so many of either kind."""
    filters = [dg.RunsFilter(tags={tag: feed}, statuses=statuses) for tag in (names.FEED_TAG, tag_of(feed))]
    found = [record for one in filters for record in instance.get_run_records(one, limit=limit)]
    return sorted(found, key=lambda record: record.storage_id, reverse=True)


def at_work(instance: dg.DagsterInstance, feed: FeedName) -> dg.SkipReason | None:
    """Return a reason to skip a tick if a run of the feed has not ended, else None; a backfill does not count."""
    runs = [one.dagster_run for one in records_of(instance, feed, AT_WORK)]
    runs = [run for run in runs if run.tags.get(names.LAUNCHED_BY_TAG) != BACKFILL]
    return dg.SkipReason(f"run {runs[0].run_id} of {feed} has not ended yet") if runs else None


def feeds_at_work(instance: dg.DagsterInstance) -> tuple[frozenset[FeedName], frozenset[FeedName]]:
    """Return the feeds with a run that has not ended, and those with a backfill, for which a scheduled run may have to wait."""
    runs = instance.get_runs(dg.RunsFilter(statuses=AT_WORK))
    found = {(feed, run.tags.get(names.LAUNCHED_BY_TAG) == BACKFILL) for run in runs for feed in feeds_of(run)}
    ours, backfilled = (frozenset(feed for feed, is_backfill in found if is_backfill is wanted) for wanted in (False, True))
    return ours, backfilled

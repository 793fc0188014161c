"""Tags by which Dagster's runs name their feeds; the runs of a feed, found by them; the feeds at work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg

from mappings.errors import SyncError
from mappings.row_key import FeedName
from pipelines.orchestration import names
from pipelines.orchestration.dagster_private import HIDDEN_TAG_PREFIX
from pipelines.run.context import BACKFILL, OpenContext, was_launched_by
from state.ledger.lease import own_clock
from state.queries import held_leases

WAITING = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING)
BEGUN = (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
"""Statuses of a run that may be at work, by whether a lease shows it. `NOT_STARTED` is missing: a process that died before its
run began leaves it so for ever.
"""


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


def at_work(instance: dg.DagsterInstance, feed: FeedName, open_run_context: OpenContext) -> dg.SkipReason | None:
    """Return a reason to skip a tick if a run of the feed is at work, else None; a backfill does not count."""
    runs = [one.dagster_run for one in records_of(instance, feed, [*WAITING, *BEGUN])]
    runs = [run for run in runs if run.tags.get(names.LAUNCHED_BY_TAG) != BACKFILL]
    is_busy = feed in _busy(instance, runs, open_run_context)
    return dg.SkipReason(f"run {runs[0].run_id} of {feed} has not ended yet") if is_busy else None


def feeds_at_work(instance: dg.DagsterInstance, open_run_context: OpenContext) -> tuple[frozenset[FeedName], frozenset[FeedName]]:
    """Return the feeds that are at work, and those with a backfill, for which a scheduled run may have to wait."""
    runs = instance.get_runs(dg.RunsFilter(statuses=[*WAITING, *BEGUN]))
    backfills = [run for run in runs if run.tags.get(names.LAUNCHED_BY_TAG) == BACKFILL]
    others = [run for run in runs if run not in backfills]
    return _busy(instance, others, open_run_context), frozenset(feed for run in backfills for feed in feeds_of(run))


def _busy(instance: dg.DagsterInstance, runs: Sequence[dg.DagsterRun], open_run_context: OpenContext) -> frozenset[FeedName]:
    """Return the feeds of runs that wait in the queue, and those of begun runs whose lease is held.

    Where a launcher has no health checks, Dagster shows a killed run as STARTED for ever, and its queue counts it: a run whose
    lease was neither renewed nor released is reported as failed. If the state DB does not answer, begun runs count as at work.
    """
    waiting = {feed for run in runs if run.status in WAITING for feed in feeds_of(run)}
    begun = [run for run in runs if run.status in BEGUN]
    if not begun:
        return frozenset(waiting)
    feeds = {feed for run in begun for feed in feeds_of(run)}
    try:
        with open_run_context() as run_context:
            clock = own_clock(run_context.engine, run_context.now)
            leases = [*held_leases(run_context.engine, run_context.settings.destination, clock)]
    except SyncError:
        return frozenset(waiting | feeds)
    silent = [holder for _, holder, is_alive in leases if not is_alive]
    for run in begun:
        if any(holder.startswith(f"run {run.run_id},") for holder in silent):
            instance.report_run_failed(run, "no process renews its lease; the state is intact: the next run continues")
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    held = {feed for feed, holder, is_alive in leases if is_alive and not was_launched_by(holder, BACKFILL)}
    return frozenset(waiting | feeds & held)

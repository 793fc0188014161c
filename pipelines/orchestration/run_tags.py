"""Tags by which Dagster's runs name their feeds; the runs of a feed, found by them; the feeds at work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import dagster as dg

from mappings.errors import SyncError
from mappings.row_key import FeedName
from pipelines.orchestration import names
from pipelines.orchestration.dagster_private import HIDDEN_TAG_PREFIX, is_of_our_location
from pipelines.orchestration.workers import BEGUN, report_dead, worker_of
from pipelines.run.context import BACKFILL, OpenContext, was_launched_by
from state.ledger.lease import own_clock
from state.queries import held_leases

WAITING = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING)
"""Statuses of a run that may be at work although no lease shows it. `NOT_STARTED` is missing: a process that died before its run
began leaves it so for ever.
"""


def feed_tags(feeds: Sequence[str]) -> Mapping[str, str]:
    """Return the tags of a run that name its feeds; of several the UI hides the names, and shows how many there are."""
    if len(feeds) == 1:
        return {names.FEED_TAG: feeds[0]}
    return {names.FEEDS_TAG: str(len(feeds)), **{tag_of(feed): feed for feed in feeds}}


def feeds_of(run: dg.DagsterRun) -> list[FeedName]:
    """Return the feeds of a run."""
    return [FeedName(feed) for tag, feed in run.tags.items() if tag in {names.FEED_TAG, tag_of(feed)}]


def tag_feed(instance: dg.DagsterInstance, run: dg.DagsterRun, feed: FeedName) -> None:
    """Tag a run with a feed that it makes assets of, as of a run of assets launched from their pages."""
    if feed not in feeds_of(run):
        folders = {tuple(key.path[:-1]) for key in run.asset_selection or ()}
        is_alone = len(folders) == 1 and names.FEED_TAG not in run.tags
        instance.add_run_tags(run.run_id, {names.FEED_TAG if is_alone else tag_of(feed): feed})


def tag_of(feed: str) -> str:
    """Return the hidden tag of a feed in a run of several."""
    return f"{HIDDEN_TAG_PREFIX}feed.{feed[-58:]}"  # Dagster allows 63 characters after the slash


def last_failure(instance: dg.DagsterInstance, feed: FeedName) -> dg.RunRecord | None:
    """Return the newest run of a feed, alone or with others, if it failed; else None."""
    filters = [dg.RunsFilter(tags={tag: feed}) for tag in (names.FEED_TAG, tag_of(feed))]
    found = [record for one in filters for record in instance.get_run_records(one, limit=1)]
    last = max(found, key=lambda record: record.storage_id, default=None)
    return last if last and last.dagster_run.status is dg.DagsterRunStatus.FAILURE else None


def end_runs_of_the_dead(instance: dg.DagsterInstance) -> None:
    """Fail our unfinished runs of this host whose process has died, so that no pool and no schedule waits for them.

    Runs of others in the instance are theirs, and their processes may be hidden from this one.
    """
    left = dg.RunsFilter(statuses=[dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING, *BEGUN])
    for run in instance.get_runs(left):
        worker = worker_of(instance, run) if is_of_our_location(run) or feeds_of(run) else None
        if worker is not None and worker.is_dead():
            report_dead(instance, run.run_id, f"process {worker.pid} has died")


def feeds_at_work(instance: dg.DagsterInstance, open_run_context: OpenContext) -> FeedsAtWork:
    """Return the feeds that no further run should be started for: those whose lease is held, and those of runs that wait.

    Dagster's status of a run that has begun says nothing: where a launcher has no health checks, a killed run is shown as STARTED
    for ever, and its queue and its pool count it. A run whose process has died on this host, or whose lease was neither renewed
    nor released, is reported as failed. If the state DB does not answer, begun runs count as at work.
    """
    end_runs_of_the_dead(instance)
    runs = instance.get_runs(dg.RunsFilter(statuses=[*WAITING, *BEGUN]))
    usual, backfills = list[dg.DagsterRun](), list[dg.DagsterRun]()
    for run in runs:
        is_backfill = run.tags.get(names.LAUNCHED_BY_TAG) == BACKFILL or "dagster/backfill" in run.tags
        (backfills if is_backfill else usual).append(run)
    backfilled = frozenset(feed for run in backfills for feed in feeds_of(run))
    waiting = _feeds_with_runs(run for run in usual if run.status in WAITING)
    try:
        with open_run_context() as run_context:
            clock = own_clock(run_context.engine, run_context.now)
            leases = [*held_leases(run_context.engine, run_context.settings.destination, clock)]
    except SyncError:
        return FeedsAtWork(waiting | _feeds_with_runs(run for run in usual if run.status in BEGUN), backfilled)
    silent = [holder for _, holder, is_alive in leases if not is_alive]
    for run in (one for one in runs if one.status in BEGUN):
        if any(holder.startswith(f"run {run.run_id},") for holder in silent):
            report_dead(instance, run.run_id, "no process renews its lease")
    held = {feed: holder for feed, holder, is_alive in leases if is_alive and not was_launched_by(holder, BACKFILL)}
    return FeedsAtWork(waiting | held, backfilled)


def _feeds_with_runs(runs: Iterable[dg.DagsterRun]) -> dict[FeedName, str]:
    return {feed: f"run {run.run_id}" for run in runs for feed in feeds_of(run)}


class FeedsAtWork(NamedTuple):
    """`busy`: feeds with the run that is at work, or that waits to be; `backfilled`: those for which a scheduled run may have to
    wait for a slice of a backfill.
    """

    busy: Mapping[FeedName, str]
    backfilled: frozenset[FeedName]

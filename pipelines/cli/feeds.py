"""`eventsync feeds`: lists the feeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from mappings.spec.feed import FeedMapping, Schedule
    from pipelines.cli.feed_files import BrokenFile, broken_files, broken_lines, folder_of, shown_path
    from pipelines.cli.output.console import Output, counts_line, document_from, spelt
    from pipelines.cli.state_reader import open_state
    from pipelines.settings import current_settings
    from state.enums import EntryState
    from state.queries import FeedStatus


def feeds(as_json: AsJson = False) -> int:
    """List the feeds with source, schedule, last run, its outcome, and rows by state.

    For example:

        # All feeds
        eventsync feeds
        # Only the names, for a script
        eventsync feeds --json | jq -r '.feeds[].feed'

    Needs neither a key nor a service; broken mapping files are listed too. Exit code 0.
    """
    settings, output = current_settings(), Output(is_json=as_json)
    folder = folder_of(settings)
    with open_state() as reader:
        # Of several destinations, the one with the latest run.
        listed = [(mapping, max(reader.statuses(mapping.feed), key=_age, default=None)) for mapping in folder.feeds]
    documents = [_document(mapping, status) for mapping, status in listed]
    output.document(Feeds(feeds=documents, broken=broken_files(folder.broken)))
    output.table(f"feeds in {shown_path(settings.feeds)}", map(_line, documents))
    output.note(*broken_lines(folder.broken))
    if not as_json and not any(status for _, status in listed):
        output.note(
            "no feed has run at the configured service yet; `eventsync run FEED --dry-run` shows what a run would send"
            if reader.destination
            else "no feed has run here yet; `eventsync preview FEED` shows the events that its rows would become"
        )
    return 0


class ListedSource(TypedDict):
    """Where rows come from; `path` as written in the mapping file."""

    kind: str
    path: str


class LastRun(TypedDict):
    """How the last run of a feed ended; `outcome` and `exit_code` are null while it runs."""

    run_id: str
    started_at: datetime
    outcome: str | None
    exit_code: int | None


class ListedFeed(TypedDict):
    """One feed; `destination`, `counts` and `last_run` are null if it never ran."""

    feed: str
    path: Path
    owner: str | None
    source: ListedSource
    schedule: Schedule | None
    destination: str | None
    counts: Mapping[EntryState, int] | None
    drifted: int
    vanished: int
    last_run: LastRun | None


class Feeds(TypedDict):
    """The feeds of the folder, and its broken mapping files."""

    feeds: Sequence[ListedFeed]
    broken: Sequence[BrokenFile]


def _age(status: FeedStatus) -> float:
    return status.last_run.started_at.timestamp() if status.last_run else 0.0


def _document(mapping: FeedMapping, status: FeedStatus | None) -> ListedFeed:
    run = status.last_run if status else None
    return document_from(
        ListedFeed,
        mapping,
        path=shown_path(mapping.path),
        source=ListedSource(kind=mapping.source.kind, path=mapping.source.place),
        destination=status.book.destination if status else None,
        counts=status.counts if status else None,
        drifted=status.drifted if status else 0,
        vanished=status.vanished if status else 0,
        last_run=document_from(LastRun, run) if run else None,
    )


def _line(feed: ListedFeed) -> dict[str, object]:
    run, counts = feed["last_run"], {spelt(state): count for state, count in (feed["counts"] or {}).items()}
    return {
        "feed": feed["feed"],
        "source": f"{feed['source']['kind']} {feed['source']['path']}",
        "schedule": str(feed["schedule"] or "on request"),
        "last run": run["started_at"] if run else "never",
        "outcome": (run["outcome"] or "not ended") if run else "",
        "rows": counts_line({**counts, "drifted": feed["drifted"], "vanished": feed["vanished"]}),
    }

"""`eventsync feeds`: which feeds there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from mappings.errors import MappingFileError
    from mappings.spec.feed import FeedMapping, Schedule
    from pipelines.cli.feed_files import BrokenFile, folder_of, shown_path, source_words
    from pipelines.cli.output.console import Output
    from pipelines.cli.state_reader import StateReader, open_state
    from pipelines.settings import current_settings
    from state.enums import EntryState
    from state.queries import FeedStatus


def feeds(as_json: AsJson = False) -> int:
    """List the feeds: where their rows come from, when they run, how the last run ended, where their rows stand.

    For example:

        # What is there
        eventsync feeds
        # The names alone, for a script
        eventsync feeds --json | jq -r '.feeds[].feed'

    Needs neither a key nor a service; broken mapping files are listed too. Exit code 0.
    """
    settings, output = current_settings(), Output(json=as_json)
    folder = folder_of(settings)
    with open_state(settings) as reader:
        listed = [(feed.mapping, reader.latest(feed.mapping.feed)) for feed in folder.feeds]
    output.document(
        Feeds(
            feeds=[_document(mapping, status) for mapping, status in listed],
            broken=[BrokenFile(path=shown_path(error.path), problems=error.problems) for error in folder.broken],
        )
    )
    output.table(f"feeds in {shown_path(settings.feeds)}", _COLUMNS, [_row(mapping, status) for mapping, status in listed])
    for error in folder.broken:
        output.note(_broken(error))
    if not as_json and not any(status for _, status in listed):
        output.note(_never_ran(reader))
    return 0


class ListedSource(TypedDict):
    """Where rows come from; `path` as the mapping file says it."""

    kind: str
    path: str


class LastRun(TypedDict):
    """How the last run of a feed ended, or that it has not."""

    run_id: str
    started_at: datetime
    outcome: str | None
    exit_code: int | None


class ListedFeed(TypedDict):
    """One feed; of a feed that never ran, `destination`, `counts` and `last_run` are null."""

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
    """The feeds of the folder, and the broken files beside them."""

    feeds: Sequence[ListedFeed]
    broken: Sequence[BrokenFile]


_COLUMNS = ("feed", "source", "schedule", "last run", "outcome", "rows")


def _document(mapping: FeedMapping, status: FeedStatus | None) -> ListedFeed:
    run = status.last_run if status else None
    return ListedFeed(
        feed=mapping.feed,
        path=shown_path(mapping.path),
        owner=mapping.owner,
        source=ListedSource(kind=mapping.source.kind, path=mapping.source.place),
        schedule=mapping.schedule,
        destination=status.book.destination if status else None,
        counts=status.counts if status else None,
        drifted=status.drifted if status else 0,
        vanished=status.vanished if status else 0,
        last_run=LastRun(run_id=run.run_id, started_at=run.started_at, outcome=run.outcome, exit_code=run.exit_code)
        if run
        else None,
    )


def _row(mapping: FeedMapping, status: FeedStatus | None) -> tuple[object, ...]:
    schedule = str(mapping.schedule) if mapping.schedule else "when asked"
    run = status.last_run if status else None
    return (
        mapping.feed,
        source_words(mapping.source),
        schedule,
        run.started_at if run else "never",
        (run.outcome or "not ended") if run else "",
        ", ".join(_counts(status)) if status else "",
    )


def _counts(status: FeedStatus) -> list[str]:
    counts = {state.value.replace("_", " "): count for state, count in status.counts.items()}
    counts |= {"drifted": status.drifted, "vanished": status.vanished}
    return [f"{name} {count:,}" for name, count in counts.items() if count]


def _broken(error: MappingFileError) -> str:
    count = len(error.problems)
    path = shown_path(error.path)
    return f"broken: {path} has {count} mistake{'s' * (count != 1)}; `eventsync check {path}` shows them"


def _never_ran(reader: StateReader) -> str:
    elsewhere = reader.destination and "nothing was sent to the configured service yet; `eventsync run FEED --dry-run` rehearses"
    return elsewhere or "nothing was run here yet; `eventsync preview FEED` shows what the rows become"

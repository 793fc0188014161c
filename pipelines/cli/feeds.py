"""`eventsync feeds`: which feeds there are. What is told of each is `feed_list`'s."""

from __future__ import annotations

from typing import Any

from pipelines.cli.options import IS_WORKING, AsJson

if IS_WORKING:
    from mappings.errors import MappingFileError
    from mappings.spec.feed import FeedMapping
    from pipelines.cli.feed_files import folder_of, shown_path, source_words
    from pipelines.cli.output.console import Output
    from pipelines.cli.state_reader import Shelf, open_shelf
    from pipelines.settings import current_settings
    from state.views.views import FeedStatus


def feeds(as_json: AsJson = False) -> int:
    """List the feeds: where their rows come from, when they run, how the last run ended, where their rows stand.

    For example:

        # What is there
        eventsync feeds
        # The names alone, for a script
        eventsync feeds --json | jq -r '.feeds[].feed'

    Needs neither a key nor a service; broken mapping files are listed too. Exit code 0.
    """
    # keeps `--help` fast

    return list_feeds(as_json=as_json)


_COLUMNS = ("feed", "source", "schedule", "last run", "outcome", "rows")


def list_feeds(*, as_json: bool) -> int:
    """List all feeds and all broken files; return 0.

    Raises:
        ConfigError: there is no folder of mapping files.
    """
    settings, output = current_settings(), Output(json=as_json)
    folder = folder_of(settings)
    with open_shelf(settings) as shelf:
        listed = [(feed.mapping, shelf.latest(feed.mapping.feed)) for feed in folder.feeds]
    output.document(
        {
            "feeds": [_document(mapping, status) for mapping, status in listed],
            "broken": [{"path": shown_path(error.path), "problems": error.problems} for error in folder.broken],
        }
    )
    output.table(f"feeds in {shown_path(settings.feeds)}", _COLUMNS, [_row(mapping, status) for mapping, status in listed])
    for error in folder.broken:
        output.note(_broken(error))
    if not as_json and not any(status for _, status in listed):
        output.note(_never_ran(shelf))
    return 0


def _document(mapping: FeedMapping, status: FeedStatus | None) -> dict[str, Any]:
    run = status.last_run if status else None
    return {
        "feed": mapping.feed,
        "path": shown_path(mapping.path),
        "owner": mapping.owner,
        "source": {"kind": mapping.source.kind, "path": mapping.source.place},
        "schedule": mapping.schedule,
        "destination": status.book.destination if status else None,
        "counts": status.counts if status else None,
        "drifted": status.drifted if status else 0,
        "vanished": status.vanished if status else 0,
        "last_run": run
        and {"run_id": run.run_id, "started_at": run.started_at, "outcome": run.outcome, "exit_code": run.exit_code},
    }


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


def _never_ran(shelf: Shelf) -> str:
    elsewhere = shelf.destination and "nothing was sent to the configured service yet; `eventsync run FEED --dry-run` rehearses"
    return elsewhere or "nothing was run here yet; `eventsync preview FEED` shows what the rows become"

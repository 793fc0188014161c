"""`eventsync diff`: what was delivered against what the source says now. How it is told is `differences`'."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.completing import waiting_words
from pipelines.cli.flags import AsJson, OneFeed


def diff(
    feed: OneFeed,
    row: Annotated[
        str | None, typer.Argument(metavar="[ROW]", help="One row key: the row in full.", autocompletion=waiting_words)
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many rows (100).")] = None,
    as_json: AsJson = False,
) -> int:
    """Show, field by field, where the source differs from what the service shows as far as we know.

    For example:

        # All that differ
        eventsync diff lisbon-agenda
        # One row in full
        eventsync diff lisbon-agenda A-17

    Rows are edited, to be published by hand (sent as drafts, published in the source), cancelled, removed by hand and back in
    the source, vanished from it, or have earlier events to remove; ignored ones come last, marked. The service has no way to
    change or remove an event: that is done by hand on its pages; `eventsync resolve FEED KEY --applied` or `--removed` then
    records it, and `--ignore` takes the row off the lists until it changes again. As of the last read: only the state DB is
    asked, neither the source nor the service. Exit codes: 0, or 2 if there is no such row.
    """
    from pipelines.cli.differences import show_differences  # noqa: PLC0415  # keeps `--help` fast

    return show_differences(feed, row, limit=limit, as_json=as_json)

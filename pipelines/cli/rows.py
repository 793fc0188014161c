"""`eventsync rows`: single rows, as the ledger has them. Which ones there are to ask for is `row_choices`'."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.completing import state_words
from pipelines.cli.flags import AsJson, OneFeed

StateWord = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="S",
        help="conflict, blocked, uncertain, refused, held, delivered_unconfirmed, drift, vanished, earlier, warning, rejected;"
        " or pending, delivered, superseded, resent, ignored. Without it: what waits for a person.",
        autocompletion=state_words,
    ),
]


def rows(
    feed: OneFeed,
    state: StateWord = None,
    unmapped: Annotated[bool, typer.Option("--unmapped", help="Values that no lookup knows, each once, with its rows.")] = False,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write them to FILE, with the partner's own columns.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many (100, or all with --csv).")] = None,
    as_json: AsJson = False,
) -> int:
    """List rows of a feed: those that wait for a person, or those in one state.

    For example:

        # What somebody has to look at
        eventsync rows lisbon-agenda
        # What the partner has to mend
        eventsync rows lisbon-agenda --state rejected --csv for-partner.csv
        # What is missing in your lookups, each value once
        eventsync rows lisbon-agenda --unmapped
        # What changed after it was delivered
        eventsync rows lisbon-agenda --state drift

    Rows that a person has ignored (ignored), and events that are over, wait no longer. A row may be on several lists. Earlier
    events are those that a changed row has replaced by a new draft; a superseded row has given its event to another key.
    Warnings stay until the row or the mapping changes. The CSV file repeats the partner's columns of rejected, held and warned
    rows, then adds place, problem and hint; it is safe to open in a spreadsheet. Exit code 0.
    """
    from pipelines.cli.row_list import list_rows, list_unmapped  # noqa: PLC0415  # keeps `--help` fast

    if unmapped:
        return list_unmapped(feed, as_json=as_json)
    return list_rows(feed, state, csv=csv, limit=limit, as_json=as_json)

"""`eventsync explain`: one row, step by step. How it is found and told is `explaining`'s."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.completing import feed_words
from pipelines.cli.flags import AsJson

FeedOrFile = Annotated[
    str, typer.Argument(metavar="FEED", help="A feed, or the path of a mapping file.", autocompletion=feed_words)
]
Row = Annotated[str, typer.Argument(metavar="ROW", help="A row's key, its number, or its place as it is shown: events.csv:17.")]


def explain(feed: FeedOrFile, row: Row, as_json: AsJson = False) -> int:
    """Show what each step of the mapping makes of one row, and what becomes of it.

    For example:

        # A row by its key, or by its number in the file
        eventsync explain lisbon-agenda LX-2041
        eventsync explain lisbon-agenda 17
        # A place copied from a list of rejections
        eventsync explain drafts/lisbon.yaml agenda.csv:17

    For each field: the raw cell, what goes into each step and what comes out, the step that refused it and why, the rule
    that leaves the row out; then the event as it would be sent, and what the ledger knows of it. Nothing is written or
    sent. A word that is both a key and a number means the key. Exit codes: 0, or 2 where there is no such row.
    """
    from pipelines.cli.explaining import explain_one  # noqa: PLC0415  # keeps `--help` fast

    return explain_one(feed, row, as_json=as_json)

"""`eventsync preview`: what the mapping makes of the source's rows. How that is found out is `previewing`'s."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from pipelines.cli.completing import feed_words
from pipelines.cli.flags import AsJson

FeedOrFile = Annotated[
    str, typer.Argument(metavar="FEED", help="A feed, or the path of a mapping file.", autocompletion=feed_words)
]


def preview(
    feed: FeedOrFile,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Show the first N rows, or the first N of those asked for.")] = 10,
    only: Annotated[
        Literal["events", "rejected", "held", "skipped"] | None, typer.Option("--only", help="Show only rows that become this.")
    ] = None,
    read_all: Annotated[bool, typer.Option("--all", help="Read the source to its end for the account.")] = False,
    as_json: AsJson = False,
) -> int:
    """Read the source and show what becomes of its rows; nothing is written or sent.

    For example:

        # The first ten rows
        eventsync preview lisbon-agenda
        # The first five rows that are rejected, and why
        eventsync preview lisbon-agenda --rows 5 --only rejected
        # Only the account of the whole source
        eventsync preview lisbon-agenda --rows 0 --all
        # A file that you are writing
        eventsync preview drafts/lisbon.yaml --rows 3

    Reading ends with the last row shown, unless --all is given. Rows of one key that contradict each other are rejected
    once both are read, as in a run; with --all the counts are those of a first run. Channels and classifications are the
    service's where it answers; without it any slug is accepted and channel ids are stand-ins, which is said. What a run
    would send, compared with what was sent before, tells `eventsync run FEED --dry-run`. Exit code 0, also with rejected
    rows.
    """
    from pipelines.cli.previewing import Wanted, preview_feed  # noqa: PLC0415  # keeps `--help` fast

    return preview_feed(feed, Wanted(rows, only, is_whole=read_all), as_json=as_json)

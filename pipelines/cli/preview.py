"""`eventsync preview`: what the mapping makes of the source's rows. How that is found out is `previewing`'s."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.flags import AsJson

FeedOrFile = Annotated[str, typer.Argument(metavar="FEED", help="A feed, or the path of a mapping file.")]


def preview(
    feed: FeedOrFile,
    rows: Annotated[int, typer.Option("--rows", min=0, help="Show the first N rows of the source.")] = 10,
    read_all: Annotated[bool, typer.Option("--all", help="Read the source to its end for the account.")] = False,
    as_json: AsJson = False,
) -> int:
    """Read the source and show what becomes of its rows; nothing is written or sent.

    For example:

        # The first ten rows
        eventsync preview lisbon-agenda
        # Only the account of the whole source
        eventsync preview lisbon-agenda --rows 0 --all
        # A file that you are writing
        eventsync preview drafts/lisbon.yaml --rows 3

    Reading ends with the last row shown, unless --all is given. Channels and classifications are the service's where
    it answers; without it any slug is accepted and channel ids are stand-ins, which is said. What a run would send,
    compared with what was sent before, tells `eventsync run FEED --dry-run`. Exit code 0, also with rejected rows.
    """
    from pipelines.cli.previewing import preview_feed  # noqa: PLC0415  # keeps `--help` fast

    return preview_feed(feed, shown=rows, is_whole=read_all, as_json=as_json)

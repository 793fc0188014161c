"""`eventsync init`: a first mapping file from a sample of rows. How the sample is read and the file written is `drafting`'s."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pipelines.cli.flags import AsJson

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="A CSV, TSV, XLSX, JSON, NDJSON, XML or ICS file: path or URL; or a Google sheet's URL."
    ),
]


def init(  # noqa: PLR0913, PLR0917  # one parameter for each option
    source: Source,
    feed: Annotated[str | None, typer.Option(metavar="NAME", help="The feed's name, for life (default: the file's).")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write (default: NAME.yaml among your feeds).")
    ] = None,
    zone: Annotated[str, typer.Option(metavar="ZONE", help="The zone whose clocks the partner means: Europe/Lisbon.")] = "",
    dates: Annotated[
        Literal["day-first", "month-first"] | None, typer.Option(help="What 03/04/2026 means, where no value proves it.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
    as_json: AsJson = False,
) -> int:
    """Read a sample of a partner's file and write a first mapping for it, with the evidence for each guess.

    For example:

        # A file that a partner sent
        eventsync init ~/Downloads/agenda.csv --feed lisbon-agenda --zone Europe/Lisbon
        # Only look: what would be guessed
        eventsync init https://partner.example/events.json --json --out /dev/null --force

    Up to 2,000 rows are read. What nobody can know from a sample stands as `fill-in` in the file, events are drafts until
    you say otherwise, and day-first or month-first is decided by evidence alone: where there is none, rows are rejected
    until you choose. Exit codes: 0 written, 2 the file is there already or the source cannot be read.
    """
    from pipelines.cli.drafting import DraftWishes, draft_mapping  # noqa: PLC0415  # keeps `--help` fast

    order = dates.removesuffix("-first") if dates else ""
    return draft_mapping(source, DraftWishes(feed or "", out, zone, order, is_forced=force), as_json=as_json)

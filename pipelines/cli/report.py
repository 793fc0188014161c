"""`eventsync report`: where a feed stands, for the partner's editor. What stands on the page is `reporting.page`'s."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.flags import AsJson, OneFeed


def report(
    feed: OneFeed,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the page to FILE.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Mark what is new since a day (2026-11-01) or an age (7d); else since the last read."),
    ] = None,
    link: Annotated[
        str | None, typer.Option(metavar="URL", help="Where an event can be seen, with {id}: https://events.example/e/{id}.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Tell the partner's editor what is online, what is not and why, and what to mend.

    For example:

        # How it stands
        eventsync report lisbon-agenda
        # A page to send to the partner
        eventsync report lisbon-agenda --html lisbon-agenda.html
        # For the weekly mail, with links
        eventsync report lisbon-agenda --html week.html --since 7d --link 'https://events.example/e/{id}'

    The page is one file without scripts: it asks nobody for anything, can be printed, and is read well by a screen reader. It
    says what the last run has left, and reads no source. The lists as tables: `eventsync rows FEED --csv FILE`. Exit code 0.
    """
    from pipelines.cli.reporting.sections import show_report  # noqa: PLC0415  # keeps `--help` fast

    return show_report(feed, html=html, since=since, link=link, as_json=as_json)

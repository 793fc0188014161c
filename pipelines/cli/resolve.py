"""`eventsync resolve`: what a person decides about single rows. How it is done is `resolving`'s."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.completing import waiting_words
from pipelines.cli.flags import AsJson, OneFeed


def resolve(  # noqa: PLR0913, PLR0917  # the options of the surface
    feed: OneFeed,
    rows: Annotated[
        list[str],
        typer.Argument(metavar="KEY...", help="Row keys, as `eventsync rows` shows them.", autocompletion=waiting_words),
    ],
    event_id: Annotated[
        int | None, typer.Option("--event-id", metavar="N", min=1, max=2**63 - 1, help="It is delivered, as event N.")
    ] = None,
    resend: Annotated[bool, typer.Option("--resend", help="It may be sent again; the next run does.")] = False,
    ignore: Annotated[bool, typer.Option("--ignore", help="Nobody needs to look at it: it is listed no longer.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take back --ignore, or a --resend that no run has acted on.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before a row may be created twice.")] = False,
    as_json: AsJson = False,
) -> int:
    """Decide about rows that wait for a person: in conflict, uncertain, unconfirmed, refused, denied, held, or drifted.

    For example:

        # It is there, as event 4711
        eventsync resolve lisbon-agenda A-17 --event-id 4711
        # It is not there, send it
        eventsync resolve lisbon-agenda A-17 --resend
        # We know, and leave it so
        eventsync resolve lisbon-agenda A-17 A-18 --ignore
        # No, list it again
        eventsync resolve lisbon-agenda A-17 --undo

    An uncertain row is sent again under its own key, and under its next one where the service only repeats a failure that
    it keeps; so does a row to which access was denied, where it is denied again. One in conflict, or delivered under an
    unknown id, goes out under its next key at once. Each asks first: if the event exists after all, there will be two.
    `eventsync reconcile` looks for it. A held row goes out at the next read.
    Who decides, what and when is kept.
    Exit codes: 0 done (or so already), 1 not confirmed, 2 not possible, 4 a run holds the feed.
    """
    from pipelines.cli.resolving import Request, resolve_rows  # noqa: PLC0415  # keeps `--help` fast

    wishes = {"--event-id": event_id is not None, "--resend": resend, "--ignore": ignore, "--undo": undo}
    return resolve_rows(Request(feed, tuple(rows), wishes, event_id, is_sure=yes, as_json=as_json))

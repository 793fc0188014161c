"""`eventsync backfill`: a window of a feed's past, in slices that go on from where they stopped.

What a backfill does is `backfilling.slices`'; what its runs do, `pipelines.feed_run`'s.
"""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.completing import brake_words
from pipelines.cli.flags import AsJson, OneFeed


def backfill(  # noqa: PLR0913, PLR0917  # the options of the surface
    feed: OneFeed,
    first: Annotated[str, typer.Option("--from", metavar="DAY", help="The first day: 2031-05-03.")] = "",
    last: Annotated[str, typer.Option("--to", metavar="DAY", help="The last day, which counts; today without it.")] = "",
    by: Annotated[
        str, typer.Option(metavar="WAY", help="What tells a row's day: cursor, file or event; what suits the feed without it.")
    ] = "",
    column: Annotated[str, typer.Option(metavar="NAME", help="By cursor: the column that tells when a row changed.")] = "",
    slice_: Annotated[
        str, typer.Option("--slice", metavar="LENGTH", help="How the window is cut: day, week, month, or a number of days.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what each slice would send; write and send nothing.")] = False,
    status: Annotated[str | None, typer.Option(metavar="draft", help="Send every event as a draft.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Send at most this many rows now; the rest is left.")] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BRAKE",
            help="Pass a brake: rejected, shrink, left_out, new, copies, scope, keys.",
            autocompletion=brake_words,
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the slices that are left.")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="Show the feed's backfills and how far they have come.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Want no more of a backfill; what is sent stays sent.")] = False,
    no_dagster: Annotated[bool, typer.Option("--no-dagster", help="The engine alone: for cron and containers.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another run of the feed, instead of leaving.")] = False,
    as_json: AsJson = False,
) -> int:
    """Bring a window of a feed's past to the service, slice by slice; every row exactly once, however often it is begun.

    For example:

        # What a month would send, day by day
        eventsync backfill crm-events --from 2031-05-01 --to 2031-05-31 --dry-run
        # Send it; the same command again goes on where it stopped
        eventsync backfill crm-events --from 2031-05-01 --to 2031-05-31
        # A year of dated files, month by month, as drafts
        eventsync backfill lisbon-agenda --from 2030-01-01 --to 2030-12-31 --by file --slice month --status draft
        # The events of one week, whatever the source is
        eventsync backfill krakow-culture --from 2031-06-02 --to 2031-06-08 --by event
        # How far it is; go on; or leave it
        eventsync backfill crm-events --list
        eventsync backfill crm-events --resume
        eventsync backfill crm-events --cancel

    Slices run one behind another, and let scheduled runs in between. Exit codes are those of `eventsync run`; 130: interrupted,
    and `--resume` goes on.
    """
    from pipelines.cli.backfilling.words import Words, do_as_told  # noqa: PLC0415  # keeps `--help` fast

    words = Words(
        feed=feed,
        first=first,
        last=last,
        by=by,
        column=column,
        slice=slice_,
        status=status,
        limit=limit,
        accept=tuple(accept or ()),
        wait=wait,
        is_resumed=resume,
        is_dry=dry_run,
        uses_dagster=not no_dagster,
        as_json=as_json,
    )
    return do_as_told(words, is_list=list_all, is_cancel=cancel)

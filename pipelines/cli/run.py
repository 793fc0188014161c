"""`eventsync run`: stage, checks, publish; seen in the Dagster UI like a scheduled run unless `--no-dagster`.

What a run does is `pipelines.feed_run`'s; how it meets Dagster `pipelines.dagster_run`'s.
"""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.completing import brake_words
from pipelines.cli.flags import AsJson, FeedNames


def run(  # noqa: PLR0913, PLR0917  # the options of the surface
    feeds: FeedNames = None,
    all_feeds: Annotated[bool, typer.Option("--all", help="Every feed of the folder.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read, map and compare; write and send nothing.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Send at most this many rows; the rest stay pending.")] = None,
    keys: Annotated[
        str | None,
        typer.Option(
            metavar="K,...",
            help="Only these row keys: a row's own means all of its events. Exit code 1 names what the source lacks.",
        ),
    ] = None,
    status: Annotated[str | None, typer.Option(metavar="draft", help="Send every event as a draft.")] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BRAKE",
            help="Pass a brake: rejected, shrink, left_out, new, copies, scope, keys.",
            autocompletion=brake_words,
        ),
    ] = None,
    stage_only: Annotated[bool, typer.Option("--stage-only", help="Stage; send nothing.")] = False,
    publish_only: Annotated[bool, typer.Option("--publish-only", help="Send what is staged; do not read the source.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Read the source from its start, also where only what changed would be read.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another run of the feed, instead of leaving.")] = False,
    no_dagster: Annotated[bool, typer.Option("--no-dagster", help="The engine alone: for cron and containers.")] = False,
    as_json: AsJson = False,
) -> int:
    """Bring a feed's rows to the service: stage, ask the brakes, publish.

    For example:

        # Everything a partner's file holds
        eventsync run lisbon-agenda
        # See what it would do first
        eventsync run lisbon-agenda --dry-run
        # Ten rows, as drafts
        eventsync run lisbon-agenda --limit 10 --status draft
        # Row 17 with each of its days, and one day of row 18
        eventsync run lisbon-agenda --keys '17,18|2031-03-03'
        # Every row again, of a source that is read by what changed
        eventsync run crm-events --full
        # The good rows, in spite of a brake
        eventsync run lisbon-agenda --accept rejected

    Exit codes: 0 done, 1 rows need attention, 2 configuration, 3 key or scope refused, 4 held by another run,
    5 stopped by a brake, 6 paused or unavailable, 130 interrupted.
    """
    from pipelines.cli.running import Request, run_feeds  # noqa: PLC0415  # keeps `--help` fast
    from pipelines.cli.words import options_of  # noqa: PLC0415  # as above

    options = options_of(
        limit=limit,
        keys=keys,
        status=status,
        accept=accept or [],
        stage_only=stage_only,
        publish_only=publish_only,
        full=full,
        wait=wait,
    )
    return run_feeds(
        Request(tuple(feeds or ()), options, is_all=all_feeds, is_dry=dry_run, uses_dagster=not no_dagster, as_json=as_json)
    )

"""`eventsync runs`: past runs and their accounts. How one is told is `run_list`'s."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.completing import feed_words, run_words
from pipelines.cli.flags import AsJson

OneRun = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="A run's id, or the beginning of one.", autocompletion=run_words)
]


def runs(
    run: OneRun = None,
    feed: Annotated[
        str | None, typer.Option("--feed", metavar="FEED", help="Only runs of this feed.", autocompletion=feed_words)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many runs, the latest first.")] = 20,
    as_json: AsJson = False,
) -> int:
    """List past runs with their accounts, which balance; or show one run in detail.

    For example:

        # The latest
        eventsync runs
        # Those of one feed
        eventsync runs --feed lisbon-agenda
        # One of them
        eventsync runs 20260301T0615

    Exit codes: 0, or 2 if there is no such run.
    """
    from pipelines.cli.run_list import list_runs, show_run  # noqa: PLC0415  # keeps `--help` fast

    return list_runs(feed, limit=limit, as_json=as_json) if run is None else show_run(run, feed, as_json=as_json)

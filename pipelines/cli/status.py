"""`eventsync status`: where the feeds stand. What is told of each is `standing`'s."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.completing import feed_words
from pipelines.cli.flags import AsJson

OneFeedOrAll = Annotated[
    str | None, typer.Argument(metavar="[FEED]", help="One feed; all without it.", autocompletion=feed_words)
]


def status(
    feed: OneFeedOrAll = None,
    runs: Annotated[int | None, typer.Option("--runs", min=0, metavar="N", help="Also the last N runs of each feed.")] = None,
    as_json: AsJson = False,
) -> int:
    """Show where the feeds stand: a line for each; of one feed rows by state, what waits and what would help, the last run.

    For example:

        # Every morning: which feeds need somebody
        eventsync status
        # What one of them needs
        eventsync status lisbon-agenda
        # How its last runs went
        eventsync status lisbon-agenda --runs 5

    Reads the state DB only; neither key nor service is needed. The document has 3 runs of each feed, or 10 of one, unless
    --runs says how many. Exit codes: 0, or 2 if there is no such feed.
    """
    from pipelines.cli.standing import show_status  # noqa: PLC0415  # keeps `--help` fast

    return show_status(feed, runs, as_json=as_json)

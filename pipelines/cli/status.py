"""`eventsync status`: where the feeds stand. What is told of each is `standing`'s."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.completing import feed_words
from pipelines.cli.flags import AsJson

OneFeedOrAll = Annotated[
    str | None, typer.Argument(metavar="[FEED]", help="One feed; all without it.", autocompletion=feed_words)
]


def status(feed: OneFeedOrAll = None, as_json: AsJson = False) -> int:
    """Show where each feed stands: rows by state, drift, what waits for a person, brakes, who holds it, the last runs.

    For example:

        # Everything
        eventsync status
        # One feed, with its last runs
        eventsync status lisbon-agenda

    Reads the state DB only; neither key nor service is needed. Exit code 0.
    """
    from pipelines.cli.standing import show_status  # noqa: PLC0415  # keeps `--help` fast

    return show_status(feed, as_json=as_json)

"""`eventsync check`: are the mapping files right? What is looked for is `findings`' and `live.findings`'."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.completing import feed_words
from pipelines.cli.flags import AsJson

FeedsOrFiles = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FEED]...", help="Feeds by name, or paths of mapping files; all without any.", autocompletion=feed_words
    ),
]


def check(
    feeds: FeedsOrFiles = None,
    live: Annotated[bool, typer.Option("--live", help="Ask the service and the sources as well; nothing is written.")] = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="Also send an event without any field, to see whether the key may create events.")
    ] = False,
    notify: Annotated[bool, typer.Option("--notify", help="Also send a test to whoever would be told of the feeds.")] = False,
    as_json: AsJson = False,
) -> int:
    """Check mapping files: every mistake with its line and column, then the examples, offline.

    For example:

        # Every file of the folder
        eventsync check
        # A file that you are writing
        eventsync check drafts/lisbon.yaml
        # The feeds that include a file
        eventsync check feeds/_shared.yaml
        # Also the service and the source
        eventsync check lisbon-agenda --live
        # Also whoever would be told of it: each gets a test
        eventsync check lisbon-agenda --notify

    --live asks for the key, its channels, the classifications and the service's own page (OpenAPI), which is compared
    with what the mapping sends; it says who would be told of each feed, too.

    Exit codes: 0 all is well (warnings are allowed), 2 a file has a mistake, an example did not come true, or the service
    would refuse what the mapping sends; with --live also 3 key or scope refused, 6 the service or a source does not
    answer; with --probe also 1 the service created an event.
    """
    from pipelines.cli.checking import Asking, check_feeds  # noqa: PLC0415  # keeps `--help` fast

    asking = Asking(is_live=live or probe or notify, is_probing=probe, is_telling=notify)
    return check_feeds(tuple(feeds or ()), asking, as_json=as_json)

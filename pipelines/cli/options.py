"""The options that several verbs share, and whether a verb will be run at all."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.completion import feed_words

IS_WORKING = True
"""False where only help or completion is asked for: verbs then import no more than their options need, which takes 0.1 s."""
FIRST_HANDLER: object = None
"""The handler of SIGINT that ends a command in silence until it takes signals over."""
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else there.")]
FeedNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FEED]...", help="Feeds, as `eventsync feeds` lists them.", autocompletion=feed_words),
]
OneFeed = Annotated[str, typer.Argument(metavar="FEED", help="A feed, as `eventsync feeds` lists it.", autocompletion=feed_words)]

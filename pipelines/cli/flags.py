"""The options that several verbs share, spelt once. What a verb does stands in its own module."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines.cli.completing import feed_words

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else there.")]
FeedNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FEED]...", help="Feeds, as `eventsync feeds` lists them.", autocompletion=feed_words),
]
OneFeed = Annotated[str, typer.Argument(metavar="FEED", help="A feed, as `eventsync feeds` lists it.", autocompletion=feed_words)]

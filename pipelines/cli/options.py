"""The options that several verbs share, with their shell completion; and a flag whether a verb will run at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Annotated, ParamSpec

import typer

IS_WORKING = True
"""False if only help or completion is needed: verbs then import only what their options need, which saves 0.1 s."""
P = ParamSpec("P")
_MOST = 50
_NAME = re.compile(r"^feed:[ \t]*['\"]?([a-z0-9][a-z0-9-]*)", re.MULTILINE)
Offer = tuple[str, str]
"""A word that may complete the typed text, and its description."""


def _offering(words: Callable[P, Iterable[Offer]]) -> Callable[P, list[Offer]]:
    """Wrap a completion function: keep the words that begin with the typed text; offer nothing after an error."""

    @wraps(words)
    def offers(*args: P.args, **kwargs: P.kwargs) -> list[Offer]:
        from mappings.errors import SyncError

        try:
            found = dict(words(*args, **kwargs))
        except (SyncError, OSError):
            return []
        return [offer for offer in found.items() if offer[0].startswith(str(kwargs["incomplete"]))]

    return offers


@_offering
def feed_words(incomplete: str) -> Iterator[Offer]:  # noqa: ARG001  # the decorator compares
    """Yield the feeds of the folder for completion; the names are searched in the mapping files, which are not checked."""
    from pipelines.settings import current_settings

    for path in sorted(current_settings().feeds.glob("[!_]*.y*ml")):
        found = _NAME.search(path.read_text("utf-8", "replace"))
        yield (found[1] if found else path.stem), path.name


@_offering
def run_words(incomplete: str) -> Iterator[Offer]:  # noqa: ARG001  # as above
    """Yield the ids of the latest runs for completion, newest first."""
    from pipelines.cli.state_reader import open_state

    with open_state(upgrades=False) as reader:  # pressing Tab changes no schema
        for run in reader.runs(limit=_MOST):
            yield run.run_id, f"{run.book.feed}, {run.started_at:%Y-%m-%d %H:%M}, {run.outcome or 'not ended'}"


@_offering
def brake_words(incomplete: str) -> Iterator[Offer]:
    """Yield the brakes for completion of --accept; several are joined by commas."""
    from pipelines.run.options import BRAKE_TEXTS

    before, comma, _ = incomplete.rpartition(",")
    for brake, text in BRAKE_TEXTS.items():
        if brake not in before.split(","):
            yield f"{before}{comma}{brake}", text


@_offering
def state_words(incomplete: str) -> Iterator[Offer]:  # noqa: ARG001  # as above
    """Yield the values of `rows --state` for completion."""
    from pipelines.run.outcome import ALL, WAITING

    for word in ALL:
        yield word, "waits for a person" if word in WAITING else ""


@_offering
def waiting_words(context: typer.Context, incomplete: str) -> Iterator[Offer]:
    """Yield the keys of a feed's rows that wait for a person's decision, for completion; rejected rows are corrected in the
    source.
    """
    from pipelines.cli.state_reader import listed, open_state
    from state.enums import Waiting

    with open_state(upgrades=False) as reader:  # pressing Tab changes no schema
        if scope := reader.find_feed(str(context.params.get("feed")))[1]:
            waiting = listed(reader.queries, scope, Waiting)
            for kind, row in islice((one for one in waiting if one[1].row_key.startswith(incomplete)), _MOST):
                yield row.row_key, f"{kind}: {row.origin}"


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else there.")]
FeedNames = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FEED]...", help="Feeds; `eventsync feeds` lists them.", autocompletion=feed_words),
]
OneFeed = Annotated[str, typer.Argument(metavar="FEED", help="A feed; `eventsync feeds` lists them.", autocompletion=feed_words)]
FeedOrFile = Annotated[
    str, typer.Argument(metavar="FEED", help="A feed, or the path of a mapping file.", autocompletion=feed_words)
]
AsDraft = Annotated[str | None, typer.Option("--status", metavar="draft", help="Send every event as a draft.")]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        metavar="BRAKE",
        help="Pass a brake: rejected, shrink, left_out, new, copies, scope, keys, changed.",
        autocompletion=brake_words,
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="If another run holds the feed, wait for it to end.")]
NoDagster = Annotated[bool, typer.Option("--no-dagster", help="Run without Dagster, for cron and containers.")]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        metavar="DATE",
        help="Use this as the current time: the start of a day, in the zone of the feed's events (else of its schedule, else"
        " UTC), or a time such as 2026-05-01T18:00.",
    ),
]
DemoFolder = Annotated[Path, typer.Option("--folder", help="Folder of the demo's state; it is emptied first.")]

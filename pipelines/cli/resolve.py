"""`eventsync resolve`: what a person decides about rows."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from pipelines.cli.completing import state_words, waiting_words
from pipelines.cli.flags import AsJson, OneFeed

_SAME_AS = "--same-as"


class Resolving(TyperCommand):
    """A command whose option `--same-as` may stand without a value; typer has no such options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give the option an empty value where none follows."""
        given = [
            f"{word}=" if word == _SAME_AS and (not after or after[0].startswith("-")) else word
            for word, after in ((word, args[place + 1 :]) for place, word in enumerate(args))
        ]
        return super().parse_args(ctx, given)


def resolve(  # noqa: PLR0913, PLR0917  # the options of the surface
    feed: OneFeed,
    rows: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY...", help="Row keys, as `eventsync rows` shows them.", autocompletion=waiting_words),
    ] = None,
    applied: Annotated[bool, typer.Option("--applied", help="The change was made by hand at the service.")] = False,
    ignore: Annotated[bool, typer.Option("--ignore", help="List it no longer, until it changes at its source.")] = False,
    same_as: Annotated[
        str | None,
        typer.Option(_SAME_AS, metavar="[KEY]", help="The held row is the event of KEY; without KEY, of the candidate shown."),
    ] = None,
    release: Annotated[bool, typer.Option("--release", help="Send the held row.")] = False,
    event_id: Annotated[
        int | None, typer.Option("--event-id", metavar="N", min=1, max=2**63 - 1, help="It is delivered, as event N.")
    ] = None,
    removed: Annotated[bool, typer.Option("--removed", help="The event was removed from the service.")] = False,
    resend: Annotated[bool, typer.Option("--resend", help="It may be sent again; the next run does.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take the last decision back.")] = False,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="S", help="All rows that `eventsync rows --state S` lists, instead of keys.", autocompletion=state_words
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> int:
    """Decide about rows that wait for a person.

    For example:

        # Drift: we have changed the event by hand, as the source asks
        eventsync resolve lisbon-agenda A-17 --applied
        # Leave it so, and list it no longer until it changes
        eventsync resolve lisbon-agenda A-17 A-18 --ignore
        # Held: it is the event that A-2 has; nothing is sent
        eventsync resolve lisbon-agenda N-2 --same-as
        eventsync resolve lisbon-agenda N-2 --same-as A-2
        # Every held row is the event of its one candidate
        eventsync resolve lisbon-agenda --state held --same-as --yes
        # Held: it is another event, send it
        eventsync resolve lisbon-agenda N-3 --release
        # In conflict, uncertain or unconfirmed: it is there, as event 4711
        eventsync resolve lisbon-agenda A-17 --event-id 4711
        # It is not there, send it
        eventsync resolve lisbon-agenda A-17 --resend
        # Vanished, cancelled or replaced: we have removed the event from the service
        eventsync resolve lisbon-agenda A-19 --removed
        # No, take that back
        eventsync resolve lisbon-agenda A-17 --undo

    All rows of one command are decided, or none. `eventsync rows` lists what waits for a decision.

    `--applied` makes the change that the last read recorded the state of the service. `--same-as` moves the event to the new
    key. `--removed` of a row that has vanished or was cancelled means its event and its earlier ones, of any other row its
    earlier ones alone; if the row comes back, `--resend` creates its event again. `--undo` works while nothing was sent since.

    `--resend` asks first where an earlier attempt may have created the event: then there would be two. An uncertain row is
    sent again under its own key, and under its next one where the service only repeats a failure that it keeps; so is a row
    to which access was denied. A row in conflict or unconfirmed goes out under its next key at once.
    Exit codes: 0 done (or so already), 1 not confirmed, 2 not possible, 4 a run holds the feed.
    """
    from pipelines.cli.resolving import Request, resolve_rows  # noqa: PLC0415  # keeps `--help` fast

    wishes = {
        "--applied": applied,
        "--ignore": ignore,
        _SAME_AS: same_as is not None,
        "--release": release,
        "--event-id": event_id is not None,
        "--removed": removed,
        "--resend": resend,
        "--undo": undo,
    }
    return resolve_rows(Request(feed, tuple(rows or ()), wishes, event_id, same_as, state, is_sure=yes, as_json=as_json))

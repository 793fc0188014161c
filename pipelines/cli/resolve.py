"""`eventsync resolve`: records a person's decisions about rows."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer
from typer.core import TyperCommand
from typing_extensions import TypedDict

from pipelines.cli.options import IS_WORKING, AsJson, OneFeed, state_words, waiting_words

if IS_WORKING:
    from connectors.event_api.lists import EventList
    from mappings.errors import ConfigError, SyncError
    from mappings.row_key import RowKey, typed_key
    from pipelines.cli.output.console import Output, document_from, spelt
    from pipelines.cli.rows import parse_choice
    from pipelines.cli.state_reader import FeedSession, listed, open_feed_session
    from pipelines.logs import configure_logs
    from pipelines.run.context import open_api
    from pipelines.run.outcome import ExitCode
    from pipelines.run.reconcile import differing, look_up
    from pipelines.settings import current_settings
    from state.ledger.choices import Change, Instruction, NoChange, Option
    from state.ledger.decisions import Proposal, Resolved, propose, raise_all
    from state.ledger.standing import FeedScope
    from state.queries import RowFilter

_SAME_AS = "--same-as"


class Command(TyperCommand):
    """A command whose option `--same-as` may have no value; typer has no such options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert an empty value after `--same-as` if none follows."""
        given = [
            f"{word}=" if word == _SAME_AS and (not after or after[0].startswith("-")) else word
            for word, after in ((word, args[place + 1 :]) for place, word in enumerate(args))
        ]
        return super().parse_args(ctx, given)


def resolve(  # the options of the surface
    feed: OneFeed,
    rows: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY...",
            help="Row keys, as `eventsync rows` shows them; `\\-` is a dash at the beginning.",
            autocompletion=waiting_words,
        ),
    ] = None,
    applied: Annotated[bool, typer.Option("--applied", help="The event was changed by hand at the service.")] = False,
    ignore: Annotated[bool, typer.Option("--ignore", help="Take the row off the lists until it changes in the source.")] = False,
    same_as: Annotated[
        str | None,
        typer.Option(_SAME_AS, metavar="[KEY]", help="The held row is the event of KEY; without KEY, of the candidate shown."),
    ] = None,
    release: Annotated[bool, typer.Option("--release", help="Send the held row.")] = False,
    event_id: Annotated[
        int | None, typer.Option("--event-id", metavar="N", min=1, max=2**63 - 1, help="The row was delivered as event N.")
    ] = None,
    removed: Annotated[bool, typer.Option("--removed", help="The event was removed from the service.")] = False,
    resend: Annotated[bool, typer.Option("--resend", help="Send the row again, with the next run.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the last decision.")] = False,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="S",
            help="Decide about all rows that `eventsync rows --state S` lists, instead of KEY.",
            autocompletion=state_words,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> int:
    """Record a decision about rows that wait for a person.

    For example:

        # Drift: the event was changed by hand, to what the source says
        eventsync resolve lisbon-agenda A-17 --applied
        # Ignore the rows until they change in the source
        eventsync resolve lisbon-agenda A-17 A-18 --ignore
        # Held: the row is the event of A-2; nothing is sent
        eventsync resolve lisbon-agenda N-2 --same-as
        eventsync resolve lisbon-agenda N-2 --same-as A-2
        # All held rows: each is the event of its candidate
        eventsync resolve lisbon-agenda --state held --same-as --yes
        # Held: the row is another event, send it
        eventsync resolve lisbon-agenda N-3 --release
        # In conflict, uncertain or unconfirmed: it exists as event 4711
        eventsync resolve lisbon-agenda A-17 --event-id 4711
        # It does not exist at the service, send it
        eventsync resolve lisbon-agenda A-17 --resend
        # Vanished or cancelled: the event was removed from the service
        eventsync resolve lisbon-agenda A-19 --removed
        # Undo the last decision
        eventsync resolve lisbon-agenda A-17 --undo

    One command decides about all of its rows, or about none. `eventsync rows` lists the rows that wait for a decision.

    `--applied` records that the service now shows what the last read found in the source. `--same-as` moves the event to the
    new key. `--removed` records that the event of a vanished or cancelled row was removed. If the row returns, `--resend` creates
    its event again. `--undo` works until something is sent.

    `--resend` asks for confirmation if an earlier attempt may have created the event: there would be two. An uncertain row, or
    one without access to its channel, is sent again under its own idempotency key, and under its next key if the service only
    repeats a stored failure. A row in conflict or unconfirmed is sent under its next key at once.

    Exit codes: 0 done (also if it was decided so before), 1 not confirmed, 2 not possible, 4 a run holds the feed.
    """
    settings, output = current_settings(), Output(is_json=as_json)
    configure_logs(settings)
    wishes = {
        Option.APPLIED: applied,
        Option.IGNORE: ignore,
        Option.SAME_AS: same_as is not None,
        Option.RELEASE: release,
        Option.EVENT_ID: event_id is not None,
        Option.REMOVED: removed,
        Option.RESEND: resend,
        Option.UNDO: undo,
    }
    given = [option for option, is_given in wishes.items() if is_given]
    if len(given) != 1:
        problem = f"{' and '.join(given)} cannot be combined" if given else "no decision was given"
        raise ConfigError(problem, hint=f"use one of {', '.join(wishes)}")
    choice = Instruction(given[0], typed_key(same_as) if same_as else None, event_id or 0)
    words = tuple(dict.fromkeys(map(typed_key, rows or ())))
    if (same_as or event_id is not None) and (state is not None or len(words) != 1):
        hint = f"name one row: `eventsync resolve {feed} ROW {given[0]} ...`"
        raise ConfigError(f"{given[0]} applies to one row only", hint=hint)
    with open_feed_session(feed) as session:
        name = session.scope.feed
        others_of_key = session.queries.rows(session.scope, RowFilter(row_key=choice.row_key)) if choice.row_key else ()
        if len(others_of_key) == 1:
            choice = replace(choice, row_key=others_of_key[0].row_key)
        proposals = _proposals(session, choice, words, state)
        warning = _warning(session, choice, list(proposals))
        if warning:
            output.note(f"warning: {warning}")
        if not yes and not _is_confirmed(output, name, proposals, is_of_state=state is not None):
            output.document(Resolution(feed=name, rows=[], warning=warning, is_confirmed=False))
            output.note("nothing was changed")
            return int(ExitCode.ATTENTION)
        # Feeds whose rows give up an event, or get it back, are held too.
        adopted = [change.adopted for change in proposals.values() if isinstance(change, Change) and change.adopted]
        others = dict.fromkeys(FeedScope(other.destination, other.feed) for other in adopted if other.feed)
        with session.deciding("resolve", list(others)) as decisions:
            decided = [_decided_row(one) for one in decisions.resolve(list(proposals), choice)]
    output.document(Resolution(feed=name, rows=decided, warning=warning, is_confirmed=True))
    output.table(f"{name}: decided", map(_line, decided))
    return 0


class Resolution(TypedDict):
    """What was decided, row by row. `warning`: why the given event id may be wrong; `is_confirmed`: false if nothing changed."""

    feed: str
    rows: Sequence[DecidedRow]
    warning: str
    is_confirmed: bool


_PATIENCE_S = 20.0
_NAMED = 5


class DecidedRow(TypedDict):
    """One row after the decision, with its result as a sentence (`what`).

    `removed_event_ids`: the event recorded as removed, if its id is known; `other_key`: the row whose event this one took over
    or gave back.
    """

    row_key: str
    was: str
    state: str
    event_id: int | None
    decision: str | None
    is_changed: bool
    what: str
    idempotency_key: str | None
    removed_event_ids: Sequence[int]
    other_key: str | None


def _proposals(session: FeedSession, choice: Instruction, words: Sequence[RowKey], state: str | None) -> dict[RowKey, Proposal]:
    """Return the named rows, each with what the choice would change; one error lists all that is not possible."""
    if (state is None) is not bool(words):
        hint = f"for example `eventsync resolve {session.scope.feed} --state held ...`"
        raise ConfigError("give either row keys or --state", hint=hint)
    if state is not None:
        found = listed(session.queries, session.scope, parse_choice(state))
        keys = list(dict.fromkeys(row.row_key for _, row in found if row.row_key))
        outcomes = propose(session.engine, session.scope, keys, choice)
        return {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, Change)}
    outcomes = propose(session.engine, session.scope, [row.row_key for row in session.find(words)], choice)
    raise_all(outcomes.values())
    return outcomes


def _is_confirmed(output: Output, feed: str, proposals: Mapping[RowKey, Proposal], *, is_of_state: bool) -> bool:
    """Ask for confirmation of a risk, or of several rows chosen by state; return the answer.

    Raises:
        ConfigError: there is no terminal to ask on.
    """
    risks = [f"{key}: {change.risk}" for key, change in proposals.items() if isinstance(change, Change) and change.risk]
    is_many = is_of_state and len(proposals) > 1
    if not risks and not is_many:
        return True
    output.note(*risks)
    if is_many:
        some = ", ".join(list(proposals)[:_NAMED])
        output.note(f"{len(proposals)} rows: {some}{' ...' * (len(proposals) > _NAMED)}")
    if output.is_json or not sys.stdin.isatty():
        what, hint = f"this would decide about {len(proposals)} rows", "add --yes"
        if risks:
            what = f"{len(risks)} of these rows may be created twice"
            hint = f"`eventsync reconcile {feed}` searches the service for the events; --yes sends the rows without asking"
        raise ConfigError(f"{what}, and there is no terminal for the confirmation", hint=hint)
    return typer.confirm("Send them again?" if risks else f"Decide about {len(proposals)} rows?", default=False, err=True)


def _warning(session: FeedSession, choice: Instruction, row_keys: Sequence[RowKey]) -> str:
    """Return the doubt about an event id: the service does not list it, shows another event, or could not be asked; else ""."""
    if choice.option is not Option.EVENT_ID:
        return ""
    policy = session.policy().model_copy(update={"max_pause_s": _PATIENCE_S})
    try:
        found = look_up(lambda: open_api(session.settings, policy, session.engine), choice.event_id)
    except SyncError as problem:
        return f"could not check whether event {choice.event_id} exists: {problem}"
    if isinstance(found, EventList):
        return f"event {choice.event_id} is not among the {found.read:,} events that the service lists"
    (row,) = session.find(row_keys)
    others = " and ".join(differing(row, found))
    does = f"event {choice.event_id} shows another {others} than row {row.row_key}"
    return f"{does}: change it by hand; no list names the difference" if others else ""


def _decided_row(resolved: Resolved) -> DecidedRow:
    change = resolved.outcome if isinstance(resolved.outcome, Change) else None
    return document_from(
        DecidedRow,
        resolved.after,
        was=resolved.before.state,
        is_changed=change is not None,
        what=resolved.outcome.because if isinstance(resolved.outcome, NoChange) else _what(resolved.outcome, resolved),
        idempotency_key=resolved.after.key,
        removed_event_ids=(change.event_id,) if change and change.decision == "removed" and change.event_id is not None else (),
        other_key=str(change.adopted) if change and change.adopted else None,
    )


def _line(row: DecidedRow) -> dict[str, object]:
    line = {"row key": row["row_key"], "was": spelt(row["was"]), "is": spelt(row["state"])}
    return {**line, "event": str(row["event_id"] or ""), "result": row["what"]}


def _what(change: Change, resolved: Resolved) -> str:
    """Return the result of a decision as a sentence."""
    taken = "its event" if change.event_id is None else f"event {change.event_id}"
    texts = {
        "event_id": f"recorded as delivered, as event {change.event_id}",
        "ignore": "ignored until it changes in the source; `--undo` lists it again",
        "applied": "recorded: the service shows what the source says",
        "same_as": f"has taken over {taken} from {change.adopted}; nothing is sent",
        "release": "the next run sends it",
        "removed": "its event is recorded as removed from the service"
        if change.event_id is None
        else f"event {change.event_id}: recorded as removed from the service",
        None: "listed again" if resolved.before.is_set_aside else "the decision is undone",
    }
    if change.decision in texts:
        return texts[change.decision]
    if change.is_next_revision:
        return "the next run sends it under its next key"
    if change.decision == "retry" and change.risk:
        return "the next run sends it under the same key, and under its next one if access is denied again"
    return "the next run sends it again under the same key"

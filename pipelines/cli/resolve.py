"""`eventsync resolve`: records what a person decides about rows."""

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
    from mappings.errors import ConfigError, SyncError
    from mappings.row_key import RowKey
    from pipelines.cli.output.console import Output, document_from, spelt
    from pipelines.cli.rows import chosen_rows, parse_choice
    from pipelines.cli.state_reader import FeedSession, open_feed_session, typed_key
    from pipelines.run.outcome import ExitCode
    from pipelines.run.reconcile import is_listed
    from pipelines.run.service import open_api
    from pipelines.settings import current_settings
    from pipelines.telemetry.logs import configure_logs
    from state.ledger.choices import Change, Instruction, NoChange, Option
    from state.ledger.decisions import Outcome, Resolved, propose, raise_all
    from state.ledger.standing import FeedScope
    from state.queries import RowFilter

_SAME_AS = "--same-as"


class Command(TyperCommand):
    """A command whose option `--same-as` may stand without a value; typer has no such options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give the option an empty value where none follows."""
        given = [
            f"{word}=" if word == _SAME_AS and (not after or after[0].startswith("-")) else word
            for word, after in ((word, args[place + 1 :]) for place, word in enumerate(args))
        ]
        return super().parse_args(ctx, given)


def resolve(  # the options of the surface
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
    settings, output = current_settings(), Output(json=as_json)
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
        problem = f"{' and '.join(given)} exclude each other" if given else "nothing was decided"
        raise ConfigError(problem, hint=f"say one of {', '.join(wishes)}")
    choice = Instruction(given[0], typed_key(same_as) if same_as else None, event_id or 0)
    words = tuple(dict.fromkeys(map(typed_key, rows or ())))
    if (same_as or event_id is not None) and (state is not None or len(words) != 1):
        hint = f"name one row: `eventsync resolve {feed} ROW {given[0]} ...`"
        raise ConfigError(f"{given[0]} names the one event of one row", hint=hint)
    with open_feed_session(feed) as session:
        name = session.scope.feed
        others_of_key = session.queries.rows(session.scope, RowFilter(row_key=choice.row_key)) if choice.row_key else ()
        if len(others_of_key) == 1:
            choice = replace(choice, row_key=others_of_key[0].row_key)
        proposals = _proposals(session, choice, words, state)
        warning = _warning(session, choice)
        if warning:
            output.note(f"mind: {warning}")
        if not yes and not _is_confirmed(output, name, proposals, is_of_state=state is not None):
            output.document(Resolution(feed=name, rows=[], warning=warning, is_confirmed=False))
            output.note("nothing was changed")
            return int(ExitCode.ATTENTION)
        # Other feeds are held as well whose rows give up an event, or get it back.
        adopted = [change.adopted for change in proposals.values() if isinstance(change, Change) and change.adopted]
        others = dict.fromkeys(FeedScope(other.destination, other.feed) for other in adopted if other.feed)
        with session.deciding("resolve", list(others)) as decisions:
            decided = [_decided_row(one) for one in decisions.resolve(list(proposals), choice)]
    output.document(Resolution(feed=name, rows=decided, warning=warning, is_confirmed=True))
    lines = [(one["row_key"], spelt(one["was"]), spelt(one["state"]), str(one["event_id"] or ""), one["what"]) for one in decided]
    output.table(f"{name}: decided", ("row key", "was", "is", "event", "what happens"), lines)
    return 0


class Resolution(TypedDict):
    """What was decided, row by row. `warning`: what speaks against it; `is_confirmed` false: nothing was changed."""

    feed: str
    rows: Sequence[DecidedRow]
    warning: str
    is_confirmed: bool


_PATIENCE_S = 20.0
_NAMED = 5


class DecidedRow(TypedDict):
    """One row after the decision, in words.

    `removed_event_ids`: the events recorded as removed; `other_key`: the row whose event this one took over or gave back.
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


def _proposals(session: FeedSession, choice: Instruction, words: Sequence[RowKey], state: str | None) -> dict[RowKey, Outcome]:
    """Return the rows that are meant, with what the choice would do to them; all that is not possible is one error."""
    if (state is None) is not bool(words):
        hint = f"for example `eventsync resolve {session.scope.feed} --state held ...`"
        raise ConfigError("name either rows or a state", hint=hint)
    if state is not None:
        listed = chosen_rows(session.queries, session.scope, parse_choice(state))
        keys = list(dict.fromkeys(RowKey(row["row_key"]) for row in listed if row["row_key"]))
        outcomes = propose(session.engine, session.scope, keys, choice)
        return {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, Change)}
    outcomes = propose(session.engine, session.scope, [row.row_key for row in session.find(words)], choice)
    raise_all(outcomes.values())
    return outcomes


def _is_confirmed(output: Output, feed: str, proposals: Mapping[RowKey, Outcome], *, is_of_state: bool) -> bool:
    """Ask about a risk, and about several rows of one state.

    Raises:
        ConfigError: there is no terminal to ask.
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
        if risks:
            hint = f"`eventsync reconcile {feed}` looks for the event; say --yes to send in spite of that"
            raise ConfigError(f"{len(risks)} of these rows may be created twice, and there is no terminal to ask", hint=hint)
        raise ConfigError(f"this would decide about {len(proposals)} rows, and there is no terminal to ask", hint="say --yes")
    return typer.confirm("Send again all the same?" if risks else f"Decide about {len(proposals)} rows?", default=False, err=True)


def _warning(session: FeedSession, choice: Instruction) -> str:
    """Return what speaks against a named event: the service does not list it, or could not be asked."""
    if choice.option is not Option.EVENT_ID:
        return ""
    policy = session.policy().model_copy(update={"max_pause_s": _PATIENCE_S})
    try:
        listed = is_listed(lambda: open_api(session.settings, policy, session.engine), choice.event_id)
    except SyncError as problem:
        return f"the service was not asked whether event {choice.event_id} exists: {problem}"
    return "" if listed is None else f"event {choice.event_id} is not among the {listed.read:,} events that the service lists"


def _decided_row(resolved: Resolved) -> DecidedRow:
    change = resolved.outcome if isinstance(resolved.outcome, Change) else None
    return document_from(
        DecidedRow,
        resolved.after,
        was=resolved.before.state,
        is_changed=change is not None,
        what=resolved.outcome.because if isinstance(resolved.outcome, NoChange) else _what(resolved.outcome, resolved),
        idempotency_key=resolved.after.key,
        removed_event_ids=() if change is None else change.removed,
        other_key=str(change.adopted) if change and change.adopted else None,
    )


def _what(change: Change, resolved: Resolved) -> str:
    """Say what follows from a decision."""
    if change.removed:
        events = f"event{'s' * (len(change.removed) > 1)} {', '.join(map(str, change.removed))}"
        return f"{events}: recorded as removed from the service"
    taken = "its event" if change.event_id is None else f"event {change.event_id}"
    texts = {
        "event_id": f"it is delivered as event {change.event_id}",
        "ignore": "it is ignored: listed no longer until it changes, `--undo` lists it again",
        "applied": "what the source asks for is what the service shows",
        "same_as": f"it has taken over {taken} from {change.adopted}; nothing is sent",
        "release": "the next run sends it",
        "removed": "its event is recorded as removed from the service",
        None: "it is listed again" if resolved.before.is_set_aside else "it is as it was before",
    }
    if change.decision in texts:
        return texts[change.decision]
    if change.is_next_revision:
        return "the next run sends it under its next key"
    if change.decision == "retry" and change.risk:
        return "the next run sends it under the same key, and under its next one if access is denied again"
    return "the next run sends it again under the same key"

"""The work of `eventsync resolve`: finds the rows that are meant, asks where it must, decides, and prints what was done."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import typer

from mappings.errors import ConfigError, SyncError
from mappings.row_key import RowKey
from pipelines.cli.at_hand import FeedAtHand, feed_at_hand, typed_key
from pipelines.cli.output import Output
from pipelines.cli.row_choices import chosen_rows, parse_choice
from pipelines.run.context import open_api, sharing_over
from pipelines.run.outcome import ExitCode
from pipelines.run.reconcile import is_listed
from pipelines.settings import current_settings
from pipelines.telemetry.logs import configure_logs
from state.ledger.choices import Apply, AsItIs, Change, Choice, Release, Remove, Resend, SameAs, SetAside, TakeBack, TakeEvent
from state.ledger.decisions import Resolved
from state.ledger.row_record import Book
from state.ledger.weighing import Weighed, raise_all, weigh

_COLUMNS = ("row key", "was", "is", "event", "what happens")
_BARE: Mapping[str, Choice] = {
    "--resend": Resend(),
    "--ignore": SetAside(),
    "--undo": TakeBack(),
    "--applied": Apply(),
    "--release": Release(),
    "--removed": Remove(),
}
_PATIENCE_S = 20.0
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked for. `wishes`: the options that name a decision, and whether each was given."""

    feed: str
    words: tuple[str, ...]
    wishes: Mapping[str, bool]
    event_id: int | None
    same_as: str | None
    state: str | None
    is_sure: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class Told:
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
    idempotency_key: str | None = None
    removed_event_ids: Sequence[int] = field(default_factory=tuple)
    other_key: str | None = None


def resolve_rows(request: Request) -> int:
    """Decide about the rows; return 0, or 1 if a person did not confirm.

    Raises:
        ConfigError: there is no such feed or row, or it cannot be decided so; nothing was changed.
        HeldByAnotherError: a run holds the feed, or the feed of the other row.
    """
    settings, output = current_settings(), Output(json=request.as_json)
    configure_logs(settings)
    choice = _choice(request)
    with feed_at_hand(settings, request.feed) as at_hand:
        weighed = _weighed(at_hand, request, choice)
        warning = _warning(at_hand, choice)
        if warning:
            output.note(f"mind: {warning}")
        if not _is_confirmed(request, output, weighed):
            output.document({"feed": at_hand.book.feed, "rows": [], "warning": warning, "is_confirmed": False})
            output.note("nothing was changed")
            return int(ExitCode.ATTENTION)
        with at_hand.deciding("resolve", _other_feeds(weighed)) as decisions:
            resolved = decisions.resolve_all([one.row_key for one in weighed], choice)
    told = [_told(one) for one in resolved]
    output.document({"feed": at_hand.book.feed, "rows": told, "warning": warning, "is_confirmed": True})
    output.table(f"{at_hand.book.feed}: decided", _COLUMNS, [_row(one) for one in told])
    return 0


def _choice(request: Request) -> Choice:
    given = [name for name, is_given in request.wishes.items() if is_given]
    if len(given) != 1:
        problem = f"{' and '.join(given)} exclude each other" if given else "nothing was decided"
        raise ConfigError(problem, hint=f"say one of {', '.join(request.wishes)}")
    if given[0] in _BARE:
        return _BARE[given[0]]
    is_one = request.state is None and len(set(request.words)) == 1
    if not is_one and (request.same_as or request.event_id is not None):
        hint = f"name one row: `eventsync resolve {request.feed} ROW {given[0]} ...`"
        raise ConfigError(f"{given[0]} names the one event of one row", hint=hint)
    if request.event_id is not None:
        return TakeEvent(request.event_id)
    return SameAs(typed_key(request.same_as) if request.same_as else None)


def _weighed(at_hand: FeedAtHand, request: Request, choice: Choice) -> tuple[Weighed, ...]:
    """Return the rows that are meant, with what the choice would do to them; all that is not possible is one error."""
    if (request.state is None) is not bool(request.words):
        raise ConfigError("name either rows or a state", hint=f"for example `eventsync resolve {request.feed} --state held ...`")
    if request.state is not None:
        listed = chosen_rows(at_hand.books, at_hand.book, parse_choice(request.state))
        keys = list(dict.fromkeys(RowKey(row.row_key) for row in listed if row.row_key))
        weighed = weigh(at_hand.engine, at_hand.book, keys, choice)
        return tuple(one for one in weighed if isinstance(one.outcome, Change))
    weighed = weigh(at_hand.engine, at_hand.book, list(dict.fromkeys(map(typed_key, request.words))), choice)
    unknown = [one.row_key for one in weighed if one.outcome is None]
    if unknown:
        raise at_hand.unknown(unknown)
    raise_all([one.outcome for one in weighed])
    return weighed


def _other_feeds(weighed: Sequence[Weighed]) -> list[Book]:
    """Return the other feeds whose rows give up an event, or get it back."""
    changes = (one.outcome for one in weighed if isinstance(one.outcome, Change))
    others = (change.adopted for change in changes if change.adopted is not None and change.adopted.feed)
    return list(dict.fromkeys(Book(other.destination, other.feed) for other in others))


def _is_confirmed(request: Request, output: Output, weighed: Sequence[Weighed]) -> bool:
    changes = {one.row_key: one.outcome for one in weighed if isinstance(one.outcome, Change)}
    risks = [f"{row_key}: {change.risk}" for row_key, change in changes.items() if change.risk]
    is_many = request.state is not None and len(weighed) > 1
    if request.is_sure or not (risks or is_many):
        return True
    for risk in risks:
        output.note(risk)
    if is_many:
        output.note(
            f"{len(weighed)} rows: {', '.join(one.row_key for one in weighed[:_NAMED])}{' ...' * (len(weighed) > _NAMED)}"
        )
    if request.as_json or not sys.stdin.isatty():
        if risks:
            hint = f"`eventsync reconcile {request.feed}` looks for the event; say --yes to send in spite of that"
            raise ConfigError(f"{len(risks)} of these rows may be created twice, and nobody can be asked", hint=hint)
        raise ConfigError(f"this would decide about {len(weighed)} rows, and there is no terminal to ask", hint="say --yes")
    return typer.confirm("Send again all the same?" if risks else f"Decide about {len(weighed)} rows?", default=False, err=True)


def _warning(at_hand: FeedAtHand, choice: Choice) -> str:
    """Return what speaks against a named event: the service does not list it, or could not be asked."""
    if not isinstance(choice, TakeEvent):
        return ""
    policy = at_hand.policy().model_copy(update={"max_pause_s": _PATIENCE_S})
    try:
        sharing = sharing_over(at_hand.engine, at_hand.settings)
        listed = is_listed(lambda: open_api(at_hand.settings, policy, sharing=sharing), choice.event_id)
    except SyncError as problem:
        return f"the service was not asked whether event {choice.event_id} exists: {problem}"
    return "" if listed is None else f"event {choice.event_id} is not among the {listed.read:,} events that the service lists"


def _told(resolved: Resolved) -> Told:
    before, after, outcome = resolved.before, resolved.after, resolved.outcome
    change = outcome if isinstance(outcome, Change) else None
    return Told(
        row_key=after.row_key,
        was=before.state.value,
        state=after.state.value,
        event_id=after.event_id,
        decision=after.decision,
        is_changed=change is not None,
        what=outcome.because if isinstance(outcome, AsItIs) else _what(outcome, resolved),
        idempotency_key=after.key,
        removed_event_ids=() if change is None else change.removed,
        other_key=str(change.adopted) if change and change.adopted else None,
    )


def _what(change: Change, resolved: Resolved) -> str:  # noqa: C901, PLR0911  # one arm per decision
    if change.removed:
        named = ", ".join(map(str, change.removed))
        return f"event{'s' * (len(change.removed) > 1)} {named}: recorded as removed from the service"
    match change.decision:
        case "event_id":
            return f"it is delivered as event {change.event_id}"
        case "ignore":
            return "it is ignored: listed no longer until it changes, `--undo` lists it again"
        case "applied":
            return "what the source asks for is what the service shows"
        case "same_as":
            event = "its event" if change.event_id is None else f"event {change.event_id}"
            return f"it has taken over {event} from {change.adopted}; nothing is sent"
        case "release":
            return "the next run sends it"
        case "removed":
            return "its event is recorded as removed from the service"
        case None:
            return "it is listed again" if resolved.before.is_set_aside else "it is as it was before"
        case _ if change.is_next_revision:
            return "the next run sends it under its next key"
        case "retry" if change.risk:
            return "the next run sends it under the same key, and under its next one if access is denied again"
        case _:
            return "the next run sends it again under the same key"


def _row(told: Told) -> tuple[Any, ...]:
    event = "" if told.event_id is None else str(told.event_id)
    return told.row_key, told.was.replace("_", " "), told.state.replace("_", " "), event, told.what

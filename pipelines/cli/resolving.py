"""The command `resolve` at work: which rows and which decision are meant, what a person should know first, what was done.

What a decision does to a row stands in `state.deciding`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import typer

from mappings.errors import ConfigError, SyncError
from mappings.vocabulary import RowKey
from pipelines.cli.at_hand import FeedAtHand, feed_at_hand, typed_key
from pipelines.cli.output import Output
from pipelines.logs import configure_logs
from pipelines.outcomes import ExitCode
from pipelines.publishing.service import open_api
from pipelines.publishing.shared_pace import sharing_over
from pipelines.reconciliation.search import is_listed
from pipelines.settings import current_settings
from state.deciding import AsItIs, Change, Choice, NotPossibleError, Resend, SetAside, TakeBack, TakeEvent, decide
from state.decisions import Decisions, Resolved
from state.views import RowFilter, RowRecord

_COLUMNS = ("row key", "was", "is", "event", "what happens")
_PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asked for. `wishes`: the options that name a decision, and whether each was given."""

    feed: str
    words: tuple[str, ...]
    wishes: Mapping[str, bool]
    event_id: int | None
    is_sure: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class Told:
    """One row after the decision, in words."""

    row_key: str
    was: str
    state: str
    event_id: int | None
    decision: str | None
    is_changed: bool
    what: str
    idempotency_key: str | None = None


def resolve_rows(request: Request) -> int:
    """Decide about the rows; return 0, or 1 if a person did not confirm.

    Raises:
        ConfigError: there is no such feed or row, or it cannot be decided so; nothing was changed.
        HeldByAnotherError: a run holds the feed.
    """
    settings, output = current_settings(), Output(json=request.as_json)
    choice = _choice(request)
    with feed_at_hand(settings, request.feed) as at_hand:
        row_keys = list(dict.fromkeys(map(typed_key, request.words)))
        entries = _entries(at_hand, row_keys)
        warning = _warning(at_hand, choice)
        if warning:
            output.note(f"mind: {warning}")
        if not _is_confirmed(request, output, _risks(entries, choice)):
            output.document({"feed": at_hand.book.feed, "rows": [], "warning": warning, "is_confirmed": False})
            output.note("nothing was changed")
            return int(ExitCode.ATTENTION)
        with at_hand.deciding("resolve") as decisions:
            told = [_resolve(decisions, row_key, choice, is_held=row_key not in entries) for row_key in row_keys]
    output.document({"feed": at_hand.book.feed, "rows": told, "warning": warning, "is_confirmed": True})
    output.table(f"{at_hand.book.feed}: decided", _COLUMNS, [_row(one) for one in told])
    return 0


def _choice(request: Request) -> Choice:
    given = [name for name, is_given in request.wishes.items() if is_given]
    if len(given) != 1:
        problem = f"{' and '.join(given)} exclude each other" if given else "nothing was decided"
        raise ConfigError(problem, hint=f"say one of {', '.join(request.wishes)}")
    match given[0]:
        case "--resend":
            return Resend()
        case "--ignore":
            return SetAside()
        case "--undo":
            return TakeBack()
        case _:
            return _take_event(request)


def _take_event(request: Request) -> TakeEvent:
    if request.event_id is None or len(set(request.words)) > 1:
        raise ConfigError("--event-id names the one event of one row", hint="decide about one row at a time with it")
    return TakeEvent(request.event_id)


def _entries(at_hand: FeedAtHand, row_keys: list[RowKey]) -> dict[RowKey, RowRecord]:
    """Return the entries of those rows that have one; the others are held."""
    found = {row_key: at_hand.books.rows(at_hand.book, RowFilter(row_key=row_key)) for row_key in row_keys}
    unknown = [row_key for row_key, rows in found.items() if not rows and not at_hand.books.is_held(at_hand.book, row_key)]
    if unknown:
        raise at_hand.unknown(unknown)
    return {row_key: rows[0] for row_key, rows in found.items() if rows}


def _risks(entries: Mapping[RowKey, RowRecord], choice: Choice) -> list[str]:
    """Return what a person should know before; all that is not possible is one error."""
    risks, problems = list[str](), list[NotPossibleError]()
    for row_key, record in entries.items():
        try:
            outcome = decide(record, choice)
        except NotPossibleError as problem:
            problems.append(problem)
            continue
        if isinstance(outcome, Change) and outcome.risk:
            risks.append(f"{row_key}: {outcome.risk}")
    if problems:
        hints = dict.fromkeys(problem.hint for problem in problems)
        raise NotPossibleError("\n".join(map(str, problems)), hint=" ".join(hints))
    return risks


def _is_confirmed(request: Request, output: Output, risks: list[str]) -> bool:
    if not risks or request.is_sure:
        return True
    for risk in risks:
        output.note(risk)
    if request.as_json or not sys.stdin.isatty():
        hint = f"`eventsync reconcile {request.feed}` looks for the event; say --yes to send in spite of that"
        raise ConfigError(f"{len(risks)} of these rows may be created twice, and nobody can be asked", hint=hint)
    return typer.confirm("Send again all the same?", default=False, err=True)


def _warning(at_hand: FeedAtHand, choice: Choice) -> str:
    """Return what speaks against a named event: the service does not list it, or could not be asked."""
    if not isinstance(choice, TakeEvent):
        return ""
    configure_logs(at_hand.settings)
    policy = at_hand.policy().model_copy(update={"max_pause_s": _PATIENCE_S})
    try:
        sharing = sharing_over(at_hand.engine, at_hand.settings)
        listed = is_listed(lambda: open_api(at_hand.settings, policy, sharing=sharing), choice.event_id)
    except SyncError as problem:
        return f"the service was not asked whether event {choice.event_id} exists: {problem}"
    return "" if listed is None else f"event {choice.event_id} is not among the {listed.read:,} events that the service lists"


def _resolve(decisions: Decisions, row_key: RowKey, choice: Choice, *, is_held: bool) -> Told:
    resolved = None if is_held else decisions.resolve(row_key, choice)
    if resolved is not None:
        return _told(resolved)
    decision = decisions.release(row_key, choice)
    what = {"resend": "it is sent after the next read", "ignore": "it stays held and is listed no longer"}
    return Told(
        row_key, "held", "held", None, decision or None, is_changed=True, what=what.get(decision, "it is held and listed")
    )


def _told(resolved: Resolved) -> Told:
    before, after, outcome = resolved.before, resolved.after, resolved.outcome
    return Told(
        row_key=after.row_key,
        was=before.state.value,
        state=after.state.value,
        event_id=after.event_id,
        decision=after.decision,
        is_changed=isinstance(outcome, Change),
        what=outcome.because if isinstance(outcome, AsItIs) else _what(outcome),
        idempotency_key=after.key,
    )


def _what(change: Change) -> str:
    match change.decision:
        case "event_id":
            return f"it is delivered as event {change.event_id}"
        case "ignore":
            return "it is set aside: listed no longer, `--undo` lists it again"
        case None:
            return "it is listed again"
        case _ if change.is_next_revision:
            return "the next run sends it under its next key"
        case "retry" if change.risk:
            return "the next run sends it under the same key, and under its next one if access is denied again"
        case _:
            return "the next run sends it again under the same key"


def _row(told: Told) -> tuple[Any, ...]:
    event = "" if told.event_id is None else str(told.event_id)
    return told.row_key, told.was.replace("_", " "), told.state.replace("_", " "), event, told.what

"""One row as `eventsync rows` tells it: where it stands, what is wrong, what somebody can do. Finding rows is `row_choices`'."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any, assert_never

from connectors.event_api.complaints import in_short
from mappings.vocabulary import REASON_TEXTS, Reason
from pipelines.cli.tables_csv import ToldRow, told
from state.deciding import waits_for_access
from state.views import ProblemRecord, RowRecord
from state.words import DriftKind, EntryState, ProblemKind


@dataclass(frozen=True, slots=True)
class ListedRow:
    """A row in words. `state` is the word that it is asked for by; `csv` how it stands in a file; `document` for scripts."""

    state: str
    place: str
    row_key: str
    event_id: int | None
    problem: str
    hint: str
    csv: ToldRow
    document: dict[str, Any]


def of_problem(record: ProblemRecord, feed: str) -> ListedRow:
    """Tell of a row that the last read could not use, held back, or used with a warning: a line for each reason."""
    hint = "\n".join(reason.hint for reason in record.reasons)
    if record.kind is ProblemKind.HELD:
        resolve = f"eventsync resolve {feed} {shlex.quote(record.row_key)}"
        hint += f"\n`{resolve} --resend` sends it all the same\n`{resolve} --ignore` says that it is a copy"
    return ListedRow(
        state=record.kind.value,
        place=record.origin,
        row_key=record.row_key,
        event_id=None,
        problem="\n".join(map(_problem, record.reasons)),
        hint=hint,
        csv=told(record),
        document={
            "state": record.kind,
            "place": record.origin,
            "row_key": record.row_key,
            "reasons": record.reasons,
            "cells": record.cells,
            "run_id": record.run_id,
            "first_seen_at": record.first_seen_at,
            "seen_at": record.seen_at,
        },
    )


def of_entry(record: RowRecord, feed: str) -> ListedRow:
    """Tell of a ledger entry by its state."""
    is_told = record.answer is not None and (record.state is not EntryState.DELIVERED or record.decision is not None)
    said = in_short(record.answer) if record.answer and is_told else ""
    return _entry(record, record.state.value, said or _FALLBACKS.get(record.state, ""), _hint(record, feed))


def of_drift(record: RowRecord, feed: str) -> ListedRow:
    """Tell what the source says now instead of what was sent."""
    if record.drift_kind is DriftKind.TO_PUBLISH:
        problem = "sent as a draft; the source now says published"
        by_hand = f"publish {_event(record)} by hand on the service's pages"
        return _entry(record, "drift", problem, _then_set_aside(by_hand, feed, record))
    if record.drift_kind is DriftKind.CANCELLED:
        by_hand = f"withdraw {_event(record)} by hand on the service's pages: there is no way to do it from here"
        return _entry(record, "drift", "cancelled at the source since it was sent", _then_set_aside(by_hand, feed, record))
    problem = f"changed since it was sent: {', '.join(_changed(record)) or 'its cover image'}"
    by_hand = f"{_command('diff', feed, record)} shows all; change {_event(record)} by hand: the service has no way to update it"
    return _entry(record, "drift", problem, _then_set_aside(by_hand, feed, record))


def of_vanished(record: RowRecord, feed: str) -> ListedRow:
    """Tell that the source has the row no longer."""
    since = f"{record.vanished_at:%Y-%m-%d}" if record.vanished_at else "an earlier read"
    problem = f"gone from its source since {since}"
    by_hand = f"if it is cancelled, remove {_event(record)} by hand on the service's pages"
    return _entry(record, "vanished", problem, _then_set_aside(by_hand, feed, record))


def of_resent(record: RowRecord) -> ListedRow:
    """Tell that a row was sent again after an attempt without an answer: a service that ignores keys may have it twice."""
    problem = f"sent again after an attempt without an answer, in run {record.resent_run}; now {record.state.value}"
    hint = f"if the service ignores Idempotency-Key, look for a second event beside {_event(record)} on its pages"
    return _entry(record, "resent", problem, hint)


def _problem(reason: Reason) -> str:
    cell = f"{reason.column or reason.field} {reason.found!r}: " if reason.column or reason.field else ""
    return f"{cell}{REASON_TEXTS[reason.code]}"


_FALLBACKS = {
    EntryState.PENDING: "not sent yet",
    EntryState.DELIVERED_UNCONFIRMED: "the service has it; its id is not known",
    EntryState.UNCERTAIN: "no answer that could be understood",
}


def _when_pending(record: RowRecord, feed: str) -> str:
    if waits_for_access(record):
        again = _command("resolve", feed, record, "--resend")
        return f"the next run sends it again; if the service only repeats a denial that it has stored: {again}"
    return "the next run sends it" if record.attempts == 0 else "the next run sends it again, with the same key"


def _hint(record: RowRecord, feed: str) -> str:  # noqa: C901, PLR0911  # one arm per state
    if record.is_set_aside:
        return _was_set_aside(feed, record)
    match record.state:
        case EntryState.PENDING:
            return _when_pending(record, feed)
        case EntryState.DELIVERED:
            return ""
        case EntryState.DELIVERED_UNCONFIRMED:
            return f"`eventsync reconcile {feed}` looks its id up; {_command('resolve', feed, record, '--event-id N')} tells it"
        case EntryState.REFUSED:
            again = f"`eventsync retry {feed} --keys {shlex.quote(record.row_key)}`"
            return f"nothing was created; it is sent again as soon as its payload changes, or as it is after {again}"
        case EntryState.BLOCKED:
            access = f"ask for access to channel {record.channel_id}; then the next run sends it again"
            return f"{access}; if the service goes on repeating its denial: {_command('resolve', feed, record, '--resend')}"
        case EntryState.UNCERTAIN:
            again = "the next run sends it again with the same key, unless the service may have forgotten that key meanwhile"
            return f"{again}: then {_person_decides(feed, record)}"
        case EntryState.CONFLICT:
            used = "this key was used for something else, or by a ledger that was lost"
            return f"{used}: {_person_decides(feed, record)}"
        case EntryState.HELD | EntryState.SUPERSEDED:
            return ""
        case _:
            assert_never(record.state)


def _person_decides(feed: str, record: RowRecord) -> str:
    resolve = _command("resolve", feed, record, "--event-id N")
    otherwise = "--resend that it is not, --ignore leaves it so"
    return f"`eventsync reconcile {feed}` looks for it; {resolve} says that it is there, {otherwise}"


def _then_set_aside(by_hand: str, feed: str, record: RowRecord) -> str:
    if record.is_set_aside:
        return _was_set_aside(feed, record)
    return f"{by_hand}; then {_command('resolve', feed, record, '--ignore')} takes it off the list of what waits"


def _was_set_aside(feed: str, record: RowRecord) -> str:
    return f"it was set aside by {record.decided_by}: {_command('resolve', feed, record, '--undo')} lists it again"


def _command(verb: str, feed: str, record: RowRecord, option: str = "") -> str:
    return f"`{' '.join(filter(None, ('eventsync', verb, feed, shlex.quote(record.row_key), option)))}`"


def _entry(record: RowRecord, state: str, problem: str, hint: str) -> ListedRow:
    event = json.loads(record.body)
    document: dict[str, Any] = {
        "state": state,
        "place": record.origin,
        "row_key": record.row_key,
        "entry_state": record.state,
        "event_id": record.event_id,
        "earlier_event_ids": record.earlier_event_ids,
        "idempotency_key": record.key,
        "attempts": record.attempts,
        "problem": problem,
        "hint": hint,
        "answer": record.answer,
        "event": event,
        "drift": record.drift_kind
        and {"kind": record.drift_kind, "event": json.loads(record.drift_body) if record.drift_body else None},
        "vanished_at": record.vanished_at,
        "decision": record.decision
        and {"what": record.decision, "by": record.decided_by, "at": record.decided_at, "is_set_aside": record.is_set_aside},
        "updated_at": record.updated_at,
    }
    cells = {"row key": record.row_key, "state": state, "event": "" if record.event_id is None else str(record.event_id)}
    cells |= {name: str(event.get(name, "")) for name in ("title", "startAt", "status")}
    csv = ToldRow(record.origin, problem, hint, cells)
    return ListedRow(state, record.origin, record.row_key, record.event_id, problem, hint, csv, document)


def _changed(record: RowRecord) -> list[str]:
    """Name the fields of the payload that differ."""
    sent, asked = json.loads(record.body), json.loads(record.drift_body or record.body)
    return sorted(name for name in sent.keys() | asked.keys() if sent.get(name) != asked.get(name))


def _event(record: RowRecord) -> str:
    return "the event" if record.event_id is None else f"event {record.event_id}"

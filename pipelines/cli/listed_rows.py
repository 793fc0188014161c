"""One row as `eventsync rows` lists it: where it stands, what is wrong, what a person can do."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, assert_never, cast

from typing_extensions import TypedDict

from connectors.event_api.answers import in_short
from mappings.delivery import Answer
from mappings.errors import ConfigError
from mappings.outcome import REASON_TEXTS, Reason, did_you_mean
from mappings.row_key import RowKey
from pipelines.cli.output.csv import CsvRow, csv_row
from pipelines.run.standing import ALL, IGNORED, RESENT, WAITING
from state.enums import Decision, DriftKind, EntryState, ProblemKind, Waiting
from state.ledger.choices import waits_for_access
from state.ledger.standing import FeedScope, OtherEntry, RowRecord
from state.queries import LedgerQueries, ProblemRecord, RowFilter


class Problem(TypedDict):
    """A row that could not be used, is held, or was used with a warning, with its raw cells. `event_id`: the event that an
    earlier version of the row has; `candidate`: the entry that a held row resembles.
    """

    state: ProblemKind
    place: str
    row_key: str
    event_id: int | None
    candidate: OtherEntry | None
    problem: str
    hint: str
    reasons: Sequence[Reason]
    cells: Mapping[str, str]
    run_id: str
    first_seen_at: datetime
    seen_at: datetime


class Drifted(TypedDict):
    """What the source asks for now, where that is another event than was delivered."""

    kind: DriftKind
    event: dict[str, Any] | None


class Decided(TypedDict):
    """What a person has decided about a row."""

    what: Decision
    by: str
    at: datetime | None
    is_set_aside: bool


class Entry(TypedDict):
    """A row as the ledger has it. `state`: the word it was asked for by; `entry_state`: where it stands with the service;
    `event`: the payload that the service shows, or that is to be delivered; `answer`: what the service said last; `candidate`:
    the entry that a held row resembles, or that has the event of a superseded one; `vanished_by`: the rule that leaves it out.
    `copies`: how many events of the row may exist where the service ignores idempotency keys, counted over all runs.
    """

    state: str
    place: str
    row_key: str
    entry_state: EntryState
    event_id: int | None
    earlier_event_ids: Sequence[int]
    idempotency_key: str
    attempts: int
    copies: int
    problem: str
    hint: str
    answer: Answer | None
    event: dict[str, Any]
    candidate: OtherEntry | None
    drift: Drifted | None
    vanished_at: datetime | None
    vanished_by: str
    removed_at: datetime | None
    decision: Decided | None
    updated_at: datetime


def of_problem(record: ProblemRecord, feed: str, event_id: int | None, candidate: OtherEntry | None) -> Problem:
    """Return a row that the last read could not use, that is held, or that was used with a warning: a line for each reason.

    `event_id`: the event that an earlier version of the row has; `candidate`: the entry that a held row resembles.
    """
    problem = "\n".join(map(_problem, record.reasons))
    hint = "\n".join(reason.hint for reason in record.reasons)
    match record.kind:
        case ProblemKind.HELD:
            problem = f"it looks like the event of {candidate}" if candidate else problem
            hint = _held_hint(feed, record.row_key, candidate)
        case ProblemKind.REJECTED if event_id is not None:
            problem += f"\nonline as event {event_id}, row now unusable"
        case _:
            pass
    return Problem(
        state=record.kind,
        place=record.origin,
        row_key=record.row_key,
        event_id=event_id,
        candidate=candidate,
        problem=problem,
        hint=hint,
        reasons=record.reasons,
        cells=record.cells,
        run_id=record.run_id,
        first_seen_at=record.first_seen_at,
        seen_at=record.seen_at,
    )


def of_entry(record: RowRecord, feed: str) -> Entry:
    """Return a ledger entry by its state."""
    is_told = record.answer is not None and (record.state is not EntryState.DELIVERED or record.decision is not None)
    said = in_short(record.answer) if record.answer and is_told else ""
    if record.state is EntryState.SUPERSEDED:
        said = f"its event belongs to {record.candidate or 'another key'} now"
    if record.removed_at is not None:
        said = f"event {record.event_id} was removed by hand"
    return _entry(record, record.state.value, said or _FALLBACKS.get(record.state, ""), _hint(record, feed))


def of_drift(record: RowRecord, feed: str) -> Entry:
    """Return what the source asks for now, where that is not what the service shows."""
    applied, event = _command("resolve", feed, record, "--applied"), _event(record)
    match record.drift_kind:
        case DriftKind.TO_PUBLISH:
            problem, hint = "sent as a draft; the source now says published", f"publish {event} by hand; then {applied}"
        case DriftKind.CANCELLED:
            removed = _command("resolve", feed, record, "--removed")
            problem, hint = "cancelled at the source since it was sent", f"withdraw {event} by hand; then {removed}"
        case DriftKind.RETURNED:
            problem = f"{event} was removed by hand, and the row is back in the source"
            hint = f"{_command('resolve', feed, record, '--resend')} creates the event again"
        case _:
            problem = f"changed since it was sent: {', '.join(_changed(record)) or 'its cover image'}"
            hint = f"{_command('diff', feed, record)} shows all; change {event} by hand; then {applied}"
    return _entry(record, Waiting.DRIFT, problem, _or_ignore(hint, feed, record))


def of_vanished(record: RowRecord, feed: str) -> Entry:
    """Return an entry whose row is gone from its source, or left out by a rule."""
    since = f"{record.vanished_at:%Y-%m-%d}" if record.vanished_at else "an earlier read"
    problem = f"left out since {since} by {record.vanished_by}" if record.vanished_by else f"gone from its source since {since}"
    by_hand = f"if it is cancelled, remove {_event(record)} by hand; then {_command('resolve', feed, record, '--removed')}"
    return _entry(record, Waiting.VANISHED, problem, _or_ignore(by_hand, feed, record))


def of_earlier(record: RowRecord, feed: str) -> Entry:
    """Return an entry with earlier events that a person has to remove."""
    events = f"event{'s' * (len(record.earlier_event_ids) != 1)} {', '.join(map(str, record.earlier_event_ids))}"
    problem = f"a changed row was sent as a new draft; earlier {events}: remove by hand"
    by_hand = f"remove {events} by hand; then {_command('resolve', feed, record, '--removed')}"
    return _entry(record, Waiting.EARLIER, problem, _or_ignore(by_hand, feed, record))


def of_resent(record: RowRecord, _feed: str) -> Entry:
    """Return a row of which a service that ignores keys may have several events."""
    problem = f"where the service ignores Idempotency-Key, it may exist up to {record.copies:,} times; now {record.state.value}"
    hint = f"look on the service's pages for events beside {_event(record)}"
    return _entry(record, "resent", problem, hint)


def csv_of(row: Problem | Entry) -> CsvRow:
    """Return a row as it stands in a CSV file: of a problem the partner's own cells, of an entry its key, state and event."""
    if "reasons" in row:
        problem = cast("Problem", row)
        told = csv_row(problem["place"], problem["reasons"], problem["cells"])
        online = "" if problem["event_id"] is None else "\nAn earlier version of this row is online."
        return replace(told, problem=f"{told.problem}{online}")
    entry = row
    event_id = "" if entry["event_id"] is None else str(entry["event_id"])
    cells = {"row key": entry["row_key"], "state": entry["state"], "event": event_id}
    cells |= {name: str(entry["event"].get(name, "")) for name in ("title", "startAt", "status")}
    return CsvRow(entry["place"], entry["problem"], entry["hint"], cells)


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
        case EntryState.HELD:
            return _held_hint(feed, record.row_key, record.candidate)
        case EntryState.SUPERSEDED:
            return "a row that returns under this key is held"
        case _:
            assert_never(record.state)


def _person_decides(feed: str, record: RowRecord) -> str:
    resolve = _command("resolve", feed, record, "--event-id N")
    otherwise = "--resend that it is not, --ignore leaves it so"
    return f"`eventsync reconcile {feed}` looks for it; {resolve} says that it is there, {otherwise}"


def _held_hint(feed: str, row_key: RowKey, other: OtherEntry | None) -> str:
    resolve = f"eventsync resolve {feed} {shlex.quote(row_key)}"
    same = f"`{resolve} --same-as` moves the event of {other or 'the other key'} to this one"
    return f"{same}\n`{resolve} --release` sends the row all the same\n`{resolve} --ignore` leaves it held, off this list"


def _or_ignore(by_hand: str, feed: str, record: RowRecord) -> str:
    if record.is_set_aside:
        return _was_set_aside(feed, record)
    return f"{by_hand}; or {_command('resolve', feed, record, '--ignore')} takes it off the list until the row changes"


def _was_set_aside(feed: str, record: RowRecord) -> str:
    return f"ignored by {record.decided_by}: {_command('resolve', feed, record, '--undo')} lists it again"


def _command(verb: str, feed: str, record: RowRecord, option: str = "") -> str:
    return f"`{' '.join(filter(None, ('eventsync', verb, feed, shlex.quote(record.row_key), option)))}`"


def _entry(record: RowRecord, state: str, problem: str, hint: str) -> Entry:
    return Entry(
        state=state,
        place=record.origin,
        row_key=record.row_key,
        entry_state=record.state,
        event_id=record.event_id,
        earlier_event_ids=record.earlier_event_ids,
        idempotency_key=record.key,
        attempts=record.attempts,
        copies=record.copies,
        problem=problem,
        hint=hint,
        answer=record.answer,
        event=record.event,
        candidate=record.candidate,
        drift=None
        if record.drift_kind is None
        else Drifted(kind=record.drift_kind, event=json.loads(record.drift_body) if record.drift_body else None),
        vanished_at=record.vanished_at,
        vanished_by=record.vanished_by,
        removed_at=record.removed_at,
        decision=None
        if record.decision is None
        else Decided(what=record.decision, by=record.decided_by, at=record.decided_at, is_set_aside=record.is_set_aside),
        updated_at=record.updated_at,
    )


def _changed(record: RowRecord) -> list[str]:
    """Name the fields of the payload that differ."""
    sent, asked = record.event, json.loads(record.drift_body or record.shown)
    return sorted(name for name in sent.keys() | asked.keys() if sent.get(name) != asked.get(name))


def _event(record: RowRecord) -> str:
    return "the event" if record.event_id is None else f"event {record.event_id}"


_ENTRY_OF: Mapping[str, Callable[[RowRecord, str], Entry]] = {
    Waiting.DRIFT: of_drift,
    Waiting.VANISHED: of_vanished,
    Waiting.EARLIER: of_earlier,
    RESENT: of_resent,
}
_FILTERS = {RESENT: RowFilter(is_resent=True), IGNORED: RowFilter(is_ignored=True)}


def parse_choice(word: str | None) -> tuple[str, ...]:
    """Return what a person asked for; without a word, all that waits for a person.

    Raises:
        ConfigError: there is no such choice.
    """
    if word is None:
        return WAITING
    if word not in ALL:
        raise ConfigError(
            f"--state {word}: there is no such state", hint=did_you_mean(word, ALL) or f"there are {', '.join(ALL)}"
        )
    return (word,)


def chosen_rows(books: LedgerQueries, book: FeedScope, choices: tuple[str, ...]) -> Iterator[Problem | Entry]:
    """Yield the rows asked for, choice by choice, oldest first; an ignored row is on no list but that of ignored ones."""
    for choice in choices:
        yield from _chosen(books, book, choice)


def _chosen(books: LedgerQueries, book: FeedScope, choice: str) -> Iterator[Problem | Entry]:
    if choice in tuple(ProblemKind):
        return _problems(books, book, ProblemKind(choice))
    entry_of = _ENTRY_OF.get(choice, of_entry)
    return (entry_of(record, book.feed) for record in books.every_row(book, _filter(choice)))


def _filter(choice: str) -> RowFilter:
    if choice in tuple(Waiting):
        return RowFilter(waiting=Waiting(choice))
    return _FILTERS[choice] if choice in _FILTERS else RowFilter(states=frozenset({EntryState(choice)}))


def _problems(books: LedgerQueries, book: FeedScope, kind: ProblemKind) -> Iterator[Problem]:
    after = 0
    while page := books.problems(book, kind, after=after):
        keys = {record.row_key for record in page if record.row_key}
        events = books.event_ids(book, keys)
        candidates = books.candidates(book, keys) if kind is ProblemKind.HELD else {}
        for record in page:
            yield of_problem(record, book.feed, events.get(record.row_key), candidates.get(record.row_key))
        after = page[-1].problem_id

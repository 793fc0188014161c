"""What a choice would do to rows: each entry is read with what stands beside it, and the decision table is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, exists, or_, select

from mappings.row_key import FeedName, IdempotencyKey, RowKey
from state.database import reading
from state.enums import EntryState, ProblemKind
from state.ledger.choices import (
    SEEKABLE,
    AsItIs,
    Beside,
    Change,
    Choice,
    NotPossibleError,
    Other,
    SameAs,
    SetAside,
    TakeBack,
    decide,
)
from state.ledger.claims import IS_SET_ASIDE, is_forgotten
from state.ledger.entries import earlier_events
from state.ledger.row_record import RECORDS, Book, RowRecord, as_record
from state.ledger.undo import Kept, load_kept
from state.tables import ENTRY, PROBLEM, SCOPE, storable

Record = Row[*tuple[Any, ...]]
_WITH_SCOPE = RECORDS.add_columns(SCOPE.c.feed, SCOPE.c.destination, SCOPE.c.namespace).join(
    SCOPE, SCOPE.c.id == ENTRY.c.scope_id
)


@dataclass(frozen=True, slots=True)
class Weighed:
    """What a choice would do to a row: the error where it is not possible, None where the ledger has no such row."""

    row_key: RowKey
    outcome: Change | AsItIs | NotPossibleError | None


@dataclass(frozen=True, slots=True)
class Situation:
    """One entry as it is decided on, with what stands beside it. `giver`: the entry whose event it takes over or gives back."""

    row: Record
    record: RowRecord
    beside: Beside
    giver: Record | None = None
    kept: Kept | None = None


def raise_all(outcomes: Collection[Change | AsItIs | NotPossibleError | None]) -> None:
    """Raise all that is not possible as one error."""
    problems = [outcome for outcome in outcomes if isinstance(outcome, NotPossibleError)]
    if problems:
        hints = dict.fromkeys(problem.hint for problem in problems)
        raise NotPossibleError("\n".join(map(str, problems)), hint=" ".join(hints))


def outcome_of(situation: Situation | None, choice: Choice) -> Change | AsItIs | NotPossibleError | None:
    """Return what a choice does to an entry, None where there is none."""
    if situation is None:
        return None
    try:
        return decide(situation.record, choice, situation.beside)
    except NotPossibleError as problem:
        return problem


def without_rivals(
    row_keys: Sequence[RowKey], outcomes: Sequence[Change | AsItIs | NotPossibleError | None]
) -> list[Change | AsItIs | NotPossibleError | None]:
    """Return the outcomes; of several rows that would take over the same event, none can."""
    adopted = [outcome.adopted if isinstance(outcome, Change) and outcome.decision else None for outcome in outcomes]
    claims = Counter(other.record.entry_id for other in adopted if other is not None)
    return [
        outcome
        if other is None or claims[other.record.entry_id] == 1
        else NotPossibleError(
            f"{row_key}: the event of {other} cannot become {claims[other.record.entry_id]} rows",
            hint="name one row with `--same-as`; `--release` sends the others",
        )
        for row_key, outcome, other in zip(row_keys, outcomes, adopted, strict=True)
    ]


def situation_of(connection: Connection, scope_id: int, row_key: RowKey, choice: Choice) -> Situation | None:
    """Read an entry with what a choice has to know beside it; None where the ledger has no such row."""
    row = connection.execute(_WITH_SCOPE.where(ENTRY.c.scope_id == scope_id, ENTRY.c.row_key == row_key)).one_or_none()
    if row is None:
        return None
    record = record_of(connection, row)
    match choice:
        case SameAs():
            giver = _giver(connection, row, choice)
            return Situation(row, record, Beside(other=_other(connection, row, giver)), giver)
        case SetAside():
            return Situation(row, record, Beside(has_warnings=_has_warnings(connection, row)))
        case TakeBack() if row.undo:
            kept = load_kept(row.undo)
            giver = None if kept.adopted_id is None else find_entry_or_none(connection, ENTRY.c.id == kept.adopted_id)
            return Situation(row, record, Beside(other=_other(connection, row, giver), undo=kept.undo), giver, kept)
        case _:
            return Situation(row, record, Beside())


def _giver(connection: Connection, row: Record, choice: SameAs) -> Record | None:
    """Return the entry that has the event: the one named, of the same feed or the candidate; else the candidate."""
    candidate = None if row.candidate_id is None else find_entry_or_none(connection, ENTRY.c.id == row.candidate_id)
    if choice.row_key is None:
        return candidate
    named = find_entry_or_none(connection, ENTRY.c.scope_id == row.scope_id, ENTRY.c.row_key == choice.row_key)
    if named is None and (candidate is None or candidate.row_key != choice.row_key):
        raise NotPossibleError(f"there is no row {choice.row_key}", hint=f"`eventsync rows {row.feed}` shows the keys")
    return candidate if named is None else named


def _other(connection: Connection, row: Record, giver: Record | None) -> Other | None:
    if giver is None:
        return None
    is_near = giver.scope_id == row.scope_id
    place = ("", "") if is_near else (giver.feed, giver.destination)
    return Other(record_of(connection, giver), giver.scope_id, FeedName(place[0]), place[1])


def _has_warnings(connection: Connection, row: Record) -> bool:
    listed = (PROBLEM.c.scope_id == row.scope_id, PROBLEM.c.kind == ProblemKind.WARNING.value, PROBLEM.c.listed_run != "")
    return bool(connection.execute(select(exists().where(*listed, PROBLEM.c.row_key == storable(row.row_key)))).scalar())


def find_entry(connection: Connection, *which: Any) -> Record:
    """Read the one entry that meets these conditions, with its scope."""
    return connection.execute(_WITH_SCOPE.where(*which)).one()


def find_entry_or_none(connection: Connection, *which: Any) -> Record | None:
    """Read it, None where there is none."""
    return connection.execute(_WITH_SCOPE.where(*which)).one_or_none()


def record_of(connection: Connection, row: Record) -> RowRecord:
    """Return an entry as people are shown it, with its earlier events."""
    return replace(as_record(row), earlier_event_ids=earlier_events(connection, [row.id]).get(row.id, ()))


def weigh(engine: Engine, book: Book, row_keys: Sequence[RowKey], choice: Choice) -> tuple[Weighed, ...]:
    """Return what a choice would do to these rows; nothing is written."""
    with reading(engine) as connection:
        scopes = select(SCOPE.c.id).where(SCOPE.c.destination == book.destination, SCOPE.c.feed == book.feed)
        scope_id = connection.execute(scopes).scalar_one()
        outcomes = [outcome_of(situation_of(connection, scope_id, row_key, choice), choice) for row_key in row_keys]
    return tuple(Weighed(*pair) for pair in zip(row_keys, without_rivals(row_keys, outcomes), strict=True))


_PAGE = 500


@dataclass(frozen=True, slots=True)
class ReconcileCandidate:
    """One entry without an event id. A rival is not looked for, but may be the one whom an event belongs to: a row of
    another feed, one that was set aside, or one that the next run asks about by itself.

    `baseline`: what a person says the service shows, `asked`: what the source asks for now; None where it is `body`.
    """

    entry_id: int
    feed: FeedName
    row_key: RowKey
    state: EntryState
    key: IdempotencyKey
    revision: int
    body: bytes
    origin: str
    is_rival: bool
    baseline: bytes | None = None
    asked: bytes | None = None


def read_reconcile_candidates(engine: Engine, book: Book, now: datetime, key_memory_s: float) -> Iterator[ReconcileCandidate]:
    """Yield the entries of a destination whose events may be in the service's list, those of the book's feed and rivals.

    `key_memory_s`: an attempt that went unanswered longer ago than this many seconds is looked for; the next run asks
    about a younger one with its key.
    """
    is_stale = and_(ENTRY.c.state == EntryState.PENDING.value, is_forgotten(now, key_memory_s))
    is_sought = and_(SCOPE.c.feed == book.feed, or_(_is_seekable(), is_stale), ~IS_SET_ASIDE)
    is_sent = and_(ENTRY.c.state == EntryState.PENDING.value, ENTRY.c.unanswered_at.is_not(None))
    entries = select(ENTRY, SCOPE.c.feed, is_sought.label("is_sought")).join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
    entries = entries.where(SCOPE.c.destination == book.destination, or_(_is_seekable(), is_sent)).order_by(ENTRY.c.id)
    after = 0
    while page := _page(engine, entries.where(ENTRY.c.id > after).limit(_PAGE)):
        yield from map(_as_sought, page)
        after = page[-1].id


def _page(engine: Engine, entries: Any) -> list[Row[*tuple[Any, ...]]]:
    with reading(engine) as connection:
        return list(connection.execute(entries))


def _is_seekable() -> ColumnElement[bool]:
    return ENTRY.c.state.in_([state.value for state in SEEKABLE])


def _as_sought(row: Row[*tuple[Any, ...]]) -> ReconcileCandidate:
    return ReconcileCandidate(
        entry_id=row.id,
        feed=FeedName(row.feed),
        row_key=RowKey(row.row_key),
        state=EntryState(row.state),
        key=IdempotencyKey(row.idempotency_key),
        revision=row.revision,
        body=row.body,
        origin=row.origin,
        is_rival=not row.is_sought,
        baseline=row.baseline_body,
        asked=row.drift_body,
    )

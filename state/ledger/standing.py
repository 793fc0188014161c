"""What waits for a person: one SQL definition of each kind, and the counts that every run records.

Each predicate excludes ignored entries, events removed by hand, and events that are over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, exists, false, func, or_, select

from mappings.delivery import Answer
from mappings.outcome import shown_place
from mappings.reasons import ReasonCode
from mappings.row_key import FeedName, IdempotencyKey, RowKey
from state.database import reading
from state.enums import Decision, DriftKind, EntryState, ProblemKind, Waiting
from state.ledger.accounts import load_answer, load_read
from state.ledger.entries import (
    IS_IN_SOURCE,
    IS_SET_ASIDE,
    MAY_BE_OUT,
    count_entries,
    count_unmarked,
    is_forgotten,
    is_to_come,
)
from state.tables import ENTRY, PROBLEM, RUN, SCOPE

KEY_MEMORY_S = 86_400.0
_NAMED = 3


@dataclass(frozen=True, slots=True)
class OpenRows:
    """A number of rows, and the keys of the oldest three."""

    count: int = 0
    first: tuple[RowKey, ...] = ()

    def __str__(self) -> str:
        named = ", ".join(self.first)
        return f"{self.count:,} ({named}{', …' if self.count > len(self.first) else ''})" if named else f"{self.count:,}"


_NONE = OpenRows()


@dataclass(frozen=True, slots=True)
class Copies:
    """Rows that may have several events if the service ignores idempotency keys, over all runs.

    `first`: the three with the most, each with that number.
    """

    count: int = 0
    first: tuple[tuple[RowKey, int], ...] = ()

    def __str__(self) -> str:
        named = ", ".join(f"row {row_key} may exist up to {copies:,} times" for row_key, copies in self.first)
        more = self.count - len(self.first)
        return f"{named} and {more:,} more row{'s' * (more > 1)} more than once" if more else named


@dataclass(frozen=True, slots=True)
class Standing:
    """All entries of a feed that wait for a person, read in this run or not.

    `uncertain`: the next run sends them again; `forgotten`: uncertain, and too old for that without a person's decision.
    `faults`: rejected because of a bug in eventsync. `drifts`: the drift by kind. `asked`: how many events the source asks for
    now, 0 if nothing is refused. `copies`: rows that may exist more than once; no row waits for that reason alone.
    """

    conflict: OpenRows = _NONE
    blocked: OpenRows = _NONE
    uncertain: OpenRows = _NONE
    forgotten: OpenRows = _NONE
    refused: OpenRows = _NONE
    held: OpenRows = _NONE
    unconfirmed: OpenRows = _NONE
    drift: OpenRows = _NONE
    vanished: OpenRows = _NONE
    warning: OpenRows = _NONE
    faults: OpenRows = _NONE
    drifts: Mapping[DriftKind, int] = field(default_factory=dict)
    asked: int = 0
    copies: Copies = field(default_factory=Copies)

    @property
    def rows(self) -> dict[Waiting, OpenRows]:
        """The rows by kind, without empty kinds."""
        every: dict[Waiting, OpenRows] = {kind: getattr(self, kind.name.lower()) for kind in Waiting}
        first = (*self.forgotten.first, *self.uncertain.first)[:_NAMED]
        every[Waiting.UNCERTAIN] = OpenRows(self.forgotten.count + self.uncertain.count, first)
        return {kind: rows for kind, rows in every.items() if rows.count}

    @property
    def counts(self) -> dict[str, int]:
        """The number of entries by kind."""
        return {kind.value: rows.count for kind, rows in self.rows.items()}


NOTHING = Standing()
"""The standing of a feed for which nothing waits."""
_KINDS, _STORED = frozenset(Waiting), TypeAdapter(dict[Waiting, OpenRows])


def load_standing(stored: str) -> Mapping[Waiting, OpenRows]:
    """Parse the result of `dump_standing`, without kinds that are no longer known."""
    return _STORED.validate_python({kind: rows for kind, rows in json.loads(stored).items() if kind in _KINDS})


def dump_standing(standing: Standing) -> str:
    """Return the counts and first keys as JSON in ASCII."""
    return json.dumps({kind: asdict(rows) for kind, rows in standing.rows.items()})


def waits(kind: Waiting, scope_id: int, now: datetime | None, *, is_ignored: bool = False) -> ColumnElement[bool]:
    """Return the SQL condition for a feed's entries that wait for this reason, or would if a person had not ignored them.

    `now`: events that are over by then do not wait.
    """
    is_listed = IS_SET_ASIDE if is_ignored else ~IS_SET_ASIDE
    return and_(ENTRY.c.scope_id == scope_id, _is_kind(kind, scope_id, now), is_listed)


def has_warning(scope_id: int, now: datetime | None) -> ColumnElement[bool]:
    """Return the SQL condition for problem rows that are warnings of waiting entries."""
    of_entry = (ENTRY.c.scope_id == scope_id, ENTRY.c.row_key == PROBLEM.c.row_key)
    return and_(_is_listed_warning(scope_id), exists().where(*of_entry, _is_warned(now), ~IS_SET_ASIDE))


def read_standing(connection: Connection, scope_id: int, now: datetime | None, key_memory_s: float | None = None) -> Standing:
    """Return what waits for a person.

    `key_memory_s`: for how many seconds the service remembers the key of an attempt; None: for ever.
    """

    def of(kind: Waiting, *more: ColumnElement[bool]) -> OpenRows:
        which = (waits(kind, scope_id, now), *more)
        count = count_entries(connection, *which)
        first = select(ENTRY.c.row_key).where(*which).order_by(ENTRY.c.id).limit(_NAMED)
        return OpenRows(count, tuple(connection.execute(first).scalars())) if count else _NONE

    is_late = false() if key_memory_s is None or now is None else is_forgotten(now, key_memory_s)
    rows = {kind.name.lower(): of(kind) for kind in Waiting if kind is not Waiting.UNCERTAIN}
    drifted = select(ENTRY.c.drift_kind, func.count()).where(waits(Waiting.DRIFT, scope_id, now)).group_by(ENTRY.c.drift_kind)
    drifts = connection.execute(drifted) if rows["drift"].count else ()
    is_kept = and_(ENTRY.c.removed_at.is_(None), is_to_come(ENTRY.c.ends_at, now), ~IS_SET_ASIDE)
    several = (ENTRY.c.scope_id == scope_id, ENTRY.c.copies > 1, is_kept)
    most = select(ENTRY.c.row_key, ENTRY.c.copies).where(*several).order_by(ENTRY.c.copies.desc(), ENTRY.c.id).limit(_NAMED)
    return Standing(
        **rows,
        uncertain=of(Waiting.UNCERTAIN, ~is_late),
        forgotten=of(Waiting.UNCERTAIN, is_late),
        faults=_faults(connection, scope_id),
        drifts={DriftKind(kind): count for kind, count in drifts},
        asked=_count_wanted(connection, scope_id) if rows["refused"].count else 0,
        copies=Copies(count_entries(connection, *several), tuple(map(tuple, connection.execute(most)))),
    )


def _faults(connection: Connection, scope_id: int) -> OpenRows:
    """Return the rows of the last read that a bug in eventsync rejected."""
    reads = select(RUN.c.id).where(RUN.c.scope_id == scope_id, RUN.c.read_account.is_not(None))
    last = reads.order_by(RUN.c.started_at.desc(), RUN.c.id).limit(1).scalar_subquery()
    is_listed = and_(PROBLEM.c.scope_id == scope_id, PROBLEM.c.listed_run == last, PROBLEM.c.kind == ProblemKind.REJECTED.value)
    is_fault = PROBLEM.c.reasons.contains(json.dumps(ReasonCode.INTERNAL_ERROR))
    rows = connection.execute(select(PROBLEM.c.row_key, PROBLEM.c.origin).where(is_listed, is_fault).order_by(PROBLEM.c.id)).all()
    return OpenRows(len(rows), tuple(RowKey(row.row_key or shown_place(row.origin)) for row in rows[:_NAMED]))


def _is_kind(kind: Waiting, scope_id: int, now: datetime | None) -> ColumnElement[bool]:
    to_come = is_to_come(ENTRY.c.ends_at, now)
    is_kept = and_(ENTRY.c.removed_at.is_(None), to_come)
    match kind:
        case Waiting.REFUSED | Waiting.BLOCKED:  # nothing was created: a row that is gone leaves nothing to do
            return and_(ENTRY.c.state == kind.value, ENTRY.c.fingerprint != "", IS_IN_SOURCE, is_kept)
        case Waiting.HELD:
            return and_(ENTRY.c.state == kind.value, IS_IN_SOURCE, is_kept)
        case Waiting.DRIFT:
            is_returned = and_(ENTRY.c.drift_kind == DriftKind.RETURNED.value, IS_IN_SOURCE)
            return and_(ENTRY.c.drift_kind.is_not(None), or_(ENTRY.c.removed_at.is_(None), is_returned), to_come)
        case Waiting.VANISHED:
            return and_(ENTRY.c.vanished_at.is_not(None), MAY_BE_OUT, is_kept)
        case Waiting.WARNING:
            return and_(ENTRY.c.row_key.in_(select(PROBLEM.c.row_key).where(_is_listed_warning(scope_id))), _is_warned(now))
        case _:  # a state of its own: in conflict, uncertain, unconfirmed
            return and_(ENTRY.c.state == kind.value, is_kept)


def _is_listed_warning(scope_id: int) -> ColumnElement[bool]:
    return and_(PROBLEM.c.scope_id == scope_id, PROBLEM.c.kind == ProblemKind.WARNING.value, PROBLEM.c.listed_run != "")


def _is_warned(now: datetime | None) -> ColumnElement[bool]:
    is_asked_for = and_(ENTRY.c.fingerprint != "", ENTRY.c.state != EntryState.SUPERSEDED.value, IS_IN_SOURCE)
    return and_(is_asked_for, ENTRY.c.removed_at.is_(None), is_to_come(ENTRY.c.ends_at, now))


def _count_wanted(connection: Connection, scope_id: int) -> int:
    """Count the events that the source asks for: those of the last read if it was full, else the known ones."""
    reads = select(RUN.c.is_whole, RUN.c.read_account).where(RUN.c.scope_id == scope_id, RUN.c.read_account.is_not(None))
    last = connection.execute(reads.order_by(RUN.c.started_at.desc(), RUN.c.id).limit(1)).first()
    if last is not None and last.is_whole:
        return load_read(last.read_account).wanted
    return count_unmarked(connection, scope_id, 2**62)


@dataclass(frozen=True, slots=True)
class FeedScope:
    """One feed at one destination."""

    destination: str
    feed: FeedName


@dataclass(frozen=True, slots=True)
class OtherEntry:
    """An entry that another one refers to; `feed` and `namespace` are "" if they are the same."""

    row_key: RowKey
    feed: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        of_feed = f" of {self.feed}" if self.feed else ""
        return f"{self.row_key}{of_feed}" + (f" in namespace {self.namespace}" if self.namespace else "")


@dataclass(frozen=True, slots=True)
class RowRecord:
    """One ledger entry. `drift_body`: what the source asks for now, if that differs from `body`.

    `is_asked_for`: the source has not withdrawn it since it was refused. `copies`: how many events of it may exist if the
    service ignores idempotency keys. `is_denied`: the service has denied access under this key, and may repeat that for ever;
    `is_refused`: it has refused an attempt under this key.
    """

    entry_id: int
    row_key: RowKey
    state: EntryState
    key: IdempotencyKey
    revision: int
    body: bytes
    channel_id: int
    event_id: int | None
    attempts: int
    unanswered_at: datetime | None
    answer: Answer | None
    drift_body: bytes | None
    drift_kind: DriftKind | None
    vanished_at: datetime | None
    origin: str
    staged_run: str
    sent_run: str
    created_at: datetime
    updated_at: datetime
    decision: Decision | None = None
    decided_at: datetime | None = None
    decided_by: str = ""
    is_asked_for: bool = True
    copies: int = 0
    is_denied: bool = False
    is_refused: bool = False
    baseline_body: bytes | None = None
    """What the service shows according to a person, None if that is `body`."""
    ends_at: datetime | None = None
    past_at: datetime | None = None
    removed_at: datetime | None = None
    vanished_by: str = ""
    candidate_id: int | None = None
    candidate: OtherEntry | None = None
    """The entry that a held row resembles, or that has the event of a superseded one."""

    @property
    def is_set_aside(self) -> bool:
        """Whether a person has ignored it, so that it is on no list until its row changes."""
        return self.decision is Decision.IGNORE

    @property
    def shown(self) -> bytes:
        """The baseline: what the service shows as far as we know."""
        return self.body if self.baseline_body is None else self.baseline_body

    @property
    def event(self) -> dict[str, Any]:
        """The baseline as a payload."""
        return dict(json.loads(self.shown))


RECORDS = select(ENTRY)
"""The query for the rows that `as_record` converts."""
_SAME = frozenset(each.name for each in fields(RowRecord)) & frozenset(ENTRY.c.keys())


def as_record(row: Row[*tuple[Any, ...]]) -> RowRecord:
    """Return an entry as a record for people."""
    columns: dict[str, Any] = {name: getattr(row, name) for name in _SAME}
    columns |= {
        "state": EntryState(row.state),
        "answer": row.answer and load_answer(row.answer),
        "drift_kind": row.drift_kind and DriftKind(row.drift_kind),
        "decision": row.decision and Decision(row.decision),
        "decided_by": row.decided_by or "",
    }
    return RowRecord(
        entry_id=row.id,
        key=row.idempotency_key,
        is_asked_for=bool(row.fingerprint),
        is_denied=bool(row.denied_request_id),
        is_refused=bool(row.refused_request_id),
        **columns,
    )


SEEKABLE = (EntryState.DELIVERED_UNCONFIRMED, EntryState.UNCERTAIN, EntryState.CONFLICT)
"""States of entries whose events may be found in the service's list."""


def read_reconcile_candidates(
    engine: Engine, feed: FeedScope, now: datetime, key_memory_s: float
) -> Iterator[tuple[RowRecord, bool]]:
    """Yield the entries of a destination without an event id whose events may be in the service's list, and whether each is a
    rival.

    A rival is not searched for, but may own an event: a row of another feed, an ignored one, or one that the next run asks
    about itself. `key_memory_s`: an attempt unanswered for more seconds is searched for; the next run asks about a younger one
    with its key.
    """
    is_pending, is_seekable = ENTRY.c.state == EntryState.PENDING.value, ENTRY.c.state.in_([state.value for state in SEEKABLE])
    may_be_sought = or_(is_seekable, and_(is_pending, is_forgotten(now, key_memory_s)))
    is_rival = ~and_(SCOPE.c.feed == feed.feed, may_be_sought, ~IS_SET_ASIDE)
    page = RECORDS.add_columns(is_rival.label("is_rival")).join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id).order_by(ENTRY.c.id)
    is_sent = and_(is_pending, ENTRY.c.unanswered_at.is_not(None))
    page = page.where(SCOPE.c.destination == feed.destination, or_(is_seekable, is_sent)).limit(500)
    after = 0
    while True:
        with reading(engine) as connection:
            rows = connection.execute(page.where(ENTRY.c.id > after)).all()
        if not rows:
            return
        yield from ((as_record(row), bool(row.is_rival)) for row in rows)
        after = rows[-1].id

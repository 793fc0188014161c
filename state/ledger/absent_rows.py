"""Rows that are gone from their source: vanished ones, ended ones (partners prune what is over), and those never sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, delete, func, or_, select, update

from state.enums import DriftKind, EntryState
from state.ledger.duplicates import forget_marks
from state.ledger.entries import put_back
from state.ledger.plan import is_of_change
from state.ledger.read_marks import ReadMarks, UnreadEvents
from state.tables import ENTRY, NO_DRIFT

_FEW = 500
_OUT = (
    EntryState.DELIVERED.value,
    EntryState.DELIVERED_UNCONFIRMED.value,
    EntryState.UNCERTAIN.value,
    EntryState.CONFLICT.value,
)
_UNMARKABLE = (EntryState.PENDING.value, EntryState.HELD.value, EntryState.SUPERSEDED.value)
"""Nothing is marked before its last answer; held rows are judged apart, and a superseded one has no event."""

_WITHOUT_ROW = (EntryState.HELD.value, EntryState.SUPERSEDED.value)
_IS_UNMARKED = (ENTRY.c.vanished_at.is_(None), ENTRY.c.past_at.is_(None))
_IS_UNANSWERED = and_(ENTRY.c.state.in_((EntryState.PENDING.value, EntryState.BLOCKED.value)), ENTRY.c.unanswered_at.is_not(None))
MAY_BE_OUT = and_(or_(ENTRY.c.state.in_(_OUT), _IS_UNANSWERED), ENTRY.c.removed_at.is_(None))
"""The service has the event of the entry, or may have it, as SQL."""

_SOME = ENTRY.c.id.in_(bindparam("entries", expanding=True))
_ABSENT = select(ENTRY.c.id, ENTRY.c.row_key, ENTRY.c.ends_at, MAY_BE_OUT.label("may_be_out")).where(
    _SOME, ENTRY.c.state.not_in(_UNMARKABLE), *_IS_UNMARKED
)
_PASS = update(ENTRY).where(_SOME).values(past_at=bindparam("now"))
# A removed event whose row came back, and is gone again, is as it was.
_SETTLE = update(ENTRY).where(_SOME, ENTRY.c.drift_kind == DriftKind.RETURNED.value).values(**NO_DRIFT)


def sort_out(connection: Connection, absent: Iterable[int], marks: ReadMarks, unread: UnreadEvents, now: datetime) -> None:
    """Mark which absent entries have vanished, which are over, and which have no event at the service."""
    for few in in_fews(absent):
        for row in connection.execute(_ABSENT, {"entries": few}):
            if marks.is_present(row.id) or (unread.is_any and unread.covers(row.row_key)):
                continue
            if not row.may_be_out:
                marks.dropped.append(row.id)
            elif row.ends_at is not None and row.ends_at <= now:
                marks.past.append(row.id)
            else:
                marks.mark_vanished(row.id)


def count_unmarked(connection: Connection, scope_id: int, boundary: int) -> int:
    """Count a feed's entries, up to an id, that stand for a row and are not marked as gone.

    By indexes alone: there are many entries, and few marked ones.
    """
    of_feed = (ENTRY.c.scope_id == scope_id, ENTRY.c.id <= boundary)
    is_vanished, is_past = ENTRY.c.vanished_at.is_not(None), ENTRY.c.past_at.is_not(None)
    is_without_row = (ENTRY.c.state.in_(_WITHOUT_ROW), *_IS_UNMARKED)
    every, vanished, past, both, without_row = (
        connection.execute(select(func.count()).where(*of_feed, *which)).scalar_one()
        for which in ((), (is_vanished,), (is_past,), (is_vanished, is_past), is_without_row)
    )
    return every - vanished - past + both - without_row


def count_to_come(connection: Connection, scope_id: int, now: datetime) -> int:
    """Count the entries whose events are, or may be, at the service, and are still to come."""
    is_to_come = or_(ENTRY.c.ends_at.is_(None), ENTRY.c.ends_at > now)
    listed = select(func.count()).where(ENTRY.c.scope_id == scope_id, MAY_BE_OUT, *_IS_UNMARKED, is_to_come)
    return connection.execute(listed).scalar_one()


def mark_past(connection: Connection, past: Iterable[int], now: datetime) -> None:
    """Mark entries as gone, their events being over: no later read counts them again."""
    for few in in_fews(past):
        connection.execute(_PASS, {"entries": few, "now": now})
        connection.execute(_SETTLE, {"entries": few})


def in_fews(ids: Iterable[int]) -> Iterator[list[int]]:
    """Yield the ids by so many as one statement takes."""
    rest = iter(ids)
    while few := list(islice(rest, _FEW)):
        yield few


_DELETE = delete(ENTRY).where(_SOME)
_REFUSE = update(ENTRY).where(_SOME).values(state=EntryState.REFUSED.value, fingerprint="", updated_at=bindparam("now"))


class TakenBack:
    """What one read takes back, in its transaction; `write` at the end writes what is left. `drafts` counts those of changes.

    What was refused before goes back to refused, without a fingerprint: any next payload of the source reopens it. A draft of
    a change makes room for the event that was delivered before it.
    """

    def __init__(self, connection: Connection, now: datetime) -> None:
        self._connection = connection
        self._now = now
        self._deleted: list[int] = []
        self._refused: list[int] = []
        self._drafts: list[int] = []
        self.drafts = 0

    def delete(self, entries: Iterable[int]) -> None:
        """Delete entries of which the service knows nothing."""
        for few in in_fews(entries):
            forget_marks(self._connection, few)
            self._connection.execute(_DELETE, {"entries": few})

    def take(self, row: Row[*tuple[Any, ...]]) -> bool:
        """Take back one entry, of which the id, the revision and the refusal's id are known; return whether it is deleted."""
        place = self._place_of(row)
        place.append(row.id)
        is_out = place is self._deleted
        if len(place) == _FEW:
            self.write()
        return is_out

    def write(self) -> None:
        """Write what was taken back so far."""
        self.delete(self._deleted)
        if self._refused:
            self._connection.execute(_REFUSE, {"entries": self._refused, "now": self._now})
        put_back(self._connection, self._drafts, self._now)
        self.drafts += len(self._drafts)
        self._deleted, self._refused, self._drafts = [], [], []

    def _place_of(self, row: Row[*tuple[Any, ...]]) -> list[int]:
        if is_of_change(row.revision):
            return self._drafts
        return self._refused if row.revision or row.refused_request_id else self._deleted

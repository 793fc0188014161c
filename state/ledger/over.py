"""Rows that are gone from their source: which of them have vanished, and which only ended, as partners prune what is over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice

from sqlalchemy import Connection, and_, bindparam, func, or_, select, update

from state.enums import DriftKind, EntryState
from state.ledger.seen import ReadMarks
from state.ledger.unspoken import Unspoken
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


def sort_out(connection: Connection, absent: Iterable[int], marks: ReadMarks, unspoken: Unspoken, now: datetime) -> None:
    """Note which absent entries have vanished, which are over, and which are of no event that anybody could miss."""
    for few in in_fews(absent):
        for row in connection.execute(_ABSENT, {"entries": few}):
            if marks.is_present(row.id) or (unspoken.is_any and unspoken.covers(row.row_key)):
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

"""The entries whose event may be at the service under an id that is not known, for whoever reads the service's list.

What is found there is written by `decisions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Engine, Row, and_, or_, select

from mappings.row_key import FeedName, IdempotencyKey, RowKey
from state.database import reading
from state.enums import EntryState
from state.ledger.claims import IS_SET_ASIDE, is_forgotten
from state.ledger.decisions import SEEKABLE
from state.ledger.row_record import Book
from state.tables import ENTRY, SCOPE

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Sought:
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


def read_sought(engine: Engine, book: Book, now: datetime, key_memory_s: float) -> Iterator[Sought]:
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


def _as_sought(row: Row[*tuple[Any, ...]]) -> Sought:
    return Sought(
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

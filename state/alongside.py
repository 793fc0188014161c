"""Whether another scope of the service delivers a feed's rows already: a feed that was renamed, or a namespace that was lost."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, func, select

from state.accounts import Alongside
from state.conflicts import insert_if_new
from state.duplicates import WITHOUT_EVENT, read_neighbours
from state.tables import ENTRY, SCOPE, SIDE_BY_SIDE
from state.words import EntryState

_AT_LEAST = 3
_OTHER = ENTRY.alias()
_COUNT = select(func.count()).where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.state != EntryState.SUPERSEDED.value)
_BY_KEY = (
    select(func.count())
    .select_from(ENTRY)
    .join(_OTHER, _OTHER.c.row_key == ENTRY.c.row_key)
    .where(
        ENTRY.c.scope_id == bindparam("scope"),
        _OTHER.c.scope_id == bindparam("other"),
        _OTHER.c.state.not_in(WITHOUT_EVENT),
        _OTHER.c.removed_at.is_(None),
    )
)
_HELD = (
    select(_OTHER.c.scope_id, func.count().label("held"))
    .select_from(ENTRY)
    .join(_OTHER, _OTHER.c.id == ENTRY.c.candidate_id)
    .where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.state == EntryState.HELD.value)
    .group_by(_OTHER.c.scope_id)
)


def find_alongside(connection: Connection, scope_id: int) -> Alongside | None:
    """Return the scope that knows at least 3, and more than half, of a feed's rows: the one that knows most of them.

    A feed of the same name knows a row by its key; any feed knows one that is held as a duplicate of its own.
    """
    feed = connection.execute(select(SCOPE.c.feed).where(SCOPE.c.id == scope_id)).scalar_one()
    others = read_neighbours(connection, scope_id)
    others = {other_id: other for other_id, other in others.items() if other_id != scope_id and other.marked_id}
    rows = connection.execute(_COUNT, {"scope": scope_id}).scalar_one() if others else 0
    if rows < _AT_LEAST:
        return None
    held = {row.scope_id: row.held for row in connection.execute(_HELD, {"scope": scope_id})}
    found = []
    for other_id, other in others.items():
        by_key = 0
        if other.feed == feed:
            by_key = connection.execute(_BY_KEY, {"scope": scope_id, "other": other_id}).scalar_one()
        known = max(by_key, held.get(other_id, 0))
        if known >= _AT_LEAST and known * 2 > rows:
            renamed_from = "" if other.feed == feed else other.feed
            found.append(Alongside(other_id, renamed_from, other.namespace, known, rows, held.get(other_id, 0)))
    return max(found, key=lambda each: each.known, default=None)


def put_side_by_side(connection: Connection, scope_id: int, other_id: int) -> None:
    """Record that two feeds deliver side by side on purpose: neither holds the other's rows from now on."""
    pairs = [{"scope_id": scope_id, "other_id": other_id}, {"scope_id": other_id, "other_id": scope_id}]
    connection.execute(insert_if_new(connection, SIDE_BY_SIDE), pairs)

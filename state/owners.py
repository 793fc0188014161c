"""Which events of the service are rows already, at one destination: an event belongs to one row, whatever the feed.

Who asks, and what follows, is the caller's.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, select

from state.tables import ENTRY, SCOPE

_FEW = 500


def find_owners(connection: Connection, destination: str | ColumnElement[str], event_ids: Collection[int]) -> dict[int, str]:
    """Return which of these events of a destination are rows already, by id, each with its row and feed for people."""
    found: dict[int, str] = {}
    ids = sorted(set(event_ids))
    rows = select(ENTRY.c.event_id, SCOPE.c.feed, ENTRY.c.row_key).join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
    rows = rows.where(SCOPE.c.destination == destination)
    for start in range(0, len(ids), _FEW):
        some = rows.where(ENTRY.c.event_id.in_(ids[start : start + _FEW]))
        found |= {row.event_id: f"row {row.row_key} of {row.feed}" for row in connection.execute(some)}
    return found


def destination_of(scope_id: int) -> ColumnElement[str]:
    """Return the destination of a scope, for a statement."""
    return select(SCOPE.c.destination).where(SCOPE.c.id == scope_id).scalar_subquery()

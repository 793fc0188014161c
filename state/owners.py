"""The rows that the events of a destination belong to: an event belongs to one row, whatever the feed.

A superseded row has given its event to another one.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, select

from state.tables import EARLIER, ENTRY, SCOPE

_FEW = 500


def find_owners(connection: Connection, destination: str | ColumnElement[str], event_ids: Collection[int]) -> dict[int, str]:
    """Return which of these events of a destination are rows already, by id, each with its row and feed for people.

    An earlier event of a row, in whose place a later draft of it stands, is that row's too.
    """
    found: dict[int, str] = {}
    ids = sorted(set(event_ids))
    names = (SCOPE.c.feed, ENTRY.c.row_key)
    of_entries = select(ENTRY.c.event_id, *names).join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
    before = select(EARLIER.c.event_id, *names).join(ENTRY, ENTRY.c.id == EARLIER.c.entry_id)
    before = before.join(SCOPE, SCOPE.c.id == ENTRY.c.scope_id)
    for start in range(0, len(ids), _FEW):
        some = ids[start : start + _FEW]
        for rows, event_id in ((before, EARLIER.c.event_id), (of_entries, ENTRY.c.event_id)):
            owned = rows.where(SCOPE.c.destination == destination, event_id.in_(some))
            found |= {row.event_id: f"row {row.row_key} of {row.feed}" for row in connection.execute(owned)}
    return found


def destination_of(scope_id: int) -> ColumnElement[str]:
    """Return the destination of a scope, for a statement."""
    return select(SCOPE.c.destination).where(SCOPE.c.id == scope_id).scalar_subquery()

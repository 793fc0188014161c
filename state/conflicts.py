"""Writing a row that another process may write in the same moment. What the rows mean is told where they are made."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, Insert, Table, and_, update
from sqlalchemy.dialects import postgresql, sqlite


def insert_if_new(connection: Connection, table: Table) -> Insert:
    """Return an insert that leaves a row with the same key as it is; on PostgreSQL it waits for whoever is making one."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def put(connection: Connection, table: Table, key: Mapping[str, object], rest: Mapping[str, object]) -> None:
    """Write a row in place of the one with the same key; of several who do so at once, the last one stands."""
    connection.execute(insert_if_new(connection, table), {**key, **rest})
    ours = and_(*(table.c[name] == value for name, value in key.items()))
    connection.execute(update(table).where(ours).values(**rest))

"""Inserting a row that another process may insert in the same moment. What the rows mean is told where they are made."""

from __future__ import annotations

from sqlalchemy import Connection, Insert, Table
from sqlalchemy.dialects import postgresql, sqlite


def insert_if_new(connection: Connection, table: Table) -> Insert:
    """Return an insert that leaves a row with the same key as it is; on PostgreSQL it waits for whoever is making one."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()

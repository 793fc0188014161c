"""What PostgreSQL knows about the size of the ledger, brought up to date during a large read; SQLite needs none of it.

PostgreSQL plans by statistics that it gathers about a minute late. Until then each chunk of a feed's first read would be
compared by looking through all rows that the chunks before it wrote.
"""

from __future__ import annotations

from sqlalchemy import Engine, text

from state.database import writing

_FIRST = 1_000
_GATHER = text("ANALYZE ledger_entry, duplicate_mark")  # a role that does not own the table gets a warning, and no harm is done


class Statistics:
    """Gathers them anew each time that the rows which one read has added have grown fourfold."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._due_at = _FIRST

    def keep_up(self, added: int) -> None:
        """Take notice that a read has added so many rows by now; outside of any transaction."""
        if added < self._due_at or self._engine.dialect.name != "postgresql":
            return
        self._due_at = added * 4
        with writing(self._engine) as connection:
            connection.execute(_GATHER)

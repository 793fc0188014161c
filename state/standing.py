"""What of a feed waits for a person from run to run, until somebody decides: told by every run, so that it is not forgotten.

Deciding is `decisions`'; how it is told to people is the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, func, select

from mappings.vocabulary import RowKey
from state.claims import IS_SET_ASIDE, is_forgotten
from state.tables import ENTRY
from state.words import EntryState

_NAMED = 3


@dataclass(frozen=True, slots=True)
class OpenRows:
    """So many rows, and the oldest few of them by name."""

    count: int = 0
    first: tuple[RowKey, ...] = ()

    def __str__(self) -> str:
        named = ", ".join(self.first)
        return f"{self.count} ({named}{', …' if self.count > len(self.first) else ''})" if named else str(self.count)


@dataclass(frozen=True, slots=True)
class Standing:
    """The rows that nobody has decided on. `uncertain`: the next run sends them again; `forgotten`: uncertain, and too old
    for that without a person's word; `unconfirmed`: delivered, as far as we can tell, under an id that is not known.
    """

    conflict: OpenRows = OpenRows()
    uncertain: OpenRows = OpenRows()
    forgotten: OpenRows = OpenRows()
    unconfirmed: OpenRows = OpenRows()


NOTHING = Standing()
"""Nobody has to decide on anything."""


def read_standing(connection: Connection, scope_id: int, now: datetime, key_memory_s: float) -> Standing:
    """Return what waits. `key_memory_s`: how long in seconds the service is trusted to remember the key of an attempt."""
    is_uncertain, is_late = ENTRY.c.state == EntryState.UNCERTAIN.value, is_forgotten(now, key_memory_s)
    return Standing(
        conflict=_open_rows(connection, scope_id, ENTRY.c.state == EntryState.CONFLICT.value),
        uncertain=_open_rows(connection, scope_id, is_uncertain, ~is_late),
        forgotten=_open_rows(connection, scope_id, is_uncertain, is_late),
        unconfirmed=_open_rows(connection, scope_id, ENTRY.c.state == EntryState.DELIVERED_UNCONFIRMED.value),
    )


def _open_rows(connection: Connection, scope_id: int, *which: ColumnElement[bool]) -> OpenRows:
    is_open = (ENTRY.c.scope_id == scope_id, *which, ~IS_SET_ASIDE)
    count = connection.execute(select(func.count()).select_from(ENTRY).where(*is_open)).scalar_one()
    if not count:
        return OpenRows()
    first = select(ENTRY.c.row_key).where(*is_open).order_by(ENTRY.c.id).limit(_NAMED)
    return OpenRows(count, tuple(RowKey(key) for key in connection.execute(first).scalars()))

"""Pending entries of which nothing was ever sent, taken back by a few at a time, however many there are.

Which ones are taken back is `closing`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, update

from state.enums import EntryState
from state.ledger.duplicates import forget_marks
from state.ledger.entries import put_back
from state.ledger.over import in_fews
from state.ledger.plan import is_of_change
from state.tables import ENTRY

_FEW = 500
_SOME = ENTRY.c.id.in_(bindparam("entries", expanding=True))
_DELETE = delete(ENTRY).where(_SOME)
_REFUSE = update(ENTRY).where(_SOME).values(state=EntryState.REFUSED.value, fingerprint="", updated_at=bindparam("now"))


class TakenBack:
    """What one read takes back, in its transaction; `write` at the end writes what is left. `drafts` counts those of changes.

    What was refused before goes back to refused, without a fingerprint: whatever the source says next reopens it. A draft of
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
        """Take entries out of the ledger, of which nobody but us knows."""
        for few in in_fews(entries):
            forget_marks(self._connection, few)
            self._connection.execute(_DELETE, {"entries": few})

    def take(self, row: Row[*tuple[Any, ...]]) -> bool:
        """Take back one entry, of which the id, the revision and the refusal's id are known; tell whether it is taken out."""
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

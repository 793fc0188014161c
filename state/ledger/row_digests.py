"""Row digests: how the next read knows rows that are as they were, before it maps them (budget 2).

They are kept as sorted arrays, cut by their first byte, and found by bisection: 16 bytes a row. A database index of them would
have to be fetched row by row (1 us each), and a Python set of a million would take half of the memory of budget 8.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable

from sqlalchemy import Connection, bindparam, delete, insert, select

from state.enums import EntryState
from state.ledger.read_marks import ReadMarks
from state.tables import ENTRY, ROW_DIGESTS

_PARTS = range(256)
_USED_BYTES = 8
_CREATED = (
    select(ENTRY.c.id)
    .where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.state == EntryState.PENDING.value, ENTRY.c.id > bindparam("after"))
    .order_by(ENTRY.c.id)
)
_UNSETTLED = tuple(state.value for state in EntryState if state is not EntryState.DELIVERED)


def _numbers(stored: bytes = b"") -> array[int]:
    numbers = array("Q")
    numbers.frombytes(stored)
    return numbers


class RowDigests:
    """The digests of rows which each say what an entry says, with the ids of the entries.

    `boundary` is the highest entry id before the read; `is_kept`: this read leaves its digests to the next one.
    """

    def __init__(self, boundary: int = 0, *, is_kept: bool = False) -> None:
        self._is_kept = is_kept
        self._known = [(_numbers(), _numbers()) for _ in _PARTS]
        self._added = [_numbers() for _ in _PARTS]  # digest, entry, digest, entry, ...
        self._created: list[bytes] = []
        self._newest = boundary

    def load(self, connection: Connection, scope_id: int, marks: ReadMarks) -> None:
        """Load what the last read has left, and mark the entries of which a row has to be mapped even if it is as it was.

        Vanished entries are none of them: the last read did not have their rows.
        """
        for row in connection.execute(select(ROW_DIGESTS).where(ROW_DIGESTS.c.scope_id == scope_id)):
            self._known[row.part] = _numbers(row.digests), _numbers(row.entries)
        for is_doubtful in (ENTRY.c.state.in_(_UNSETTLED), ENTRY.c.drift_kind.is_not(None)):  # by an index each
            for entry_id in connection.execute(select(ENTRY.c.id).where(ENTRY.c.scope_id == scope_id, is_doubtful)).scalars():
                marks.mark_doubtful(entry_id)

    def unchanged(self, digests: Iterable[bytes], marks: ReadMarks) -> list[int]:
        """Return, for each row of a chunk, the entry that it leaves as it is, 0 where the row has to be mapped.

        Of several rows of an entry only the first one need not be.
        """
        known, entries, chosen = self._known, list[int](), set[int]()
        for digest in digests:
            entry_id = 0
            if digest:
                numbers, of_numbers = known[digest[0]]
                number = int.from_bytes(digest[:_USED_BYTES])
                place = bisect_left(numbers, number)
                if place < len(numbers) and numbers[place] == number and marks.is_unmarked(of_numbers[place]):
                    entry_id = of_numbers[place] if of_numbers[place] not in chosen else 0
                    chosen.add(entry_id)
            entries.append(entry_id)
        return entries

    def add(self, digest: bytes, entry_id: int) -> None:
        """Remember a row that says what an entry says; b"": one that has to be mapped in every read."""
        if digest and self._is_kept:
            self._added[digest[0]].extend((int.from_bytes(digest[:_USED_BYTES]), entry_id))

    def add_created(self, digest: bytes) -> None:
        """Remember a row that is to get a new entry; call it for all such rows, in the order in which they are written."""
        if self._is_kept:
            self._created.append(digest)

    def settle(self, connection: Connection, scope_id: int) -> None:
        """Assign the new entries of a batch that has been written: their ids follow the order of its rows."""
        if self._created:
            ids = connection.execute(_CREATED, {"scope": scope_id, "after": self._newest}).scalars().all()
            for digest, entry_id in zip(self._created, ids, strict=True):
                self.add(digest, entry_id)
            self._newest = ids[-1]
            self._created.clear()

    def keep(self, connection: Connection, scope_id: int, marks: ReadMarks) -> None:
        """Write the digests of this read in place of those of the last, in the transaction that opens the gate."""
        if not self._is_kept:
            return
        connection.execute(delete(ROW_DIGESTS).where(ROW_DIGESTS.c.scope_id == scope_id))
        rows = [row for part in _PARTS if (row := self._row(part, marks))["digests"]]
        if rows:
            connection.execute(insert(ROW_DIGESTS).values(scope_id=scope_id), rows)

    def _row(self, part: int, marks: ReadMarks) -> dict[str, object]:
        added = self._added[part]
        pairs = [pair for pair in zip(*self._known[part], strict=True) if marks.is_unchanged(pair[1])]
        pairs += zip(added[::2], added[1::2], strict=True)
        kept = sorted(pair for pair in pairs if not marks.is_conflicting(pair[1]))
        digests, entries = array("Q", (pair[0] for pair in kept)), array("Q", (pair[1] for pair in kept))
        return {"part": part, "digests": digests.tobytes(), "entries": entries.tobytes()}

"""The entries of a feed that look like an event: found by marks that are written many at a time, in the order of the marks.

An index of digests is written to all over: entry by entry, that costs more than the entries themselves. What is done about a
row that looks like another is `plan`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import Connection, bindparam, delete, func, select, tuple_, update

from mappings.vocabulary import RowKey
from state.asking import rounded
from state.conflicts import insert_if_new
from state.tables import ENTRY, SCOPE, TWIN_MARK
from state.words import EntryState

_MARK_BYTES = 8
"""Of a digest's sixteen: a mark only leads to the entries, which say the whole digest."""
_AT_A_TIME = 16_384

MARK = func.substr(ENTRY.c.twin_digest, 1, _MARK_BYTES)
"""What an entry is marked by, as SQL."""
_SOME = ENTRY.c.id.in_(bindparam("entries", expanding=True))
_FIND = (
    select(ENTRY.c.twin_digest, ENTRY.c.row_key)
    .join(TWIN_MARK, TWIN_MARK.c.entry_id == ENTRY.c.id)
    .where(
        TWIN_MARK.c.scope_id == bindparam("scope"),
        TWIN_MARK.c.mark.in_(bindparam("marks", expanding=True)),
        ENTRY.c.state != EntryState.REFUSED.value,
    )
)
# All states there are: by the index of states, that leads to the youngest entries of a feed and to no other ones.
_UNMARKED = (
    ENTRY.c.scope_id == bindparam("scope"),
    ENTRY.c.state.in_([state.value for state in EntryState]),
    ENTRY.c.id > bindparam("after"),
)
_NEWEST = select(func.max(ENTRY.c.id)).where(*_UNMARKED)
_MISSING = select(ENTRY.c.scope_id, MARK, ENTRY.c.id).where(*_UNMARKED).order_by(MARK)
_FORGET = delete(TWIN_MARK).where(
    tuple_(TWIN_MARK.c.scope_id, TWIN_MARK.c.mark, TWIN_MARK.c.entry_id).in_(
        select(ENTRY.c.scope_id, MARK, ENTRY.c.id).where(_SOME)
    )
)


class Twins:
    """What the entries of a feed look like, while a read of it is under way: by their marks, its own youngest in memory.

    `at_a_time`: how many of these there are at most between two chunks. Each time, nearly every page of the marks is written.
    """

    def __init__(self, scope_id: int, at_a_time: int = _AT_A_TIME) -> None:
        self._scope_id = scope_id
        self._at_a_time = at_a_time
        self._recent: dict[bytes, RowKey] = {}

    def find(self, connection: Connection, digests: Collection[bytes]) -> dict[bytes, RowKey]:
        """Return, by twin digest, the key of an entry that is or may still be created and looks the same."""
        if not digests:
            return {}
        wanted = frozenset(digests)
        marks = rounded([digest[:_MARK_BYTES] for digest in digests])
        found = connection.execute(_FIND, {"scope": self._scope_id, "marks": marks})
        twins = {digest: RowKey(row_key) for digest, row_key in found if digest in wanted}
        recent = self._recent
        twins.update((digest, recent[digest]) for digest in wanted if digest in recent)
        return twins

    def create(self, digest: bytes, row_key: RowKey) -> None:
        """A new row is written, with a mark that is to follow."""
        self._recent[digest] = row_key

    def keep_up(self, connection: Connection) -> None:
        """Write the marks of new rows if there are many by now, in the transaction that writes the last of the rows."""
        if len(self._recent) >= self._at_a_time:
            self.write(connection)

    def write(self, connection: Connection) -> None:
        """Write all marks that are missing, those of a read that was cut short among them."""
        after = connection.execute(select(SCOPE.c.marked_id).where(SCOPE.c.id == self._scope_id)).scalar_one()
        unmarked = {"scope": self._scope_id, "after": after}
        newest = connection.execute(_NEWEST, unmarked).scalar()
        if newest is not None:
            fill = insert_if_new(connection, TWIN_MARK).from_select(("scope_id", "mark", "entry_id"), _MISSING)
            connection.execute(fill, unmarked)
            connection.execute(update(SCOPE).where(SCOPE.c.id == self._scope_id).values(marked_id=newest))
        self._recent.clear()


def mark_anew(connection: Connection, scope_id: int, entries: Iterable[tuple[int, bytes]]) -> None:
    """These entries, which have marks, look otherwise from now on. Their old marks stay: who comes back finds his."""
    marks = [{"scope_id": scope_id, "mark": digest[:_MARK_BYTES], "entry_id": entry_id} for entry_id, digest in entries]
    if marks:
        connection.execute(insert_if_new(connection, TWIN_MARK), marks)


def forget_marks(connection: Connection, entries: Collection[int]) -> None:
    """These entries are about to be taken out."""
    connection.execute(_FORGET, {"entries": entries})

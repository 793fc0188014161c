"""The memory of a read: which entry each record of its source came to, so that the next read knows the record by its bytes.

What a record is, and which of them the next source has, is for whoever reads to say; what a row comes to is `comparing`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from struct import Struct
from typing import Protocol

from sqlalchemy import Connection, bindparam, delete, insert, select

from mappings.row_key import RowKey
from state.enums import EntryState
from state.tables import ENTRY, RECORD_MEMORY, storable

PAIR = Struct("<16sq")
"""A record's digest, and the id of the entry that it came to: how memories are kept, one pair behind the other."""
ENTRY_OF_PAIR = Struct("<16xq")

_FEW = 500
_UNSETTLED = tuple(state.value for state in EntryState if state is not EntryState.DELIVERED)
_PART = (RECORD_MEMORY.c.scope_id == bindparam("scope"), RECORD_MEMORY.c.part == bindparam("of_part"))
_READ = select(RECORD_MEMORY.c.pairs).where(*_PART)
_READ_SOME = select(RECORD_MEMORY.c.part, RECORD_MEMORY.c.pairs).where(
    RECORD_MEMORY.c.scope_id == bindparam("scope"), RECORD_MEMORY.c.part.between(bindparam("first"), bindparam("last"))
)
_DROP = delete(RECORD_MEMORY).where(*_PART)
_OF_KEYS = select(ENTRY.c.id).where(
    ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.row_key.in_(bindparam("row_keys", expanding=True))
)
_CREATED = (
    select(ENTRY.c.id)
    .where(ENTRY.c.scope_id == bindparam("scope"), ENTRY.c.state == EntryState.PENDING.value, ENTRY.c.id > bindparam("after"))
    .order_by(ENTRY.c.id)
)


class Remembering(Protocol):
    """What a read is to leave behind, gathered in parts by whoever reads. Each pair is in one part, which its record tells."""

    @property
    def is_anew(self) -> bool:
        """Whether nothing of what was kept before stays."""
        ...

    @property
    def forgotten(self) -> Collection[int]:
        """The entries of which nothing that was kept before stays."""
        ...

    def put(self, items: Collection[bytes]) -> None:
        """Records came to events: a pair of each with its entry."""
        ...

    def changed(self) -> Iterable[int]:
        """Yield the parts to which something was added, or of which something is forgotten."""
        ...

    def added(self, part: int) -> bytes:
        """Return the pairs that were added to a part."""
        ...


class Recorder:
    """Tells a memory which entry each record of a read came to: only where all that the next read could do is to count the row.

    `boundary` is the feed's highest entry id before the read.
    """

    def __init__(self, memory: Remembering | None, boundary: int) -> None:
        self._memory = memory
        self._newest = boundary
        self._created: list[bytes] = []
        self._found: list[bytes] = []

    def find(self, record: bytes, entry_id: int) -> None:
        """A row says what an entry says; `record` is b"" where it is not to be remembered."""
        if record and self._memory is not None:
            self._found.append(PAIR.pack(record, entry_id))

    def create(self, record: bytes) -> None:
        """A row is to get an entry of its own; told of all such rows, in the order in which they are written."""
        if self._memory is not None:
            self._created.append(record)

    def settle(self, connection: Connection, scope_id: int) -> None:
        """Tell of a batch once it is written, whose new rows have entries by now: ids follow their order."""
        if self._created:
            ids = connection.execute(_CREATED, {"scope": scope_id, "after": self._newest}).scalars().all()
            self._found.extend(PAIR.pack(record, entry) for record, entry in zip(self._created, ids, strict=True) if record)
            self._newest = ids[-1]
            self._created.clear()
        if self._found and self._memory is not None:
            self._memory.put(self._found)
            self._found.clear()

    def keep(self, connection: Connection, scope_id: int, disputed: Collection[int]) -> None:
        """Write the memory down, in the very transaction that lets the read out. `disputed`: entries that two rows claim."""
        memory = self._memory
        if memory is None:
            return
        if memory.is_anew:
            connection.execute(delete(RECORD_MEMORY).where(RECORD_MEMORY.c.scope_id == scope_id))
        for part in memory.changed():
            ours = {"scope": scope_id, "of_part": part}
            kept = b"" if memory.is_anew else _without(connection.execute(_READ, ours).scalar() or b"", memory.forgotten)
            pairs = _without(kept + memory.added(part), disputed)
            connection.execute(_DROP, ours)
            if pairs:
                connection.execute(insert(RECORD_MEMORY), {"scope_id": scope_id, "part": part, "pairs": pairs})


def read_parts(connection: Connection, scope_id: int, parts: range) -> dict[int, bytes]:
    """Return the pairs of neighbouring parts; those that hold none are absent."""
    bounds = {"scope": scope_id, "first": parts[0], "last": parts[-1]}
    return dict(connection.execute(_READ_SOME, bounds).all())


def doubtful(connection: Connection, scope_id: int, most: int) -> frozenset[int] | None:
    """Return the entries of which a row that says the same may ask for more than to be counted; None for more than `most`.

    Those of rows that a read has just met have not vanished. A drift of no kind was met again by another row of its read.
    """
    ids = set[int]()
    for is_doubtful in (ENTRY.c.state.in_(_UNSETTLED), ENTRY.c.drift_kind.is_not(None)):  # by an index each
        found = select(ENTRY.c.id).where(ENTRY.c.scope_id == scope_id, is_doubtful).limit(most + 1)
        ids.update(connection.execute(found).scalars())
    return frozenset(ids) if len(ids) <= most else None


def entries_of(connection: Connection, scope_id: int, row_keys: Sequence[RowKey]) -> Iterator[int]:
    """Yield the entries of rows with these keys."""
    for start in range(0, len(row_keys), _FEW):
        few = [storable(key) for key in row_keys[start : start + _FEW]]
        yield from connection.execute(_OF_KEYS, {"scope": scope_id, "row_keys": few}).scalars()


def _without(pairs: bytes, entries: Collection[int]) -> bytes:
    """Return the pairs but for those of these entries."""
    places = [place for place, (_, entry_id) in enumerate(PAIR.iter_unpack(pairs)) if entry_id in entries] if entries else []
    begins = [0, *((place + 1) * PAIR.size for place in places)]
    ends = [*(place * PAIR.size for place in places), len(pairs)]
    return b"".join(pairs[begin:end] for begin, end in zip(begins, ends, strict=True))

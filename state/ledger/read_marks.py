"""Read marks: what one read of a source has met so far, one byte of flags for each ledger entry."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator

from mappings.outcome import RowOutcome
from state.tables import storable

_PRESENT, _MAPPED, _UNCHANGED, _STAGED, _CONFLICTING, _DELETED, _VANISHED, _DOUBTFUL = (1 << bit for bit in range(8))


class ReadMarks:
    """Flags of entries, by id. `boundary` is the highest id before this read: whatever is above is new in it.

    `conflicting`: entries that two rows of this read claim; `deleted`: those whose rows the source says are gone; `past`: those
    whose rows are gone after their event; `dropped`: gone ones of which no event can be out.
    """

    def __init__(self, boundary: int) -> None:
        self.boundary = boundary
        self.conflicting = array("q")
        self.deleted = array("q")
        self.past = array("q")
        self.dropped = array("q")
        self._flags = bytearray(boundary + 1)

    def mark_present(self, entry_id: int) -> None:
        """The source has the row, though perhaps not in a shape that can be used."""
        if entry_id <= self.boundary:
            self._flags[entry_id] |= _PRESENT

    def mark_mapped(self, entry_id: int) -> None:
        """The source has the row and it maps to an event."""
        if entry_id <= self.boundary:
            self._flags[entry_id] |= _PRESENT | _MAPPED

    def mark_unchanged(self, entries: Iterable[int]) -> None:
        """The source has these rows as they were, known by their digests."""
        flags = self._flags
        for entry_id in entries:
            flags[entry_id] |= _PRESENT | _MAPPED | _UNCHANGED

    def mark_staged(self, entry_id: int) -> None:
        """This read has staged a known entry anew."""
        self.mark_mapped(entry_id)
        self._put(entry_id, _STAGED)

    def mark_conflicting(self, entry_id: int) -> None:
        """Two rows of this read claim the entry, and nothing of it was ever sent."""
        self._put(entry_id, _CONFLICTING)
        self.conflicting.append(entry_id)

    def mark_deleted(self, entry_id: int) -> None:
        """The source says that the row is gone; should the row come in this read all the same, that counts."""
        if not self._has(entry_id, _DELETED):
            self._put(entry_id, _DELETED)
            self.deleted.append(entry_id)

    def mark_vanished(self, entry_id: int) -> None:
        """The row is newly gone from its source, and its event is to come."""
        self._put(entry_id, _VANISHED)

    def mark_doubtful(self, entry_id: int) -> None:
        """A row of this entry has to be mapped, even if it is as it was."""
        self._put(entry_id, _DOUBTFUL)

    def is_unmarked(self, entry_id: int) -> bool:
        """Whether the entry is one of before this read, and the read has met nothing of it."""
        return entry_id <= self.boundary and not self._flags[entry_id]

    def is_present(self, entry_id: int) -> bool:
        """Whether the source has the row."""
        return entry_id > self.boundary or self._has(entry_id, _PRESENT)

    def is_mapped(self, entry_id: int) -> bool:
        """Whether a row of this read has already mapped to the entry's event."""
        return entry_id > self.boundary or self._has(entry_id, _MAPPED)

    def is_unchanged(self, entry_id: int) -> bool:
        """Whether the row was known by its digest."""
        return self._has(entry_id, _UNCHANGED)

    def is_staged(self, entry_id: int) -> bool:
        """Whether this read has staged the entry."""
        return entry_id > self.boundary or self._has(entry_id, _STAGED)

    def is_conflicting(self, entry_id: int) -> bool:
        """Whether two rows of this read claim the entry."""
        return self._has(entry_id, _CONFLICTING)

    def is_deleted(self, entry_id: int) -> bool:
        """Whether the source has said that the row is gone, and nothing else of it."""
        return self._has(entry_id, _DELETED) and not self.is_present(entry_id)

    def is_vanished(self, entry_id: int) -> bool:
        """Whether the row is newly gone from its source, its event being to come."""
        return self._has(entry_id, _VANISHED)

    def vanished(self) -> Iterator[int]:
        """Yield the entries newly gone from their source whose events are to come, oldest first."""
        return (entry_id for entry_id, flags in enumerate(self._flags) if flags & _VANISHED)

    def count_vanished(self) -> int:
        """Count what `vanished` yields."""
        return self._count(_VANISHED)

    def count_present(self) -> int:
        """Count the entries of before this read that the source has."""
        return self._count(_PRESENT)

    def _put(self, entry_id: int, flags: int) -> None:
        if entry_id >= len(self._flags):
            self._flags.extend(bytes(entry_id + 1 - len(self._flags)))
        self._flags[entry_id] |= flags

    def _has(self, entry_id: int, flag: int) -> bool:
        return entry_id < len(self._flags) and bool(self._flags[entry_id] & flag)

    def _count(self, flag: int) -> int:
        return self._flags.translate(bytes(bool(flags & flag) for flags in range(256))).count(1)


_SEPARATOR = re.compile(r"(?:[^\\|]|\\.)*+\|", re.DOTALL)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class UnreadEvents:
    """The events of which a read says nothing, so that their absence means nothing: those of unusable rows, days out of reach.

    `days`: the first and the last ISO day that recurring events were looked for on. The key of such an event ends in its day. A
    day that is over, or beyond the feed's horizon, is in no read. Memory: the rows that were refused or left out whole.
    """

    def __init__(self, days: tuple[str, str] | None) -> None:
        self._days = days
        self._after: dict[str, str] = {}

    @property
    def is_any(self) -> bool:
        """Whether there is anything of which this read says nothing."""
        return self._days is not None or bool(self._after)

    def note(self, outcome: RowOutcome) -> None:
        """Note what a row says nothing of."""
        silence = outcome.part.silence
        if silence is not None:
            self._after[storable(silence.stem)] = silence.after

    def covers(self, row_key: str) -> bool:
        """Whether the absence of this entry means nothing."""
        ends = list(_ends_of_stems(row_key))
        day = row_key[ends[-1] :] if ends else ""
        is_day = _DAY.fullmatch(day) is not None
        if is_day and self._days is not None and not self._days[0] <= day <= self._days[1]:
            return True
        latest = day if is_day else "\uffff"
        return any((after := self._after.get(row_key[: end - 1])) is not None and latest > after for end in ends)


def _ends_of_stems(row_key: str) -> Iterator[int]:
    """Yield where each part after the first begins; a bar that belongs to a part is escaped."""
    found = _SEPARATOR.match(row_key)
    while found:
        yield found.end()
        found = _SEPARATOR.match(row_key, found.end())

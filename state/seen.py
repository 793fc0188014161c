"""What one read of a source has met so far: one byte for each ledger entry, however many rows there are.

What follows from it is `stage`'s.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

_PRESENT = 1
_SAID = 2
_STAGED = 4
_DISPUTED = 8
_GONE = 16
_MISSED = 32
_OVER = 64
_BLOCK = 65_536


class Seen:
    """Marks on entries, by id. `boundary` is the highest id before this read: whatever is above is new in it."""

    def __init__(self, boundary: int) -> None:
        self.boundary = boundary
        self.disputed = array("q")
        self.gone = array("q")
        self._marks = bytearray(boundary + 1)

    def meet(self, entry_id: int) -> None:
        """The source has the row, though perhaps not in a shape that can be used."""
        self._mark(entry_id, _PRESENT)

    def hear(self, entry_id: int) -> None:
        """The source has the row and it maps to an event."""
        self._mark(entry_id, _PRESENT | _SAID)

    def hear_all(self, entries: Iterable[int]) -> None:
        """The source has these rows, of before this read, as they were, and none of them was met yet."""
        marks = self._marks
        for entry_id in entries:
            marks[entry_id] = _PRESENT | _SAID

    def stage(self, entry_id: int) -> None:
        """This read has staged a known entry anew."""
        self._mark(entry_id, _PRESENT | _SAID | _STAGED)

    def dispute(self, entry_id: int) -> None:
        """Two rows of this read claim the entry, and nothing of it was ever sent."""
        self._mark(entry_id, _DISPUTED)
        self.disputed.append(entry_id)

    def lose(self, entry_id: int) -> None:
        """The source says that the row is gone; should it speak of it all the same in this read, that counts."""
        if not self._is(entry_id, _GONE):
            self._mark(entry_id, _GONE)
            self.gone.append(entry_id)

    def miss(self, entry_id: int, *, is_over: bool) -> None:
        """The row is newly gone from its source; `is_over`: its event has passed, so that this is no news."""
        self._mark(entry_id, _OVER if is_over else _MISSED)

    def missed(self, *, is_over: bool) -> Iterator[int]:
        """Yield the entries newly gone from their source, oldest first: those that have passed, or the others."""
        for start, marked in self._marked(_OVER if is_over else _MISSED, len(self._marks)):
            place = marked.find(1)
            while place >= 0:
                yield start + place
                place = marked.find(1, place + 1)

    def count_missed(self, *, is_over: bool) -> int:
        """Count what `missed` yields."""
        return sum(marked.count(1) for _, marked in self._marked(_OVER if is_over else _MISSED, len(self._marks)))

    def count_present(self) -> int:
        """Count the entries of before this read that the source has."""
        return sum(marked.count(1) for _, marked in self._marked(_PRESENT, self.boundary + 1))

    def is_present(self, entry_id: int) -> bool:
        """Whether the source has the row."""
        return entry_id > self.boundary or bool(self._marks[entry_id] & _PRESENT)

    def is_said(self, entry_id: int) -> bool:
        """Whether this read has already mapped the row to an event."""
        return entry_id > self.boundary or bool(self._marks[entry_id] & _SAID)

    def is_staged(self, entry_id: int) -> bool:
        """Whether this read has staged the entry."""
        return entry_id > self.boundary or bool(self._marks[entry_id] & _STAGED)

    def is_disputed(self, entry_id: int) -> bool:
        """Whether two rows of this read claim the entry."""
        return self._is(entry_id, _DISPUTED)

    def is_gone(self, entry_id: int) -> bool:
        """Whether the source has said that the row is gone, and nothing else of it."""
        return self._is(entry_id, _GONE) and not self.is_present(entry_id)

    def _is(self, entry_id: int, mark: int) -> bool:
        return entry_id < len(self._marks) and bool(self._marks[entry_id] & mark)

    def _mark(self, entry_id: int, mark: int) -> None:
        if entry_id >= len(self._marks):
            self._marks.extend(bytes(entry_id + 1 - len(self._marks)))
        self._marks[entry_id] |= mark

    def _marked(self, mark: int, end: int) -> Iterator[tuple[int, bytearray]]:
        """Yield ids by blocks: the first id, and for each whether it has the mark; copying them all would double the memory."""
        chosen = bytes(bool(marks & mark) for marks in range(256))
        for start in range(0, end, _BLOCK):
            yield start, self._marks[start : min(start + _BLOCK, end)].translate(chosen)

"""What one read of a source has met so far: a quarter of a byte for each ledger entry, however many rows there are.

What follows from it is `stage`'s.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

_FIRST = 1
_SECOND = 2
_BOTH = _FIRST | _SECOND
_BLOCK = 16_384
_SPREAD = {mark: tuple(mark << 2 * place for place in range(4)) for mark in (_FIRST, _SECOND, _BOTH)}
"""A mark by the place of its entry in a byte."""


class _Marks:
    """Two marks on each entry, by id; four entries share a byte."""

    def __init__(self, entries: int) -> None:
        self._bytes = bytearray(-(-entries // 4))

    def put(self, entry_id: int, mark: int) -> None:
        """Mark an entry, beyond the last one that there was room for as well."""
        place = entry_id >> 2
        if place >= len(self._bytes):
            self._bytes.extend(bytes(place + 1 - len(self._bytes)))
        self._bytes[place] |= _SPREAD[mark][entry_id & 3]

    def put_both(self, entries: Iterable[int]) -> None:
        """Put both marks on entries that there is room for."""
        marked = self._bytes
        for entry_id in entries:
            marked[entry_id >> 2] |= 3 << (entry_id & 3) * 2

    def has(self, entry_id: int, mark: int) -> bool:
        """Whether an entry has a mark."""
        place = entry_id >> 2
        return place < len(self._bytes) and bool(self._bytes[place] & _SPREAD[mark][entry_id & 3])

    def count(self, mark: int) -> int:
        """Count the entries with a mark."""
        return sum(block.count(1) for place in range(4) for _, block in self._blocks(_SPREAD[mark][place]))

    def all(self, mark: int) -> Iterator[int]:
        """Yield the entries with a mark, oldest first."""
        anywhere = sum(_SPREAD[mark])
        for start, block in self._blocks(anywhere):
            place = block.find(1)
            while place >= 0:
                first = (start + place) * 4
                yield from (entry_id for entry_id in range(first, first + 4) if self.has(entry_id, mark))
                place = block.find(1, place + 1)

    def _blocks(self, bits: int) -> Iterator[tuple[int, bytearray]]:
        """Yield the bytes by blocks, each 1 where it has any of these bits: copying them all would double the memory."""
        chosen = bytes(bool(marked & bits) for marked in range(256))
        for start in range(0, len(self._bytes), _BLOCK):
            yield start, self._bytes[start : start + _BLOCK].translate(chosen)


class Seen:
    """Marks on entries, by id. `boundary` is the highest id before this read: whatever is above is new in it.

    Of most reads only what is present and said needs room: that for other marks is made when the first one is put.
    """

    def __init__(self, boundary: int) -> None:
        self.boundary = boundary
        self.disputed = array("q")
        self.gone = array("q")
        self.dropped = array("q")
        self._present = _Marks(boundary + 1)  # the first mark, and said: the second
        self._staged = _Marks(0)
        self._disputed = _Marks(0)  # and gone
        self._missed = _Marks(0)  # and over

    def meet(self, entry_id: int) -> None:
        """The source has the row, though perhaps not in a shape that can be used."""
        if entry_id <= self.boundary:
            self._present.put(entry_id, _FIRST)

    def hear(self, entry_id: int) -> None:
        """The source has the row and it maps to an event."""
        if entry_id <= self.boundary:
            self._present.put(entry_id, _BOTH)

    def hear_all(self, entries: Iterable[int]) -> None:
        """The source has these rows, of before this read, as they were, and none of them was met yet."""
        self._present.put_both(entries)

    def stage(self, entry_id: int) -> None:
        """This read has staged a known entry anew."""
        self.hear(entry_id)
        self._staged.put(entry_id, _FIRST)

    def dispute(self, entry_id: int) -> None:
        """Two rows of this read claim the entry, and nothing of it was ever sent."""
        self._disputed.put(entry_id, _FIRST)
        self.disputed.append(entry_id)

    def lose(self, entry_id: int) -> None:
        """The source says that the row is gone; should it speak of it all the same in this read, that counts."""
        if not self._disputed.has(entry_id, _SECOND):
            self._disputed.put(entry_id, _SECOND)
            self.gone.append(entry_id)

    def miss(self, entry_id: int, *, is_over: bool) -> None:
        """The row is newly gone from its source; `is_over`: its event has passed, so that this is no news."""
        self._missed.put(entry_id, _SECOND if is_over else _FIRST)

    def drop(self, entry_id: int) -> None:
        """The row is gone from its source, and no event of it can be out."""
        self.dropped.append(entry_id)

    def has_vanished(self, entry_id: int) -> bool:
        """Whether the row is newly gone from its source, its event being to come."""
        return self._missed.has(entry_id, _FIRST)

    def missed(self, *, is_over: bool) -> Iterator[int]:
        """Yield the entries newly gone from their source, oldest first: those that have passed, or the others."""
        return self._missed.all(_SECOND if is_over else _FIRST)

    def count_missed(self, *, is_over: bool) -> int:
        """Count what `missed` yields."""
        return self._missed.count(_SECOND if is_over else _FIRST)

    def count_present(self) -> int:
        """Count the entries of before this read that the source has."""
        return self._present.count(_FIRST)

    def is_present(self, entry_id: int) -> bool:
        """Whether the source has the row."""
        return entry_id > self.boundary or self._present.has(entry_id, _FIRST)

    def is_said(self, entry_id: int) -> bool:
        """Whether this read has already mapped the row to an event."""
        return entry_id > self.boundary or self._present.has(entry_id, _SECOND)

    def is_staged(self, entry_id: int) -> bool:
        """Whether this read has staged the entry."""
        return entry_id > self.boundary or self._staged.has(entry_id, _FIRST)

    def is_disputed(self, entry_id: int) -> bool:
        """Whether two rows of this read claim the entry."""
        return self._disputed.has(entry_id, _FIRST)

    def is_gone(self, entry_id: int) -> bool:
        """Whether the source has said that the row is gone, and nothing else of it."""
        return self._disputed.has(entry_id, _SECOND) and not self.is_present(entry_id)

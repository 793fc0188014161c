"""Many small items of bytes, parted by their first one, of which a few thousand are in memory and all others on the disk.

What the items mean is whoever's who puts them in.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from tempfile import TemporaryFile
from types import TracebackType
from typing import BinaryIO, Self

PARTS = range(256)
_MOST_HELD = 1 << 16


class Parts:
    """Items by part, to be let go of at the end of a `with` block. Memory does not grow with their number, but for two numbers
    for about 250 items.
    """

    def __init__(self) -> None:
        self._held: list[list[bytes]] = [[] for _ in PARTS]
        self._puts = [held.append for held in self._held]
        self._count = 0
        self._stretches = [array("q") for _ in PARTS]
        self._file: BinaryIO | None = None

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        """Let go of the disk."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def put(self, items: Collection[bytes]) -> None:
        """Put in items, each of one byte at least."""
        puts = self._puts
        for item in items:
            puts[item[0]](item)
        self._count += len(items)
        if self._count > _MOST_HELD:
            self._spill()

    def filled(self) -> Iterator[int]:
        """Yield the parts that hold anything."""
        return (part for part in PARTS if self._held[part] or self._stretches[part])

    def of(self, part: int) -> bytes:
        """Return the items of a part, one behind the other, in the order in which they were put in."""
        return b"".join([*self._spilled(part), *self._held[part]])

    def _spilled(self, part: int) -> Iterator[bytes]:
        if self._file is None:
            return
        stretches = iter(self._stretches[part])
        for offset, length in zip(stretches, stretches, strict=True):
            self._file.seek(offset)
            yield self._file.read(length)

    def _spill(self) -> None:
        if self._file is None:
            self._file = TemporaryFile(prefix="eventsync-")  # noqa: SIM115  # closed where the items are let go of
        offset = self._file.seek(0, 2)
        for stretches, held in zip(self._stretches, self._held, strict=True):
            length = self._file.write(b"".join(held))
            if length:
                stretches.extend((offset, length))
            offset += length
            held.clear()
        self._count = 0

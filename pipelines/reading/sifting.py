"""The records of a source against those remembered: which stand there once, as they were, and which have to be read.

Records are known here by their digests alone; where these come from and what is done with the others is `recalling`'s.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from pipelines.reading.spilling import PARTS, Parts
from state.recall import PAIR

_DIGEST_BYTES = 16

_AT_A_TIME = 8
"""Parts of a memory that are asked for at once."""

Remembered = Callable[[range], Mapping[int, bytes]]
"""Gives neighbouring parts of a memory; those that hold nothing are absent."""


def each_part(remembered: Remembered) -> Iterator[tuple[int, bytes]]:
    """Yield the pairs of each part, a few parts at a time."""
    for first in PARTS[::_AT_A_TIME]:
        few = range(first, first + _AT_A_TIME)
        found = remembered(few)
        yield from ((part, found.get(part, b"")) for part in few)


class Sequel:
    """The digests of a source's records in their order, chunk by chunk, on the disk."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._counts = array("l")

    def put(self, chunk: Sequence[bytes]) -> None:
        """Put in the next chunk."""
        self._file.write(b"".join(chunk))
        self._counts.append(len(chunk))

    def places(self, chosen: set[bytes]) -> Iterator[tuple[int, Sequence[int]]]:
        """Yield where the chosen ones stand: the numbers of chunks, and places in each."""
        self._file.seek(0)
        for number, count in enumerate(self._counts):
            chunk = _parted(self._file.read(count * _DIGEST_BYTES))
            if not chosen.isdisjoint(chunk):
                yield number, [place for place, digest in enumerate(chunk) if digest in chosen]


@dataclass(slots=True)
class Sieve:
    """What has been found so far. `differing`: the digests of records that have to be read; `forgotten`: the entries of those
    that are remembered all the same, or not there any more; `touched`: the parts of the memory in which these are.

    `doubtful`: the entries of which the memory tells nothing for certain. Memory grows with what differs.
    """

    remembered: Remembered
    doubtful: frozenset[int]
    most: int
    differing: set[bytes] = field(default_factory=set)
    forgotten: set[int] = field(default_factory=set)
    touched: set[int] = field(default_factory=set)

    def sift(self, digests: Parts) -> bool:
        """Take in all records of the source; False, and not all are taken in, where more than the `most` differ."""
        for part, pairs in each_part(self.remembered):
            self._sift(part, dict(PAIR.iter_unpack(pairs)), _parted(digests.of(part)))
            if max(len(self.differing), len(self.forgotten)) > self.most:
                return False
        return True

    def take_out(self, entries: Collection[int]) -> bool:
        """Let the remembered records of these entries be read as well; return whether there are any."""
        wanted = set(entries) - self.forgotten
        before = len(self.differing)
        for part, pairs in each_part(self.remembered) if wanted else ():
            for digest, entry_id in PAIR.iter_unpack(pairs):
                if entry_id in wanted:
                    self._forget(part, entry_id)
                    self.differing.add(digest)
        return len(self.differing) > before

    def _sift(self, part: int, remembered: Mapping[bytes, int], found: Sequence[bytes]) -> None:
        there = set(found)
        read = there - remembered.keys()
        lost = remembered.keys() - there
        if len(there) < len(found):
            read.update(digest for digest, times in Counter(found).items() if times > 1)
        if self.doubtful:
            read.update(digest for digest in remembered if remembered[digest] in self.doubtful and digest in there)
        self.differing |= read
        for digest in lost | (read & remembered.keys()):
            self._forget(part, remembered[digest])

    def _forget(self, part: int, entry_id: int) -> None:
        self.forgotten.add(entry_id)
        self.touched.add(part)


def _parted(digests: bytes) -> list[bytes]:
    return [digests[begin : begin + _DIGEST_BYTES] for begin in range(0, len(digests), _DIGEST_BYTES)]

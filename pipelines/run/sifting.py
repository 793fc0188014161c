"""The records of a source against those remembered: which stand there once, as they were, and which have to be read.

Records are known here by their digests alone; where these come from and what is done with the others is `recalling`'s.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import BinaryIO

from pipelines.run.spilling import PARTS, Parts
from state.ledger.recall import PAIR

_DIGEST_BYTES = 16

_BYTES_AT_A_TIME = 1 << 20
"""Of a memory: so many parts are asked for at once as probably hold this much."""
_LARGE = 1 << 13
"""Records of a part of two million: a larger part is sifted by quarters, in each of which the records' second bytes are alike."""
_QUARTERS = [bytes(second >> 6 == quarter for second in range(1 << 8)) for quarter in range(4)]

Remembered = Callable[[range], Mapping[int, bytes]]
"""Gives neighbouring parts of a memory; those that hold nothing are absent."""


def each_part(remembered: Remembered) -> Iterator[tuple[int, bytes]]:
    """Yield the pairs of each part, a few parts at a time."""
    rest, count = PARTS, 1
    while rest:
        few, rest = rest[:count], rest[count:]
        found = dict(remembered(few))
        count = max(1, count * _BYTES_AT_A_TIME // max(1, sum(map(len, found.values()))))
        yield from ((part, found.pop(part, b"")) for part in few)


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
            chunk = _parted(self._file.read(count * _DIGEST_BYTES), _DIGEST_BYTES)
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
            for some_pairs, found in _few_at_a_time(pairs, digests.of(part)):
                self._sift(part, dict(PAIR.iter_unpack(some_pairs)), _parted(found, _DIGEST_BYTES))
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


def _few_at_a_time(pairs: bytes, digests: bytes) -> Iterable[tuple[bytes, bytes]]:
    """Return a part's pairs with its digests: both as they are, or a quarter of both after the other."""
    if max(len(pairs) // PAIR.size, len(digests) // _DIGEST_BYTES) <= _LARGE:
        return ((pairs, digests),)
    return zip(_quarters(pairs, PAIR.size), _quarters(digests, _DIGEST_BYTES), strict=True)


def _quarters(text: bytes, length: int) -> list[bytes]:
    items, seconds = _parted(text, length), text[1::length]
    return [b"".join(compress(items, seconds.translate(quarter))) for quarter in _QUARTERS]


def _parted(text: bytes, length: int) -> list[bytes]:
    return [text[begin : begin + length] for begin in range(0, len(text), length)]

"""The bytes of a delimited file, parted into what are probably its records: digested by the chunk, or picked out as pieces.

What a record says is `csv_file`'s; what became of it, the caller's.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from io import BytesIO
from typing import BinaryIO, NamedTuple

from connectors.sources.contract import Piece
from connectors.sources.errors import BadSourceError
from connectors.sources.files.text import Lines

_DIGEST_BYTES = 16
_BLOCK_BYTES = 64 * 1024
_LONGEST_RECORD = 1024 * 1024
"""Bytes. Beyond, a quote was probably never closed, and its record would be looked through again with every block."""
_ASCII_KEPT = ("ascii", "cp125", "iso8859-", "utf-8")
"""What the names of encodings begin with in which a byte of ASCII is that character, wherever it stands."""


def is_told_by_bytes(encoding: str) -> bool:
    """Whether the lines and quotes of a text can be told by its bytes. `encoding`: as `codecs` spells it."""
    return encoding.startswith(_ASCII_KEPT)


def sealed(lines: Lines) -> Callable[[], bytes]:
    """Return what digests the lines held at the moment, as they stand in the file."""
    held = lines.held
    encoding = "utf-8" if lines.encoding.startswith("utf-8") else lines.encoding  # the one with a mark would write one

    def digest() -> bytes:
        text = held[0] if len(held) == 1 else "".join(held)
        return blake2b(text.encode(encoding, "surrogateescape"), digest_size=_DIGEST_BYTES).digest()

    return digest


@dataclass(slots=True)
class RawRecords:
    """Keeps the promises of `contract.Records` for an open file. `quote`: b"" where quotes mean nothing; `before`: how many lines
    stand before the first record.

    A record ends with the first line after which the number of its quotes is even. Memory: two numbers a chunk.
    """

    name: str
    stream: BinaryIO
    quote: bytes
    before: int
    layout: str
    is_sealing: bool = False
    chosen: Iterable[Piece] | None = None
    _offsets: array[int] = field(default_factory=lambda: array("q"))
    _lines: array[int] = field(default_factory=lambda: array("q"))

    def seal(self) -> None:
        """Let each well-formed row bear the digest of its bytes."""
        self.is_sealing = True

    def only(self, pieces: Iterable[Piece]) -> None:
        """Let the reading's rows be those of these pieces."""
        self.chosen = pieces

    def digests(self) -> Iterator[Sequence[bytes]]:
        """Yield the digests of all records, a chunk at a time."""
        self.chosen = ()
        for records in self._chunks():
            yield [blake2b(record, digest_size=_DIGEST_BYTES).digest() for record in records]

    def pieces(self, places: Iterable[tuple[int, Sequence[int]]]) -> Iterator[Piece]:
        """Yield what to read for some records; neighbours become one piece."""
        for number, positions in places:
            begin = self._offsets[number]
            self.stream.seek(begin)
            records = _all_of(self.stream.read(self._offsets[number + 1] - begin), self.quote)
            for first, behind in _runs(positions):
                skipped = b"".join(records[:first])
                line = self._lines[number] + len(skipped.splitlines())
                yield Piece(begin + len(skipped), sum(map(len, records[first:behind])), line)

    def opened(self, piece: Piece) -> BinaryIO:
        """Return the bytes of a piece, to be read as a file."""
        self.stream.seek(piece.offset)
        return BytesIO(self.stream.read(piece.length))

    def _chunks(self) -> Iterator[list[bytes]]:
        """Yield the records that end in each block of the file, and note where each of these chunks begins."""
        rest, offset, line = b"", self._first_byte(), self.before + 1
        self.stream.seek(offset)
        while block := self.stream.read(_BLOCK_BYTES):
            text = rest + block
            part = _parted(text[: text.rfind(b"\n") + 1], self.quote)
            rest = text[part.size :]
            if len(rest) > _LONGEST_RECORD:
                raise BadSourceError(f"{self.name}:{line + part.lines}", "no record ends for a megabyte")
            if part.records:
                self._note(offset, line)
                yield part.records
                offset, line = offset + part.size, line + part.lines
        self._note(offset, line)
        if rest:
            yield _all_of(rest, self.quote)
            self._note(offset + len(rest), line)

    def _note(self, offset: int, line: int) -> None:
        self._offsets.append(offset)
        self._lines.append(line)

    def _first_byte(self) -> int:
        """Return where the line behind the header begins."""
        text, lines = b"", list[bytes]()
        self.stream.seek(0)
        while len(lines) <= self.before and (block := self.stream.read(_BLOCK_BYTES)):
            text += block
            lines = text.splitlines(keepends=True)
        return sum(map(len, lines[: self.before]))


class _Parted(NamedTuple):
    """The records of a text that are complete, and how many bytes and lines of it they take."""

    records: list[bytes]
    size: int
    lines: int


def _parted(text: bytes, quote: bytes) -> _Parted:
    """Part a text of whole lines."""
    lines = text.splitlines(keepends=True)
    odd = [line.count(quote) & 1 for line in lines] if quote and quote in text else []
    if 1 not in odd:
        return _Parted(lines, len(text), len(lines))
    records, begun, is_open = list[bytes](), 0, 0
    for behind, is_odd in enumerate(odd, start=1):
        is_open ^= is_odd
        if not is_open:
            records.append(lines[begun] if behind - begun == 1 else b"".join(lines[begun:behind]))
            begun = behind
    return _Parted(records, sum(map(len, records)), begun)


def _all_of(text: bytes, quote: bytes) -> list[bytes]:
    """Return the records of a text; one that is not complete is the last."""
    part = _parted(text, quote)
    return [*part.records, text[part.size :]] if part.size < len(text) else part.records


def _runs(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first of each run of neighbours, and what comes behind its last."""
    begun = 0
    for place in range(1, len(positions) + 1):
        if place == len(positions) or positions[place] != positions[place - 1] + 1:
            yield positions[begun], positions[place - 1] + 1
            begun = place

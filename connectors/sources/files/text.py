"""Decodes text files: chooses the encoding, keeps undecodable bytes visible, and refuses files that are not text."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import BinaryIO

from connectors.sources.contract import BadSourceError, CutOffError, EmptySourceError
from connectors.sources.files.opened_file import HEAD_BYTES, OpenedFile, as_bad_source, refuse_other_kinds
from connectors.sources.rows import LARGEST_RECORD, MOST_VALUES

_NO_CP932 = str.maketrans({"\x80": "\udc80", "\uf8f0": "\udca0", "\uf8f1": "\udcfd", "\uf8f2": "\udcfe", "\uf8f3": "\udcff"})
"""Python's cp932 maps five invalid bytes to private-use characters: treat them as undecodable."""

_NOT_DECODED = "the file may be cut off; else correct `source.encoding`"
_UTF_16 = "if it is a text file, it is UTF-16: set `source.encoding` to utf-16-le or utf-16-be"
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
_ENOUGH_LETTERS = 4
"""Fewer letters of a double-byte encoding may be UTF-8 by chance."""
_CHUNK_BYTES = 64 * 1024
_BLOCK = 32 * 1024
"""Characters read at once: fewer than `MOST_VALUES`, so that only a line of several blocks can have too many cells."""

_FIRST_PIECE = 64 * 1024
"""Characters of the first read, if the caller gives a size."""

_TOO_MANY_CELLS = f"the row that begins here has more than {MOST_VALUES} cells"
_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

ReadText = Callable[[int], str]
"""Returns at most so many of the next characters, "" at the end."""


def chosen_encoding(stream: BinaryIO, encodings: Sequence[str], name: str) -> str:
    """Return the encoding for `stream`, the file `name`; the stream is rewound.

    A byte order mark decides: no other text begins with one, and ignoring it would publish garbled text without an error.
    Otherwise the first of `encodings` that decodes the whole file, else the last one. UTF-8 needs no extra pass.

    Raises:
        BadSourceError: the file is UTF-8, which is none of `encodings`, and would become other letters.
    """
    head = stream.read(4)
    stream.seek(0)
    if marked := next((encoding for mark, encoding in _BOMS if head.startswith(mark)), ""):
        return marked
    chosen = next((one for one in encodings[:-1] if _letters_beyond_ascii(stream, one) is not None), encodings[-1])
    is_allowed = any(codecs.lookup(one).name.startswith("utf") for one in encodings)
    if not is_allowed and codecs.lookup(chosen).name != "ascii":  # which leaves other bytes undecodable, row by row
        is_single_byte = len(bytes(range(256)).decode(chosen, "replace")) == 256  # one character a byte
        if (_letters_beyond_ascii(stream, "utf-8") or 0) >= (1 if is_single_byte else _ENOUGH_LETTERS):
            hint = f"set `source.encoding` to utf-8, or to [utf-8, {', '.join(encodings)}] if files of both kinds come"
            raise BadSourceError(name, f"the file is UTF-8, not {chosen}", hint=hint)
    return chosen


def _letters_beyond_ascii(stream: BinaryIO, encoding: str) -> int | None:
    """Return how many characters of the file are not ASCII, None if the encoding does not decode all of it."""
    decode, found = codecs.getincrementaldecoder(encoding)().decode, 0
    try:
        while chunk := stream.read(_CHUNK_BYTES):
            text = decode(chunk)
            found += 0 if text.isascii() else len(_BEYOND_ASCII.findall(text))
        decode(b"", True)
    except UnicodeError:
        return None
    finally:
        stream.seek(0)
    return found


@contextmanager
def decoded(file: OpenedFile, encodings: Sequence[str]) -> Iterator[ReadText]:
    """Yield a function that reads the text of a file without leading byte order marks; undecodable bytes become surrogates.

    Raises:
        EmptySourceError: the file is empty.
        BadSourceError: the file is of another kind, or of another encoding from some position on.
        SourceUnavailableError: the disk failed.
    """
    encoding = chosen_encoding(file.stream, encodings, file.name)
    text = io.TextIOWrapper(file.stream, encoding=encoding, errors="surrogateescape", newline="")

    def read(size: int) -> str:
        with as_bad_source(lambda: file.name, f"the file is not {encoding} throughout", hint=_NOT_DECODED):
            return text.read(size)

    try:
        first = read(_FIRST_PIECE)
        if not first.strip("\ufeff \t\r\n"):
            raise EmptySourceError(file.name, "the file is empty", hint="ask the partner for the whole file")
        first = first.lstrip("\ufeff")
        refuse_other_kinds(first[:HEAD_BYTES].encode(encoding, "surrogateescape"), file.name, is_xml_wanted=True)
        if "\0" in first[:100]:
            raise BadSourceError(file.name, f"this is not {encoding} text: it begins with NUL bytes", hint=_UTF_16)
        pieces = iter([first])
        yield lambda size: next(pieces, "") or read(size)
    finally:
        text.detach()


class TextLines:
    """The lines of a text file, to be iterated once, with their line ends: LF, CRLF and CR in any mix.

    Lines are split block by block, since a Python call per line would take longer than csv.reader needs for it (budget 2).
    Leading byte order marks are removed. `needs_end`: the file is complete only if its last line has a line end. `delimiter`:
    separates cells, to refuse rows with too many of them before they are built. `start`: the first line of the current record;
    the caller advances it after each record. `is_tainted`: the current record may have undecodable bytes or NUL.
    `is_unended`: the last line has been read, and has no line end. `is_exhausted`: the file has ended.
    """

    def __init__(self, stream: BinaryIO, encoding: str, name: str, *, needs_end: bool = False, delimiter: str = "") -> None:
        self.start = 1
        self.is_tainted = False
        self.is_unended = False
        self.is_exhausted = False
        self._text = io.TextIOWrapper(stream, encoding=encoding, errors="surrogateescape", newline="")
        self._encoding = encoding
        self._is_cp932 = codecs.lookup(encoding).name == "cp932"
        self._name = name
        self._needs_end = needs_end
        self._delimiter = delimiter
        self._held: list[str] = []
        self._first = self._next = 1
        self._size = self._cells = 0

    def close(self) -> None:
        """Detach the stream, so that it can be read again."""
        self._text.detach()

    def __iter__(self) -> Iterator[str]:
        """Yield each line.

        Raises:
            BadSourceError: the file is binary, a web page, of another encoding, or has a line that is too long.
            SourceUnavailableError: the disk failed.
        """
        return chain.from_iterable(self._blocks())

    def record(self, last: int) -> list[str]:
        """Return the lines of the current record up to line number `last`."""
        return self._held[self.start - self._first : last - self._first + 1]

    def _blocks(self) -> Iterator[Iterable[str]]:
        what = f"from about here on the file is not {self._encoding}"
        with as_bad_source(lambda: f"{self._name}:{self._next}", what, hint=_NOT_DECODED):
            rest, is_rest_tainted = "", False
            for block in self._read():
                encoded = _encoded(block)
                is_tainted = encoded is None or b"\0" in encoded
                if rest and rest[-1] != "\r" and "\n" not in block and "\r" not in block:
                    rest += block  # a statement of its own, which CPython does in place
                    is_rest_tainted = is_rest_tainted or is_tainted
                    if len(rest) >= LARGEST_RECORD:
                        self._check_line(rest)
                    continue
                has_mark = "\ufeff" in block or rest[:1] == "\ufeff"
                lines = _split(block, encoded)
                if rest[-1:] == "\r" and lines[0] != "\n":
                    lines.insert(0, rest)
                else:
                    lines[0] = rest + lines[0]
                rest = "" if lines[-1][-1] == "\n" else lines.pop()
                yield self._checked(lines, is_tainted=is_tainted or is_rest_tainted, has_mark=has_mark)
                is_rest_tainted = is_tainted
            self.is_unended = bool(rest) and rest[-1] != "\r"
            if rest:
                yield self._checked([rest], is_tainted=is_rest_tainted, has_mark=True)
            self.is_exhausted = True
            if self._needs_end and self.is_unended:
                raise CutOffError(f"{self._name}:{self._next - 1}", "the last line has no end")

    def _read(self) -> Iterator[str]:
        first = self._text.read(_BLOCK).lstrip("\ufeff")
        refuse_other_kinds(first[:HEAD_BYTES].encode(self._encoding, "surrogateescape"), self._name)
        blocks = filter(None, chain([first], iter(partial(self._text.read, _BLOCK), "")))
        return (block.translate(_NO_CP932) for block in blocks) if self._is_cp932 else blocks

    def _checked(self, lines: list[str], *, is_tainted: bool, has_mark: bool) -> Iterable[str]:
        """Check a block of lines, and keep them while the current record may need them."""
        if lines and self._next == 1 and "\0" in lines[0]:
            message = f"character {lines[0].index(chr(0)) + 1} is a NUL byte: this is not {self._encoding} text"
            raise BadSourceError(f"{self._name}:1", message, hint=_UTF_16)
        if lines and len(lines[0]) > MOST_VALUES:
            self._check_line(lines[0])
        first = self._next
        self._next += len(lines)
        if self.start < first:
            self.is_tainted = is_tainted or self.is_tainted
            self._hold(lines)
        else:
            self._held, self._first, self._size, self.is_tainted = lines, first, 0, is_tainted
        return self._without_marks(lines, first) if has_mark else lines

    def _without_marks(self, lines: Sequence[str], first: int) -> Iterator[str]:
        """Yield the lines without byte order marks at the start of a record, which concatenated files leave behind."""
        for number, line in enumerate(lines, start=first):
            yield line.lstrip("\ufeff") if number == self.start else line

    def _check_line(self, line: str) -> None:
        if len(line) >= LARGEST_RECORD:
            message = f"the line is longer than {LARGEST_RECORD // 2**20} million characters"
            hint = "this does not look like a file of rows; check `source.path`"
            raise BadSourceError(f"{self._name}:{self._next}", message, hint=hint)
        if self._delimiter and line.count(self._delimiter) > MOST_VALUES:
            raise BadSourceError(
                f"{self._name}:{self._next}", _TOO_MANY_CELLS, hint="check `source.delimiter`; is it the right file?"
            )

    def _hold(self, lines: list[str]) -> None:
        """Keep more lines of the current record; refuse a record that is too long."""
        further = lines
        if self.start != self._first or not self._size:
            del self._held[: self.start - self._first]
            self._first, self._size, self._cells = self.start, 0, 0
            further = self._held + lines
        self._held += lines
        self._size += sum(map(len, further))
        self._cells += sum(line.count(self._delimiter) for line in further) if self._delimiter else 0
        place, unclosed = f"{self._name}:{self.start}", "a quote there is probably never closed"
        if self._cells > MOST_VALUES:
            raise BadSourceError(place, _TOO_MANY_CELLS, hint="check `source.delimiter`; is it the right file?")
        if len(self._held) > MOST_VALUES:
            raise BadSourceError(place, f"the row that begins here has more than {MOST_VALUES} lines", hint=unclosed)
        if self._size > LARGEST_RECORD:
            message = f"the row that begins here is longer than {LARGEST_RECORD // 2**20} million characters"
            raise BadSourceError(place, message, hint=unclosed)


def _encoded(block: str) -> bytes | None:
    """Return the block as UTF-8, None if it has undecodable bytes."""
    try:
        return block.encode()
    except UnicodeEncodeError:
        return None


def _split(block: str, encoded: bytes | None) -> list[str]:
    """Split at LF, CRLF and CR. `splitlines` is twice as fast as `io`, but correct only if the block has no other line breaks."""
    lines = block.splitlines(keepends=True)
    if encoded is not None and len(lines) - (block[-1] != "\n") == encoded.count(b"\n"):
        return lines
    return list(io.StringIO(block, newline=""))

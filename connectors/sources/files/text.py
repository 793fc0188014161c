"""Bytes become lines of text: which encoding, and what happens to bytes that are no text in it.

What the lines mean is `csv_file`'s.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator, Sequence
from functools import partial
from typing import BinaryIO

from connectors.sources.errors import BadSourceError, CutOffError, EmptySourceError, as_bad_source
from connectors.sources.files.opened_file import OpenedFile
from connectors.sources.row_checks import LARGEST_RECORD, MOST_VALUES, has_undecodable

_NO_CP932 = str.maketrans({"\x80": "\udc80", "\uf8f0": "\udca0", "\uf8f1": "\udcfd", "\uf8f2": "\udcfe", "\uf8f3": "\udcff"})
"""Python's cp932 makes letters of nobody's of five bytes that are no text: they become what undecodable bytes do elsewhere."""
_OTHER_KINDS = {
    "PK\x03\x04": "a workbook or a zip archive: export the sheet as CSV, or unpack it",
    "\x1f": "compressed with gzip: ask for it unpacked",
    "%PDF": "a PDF: ask for the table as CSV",
}
"""What files that are no text begin with, and what to do about each."""
NOT_DECODED = "the file may be cut off; else correct `source.encoding`"
_WEB_PAGES = ("<!doctype html", "<html")
_CHUNK_BYTES = 1024 * 1024
_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def chosen_encoding(stream: BinaryIO, encodings: Sequence[str]) -> str:
    """Return the encoding to read `stream` with; the stream is back at its start.

    A byte order mark decides, whatever is listed: nothing else begins with one, and reading past it would publish
    garbled text without a word. Otherwise the first of `encodings` that decodes the whole file, else the last one. A
    single encoding costs no extra pass.
    """
    head = stream.read(4)
    stream.seek(0)
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            return encoding
    return next((encoding for encoding in encodings[:-1] if _decodes(stream, encoding)), encodings[-1])


def _decodes(stream: BinaryIO, encoding: str) -> bool:
    decode = codecs.getincrementaldecoder(encoding)().decode
    try:
        while chunk := stream.read(_CHUNK_BYTES):
            decode(chunk)
        decode(b"", True)
    except UnicodeError:
        return False
    finally:
        stream.seek(0)
    return True


def refuse_other_kinds(beginning: str, name: str) -> None:
    """Refuse a file that begins like one of another kind.

    Raises:
        BadSourceError: it is a web page, an archive or the like.
    """
    kind = next((kind for magic, kind in _OTHER_KINDS.items() if beginning.startswith(magic)), None)
    if kind is not None:
        what, _, remedy = kind.partition(": ")
        raise BadSourceError(f"{name}:1", f"this is {what}, not rows of text", hint=remedy)
    if beginning[:200].lstrip().lower().startswith(_WEB_PAGES):
        raise BadSourceError(f"{name}:1", "this is a web page, not rows", hint="the address may ask for a login")


class Lines:
    """The lines of a text file, once, with their line ends as they stand: LF, CRLF and CR, mixed at will.

    `held` collects the lines since it was last cleared; `is_tainted` says that one of them holds bytes that are no text;
    `is_exhausted` that the file has ended. Byte order marks at the start, one or several, are gone. `before`: how many lines of
    the file stand before the stream, where that is only a piece of it. `needs_end`: the file is whole only if its last line has
    an end. `mark`: what parts the cells of a row, where too many of them are to be refused before the row is built.
    """

    def __init__(
        self, stream: BinaryIO, encoding: str, name: str, before: int = 0, *, needs_end: bool = False, mark: str = ""
    ) -> None:
        self.held: list[str] = []
        self.is_tainted = False
        self.is_exhausted = False
        self._text = io.TextIOWrapper(stream, encoding=encoding, errors="surrogateescape", newline="")
        self._encoding = encoding
        self.before = before
        self.encoding = codecs.lookup(encoding).name
        self._name = name
        self._number = before
        self._needs_end = needs_end
        self._mark = mark
        self._held_size = self._held_marks = 0

    def clear(self) -> None:
        """Forget the lines held so far."""
        self.held.clear()
        self.is_tainted = False

    def release(self) -> None:
        """Let go of the stream, so that it can be read again."""
        self._text.detach()

    def __iter__(self) -> Iterator[str]:
        """Give each line.

        Raises:
            BadSourceError: the file is binary, a web page, of another encoding, or has an endless line.
            SourceUnavailableError: the disk failed.
        """
        what = f"from about here on the file is not {self._encoding}"
        with as_bad_source(lambda: f"{self._name}:{self._number + 1}", what, hint=NOT_DECODED):
            yield from self._read()

    def _read(self) -> Iterator[str]:
        hold, line = self.held.append, ""
        for line in self._lines():
            if len(line) > MOST_VALUES or self.held:
                self._check_size(line)
            if "\0" in line and not self._number:
                raise self._no_text(line)
            if "\0" in line or (not line.isascii() and has_undecodable(line)):
                self.is_tainted = True
            # Files put one behind the other keep the mark of each.
            text = line.lstrip("\ufeff") if line[0] == "\ufeff" and not self.held else line
            hold(text)
            yield text
            self._number += 1
        self.is_exhausted = True
        if self._needs_end and line and not line.endswith(("\n", "\r")):
            raise CutOffError(f"{self._name}:{self._number}", "the last line has no end")

    def _check_size(self, line: str) -> None:
        """Refuse a line without an end, and a record of many lines that goes on and on."""
        if len(self.held) <= 1:
            held = "".join(self.held)
            self._held_size, self._held_marks = len(held), held.count(self._mark) if self._mark else 0
        self._held_size += len(line)
        self._held_marks += line.count(self._mark) if self._mark else 0
        place, unclosed = f"{self._name}:{self._number + 1 - len(self.held)}", "a quote there is probably never closed"
        if len(line) >= LARGEST_RECORD:
            message = f"the line is longer than {LARGEST_RECORD // 2**20} million characters"
            hint = "this does not look like a file of rows; check `source.path`"
            raise BadSourceError(f"{self._name}:{self._number + 1}", message, hint=hint)
        if self._held_marks > MOST_VALUES:
            message = f"the row that begins here has more than {MOST_VALUES} cells"
            raise BadSourceError(place, message, hint="check `source.delimiter`; is it the right file?")
        if len(self.held) > MOST_VALUES:
            raise BadSourceError(place, f"the row that begins here has more than {MOST_VALUES} lines", hint=unclosed)
        if self._held_size > LARGEST_RECORD:
            message = f"the row that begins here is longer than {LARGEST_RECORD // 2**20} million characters"
            raise BadSourceError(place, message, hint=unclosed)

    def _lines(self) -> Iterator[str]:
        read_line = partial(self._text.readline, LARGEST_RECORD)
        if not self.before:
            first = read_line().lstrip("\ufeff")
            refuse_other_kinds(first, self._name)
            if first:
                yield first
        rest = iter(read_line, "")
        is_cp932 = self.encoding == "cp932"
        yield from (line.translate(_NO_CP932) for line in rest) if is_cp932 else rest

    def _no_text(self, line: str) -> BadSourceError:
        column = line.index("\0") + 1
        hint = "if it is a text file, it is UTF-16: set `source.encoding` to utf-16-le or utf-16-be"
        message = f"character {column} is a NUL byte: this is not {self._encoding} text"
        return BadSourceError(f"{self._name}:{self._number + 1}", message, hint=hint)


PIECE = 64 * 1024
"""Characters."""


class TextPieces:
    """The text of an open file, once, without byte order marks at its start; undecodable bytes as surrogates."""

    def __init__(self, file: OpenedFile, encodings: Sequence[str]) -> None:
        self.name = file.name
        self._encoding = chosen_encoding(file.stream, encodings)
        self._text = io.TextIOWrapper(file.stream, encoding=self._encoding, errors="surrogateescape", newline="")
        self._is_begun = False

    def read(self, size: int = PIECE) -> str:
        """Return the next characters, "" at the end.

        Raises:
            EmptySourceError: there is nothing at all.
            BadSourceError: the file is of another kind, or of another encoding from here on.
            SourceUnavailableError: the disk failed.
        """
        with as_bad_source(lambda: self.name, f"the file is not {self._encoding} throughout", hint=NOT_DECODED):
            piece = self._text.read(size)
        return piece if self._is_begun else self._first(piece)

    def release(self) -> None:
        """Let go of the file, so that it can be read again."""
        self._text.detach()

    def _first(self, piece: str) -> str:
        self._is_begun = True
        if not piece.strip("\ufeff \t\r\n"):
            raise EmptySourceError(self.name, "the file is empty", hint="ask the partner for the whole file")
        piece = piece.lstrip("\ufeff")
        refuse_other_kinds(piece, self.name)
        if "\0" in piece[:100]:
            hint = "if it is a text file, it is UTF-16: set `source.encoding` to utf-16-le or utf-16-be"
            raise BadSourceError(self.name, f"this is not {self._encoding} text: it begins with NUL bytes", hint=hint)
        return piece

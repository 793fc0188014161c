"""Bytes become text: which encoding, what happens to bytes that are no text in it, and files that are no text at all."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import BinaryIO

from connectors.sources.errors import BadSourceError, CutOffError, EmptySourceError, as_bad_source
from connectors.sources.files.opened_file import OpenedFile
from connectors.sources.rows import LARGEST_RECORD, MOST_VALUES, has_undecodable

_NO_CP932 = str.maketrans({"\x80": "\udc80", "\uf8f0": "\udca0", "\uf8f1": "\udcfd", "\uf8f2": "\udcfe", "\uf8f3": "\udcff"})
"""Python's cp932 maps five invalid bytes to private-use characters: treat them as undecodable."""

_OTHER_KINDS = {
    "PK\x03\x04": ("a workbook or a zip archive", "export the sheet as CSV, or unpack it"),
    "\x1f": ("compressed with gzip", "ask for it unpacked"),
    "%PDF": ("a PDF", "ask for the table as CSV"),
}
"""What files that are no text begin with, and what to do about each."""

_NOT_DECODED = "the file may be cut off; else correct `source.encoding`"
_UTF_16 = "if it is a text file, it is UTF-16: set `source.encoding` to utf-16-le or utf-16-be"
_CHUNK_BYTES = 1024 * 1024
_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

ReadText = Callable[[int], str]
"""Returns the next characters, at most so many, "" at the end."""


def chosen_encoding(stream: BinaryIO, encodings: Sequence[str]) -> str:
    """Return the encoding to read `stream` with; the stream is back at its start.

    A byte order mark decides: nothing else begins with one, and reading past it would publish
    garbled text without a word. Otherwise the first of `encodings` that decodes the whole file, else the last one. A
    single encoding costs no extra pass.
    """
    head = stream.read(4)
    stream.seek(0)
    marked = next((encoding for mark, encoding in _BOMS if head.startswith(mark)), "")
    return marked or next((encoding for encoding in encodings[:-1] if _decodes(stream, encoding)), encodings[-1])


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


@contextmanager
def decoded(file: OpenedFile, encodings: Sequence[str]) -> Iterator[ReadText]:
    """Give what reads the text of a file, without byte order marks at its start; undecodable bytes become surrogates.

    Raises:
        EmptySourceError: there is nothing at all.
        BadSourceError: the file is of another kind, or of another encoding from some place on.
        SourceUnavailableError: the disk failed.
    """
    encoding = chosen_encoding(file.stream, encodings)
    text = io.TextIOWrapper(file.stream, encoding=encoding, errors="surrogateescape", newline="")
    is_begun = False

    def read(size: int) -> str:
        nonlocal is_begun
        with as_bad_source(lambda: file.name, f"the file is not {encoding} throughout", hint=_NOT_DECODED):
            piece = text.read(size)
        if is_begun:
            return piece
        is_begun = True
        if not piece.strip("\ufeff \t\r\n"):
            raise EmptySourceError(file.name, "the file is empty", hint="ask the partner for the whole file")
        piece = piece.lstrip("\ufeff")
        _refuse_other_kinds(piece, file.name)
        if "\0" in piece[:100]:
            raise BadSourceError(file.name, f"this is not {encoding} text: it begins with NUL bytes", hint=_UTF_16)
        return piece

    try:
        yield read
    finally:
        text.detach()


def _refuse_other_kinds(beginning: str, name: str) -> None:
    for magic, (what, remedy) in _OTHER_KINDS.items():
        if beginning.startswith(magic):
            raise BadSourceError(f"{name}:1", f"this is {what}, not rows of text", hint=remedy)
    if beginning[:200].lstrip().lower().startswith(("<!doctype html", "<html")):
        raise BadSourceError(f"{name}:1", "this is a web page, not rows", hint="the address may ask for a login")


class TextLines:
    """The lines of a text file, once, with their line ends as they stand: LF, CRLF and CR, mixed at will.

    `held` collects the lines since it was last cleared; `is_tainted` says that one of them holds bytes that are no text;
    `is_exhausted` that the file has ended. Byte order marks at the start, one or several, are gone. `needs_end`: the file is
    whole only if its last line has an end. `delimiter`: what parts the cells of a row, where too many of them are to be refused
    before the row is built.
    """

    def __init__(self, stream: BinaryIO, encoding: str, name: str, *, needs_end: bool = False, delimiter: str = "") -> None:
        self.held: list[str] = []
        self.is_tainted = False
        self.is_exhausted = False
        self._text = io.TextIOWrapper(stream, encoding=encoding, errors="surrogateescape", newline="")
        self._encoding = encoding
        self._name = name
        self._number = 0
        self._needs_end = needs_end
        self._delimiter = delimiter
        self._held_size = self._held_delimiters = 0

    def clear(self) -> None:
        """Forget the lines held so far."""
        self.held.clear()
        self.is_tainted = False

    def close(self) -> None:
        """Detach the stream, so that it can be read again."""
        self._text.detach()

    def __iter__(self) -> Iterator[str]:
        """Yield each line.

        Raises:
            BadSourceError: the file is binary, a web page, of another encoding, or has an endless line.
            SourceUnavailableError: the disk failed.
        """
        what = f"from about here on the file is not {self._encoding}"
        with as_bad_source(lambda: f"{self._name}:{self._number + 1}", what, hint=_NOT_DECODED):
            yield from self._read()

    def _read(self) -> Iterator[str]:
        hold, line = self.held.append, ""
        for line in self._lines():
            if len(line) > MOST_VALUES or self.held:
                self._check_size(line)
            if "\0" in line and not self._number:
                message = f"character {line.index(chr(0)) + 1} is a NUL byte: this is not {self._encoding} text"
                raise BadSourceError(f"{self._name}:1", message, hint=_UTF_16)
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

    def _lines(self) -> Iterator[str]:
        read_line = partial(self._text.readline, LARGEST_RECORD)
        first = read_line().lstrip("\ufeff")
        _refuse_other_kinds(first, self._name)
        if first:
            yield first
        rest = iter(read_line, "")
        is_cp932 = codecs.lookup(self._encoding).name == "cp932"
        yield from (line.translate(_NO_CP932) for line in rest) if is_cp932 else rest

    def _check_size(self, line: str) -> None:
        """Refuse a line without an end, and a record of many lines that goes on and on."""
        if len(self.held) <= 1:
            held = "".join(self.held)
            self._held_size, self._held_delimiters = len(held), held.count(self._delimiter) if self._delimiter else 0
        self._held_size += len(line)
        self._held_delimiters += line.count(self._delimiter) if self._delimiter else 0
        place, row = f"{self._name}:{self._number + 1 - len(self.held)}", "the row that begins here"
        unclosed, million = "a quote there is probably never closed", LARGEST_RECORD // 2**20
        if len(line) >= LARGEST_RECORD:
            hint = "this does not look like a file of rows; check `source.path`"
            raise BadSourceError(
                f"{self._name}:{self._number + 1}", f"the line is longer than {million} million characters", hint=hint
            )
        if self._held_delimiters > MOST_VALUES:
            raise BadSourceError(
                place, f"{row} has more than {MOST_VALUES} cells", hint="check `source.delimiter`; is it the right file?"
            )
        if len(self.held) > MOST_VALUES:
            raise BadSourceError(place, f"{row} has more than {MOST_VALUES} lines", hint=unclosed)
        if self._held_size > LARGEST_RECORD:
            raise BadSourceError(place, f"{row} is longer than {million} million characters", hint=unclosed)

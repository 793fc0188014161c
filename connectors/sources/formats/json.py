"""A JSON document cut into its records while it is read: never more of it in memory than one of them.

What becomes of a record is `record_file`'s.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from connectors.sources.errors import BadSourceError, CutOffError, EmptySourceError
from connectors.sources.files.opened_file import OpenedFile
from connectors.sources.files.text import PIECE, Lines, TextPieces, chosen_encoding
from connectors.sources.formats.nested import JsonTexts, TooManyValuesError, refuse_many_values
from connectors.sources.formats.records import Record
from connectors.sources.row_checks import LARGEST_RECORD, MOST_VALUES, short
from mappings.outcome import RowLocation
from mappings.spec.source import JsonSource, NdjsonSource

NO_OBJECT = "a record is an object: names and values in braces"
_SPACE = re.compile(r"[ \t\r\n]*")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\*)\]")
_EACH = "*"
_MOST_NAMES = 40
_LONGEST_PIECE = 1024 * 1024
"""Characters that are read at once: what was read beyond a large record's end is no large record itself."""
_LONGEST_MARK = 16
"""Characters. An error so close to the end of what was read may be a number, word or escape that goes on."""


@dataclass(frozen=True, slots=True)
class JsonRecords:
    """Cuts a JSON document into the objects to which `records` leads."""

    spec: JsonSource

    def __call__(self, file: OpenedFile) -> Generator[Record]:
        """Give the records, in their order, numbered from 1."""
        pieces = TextPieces(file, self.spec.encoding or ("utf-8",))
        try:
            yield from self._records(_JsonText(pieces, JsonTexts()), file.name)
        finally:
            pieces.release()

    def _records(self, text: _JsonText, name: str) -> Iterator[Record]:
        steps = [_EACH if match[2] else match[1] for match in _STEP.finditer(self.spec.records)]
        for number, (value, line) in enumerate(_walk(text, steps or [_EACH], is_certain=True), start=1):
            origin = RowLocation(f"{name}:{line} (record {number})", number)
            if isinstance(value, dict):
                yield Record(origin, value, repeats=text.values.repeats_in(value))
            else:
                yield Record(origin, {}, NO_OBJECT, str(value))
        if text.peek():
            raise text.bad("something follows after the document's end")


def _walk(text: _JsonText, steps: Sequence[str], *, is_certain: bool) -> Iterator[tuple[Any, int]]:
    """Follow the steps and give each value that they lead to, with its line."""
    if not steps:
        if text.peek() == "[":
            yield from _items(text, ())
        else:
            line = text.line
            yield text.value(), line
    elif steps[0] == _EACH:
        yield from _items(text, steps[1:])
    else:
        yield from _member(text, steps[0], steps[1:], is_certain=is_certain)


def _items(text: _JsonText, steps: Sequence[str]) -> Iterator[tuple[Any, int]]:
    if text.peek() != "[":
        raise text.bad(_no_list(text), hint=_HINT_RECORDS)
    text.skip("[")
    while text.peek() != "]":
        line = text.line
        if steps:
            yield from _walk(text, steps, is_certain=False)
        else:
            yield text.value(), line
        if text.peek() != "]":
            text.skip(",")
    text.skip("]")


_HINT_RECORDS = "say in `source.records` the way to them, like `data.events`"


def _no_list(text: _JsonText) -> str:
    if text.peek() != "{":
        return "a list of records should begin here"
    lists: list[str] = []
    for key in _keys(text):
        if text.peek() == "[" and len(lists) < _MOST_NAMES:
            lists.append(short(key))
        _pass_over(text)
    return f"a list of records should begin here, and an object does; lists stand under {', '.join(lists) or 'none of its keys'}"


def _keys(text: _JsonText) -> Iterator[str]:
    """Yield the keys of the object that stands here; the caller reads each one's value."""
    text.skip("{")
    while text.peek() != "}":
        key = str(text.value())
        text.skip(":")
        yield key
        if text.peek() != "}":
            text.skip(",")
    text.skip("}")


def _pass_over(text: _JsonText) -> None:
    """Read the value that stands here; of a list no more than one item is held."""
    if text.peek() == "[":
        deque(_items(text, ()), maxlen=0)
    else:
        text.value()


def _member(text: _JsonText, name: str, steps: Sequence[str], *, is_certain: bool) -> Iterator[tuple[Any, int]]:
    is_there, others = False, list[str]()
    for key in _keys(text):
        if key == name:
            is_there = True
            yield from _walk(text, steps, is_certain=is_certain)
            continue
        if len(others) < _MOST_NAMES:
            others.append(short(key))
        _pass_over(text)
    if is_certain and not is_there:
        raise text.bad(f'there is no "{name}" here', hint=f"correct `source.records`; the keys here are {', '.join(others)}")


class _JsonText:
    """The text still to be read, as values and marks."""

    def __init__(self, pieces: TextPieces, values: JsonTexts) -> None:
        self._pieces = pieces
        self.values = values
        self._buffer = ""
        self._place = 0
        self._is_all = False
        self._counted, self._line = 0, 1

    @property
    def line(self) -> int:
        """The line that is being read, from 1."""
        self._line += self._buffer.count("\n", self._counted, self._place)
        self._counted = self._place
        return self._line

    def peek(self) -> str:
        """Return the next character that is no space, "" at the end."""
        while True:
            self._place = _SPACE.match(self._buffer, self._place).end()  # type: ignore[union-attr] # it matches anything
            if self._place < len(self._buffer):
                return self._buffer[self._place]
            if not self._more():
                return ""

    def skip(self, mark: str) -> None:
        """Pass over a mark that must stand here."""
        if self.peek() != mark:
            raise self._ended(f'"{mark}" should stand here')
        self._place += 1

    def value(self) -> Any:
        """Read the value that stands here, whole."""
        self.peek()
        while True:
            try:
                value, end = self.values.decode_at(self._buffer, self._place)
            except json.JSONDecodeError as error:
                reached = error.pos - self._place
                is_open = error.msg.startswith("Unterminated string")
                may_go_on = is_open or len(self._buffer) - error.pos < _LONGEST_MARK
                if not may_go_on or not self._more():
                    self._place += reached
                    raise self._ended(f"this is not JSON: {error.msg}", is_open=is_open) from error
            except RecursionError as error:
                raise self.bad("the document nests too deeply") from error
            else:
                # A number at the end of what was read may go on.
                if end < len(self._buffer) or not self._more():
                    self._place = end
                    return value

    def bad(self, message: str, *, hint: str = "the file may be cut off, or not be JSON at all") -> BadSourceError:
        """Return the error for the place reached."""
        near = short(self._buffer[self._place : self._place + 40])
        found = f' (found: "{near}")' if near else ""
        return BadSourceError(f"{self._pieces.name}:{self.line}", f"{message}{found}", hint=hint)

    def _ended(self, message: str, *, is_open: bool = False) -> BadSourceError:
        """Return the error for the place reached, which may be the end. `is_open`: a text that begins here has no end."""
        error = self.bad(message)
        if not self._is_all or not (is_open or self._place >= len(self._buffer)):
            return error
        return CutOffError(error.place, f"the document ends too early: {message}", hint=error.hint)

    def _more(self) -> bool:
        if self._is_all:
            return False
        rest = len(self._buffer) - self._place
        if rest > LARGEST_RECORD:
            message = f"a value is longer than {LARGEST_RECORD // 2**20} million characters"
            raise self.bad(message, hint="correct `source.records`: it should lead to the single events")
        try:
            refuse_many_values(self._buffer, self._place)
        except TooManyValuesError as error:
            message = f"what begins here is one value that holds more than {MOST_VALUES} others"
            raise self.bad(message, hint="correct `source.records`: it should lead to the single events") from error
        self.line  # noqa: B018  # counts the lines that are dropped now
        # Twice as much each time: a long record is not decoded over and over.
        piece = self._pieces.read(min(max(PIECE, rest), _LONGEST_PIECE))
        self._buffer, self._place, self._counted = self._buffer[self._place :] + piece, 0, 0
        self._is_all = not piece
        return bool(piece)


@dataclass(frozen=True, slots=True)
class NdjsonRecords:
    """Cuts a file into the objects of its lines; blank lines hold none."""

    spec: NdjsonSource

    def __call__(self, file: OpenedFile) -> Generator[Record]:
        """Give the records, in their order, numbered by their line.

        Raises:
            BadSourceError: not even the first line is JSON, or the last one breaks off.
        """
        encoding = chosen_encoding(file.stream, self.spec.encoding or ("utf-8",))
        lines = Lines(file.stream, encoding, file.name, needs_end=not file.has_known_end)
        try:
            yield from _records(lines, file.name)
        finally:
            lines.release()


def _records(lines: Lines, name: str) -> Iterator[Record]:
    number = 0
    is_any = False
    values = JsonTexts()
    for number, line in enumerate(lines, start=1):
        lines.clear()
        if not line.strip():
            continue
        record = _record(values, RowLocation(f"{name}:{number}", number), line)
        if record.problem and not is_any:
            hint = "is it one document over several lines? Then say `kind: json`"
            raise BadSourceError(str(record.origin), f"the first line is no JSON object ({record.problem})", hint=hint)
        is_any = is_any or bool(record.value)
        if record.problem and not line.endswith(("\n", "\r")):
            raise CutOffError(
                str(record.origin), "the file ends in the middle of this line", hint="ask the partner for all of it"
            )
        yield record
    if not number:
        raise EmptySourceError(name, "the file is empty", hint="ask the partner for the whole file")


def _record(values: JsonTexts, origin: RowLocation, line: str) -> Record:
    try:
        value = values.parse(line)
    except TooManyValuesError as error:
        return Record(origin, {}, f"this line cannot be read as one record: {error}", line)
    except ValueError as error:
        return Record(origin, {}, f"this line is not JSON: {error}", line)
    if not isinstance(value, dict):
        return Record(origin, {}, NO_OBJECT, line)
    return Record(origin, value, repeats=values.repeats_in(value))

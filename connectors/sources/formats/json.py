"""Splits JSON and NDJSON documents into records as they are read, with one record in memory at a time.

ijson is faster, but loses repeated names, line numbers, encodings and the text of numbers, and does not limit a record.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from io import StringIO
from typing import Any

from connectors.sources.contract import BadSourceError, CutOffError, EmptySourceError, Reading
from connectors.sources.files.opened_file import OpenedFile, OpenStored
from connectors.sources.files.text import ReadText, TextLines, chosen_encoding, decoded
from connectors.sources.formats.records import JsonParser, Record, Repeated, TooWideError, read_record_file, refuse_many_values
from connectors.sources.rows import LARGEST_RECORD, MOST_VALUES, short
from mappings.columns import ColumnRequest
from mappings.outcome import RowLocation
from mappings.spec.source import JsonSource, NdjsonSource

_NO_OBJECT = "a record is an object: names and values in braces"
_SINGLE_EVENTS = "correct `source.records`: it should lead to the single events"

_SPACE = re.compile(r"[ \t\r\n]*")
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\*)\]")
_EACH, _ANY_KEY = "[*]", "*"
KEY = "#key"
"""The column with the key that stands for the last `*` of the path; `#key2` is that of the `*` before it."""
_Keys = tuple[str, ...]
"""The keys above a record that stand for `*`, the nearest first."""
_Found = tuple[Any, int, _Keys]
_MOST_NAMES = 40
_PIECE = 64 * 1024
_LONGEST_PIECE = 1024 * 1024
"""Characters read at once at most, so that text read beyond a record's end is not taken for a large record."""

_LONGEST_TOKEN = 16
"""Characters. An error this close to the end of the buffer may be an incomplete number, word or escape."""


def read_json(spec: JsonSource | NdjsonSource, open_stored: OpenStored, asked: ColumnRequest) -> AbstractContextManager[Reading]:
    """Read JSON, as one document or one per line, under the contract of `Source.read`."""
    read = partial(_document_records, spec) if isinstance(spec, JsonSource) else partial(_line_records, spec)
    return read_record_file(spec, open_stored, asked, read)


def _document_records(spec: JsonSource, file: OpenedFile) -> Generator[Record]:
    """Yield the objects at the path `records` in order, numbered from 1, with the keys that stand for `*` in it."""
    with decoded(file, spec.encoding or ("utf-8",)) as read:
        text = _JsonText(read, file.name)
        for number, (value, line, keys) in enumerate(_found_in(text, spec.records), start=1):
            for place, key in enumerate(keys if isinstance(value, dict) else (), start=1):
                name = f"{KEY}{place if place > 1 else ''}"
                value[name] = key if value.get(name, key) == key else Repeated.of(name, value[name], key)
            yield _record(text.parser, RowLocation(f"{file.name}:{line} (record {number})", number), value)


def values_in(document: str, path: str, name: str) -> list[Any]:
    """Return the values at a path of a whole document, as the records of a file are found; raises BadSourceError."""
    return [value for value, _, _ in _found_in(_JsonText(StringIO(document).read, name), path)]


def _found_in(text: _JsonText, path: str) -> Iterator[_Found]:
    steps = [_EACH if match[2] else match[1] for match in _STEP.finditer(path)]
    yield from _walk(text, steps or [_EACH], is_certain=True)
    if text.peek():
        raise text.bad("something follows after the document's end")


def _line_records(spec: NdjsonSource, file: OpenedFile) -> Generator[Record]:
    """Yield the objects of a file's lines, numbered by line; blank lines are skipped.

    Raises:
        BadSourceError: not even the first line is JSON, or the last one is cut off.
    """
    encoding = chosen_encoding(file.stream, spec.encoding or ("utf-8",), file.name)
    number, is_any, parser = 0, False, JsonParser()
    with closing(TextLines(file.stream, encoding, file.name, needs_end=not file.has_known_end)) as lines:
        for number, line in enumerate(lines, start=1):
            lines.start = number + 1
            if not line.strip():
                continue
            origin = RowLocation(f"{file.name}:{number}", number)
            try:
                record = _record(parser, origin, parser.parse(line), line)
            except ValueError as error:
                what = "cannot be read as one record" if isinstance(error, TooWideError) else "is not JSON"
                record = Record(origin, {}, f"this line {what}: {error}", line)
            if record.problem and not is_any:
                hint = (
                    "write `kind: json` for a document over several lines; a program prints an object a line, its log on stderr"
                )
                raise BadSourceError(str(record.origin), f"the first line is no JSON object ({record.problem})", hint=hint)
            is_any = is_any or bool(record.value)
            if record.problem and not line.endswith(("\n", "\r")):
                hint = "ask the partner for all of it"
                raise CutOffError(str(record.origin), "the file ends in the middle of this line", hint=hint)
            yield record
    if not number:
        raise EmptySourceError(file.name, "the file is empty", hint="ask the partner for the whole file")


def _record(parser: JsonParser, origin: RowLocation, value: Any, line: str = "") -> Record:
    if isinstance(value, dict):
        return Record(origin, value, has_repeats=parser.take_repeats())
    return Record(origin, {}, _NO_OBJECT, line or str(value))


def _walk(text: _JsonText, steps: Sequence[str], keys: _Keys = (), *, is_certain: bool) -> Iterator[_Found]:
    """Yield each value at the path `steps`, with its line and `keys`; `is_certain`: there must be at least one.

    A path with `*` passes through lists on its way.
    """
    step, is_list = steps[0] if steps else "", text.peek() == "["
    is_name = step not in {"", _EACH, _ANY_KEY}
    if step == _ANY_KEY and not is_list:
        for key in _keys(text):
            yield from _walk(text, steps[1:], (key, *keys), is_certain=False)
    elif is_name and not (is_list and (keys or _ANY_KEY in steps)):
        yield from _member(text, step, steps[1:], keys, is_certain=is_certain)
    elif steps or is_list:
        yield from _items(text, steps if is_name else steps[1:], keys)
    else:
        line = text.line
        yield text.value(), line, keys


def _items(text: _JsonText, steps: Sequence[str], keys: _Keys = ()) -> Iterator[_Found]:
    if text.peek() != "[":
        hint = "write the path to them in `source.records`, like `data.events`, with `*` for the values of an object by any key"
        raise text.bad(_no_list(text), hint=hint)
    text.skip("[")
    while text.peek() != "]":
        line = text.line
        if steps:
            yield from _walk(text, steps, keys, is_certain=False)
        else:
            yield text.value(), line, keys
        if text.peek() != "]":
            text.skip(",")
    text.skip("]")


def _no_list(text: _JsonText) -> str:
    what = "expected a list of records here"
    if text.peek() != "{":
        return what
    lists = [short(key) for key in _keys(text) if _pass_over(text)]
    return f"{what}, not an object; there are lists under {', '.join(lists[:_MOST_NAMES]) or 'none of its keys'}"


def _keys(text: _JsonText) -> Iterator[str]:
    """Yield the keys of the object at the current position; the caller reads each key's value."""
    text.skip("{")
    while text.peek() != "}":
        key = str(text.value())
        text.skip(":")
        yield key
        if text.peek() != "}":
            text.skip(",")
    text.skip("}")


def _pass_over(text: _JsonText) -> bool:
    """Skip the value at the current position, with at most one item of a list in memory. Return whether it is a list."""
    is_list = text.peek() == "["
    if is_list:
        deque(_items(text, ()), maxlen=0)
    else:
        text.value()
    return is_list


def _member(text: _JsonText, name: str, steps: Sequence[str], keys: _Keys, *, is_certain: bool) -> Iterator[_Found]:
    is_there, others = False, list[str]()
    for key in _keys(text):
        if key == name:
            is_there = True
            yield from _walk(text, steps, keys, is_certain=is_certain)
            continue
        if len(others) < _MOST_NAMES:
            others.append(short(key))
        _pass_over(text)
    if is_certain and not is_there:
        raise text.bad(f'there is no "{name}" here', hint=f"correct `source.records`; the keys here are {', '.join(others)}")


class _JsonText:
    """The remaining text, read as values and punctuation."""

    def __init__(self, read: ReadText, name: str) -> None:
        self.parser = JsonParser()
        self._read = read
        self._name = name
        self._buffer = ""
        self._place = 0
        self._is_all = False
        self._counted, self._line = 0, 1

    @property
    def line(self) -> int:
        """The current line, from 1."""
        self._line += self._buffer.count("\n", self._counted, self._place)
        self._counted = self._place
        return self._line

    def peek(self) -> str:
        """Return the next character that is not white space, "" at the end."""
        while True:
            self._place = _SPACE.match(self._buffer, self._place).end()  # type: ignore[union-attr] # it matches anything
            if self._place < len(self._buffer):
                return self._buffer[self._place]
            if not self._more():
                return ""

    def skip(self, mark: str) -> None:
        """Skip an expected character."""
        if self.peek() != mark:
            raise self._ended(f'expected "{mark}" here')
        self._place += 1

    def value(self) -> Any:
        """Parse the value at the current position."""
        self.peek()
        while True:
            try:
                value, end = self.parser.raw_decode(self._buffer, self._place)
            except json.JSONDecodeError as error:
                is_open = error.msg.startswith("Unterminated string")
                may_go_on = is_open or len(self._buffer) - error.pos < _LONGEST_TOKEN
                reached = error.pos - self._place
                if not may_go_on or not self._more():
                    self._place += reached
                    raise self._ended(f"this is not JSON: {error.msg}", is_open=is_open) from error
            except RecursionError as error:
                raise self.bad(
                    "the document nests too deeply", hint="ask for flatter records, or for fewer of their fields"
                ) from error
            else:
                # A number at the end of what was read may go on.
                if end < len(self._buffer) or not self._more():
                    self._place = end
                    return value

    def bad(self, message: str, *, hint: str = "the file may be cut off, or not be JSON at all") -> BadSourceError:
        """Return the error for the current position."""
        near = short(self._buffer[self._place : self._place + 40])
        found = f' (found: "{near}")' if near else ""
        return BadSourceError(f"{self._name}:{self.line}", f"{message}{found}", hint=hint)

    def _ended(self, message: str, *, is_open: bool = False) -> BadSourceError:
        """Return the error for the current position, or for the end of the file. `is_open`: a string that begins here is not
        closed.
        """
        error = self.bad(message)
        if not self._is_all or not (is_open or self._place >= len(self._buffer)):
            return error
        return CutOffError(error.place, f"the document ends too early: {message}", hint=error.hint)

    def _more(self) -> bool:
        if self._is_all:
            return False
        rest = len(self._buffer) - self._place
        if rest > LARGEST_RECORD:
            raise self.bad(f"a value is longer than {LARGEST_RECORD // 2**20} million characters", hint=_SINGLE_EVENTS)
        try:
            refuse_many_values(self._buffer, self._place)
        except TooWideError as error:
            message = f"the value that begins here holds more than {MOST_VALUES} others"
            raise self.bad(message, hint=_SINGLE_EVENTS) from error
        self.line  # noqa: B018  # counts the lines that are dropped now
        # Twice as much each time: a long record is not parsed over and over.
        piece = self._read(min(max(_PIECE, rest), _LONGEST_PIECE))
        self._buffer, self._place, self._counted = self._buffer[self._place :] + piece, 0, 0
        self._is_all = not piece
        return bool(piece)

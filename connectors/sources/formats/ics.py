"""iCalendar (RFC 5545): a file cut into its events, properties and their parameters as nested values, dates in ISO form.

icalendar takes five times as long and holds the whole calendar in memory, and replaces undecodable bytes without a word.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

from connectors.sources.contract import BadSourceError, CutOffError, EmptySourceError
from connectors.sources.files.opened_file import OpenedFile, OpenStored
from connectors.sources.files.text import TextLines, chosen_encoding
from connectors.sources.formats.records import OWN_TEXT, Record, RecordFile
from connectors.sources.rows import LARGEST_RECORD, MOST_VALUES, ColumnRequest, has_undecodable
from mappings.outcome import RowLocation
from mappings.spec.source import IcsSource

_DATES = frozenset({"DTSTART", "DTEND", "RECURRENCE-ID", "EXDATE", "RDATE", "CREATED", "LAST-MODIFIED", "DTSTAMP"})
_LISTS = frozenset({"CATEGORIES", "RESOURCES", "EXDATE", "RDATE"})
_RAW = frozenset({"URL", "RRULE", "EXRULE", "ATTACH", "GEO", "ORGANIZER", "ATTENDEE", "DURATION", "SEQUENCE", "PRIORITY"})
_OF_CALENDAR = frozenset({"X-WR-TIMEZONE", "X-WR-CALNAME", "METHOD"})
_TEXTS = frozenset({"UID", "SUMMARY", "DESCRIPTION", "LOCATION", "STATUS", "COMMENT", "CONTACT", "CLASS", "TRANSP"})

ALWAYS_THERE = frozenset({*_DATES, *(f"{name}.TZID" for name in _DATES), *_LISTS, *_RAW, *_OF_CALENDAR, *_TEXTS})
"""Columns that a feed may use although no event of today's file has them: the RFC's properties, nearly all optional."""

_DEEPEST = 50
_MOST_MOVED = 10_000
"""Days of one series that stand as events of their own."""

_PIECE_BYTES = 64 * 1024
_LONGEST_OF_CALENDAR = 1_000
"""Characters of a property of the calendar, which each of its events has."""

_MARK = re.compile(r'"[^"]*"|[;:]')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_COMMA = re.compile(r"(?<!\\),")
_MOMENT = re.compile(r"(\d{4})(\d{2})(\d{2})(?:T(\d{2})(\d{2})(\d{2})(Z?))?")
_DURATION = re.compile(r"\+?P(?:(\d{1,4})W)?(?:(\d{1,5})D)?(T(?=\d)(?:(\d{1,6})H)?(?:(\d{1,7})M)?(?:(\d{1,8})S)?)?")
_WRONG_FILE = "no calendar has such: is this the right file?"


def ics_file(spec: IcsSource, file: OpenStored, asked: ColumnRequest) -> RecordFile:
    """Return an iCalendar file as one feed reads it: its VEVENTs."""
    return RecordFile(spec, file, replace(asked, optional=asked.optional | ALWAYS_THERE), partial(_records, spec))


def _records(spec: IcsSource, file: OpenedFile) -> Generator[Record]:
    """Yield the events, in their order, numbered by the line on which each begins.

    Raises:
        BadSourceError: this is no iCalendar file, or it ends within an event.
    """
    # Single days of a series may stand as events of their own; most calendars have none, and are parsed once.
    file.stream.seek(0)
    pieces = iter(partial(file.stream.readline, _PIECE_BYTES), b"")
    has_moved_days = any(piece[:13].upper() == b"RECURRENCE-ID" for piece in pieces)
    moved = _moved_days(_read(spec, file)) if has_moved_days else {}
    for record in _read(spec, file):
        days = moved.get(_own_text(record, "UID"), ())
        if days and "RECURRENCE-ID" not in record.value:
            # Except those days from the series that they belong to (RFC 5545, section 3.8.4.4), or they would happen twice.
            known = record.value.get("EXDATE", {OWN_TEXT: ""})
            excepted = ";".join(filter(None, (known[OWN_TEXT], *days)))
            yield replace(record, value={**record.value, "EXDATE": {**known, OWN_TEXT: excepted}})
        else:
            yield record


def _read(spec: IcsSource, file: OpenedFile) -> Generator[Record]:
    file.stream.seek(0)
    encoding = chosen_encoding(file.stream, spec.encoding or ("utf-8",))
    with closing(TextLines(file.stream, encoding, file.name)) as lines:
        yield from _Events(file.name).read(_unfolded(lines, encoding, file.name))


def _moved_days(records: Iterable[Record]) -> dict[str, list[str]]:
    """Return, by UID, the days of series that stand as events of their own.

    Raises:
        BadSourceError: they are too many to be held.
    """
    found: dict[str, list[str]] = {}
    count = 0
    for record in records:
        if day := _own_text(record, "RECURRENCE-ID"):
            days = found.setdefault(_own_text(record, "UID"), [])
            days.append(day)
            count += 1
            if len(days) > _MOST_MOVED or count > MOST_VALUES:
                message = f"more than {_MOST_MOVED} days of one series, or {MOST_VALUES} of all, stand as events of their own"
                raise BadSourceError(str(record.origin), message, hint="ask for a shorter span of the calendar")
    return found


def _own_text(record: Record, name: str) -> str:
    found = record.value.get(name, {}).get(OWN_TEXT, "")
    return found if isinstance(found, str) else found[0]


def _unfolded(lines: TextLines, encoding: str, name: str) -> Iterator[tuple[int, str]]:
    """Join folded lines (RFC 5545, section 3.1), also where the fold has cut a character in two."""
    started, whole = 0, ""
    for number, line in enumerate(lines, start=1):
        lines.start = number + 1
        plain = line.rstrip("\r\n")
        if plain[:1] in {" ", "\t"} and started:
            whole += plain[1:]
            if len(whole) > LARGEST_RECORD:
                message = f"the property that begins here is longer than {LARGEST_RECORD // 2**20} million characters"
                raise BadSourceError(f"{name}:{started}", message, hint="ask the partner to shorten it")
        else:
            if whole:
                yield started, _mended(whole, encoding)
            started, whole = number, plain
    if whole:
        yield started, _mended(whole, encoding)


def _mended(text: str, encoding: str) -> str:
    if not has_undecodable(text):
        return text
    try:
        return text.encode(encoding, "surrogateescape").decode(encoding, "surrogateescape")
    except UnicodeError:  # UTF-16 has no single bytes to join: its rows say that they are not text
        return text


class _Events:
    """The events of a file's lines; what stands inside an event's alarms is passed over."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[tuple[str, int]] = []
        self._is_begun = False
        self._calendar: dict[str, Any] = {}
        self._event: dict[str, Any] = {}
        self._size = self._count = 0

    def read(self, lines: Iterable[tuple[int, str]]) -> Iterator[Record]:
        """Yield a record at the end of each event."""
        for number, line in lines:
            if len(line) > MOST_VALUES and line.count(";") + line.count(",") > MOST_VALUES:
                raise self._bad(number, f"this property has more than {MOST_VALUES} parameters or values")
            if not line.strip():
                continue
            word, parameters, text = _parted(line)
            if word == "BEGIN":
                self._begin(text.strip().upper(), number)
            elif not self._open:
                raise self._bad(number, "this is no iCalendar file: BEGIN:VCALENDAR should stand here", hint="")
            elif word == "END":
                yield from self._end(text.strip().upper(), number)
            else:
                self._property(number, line, word, parameters, text)
        self._check_end()

    def _check_end(self) -> None:
        if not self._is_begun:
            raise EmptySourceError(self._name, "the file is empty", hint="ask the partner for the whole file")
        if self._open:
            part, first = self._open[-1]
            hint = "it was cut off: ask the partner for the whole file"
            raise CutOffError(f"{self._name}:{first}", f"the file ends within the {part} that begins here", hint=hint)

    def _begin(self, part: str, number: int) -> None:
        self._is_begun = True
        if not self._open:
            self._calendar = {}
        self._open.append((part, number))
        if len(self._open) > _DEEPEST:
            raise self._bad(number, f"more than {_DEEPEST} components stand inside one another", hint="")
        if part == "VEVENT":
            self._event, self._size, self._count = {}, 0, 0

    def _end(self, part: str, number: int) -> Iterator[Record]:
        begun, first = self._open.pop()
        if part != begun:
            raise self._bad(number, f"END:{part} stands where the {begun} of line {first} should end", hint="")
        if part == "VEVENT":
            yield Record(RowLocation(f"{self._name}:{first}", first), _finished({**self._calendar, **self._event}))

    def _property(self, number: int, line: str, word: str, parameters: dict[str, str], text: str) -> None:
        part, first = self._open[-1]
        if part == "VEVENT":
            self._size, self._count = self._size + len(line), self._count + 1
            if self._count > MOST_VALUES:
                raise self._bad(number, f"the event of line {first} has more than {MOST_VALUES} properties")
            if self._size > LARGEST_RECORD:
                million = LARGEST_RECORD // 2**20
                raise self._bad(number, f"the event of line {first} is longer than {million} million characters")
            _put(self._event, word, parameters, text)
        elif len(self._open) == 1 and word in _OF_CALENDAR and word not in self._calendar:
            if len(line) > _LONGEST_OF_CALENDAR:
                raise self._bad(number, f"the calendar's {word} is longer than {_LONGEST_OF_CALENDAR} characters")
            _put(self._calendar, word, parameters, text)

    def _bad(self, number: int, message: str, *, hint: str = _WRONG_FILE) -> BadSourceError:
        return BadSourceError(f"{self._name}:{number}", message, hint=hint)


def _parted(line: str) -> tuple[str, dict[str, str], str]:
    """Return a line's name, its parameters and its value."""
    marks = [0]
    for match in _MARK.finditer(line):
        if match[0] in ":;":
            marks.append(match.start() + 1)
            if match[0] == ":":
                break
    pieces = [line[start : end - 1] for start, end in pairwise(marks)]
    if not pieces:
        return line.upper(), {}, ""
    named = (piece.partition("=") for piece in pieces[1:])
    return pieces[0].upper(), {key.upper(): value.strip('"') for key, _, value in named if key}, line[marks[-1] :]


def _put(record: dict[str, Any], word: str, parameters: dict[str, str], text: str) -> None:
    parts = [_value(word, part) for part in (_COMMA.split(text) if word in _LISTS else [text])]
    known = record.get(word)
    if known is None:
        record[word] = {OWN_TEXT: parts if word in _LISTS else parts[0], **parameters}
    elif isinstance(known[OWN_TEXT], list):
        known[OWN_TEXT] += parts
    else:
        known[OWN_TEXT] = [known[OWN_TEXT], *parts]


def _value(word: str, text: str) -> str:
    if word in _DATES:
        return _iso(text)
    return text if word in _RAW else _ESCAPE.sub(lambda match: "\n" if match[1] in "nN" else match[1], text)


def _iso(text: str) -> str:
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        return text
    year, month, day, hour, minute, second, utc = match.groups()
    return f"{year}-{month}-{day}" if hour is None else f"{year}-{month}-{day}T{hour}:{minute}:{second}{utc}"


def _finished(event: dict[str, Any]) -> dict[str, Any]:
    """Make one text of each list, and give the end that follows from a DURATION (RFC 5545, section 3.6.1)."""
    for word in _LISTS.intersection(event):
        event[word][OWN_TEXT] = ";".join(event[word][OWN_TEXT])
    start, length = event.get("DTSTART"), event.get("DURATION")
    if start is not None and length is not None and "DTEND" not in event:
        end = _end_after(start[OWN_TEXT], length[OWN_TEXT])
        return {**event, "DTEND": {**start, OWN_TEXT: end}} if end else event
    return event


def _end_after(start: object, length: object) -> str:
    """Return the ISO form of the day or moment at which an event ends, "" where its start or its length cannot be read.

    An hour is one on the clocks of the start's zone: in the night in which they change, it may be off by what they skip.
    """
    match = _DURATION.fullmatch(length.strip().upper()) if isinstance(length, str) else None
    if not isinstance(start, str) or match is None or not any(match.groups()):
        return ""
    weeks, days, _, hours, minutes, seconds = (int(part) if part and part[0] != "T" else 0 for part in match.groups())
    duration = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    try:
        if "T" in start:
            moment = datetime.fromisoformat(start.removesuffix("Z")) + duration
            return moment.isoformat() + ("Z" if start.endswith("Z") else "")
        return "" if duration % timedelta(days=1) else (date.fromisoformat(start) + duration).isoformat()
    except (ValueError, OverflowError):
        return ""

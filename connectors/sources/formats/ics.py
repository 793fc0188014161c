"""iCalendar (RFC 5545): splits a file into events, with properties and parameters as nested values and ISO dates.

icalendar takes five times as long, holds the whole calendar in memory, and replaces undecodable bytes without notice.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import partial
from itertools import chain, pairwise
from typing import Any

from connectors.sources.contract import BadSourceError, CutOffError, EmptySourceError, Reading
from connectors.sources.files.opened_file import OpenedFile, OpenStored
from connectors.sources.files.text import TextLines, chosen_encoding
from connectors.sources.formats.records import OWN_TEXT, Record, Repeated, read_record_file
from connectors.sources.rows import LARGEST_RECORD, MOST_VALUES, has_undecodable
from mappings.columns import ColumnRequest
from mappings.outcome import RowLocation
from mappings.spec.source import IcsSource

_DATES = frozenset({"DTSTART", "DTEND", "RECURRENCE-ID", "EXDATE", "RDATE", "CREATED", "LAST-MODIFIED", "DTSTAMP"})
_LISTS = frozenset({"CATEGORIES", "RESOURCES", "EXDATE", "RDATE"})
_RAW = frozenset({"URL", "RRULE", "EXRULE", "ATTACH", "GEO", "ORGANIZER", "ATTENDEE", "DURATION", "SEQUENCE", "PRIORITY"})
_OF_CALENDAR = frozenset({"X-WR-TIMEZONE", "X-WR-CALNAME", "METHOD"})
_TEXTS = frozenset({"UID", "SUMMARY", "DESCRIPTION", "LOCATION", "STATUS", "COMMENT", "CONTACT", "CLASS", "TRANSP"})
_ONCE = frozenset(
    {*_TEXTS, *_OF_CALENDAR, "DTSTART", "DTEND", "DURATION", "RECURRENCE-ID", "CREATED", "LAST-MODIFIED", "DTSTAMP"}
    | {"GEO", "ORGANIZER", "PRIORITY", "SEQUENCE", "URL"}
) - {"COMMENT", "CONTACT"}
"""Properties that an event or a calendar may have once (RFC 5545, section 3.6.1)."""

ALWAYS_THERE = frozenset({*_DATES, *(f"{name}.TZID" for name in _DATES), *_LISTS, *_RAW, *_OF_CALENDAR, *_TEXTS})
"""Columns that always exist even if no event has them: the RFC's properties, nearly all of which are optional."""

_DEEPEST = 50
_MOST_MOVED = 10_000
"""The most days of one series that are separate events."""

_PIECE_BYTES = 64 * 1024
_LONGEST_OF_CALENDAR = 1_000
"""The longest property of the calendar, in characters; each of its events has a copy."""

_MARK = re.compile(r'"[^"]*"|[;:]')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_COMMA = re.compile(r"(?<!\\),")
_MOMENT = re.compile(r"(\d{4})(\d{2})(\d{2})(?:T(\d{2})(\d{2})(\d{2})(Z?))?")
_DURATION = re.compile(r"\+?P(?:(\d{1,4})W)?(?:(\d{1,5})D)?(T(?=\d)(?:(\d{1,6})H)?(?:(\d{1,7})M)?(?:(\d{1,8})S)?)?")
_WRONG_FILE = "that is unusual for a calendar: is it the right file?"


def read_ics(spec: IcsSource, open_stored: OpenStored, asked: ColumnRequest) -> AbstractContextManager[Reading]:
    """Read the VEVENTs of a calendar under the contract of `Source.read`."""
    asked = replace(asked, optional=asked.optional | ALWAYS_THERE)
    return read_record_file(spec, open_stored, asked, partial(_records, spec))


def _records(spec: IcsSource, file: OpenedFile) -> Generator[Record]:
    """Yield the events in order, numbered by the line on which each begins.

    Raises:
        BadSourceError: this is not an iCalendar file, or it ends within an event.
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
        yield from _events(file.name, _unfolded(lines, encoding, file.name))


def _moved_days(records: Iterable[Record]) -> dict[str, list[str]]:
    """Return, by UID, the days of series that are separate events.

    Raises:
        BadSourceError: there are too many to keep in memory.
    """
    found: dict[str, list[str]] = {}
    count = 0
    for record in records:
        if day := _own_text(record, "RECURRENCE-ID"):
            days = found.setdefault(_own_text(record, "UID"), [])
            days.append(day)
            count += 1
            if len(days) > _MOST_MOVED or count > MOST_VALUES:
                message = f"more than {_MOST_MOVED} days of one series, or {MOST_VALUES} of all, are separate events"
                raise BadSourceError(str(record.origin), message, hint="ask for a shorter span of the calendar")
    return found


def _own_text(record: Record, name: str) -> str:
    found = record.value.get(name, {}).get(OWN_TEXT, "")
    return found if isinstance(found, str) else found[0]


def _unfolded(lines: TextLines, encoding: str, name: str) -> Iterator[tuple[int, str]]:
    """Join folded lines (RFC 5545, section 3.1), also if a fold splits a character; skip blank lines."""
    started, whole = 0, ""
    for number, line in enumerate(chain(lines, [""]), start=1):
        lines.start = number + 1
        plain = line.rstrip("\r\n")
        if started and plain[:1] in {" ", "\t"}:
            whole += plain[1:]
            if len(whole) > LARGEST_RECORD:
                message = f"the property that begins here is longer than {LARGEST_RECORD // 2**20} million characters"
                raise BadSourceError(f"{name}:{started}", message, hint="ask the partner to shorten it")
            continue
        if len(whole) > MOST_VALUES and whole.count(";") + whole.count(",") > MOST_VALUES:
            message = f"this property has more than {MOST_VALUES} parameters or values"
            raise BadSourceError(f"{name}:{started}", message, hint=_WRONG_FILE)
        if whole.strip():
            yield started, _mended(whole, encoding)
        started, whole = number, plain


def _mended(text: str, encoding: str) -> str:
    if not has_undecodable(text):
        return text
    try:
        return text.encode(encoding, "surrogateescape").decode(encoding, "surrogateescape")
    except UnicodeError:  # UTF-16 has no single bytes to join: its rows say that they are not text
        return text


@dataclass(slots=True)
class _Component:
    """The content between `BEGIN:name`, on `line`, and its end; only calendars and events keep their properties."""

    name: str
    line: int
    properties: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    count: int = 0

    def put(self, line: str) -> str:
        """Add a property; return what is wrong with it, "" if nothing."""
        word, parameters, text = _parted(line)
        if self.name == "VEVENT":
            self.size, self.count = self.size + len(line), self.count + 1
            if self.count > MOST_VALUES:
                return f"the event of line {self.line} has more than {MOST_VALUES} properties"
            if self.size > LARGEST_RECORD:
                return f"the event of line {self.line} is longer than {LARGEST_RECORD // 2**20} million characters"
            _put(self.properties, word, parameters, text)
        elif self.name == "VCALENDAR" and word in _OF_CALENDAR:
            if len(line) > _LONGEST_OF_CALENDAR:
                return f"the calendar's {word} is longer than {_LONGEST_OF_CALENDAR} characters"
            _put(self.properties, word, parameters, text)
        return ""


def _events(name: str, lines: Iterable[tuple[int, str]]) -> Iterator[Record]:
    """Yield a record at the end of each event; alarms inside events are ignored."""
    number, begun = 0, list[_Component]()
    for number, line in lines:
        wrong, hint = "", ""
        word, _, part = line.strip().upper().partition(":")
        if word == "BEGIN":
            begun.append(_Component(part, number))
            wrong = f"more than {_DEEPEST} components are nested" if len(begun) > _DEEPEST else ""
        elif not begun:
            wrong = "this is not an iCalendar file: it should begin with BEGIN:VCALENDAR"
        elif word != "END":
            wrong, hint = begun[-1].put(line), _WRONG_FILE
        elif (ended := begun.pop()).name != part:
            wrong = f"there is END:{part} where the {ended.name} of line {ended.line} should end"
        elif part == "VEVENT":
            properties = _finished({**(begun[0].properties if begun else {}), **ended.properties})
            yield Record(RowLocation(f"{name}:{ended.line}", ended.line), properties)
        if wrong:
            raise BadSourceError(f"{name}:{number}", wrong, hint=hint)
    if not number:
        raise EmptySourceError(name, "the file is empty", hint="ask the partner for the whole file")
    if begun:
        hint = "it was cut off: ask the partner for the whole file"
        raise CutOffError(f"{name}:{begun[-1].line}", f"the file ends within the {begun[-1].name} that begins here", hint=hint)


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
    elif word in _ONCE:
        if known != {OWN_TEXT: parts[0], **parameters}:
            known[OWN_TEXT] = Repeated.of(word, known[OWN_TEXT], parts[0])
    elif isinstance(known[OWN_TEXT], list):
        known[OWN_TEXT] += parts
    else:
        known[OWN_TEXT] = [known[OWN_TEXT], *parts]


def _value(word: str, text: str) -> str:
    if word not in _DATES:
        return text if word in _RAW else _ESCAPE.sub(lambda match: "\n" if match[1] in "nN" else match[1], text)
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        return text
    day, clock = "-".join(match.group(1, 2, 3)), match.group(4, 5, 6)
    return f"{day}T{':'.join(clock)}{match[7]}" if match[4] else day


def _finished(event: dict[str, Any]) -> dict[str, Any]:
    """Join each list to one text, and add the end computed from a DURATION (RFC 5545, section 3.6.1)."""
    for word in _LISTS.intersection(event):
        event[word][OWN_TEXT] = ";".join(event[word][OWN_TEXT])
    start, length = event.get("DTSTART"), event.get("DURATION")
    if start is not None and length is not None and "DTEND" not in event:
        end = _end_after(start[OWN_TEXT], length[OWN_TEXT])
        return {**event, "DTEND": {**start, OWN_TEXT: end}} if end else event
    return event


def _end_after(start: object, length: object) -> str:
    """Return the ISO day or time at which an event ends, "" if its start or duration cannot be parsed.

    Hours are counted on the wall clock of the start's zone, so across a clock change the end may be off by the change.
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

"""iCalendar (RFC 5545): splits a file into events, and reads each occurrence of a series as a record.

icalendar holds the whole calendar in memory, has no limits and no line numbers, replaces undecodable bytes without notice, and
drops lines that are no property. So it gets only what `ics_series` needs of the events that repeat.
"""

from __future__ import annotations

import quopri
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time
from functools import partial
from itertools import pairwise
from typing import Any

from icalendar.prop import TypesFactory

from connectors.sources.contract import BadSourceError, CutOffError, EmptySourceError, Reading
from connectors.sources.files.opened_file import OpenedFile, OpenStored
from connectors.sources.files.text import TextLines, chosen_encoding
from connectors.sources.formats.ics_series import (
    DatedEvent,
    Moment,
    Occurrence,
    Property,
    Reach,
    Series,
    SeriesError,
    TimeZones,
    moment_text,
    newest,
)
from connectors.sources.formats.records import OWN_TEXT, Record, Repeated, read_record_file
from connectors.sources.rows import LARGEST_RECORD, MOST_VALUES, has_undecodable
from mappings.columns import ColumnRequest
from mappings.outcome import OVER, TOO_FAR, RowLocation, Unread
from mappings.reasons import ReasonCode
from mappings.spec.source import IcsSource

_DATES = frozenset({"DTSTART", "DTEND", "RECURRENCE-ID", "EXDATE", "RDATE", "CREATED", "LAST-MODIFIED", "DTSTAMP"})
_LISTS = frozenset({"CATEGORIES", "RESOURCES", "EXDATE", "RDATE"})
_RAW = frozenset({"URL", "RRULE", "EXRULE", "ATTACH", "GEO", "ORGANIZER", "ATTENDEE", "DURATION", "SEQUENCE", "PRIORITY"})
_OF_CALENDAR = frozenset({"X-WR-TIMEZONE", "X-WR-CALNAME", "METHOD"})
_WORDS = frozenset({"SUMMARY", "DESCRIPTION", "LOCATION", "COMMENT", "CONTACT", "CATEGORIES", "RESOURCES"})
"""Properties in which people write: a line that is no property belongs to the one above."""
_TEXTS = frozenset({*_WORDS, "UID", "STATUS", "CLASS", "TRANSP"}) - {"CATEGORIES", "RESOURCES"}
_ONCE = frozenset(
    {*_TEXTS, *_OF_CALENDAR, "DTSTART", "DTEND", "DURATION", "RECURRENCE-ID", "CREATED", "LAST-MODIFIED", "DTSTAMP"}
    | {"GEO", "ORGANIZER", "PRIORITY", "SEQUENCE", "URL"}
) - {"COMMENT", "CONTACT"}
"""Properties that an event or a calendar may have once (RFC 5545, section 3.6.1)."""
_OF_SERIES = ("RRULE", "RDATE", "EXRULE", "EXDATE")
_WHEN = frozenset({"DTSTART", "DTEND", "DURATION", "RECURRENCE-ID", "SEQUENCE", *_OF_SERIES})
"""Properties that say when an event happens."""

ALWAYS_THERE = frozenset({*_DATES, *(f"{name}.TZID" for name in _DATES), *_LISTS, *_RAW, *_OF_CALENDAR, *_TEXTS})
"""Columns that always exist even if no event has them: the RFC's properties, nearly all of which are optional."""

_DEEPEST = 50
_MOST_TOGETHER = 10_000
"""The most events with one UID."""
_LONGEST_OF_CALENDAR = 1_000
"""The longest property of the calendar, in characters; each of its events has a copy."""

_MARK = re.compile(r'"[^"]*"|[;:]')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_COMMA = re.compile(r"(?<!\\),")
_MOMENT = re.compile(r"(\d{4})(\d{2})(\d{2})(?:T(\d{2})(\d{2})(\d{2})(Z?))?")
_NAME = re.compile(r"([A-Za-z0-9-]+)[;:]( ?)")
_STRUCTURE = re.compile(r"(?:BEGIN|END):(?:V[A-Z]+|STANDARD|DAYLIGHT|AVAILABLE|PARTICIPANT|X-[A-Z0-9-]+)\s*", re.IGNORECASE)
_KNOWN_NAMES = frozenset(TypesFactory().types_map)
_WRONG_FILE = "that is unusual for a calendar: is it the right file?"


def read_ics(spec: IcsSource, open_stored: OpenStored, asked: ColumnRequest, now: datetime) -> AbstractContextManager[Reading]:
    """Read the events of a calendar under the contract of `Source.read`; a series as its occurrences around `now`."""
    asked = replace(asked, optional=asked.optional | ALWAYS_THERE)
    today = datetime.combine(now.astimezone(UTC).date(), time(), UTC)
    reach = Reach(today + spec.series.start, today + spec.series.end)
    return read_record_file(spec, open_stored, asked, partial(_records, spec, reach))


def _records(spec: IcsSource, reach: Reach, file: OpenedFile) -> Generator[Record]:
    """Yield a record for each single event and each occurrence of a series, numbered by the line on which the event begins.

    The file is read twice: what an event means depends on others with its UID, and on time zones that may follow it.

    Raises:
        BadSourceError: this is not an iCalendar file, or it ends within an event.
    """
    numbers, definitions = Counter[str](), dict[str, str]()
    for component in _components(spec, file, names=("UID", "TZID")):
        if component.name == "VTIMEZONE":
            tzid = component.text("TZID")
            # Two calendars in a file may mean different zones.
            definitions[tzid] = component.content if definitions.get(tzid, component.content) == component.content else ""
        else:
            numbers[component.text("UID")] += 1
    zones, waiting = TimeZones(definitions), dict[str, list[_Component]]()
    for component in _components(spec, file):
        uid = component.text("UID")
        if component.name != "VEVENT":
            continue
        if not uid or numbers[uid] == 1:
            yield from _events_together([component], zones, reach)
        elif numbers[uid] > _MOST_TOGETHER:
            if uid not in waiting:
                problem = f"more than {_MOST_TOGETHER:,} events have its UID: ask for a shorter span of the calendar"
                yield component.unread(Unread(), problem=problem)
            waiting[uid] = []
        else:
            family = waiting.setdefault(uid, [])
            family.append(component)
            if len(family) == numbers[uid]:
                yield from _events_together(waiting.pop(uid), zones, reach)


def _events_together(family: Sequence[_Component], zones: TimeZones, reach: Reach) -> Iterator[Record]:
    """Yield the records of the events with one UID: the newest version of each, or the occurrences of the series."""
    components = {component.line: component for component in family}
    events = newest([component.dated(zones) for component in family])
    are_moved = {event.first("RECURRENCE-ID") is not None for event in events}
    if len(are_moved) == 1 and not any(event.repeats for event in events):
        yield from (components[event.line].record(zones, reach) for event in events)
        return
    first = components[min(events, key=lambda event: (event.first("RECURRENCE-ID") is not None, not event.repeats)).line]
    try:
        series = Series(events, reach, zones.find(first.text("X-WR-TIMEZONE")).named)
        occurrences, goes_on = series.occurrences(), series.goes_on
    except SeriesError as error:
        yield first.unread(Unread(), problem=f"the series cannot be read: {error}")
        return
    yield from (components[one.event.line].occurrence(one, first, zones) for one in occurrences)
    if goes_on or not occurrences:
        yield first.unread(Unread(reach.last_day if goes_on else "", TOO_FAR if goes_on else OVER))


def _components(spec: IcsSource, file: OpenedFile, names: tuple[str, ...] = ("",)) -> Generator[_Component]:
    """Yield the time zones and events of a calendar, with the properties that begin with `names`; alarms are ignored."""
    file.stream.seek(0)
    encoding = chosen_encoding(file.stream, spec.encoding or ("utf-8",), file.name)
    with closing(TextLines(file.stream, encoding, file.name)) as lines:
        yield from _split(file.name, _unfolded(lines, encoding, file.name), names)


def _split(name: str, lines: Iterable[tuple[int, str]], names: tuple[str, ...]) -> Iterator[_Component]:
    number, begun, has_ended = 0, list[_Component](), False
    for number, line in lines:
        wrong, hint = "", ""
        word, _, part = line.partition(":")
        word = word.strip().upper()
        if word in {"BEGIN", "END"}:
            part = part.strip().upper()
        if word == "BEGIN":
            begun.append(_Component(part, number, name))
            wrong = f"more than {_DEEPEST} components are nested" if len(begun) > _DEEPEST else ""
        zone = next((one for one in begun[:2] if one.name == "VTIMEZONE"), None)
        if zone is not None:
            wrong = wrong or zone.keep(line)
        if has_ended and not begun and word != "END" and _NAME.match(line):
            continue  # a comment after the calendar, such as a cache's
        if not begun:
            wrong = "this is not an iCalendar file: it should begin with BEGIN:VCALENDAR"
        elif word not in {"BEGIN", "END"}:
            wrong, hint = wrong or (begun[-1].put(line) if word.startswith(names) else ""), _WRONG_FILE
        elif word == "END" and (ended := begun.pop()).name != part:
            wrong = f"there is END:{part} where the {ended.name} of line {ended.line} should end"
        elif word == "END" and part in {"VEVENT", "VTIMEZONE"}:
            has_ended = True
            if part == "VEVENT" and begun:
                ended.properties = {**begun[0].properties, **ended.properties}
            yield ended
        if wrong:
            raise BadSourceError(f"{name}:{number}", wrong, hint=hint)
    _check_whole(name, number, begun)


def _check_whole(name: str, number: int, begun: Sequence[_Component]) -> None:
    """Raise an error if a file of `number` lines is empty, or ends within components that have `begun`."""
    if not number:
        raise EmptySourceError(name, "the file is empty", hint="ask the partner for the whole file")
    if begun:
        hint = "it was cut off: ask the partner for the whole file"
        raise CutOffError(f"{name}:{begun[-1].line}", f"the file ends within the {begun[-1].name} that begins here", hint=hint)


def _unfolded(lines: TextLines, encoding: str, name: str) -> Iterator[tuple[int, str]]:
    """Join folded lines (RFC 5545, section 3.1), also if a fold splits a character; skip blank lines.

    A line that is no property belongs to the text above it, whose line breaks the file's program did not escape.
    """
    started, whole = 0, ""
    for number, line in enumerate(lines, start=1):
        lines.start = number + 1
        plain = line.rstrip("\r\n")
        is_folded = plain[:1] in {" ", "\t"}
        is_quoted = whole.endswith("=") and "QUOTED-PRINTABLE" in whole.partition(":")[0].upper()
        if started and (is_folded or is_quoted or _goes_on(whole, plain)):
            whole = whole[:-1] + plain if is_quoted else whole + (plain[1:] if is_folded else f"\\n{plain}")
            if len(whole) > LARGEST_RECORD:
                message = f"the property that begins here is longer than {LARGEST_RECORD // 2**20} million characters"
                raise BadSourceError(f"{name}:{started}", message, hint="ask the partner to shorten it")
        elif plain.strip():
            if started:
                yield started, _whole_line(whole, encoding, f"{name}:{started}")
            started, whole = number, plain
    if started:
        yield started, _whole_line(whole, encoding, f"{name}:{started}")


def _whole_line(whole: str, encoding: str, place: str) -> str:
    if len(whole) > MOST_VALUES and whole.count(";") + whole.count(",") > MOST_VALUES:
        raise BadSourceError(place, f"this property has more than {MOST_VALUES} parameters or values", hint=_WRONG_FILE)
    return _mended(whole, encoding)


def _goes_on(whole: str, line: str) -> bool:
    """Return whether a line is a part of the text before it, not a property or the begin or end of a component.

    A property's name is a known one, or in capitals; no blank follows it, unless it is both.
    """
    name = _NAME.match(line)
    if name is not None and name[1] in _KNOWN_NAMES:
        return False
    above = _NAME.match(whole)
    if not line.strip() or above is None or not (above[1].upper() in _WORDS or above[1].upper().startswith("X-")):
        return False
    if name is None or name[1].upper() in {"BEGIN", "END"}:
        return _STRUCTURE.fullmatch(line) is None
    is_known = name[1].upper() in _KNOWN_NAMES or name[1].upper().startswith("X-")
    return not (is_known and name[1].isupper()) and bool(name[2] or not (is_known or name[1].isupper()))


def _mended(text: str, encoding: str) -> str:
    if not has_undecodable(text):
        return text
    try:
        return text.encode(encoding, "surrogateescape").decode(encoding, "surrogateescape")
    except UnicodeError:  # UTF-16 has no single bytes to join: its rows say that they are not text
        return text


@dataclass(slots=True)
class _Component:
    """The content between `BEGIN:name`, on `line` of `file`, and its end. Only calendars, events and time zones keep it."""

    name: str
    line: int
    file: str
    properties: dict[str, Any] = field(default_factory=dict)
    when: list[Property] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    size: int = 0
    count: int = 0

    @property
    def location(self) -> RowLocation:
        return RowLocation(f"{self.file}:{self.line}", self.line)

    @property
    def content(self) -> str:
        """The lines of a time zone."""
        return "".join(f"{line}\r\n" for line in self.lines)

    def text(self, name: str) -> str:
        """Return the text of a property, "" if there is none."""
        found = self.properties.get(name, {}).get(OWN_TEXT, "")
        return str(found[0] if isinstance(found, list) else found).strip()

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
            if word in _WHEN and text.strip():
                self.when.append(Property(word, parameters, text))
        elif self.name == "VCALENDAR" and word in _OF_CALENDAR:
            if len(line) > _LONGEST_OF_CALENDAR:
                return f"the calendar's {word} is longer than {_LONGEST_OF_CALENDAR} characters"
            _put(self.properties, word, parameters, text)
        elif self.name == "VTIMEZONE" and word == "TZID":
            _put(self.properties, word, parameters, text)
        return ""

    def keep(self, line: str) -> str:
        """Keep a line of a time zone; return what is wrong with it, "" if nothing."""
        self.size += len(line)
        self.lines.append(line)
        return (
            f"the time zone of line {self.line} is longer than {LARGEST_RECORD // 2**20} million characters"
            if self.size > LARGEST_RECORD
            else ""
        )

    def dated(self, zones: TimeZones) -> DatedEvent:
        """Return what says when the event happens."""
        return DatedEvent(self.line, self.when, zones)

    def record(self, zones: TimeZones, reach: Reach) -> Record:
        """Return the record of a single event."""
        dated, value, problem = self.dated(zones), self.properties.copy(), ""
        last, original = dated.moment("DTSTART"), dated.moment("RECURRENCE-ID")
        try:
            span = dated.span
        except SeriesError as error:
            span, problem = None, str(error)
        if span is not None and "DTSTART" in value:
            value["DTSTART"] = self._cell("DTSTART", span[0], zones)
            if "DTEND" in value or span[1] != span[0]:
                value["DTEND"] = self._cell("DTEND" if "DTEND" in value else "DTSTART", span[1], zones)
        if original is not None:
            value["RECURRENCE-ID"] = self._cell("RECURRENCE-ID", original, zones)
        if span is not None:
            last, problem = span[1], self._contradiction(span, zones)
        # Of what happened long ago the name's own history is the better source.
        problem = problem if last is not None and reach.is_before(last) else ""
        return Record(self.location, _joined(value), problem, code=ReasonCode.BAD_SERIES)

    def occurrence(self, one: Occurrence, first: _Component, zones: TimeZones) -> Record:
        """Return the record of an occurrence of the series that `first` begins."""
        value = {name: found for name, found in self.properties.items() if name not in _OF_SERIES}
        start = "DTSTART" if "DTSTART" in value else "RECURRENCE-ID"
        value["RECURRENCE-ID"] = first._cell("DTSTART", one.original, zones)
        value["DTSTART"] = self._cell(start, one.start, zones)
        if "DTEND" in value or one.start != one.end:
            value["DTEND"] = self._cell(start, one.end, zones)
        place = f"{self.file}:{self.line} ({value['RECURRENCE-ID'][OWN_TEXT]})"
        problem = self._contradiction((one.start, one.end), zones)
        return Record(RowLocation(place, self.line), _joined(value), problem, code=ReasonCode.BAD_SERIES)

    def unread(self, unread: Unread, *, problem: str = "") -> Record:
        """Return a record for the occurrences of a series that are not read."""
        value = {name: found for name, found in self.properties.items() if name not in {*_OF_SERIES, "RECURRENCE-ID"}}
        rule = self.text("RRULE") or self.text("RDATE")
        return Record(self.location, _joined(value), problem, rule, code=ReasonCode.BAD_SERIES, unread=unread)

    def _contradiction(self, span: tuple[Moment, Moment], zones: TimeZones) -> str:
        """Return why the time zone of the event is undecided, "" if it is clear."""
        for name, moment in zip(("DTSTART", "DTEND"), span, strict=True):
            tzid = self.properties.get(name, {}).get("TZID", "")
            if offsets := zones.find(tzid).contradiction(moment):
                return f"the time zone {tzid} of the file and the one of that name differ then: {offsets}"
        return ""

    def _cell(self, name: str, moment: Moment, zones: TimeZones) -> dict[str, Any]:
        """Return a moment as the property `name` would write it; without a TZID that only the file knows."""
        parameters = {key: text for key, text in self.properties.get(name, {}).items() if key != OWN_TEXT}
        zone = zones.find(parameters.get("TZID", ""))
        if zone.named is None and zone.own is not None:
            del parameters["TZID"]
        return {OWN_TEXT: moment_text(moment, zone.named), **parameters}


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
    if parameters.get("ENCODING", "").upper() == "QUOTED-PRINTABLE":
        text = _unquoted(text, parameters.get("CHARSET", "utf-8"))
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


def _unquoted(text: str, charset: str) -> str:
    """Decode quoted-printable, as vCalendar 1.0 and old programs write it; bytes that are no text stay undecodable."""
    octets = quopri.decodestring(text.encode("utf-8", "surrogateescape"))
    try:
        return octets.decode(charset, "surrogateescape")
    except (LookupError, UnicodeError):
        return octets.decode("ascii", "surrogateescape")


def _joined(value: dict[str, Any]) -> dict[str, Any]:
    """Join each list of an event to one text."""
    lists = {word: {**value[word], OWN_TEXT: ";".join(value[word][OWN_TEXT])} for word in _LISTS.intersection(value)}
    return {**value, **lists}

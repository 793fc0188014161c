"""The first mapping file of a sample of rows, with how sure each guess is, and its examples. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from mappings.compiler.mapper import Directory, RowMapper, compile_with_problems
from mappings.compiler.rows import needs_the_moment
from mappings.draft.columns import ColumnSeen, Role, see_columns
from mappings.draft.formats import TimesSeen, WrittenTimes
from mappings.draft.roles import KeyGuess, RoleGuess, Surety, agreed_order, guess_key, guess_roles, in_order
from mappings.draft.zones import UNKNOWN, ZoneGuess, country_language, guess_zone
from mappings.lint.warnings import FILL_IN, FILL_IN_NAME
from mappings.outcome import MappedRow, Rejection, RowLocation, RowOutcome, SourceRow
from mappings.spec.feed import FeedMapping
from mappings.yaml.loader import LookupShelf, parse_feed

_PLAIN = re.compile(r"[^\W\d_][\w./+%$ -]*[\w.%/-]|[^\W\d_]|\$[A-Za-z_]\w*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~"})
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def scalar(text: str) -> str:
    """Write one text: plain where no reader can take it for anything else, in double quotes otherwise."""
    if _PLAIN.fullmatch(text) and text.casefold() not in _WORDS:
        return text
    return f'"{"".join(map(_escaped, text))}"'


def column_text(name: str) -> str:
    """Write a column's name behind `from`, where a dollar sign would mean a named value."""
    return scalar(f"${name}" if name.startswith("$") else name)


def listed(texts: Iterable[str]) -> str:
    """Write a list of texts on one line."""
    return f"[{', '.join(map(scalar, texts))}]"


def one_or_list(texts: tuple[str, ...]) -> str:
    """Write one text as itself, several as a list."""
    return scalar(texts[0]) if len(texts) == 1 else listed(texts)


def block(entries: Mapping[str, str | int]) -> str:
    """Write texts and numbers by name on one line."""
    told = (f"{scalar(name)}: {value if isinstance(value, int) else scalar(value)}" for name, value in entries.items())
    return f"{{{', '.join(told)}}}"


def comment(text: str) -> str:
    """Return a text that can stand behind `# `: on one line, nothing but printable characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_NO_DAY = "%Y-%m-%d"
_CLOCKS = {Role.CLOCK: "$clock", Role.END_CLOCK: "$end_clock"}
_STEPS = {"date": "date", "time": "time", "datetime": "datetime", "moment": "datetime"}


@dataclass(frozen=True, slots=True)
class Guessed:
    """One guess: what it is about, the columns it rests on, how sure it is, and the evidence."""

    about: str
    column: str
    surety: Surety
    why: str

    def __str__(self) -> str:
        """Write it as a comment of the file."""
        return f"# {self.surety}: {comment(self.why)}"


@dataclass(slots=True)
class Moments:
    """The times of a feed. `order`: `day` or `month`, where the author has said which of two numbers is the day."""

    roles: dict[Role, RoleGuess]
    columns: Sequence[ColumnSeen]
    order: str = ""
    guesses: list[Guessed] = field(default_factory=list)

    def let(self) -> Iterator[str]:
        """Write the named values that the fields use."""
        names = {Role.CLOCK: "clock", Role.END: "ends", Role.END_CLOCK: "end_clock"}
        for role, name in {Role.START: "days" if self.has_lists else "starts", **names}.items():
            if self._is_read(role):
                yield from self._named(role, name)
        if self._range is not None:
            yield from self._end_of(self._range, "end_clock", "range_end")
        if self._days_range is not None:
            yield from self._end_of(self._days_range, "ends", "range_end")
        if Role.START not in self.roles:
            self.guesses.append(
                Guessed("startAt", "", "unsure", "no column holds dates: every row is rejected until you name one")
            )
            yield str(self.guesses[-1])

    def rows(self) -> Iterator[str]:
        """Write the rule that makes an event of each day of a cell, where cells hold lists of days."""
        if self.has_lists:
            yield "- recur: {days: $days} # an event for each day of the list"

    def fields(self, zone: str) -> Iterator[str]:
        """Write startAt and endAt."""
        day = "$day" if self.has_lists else "$starts"
        clock, end_clock = (name if self._is_read(role) else "" for role, name in _CLOCKS.items())
        yield f"startAt: {self._moment(day, clock, Role.START, zone, '00:00')}"
        if self._is_read(Role.END):
            yield f"endAt: {self._moment('$ends', end_clock, Role.END, zone, '23:59')}"
        elif self._days_range is not None:
            yield f'endAt: {{at: {{day: $ends, zone: {zone}, all_day: "23:59"}}, on_empty: omit}}'
        elif Role.START in self.roles and (end_clock or self._range is not None):
            yield f"endAt: {{at: {{day: {day}, clock: $end_clock, zone: {zone}}}, on_empty: omit}}"

    @property
    def has_lists(self) -> bool:
        """Whether the column of the day holds lists of days."""
        return self._start_kind == "dates"

    @property
    def _start_kind(self) -> str:
        times = self._times(Role.START)
        return "" if times is None else times.ways[0].kind

    @property
    def _days_range(self) -> RoleGuess | None:
        """The column whose cells hold the first and the last day, where no other column has the last."""
        return self.roles[Role.START] if self._start_kind == "date_range" and Role.END not in self.roles else None

    def _is_read(self, role: Role) -> bool:
        """Whether a column's times are the event's: none needs a clock beside its own, nor one last day for a list of days."""
        if role is Role.CLOCK and self._start_has_clock:
            return False
        return role in self.roles and not (role is Role.END and self.has_lists)

    @property
    def _start_has_clock(self) -> bool:
        return self._start_kind in ("datetime", "moment")

    @property
    def _range(self) -> RoleGuess | None:
        """The column whose cells hold a beginning and an end, where no other column has the end."""
        guess = self.roles.get(Role.CLOCK)
        is_range = guess is not None and guess.column.times is not None and guess.column.times.is_range
        if not is_range or self._start_has_clock or Role.END in self.roles or Role.END_CLOCK in self.roles:
            return None
        return guess

    def _times(self, role: Role) -> TimesSeen | None:
        guess = self.roles.get(role)
        return None if guess is None else self._ordered(guess)

    def _ordered(self, guess: RoleGuess) -> TimesSeen | None:
        times = guess.column.times
        if times is None or not times.is_ambiguous:
            return times
        order = self.order or agreed_order(self.columns)[0]
        return in_order(times, order) if order else times

    def _named(self, role: Role, name: str) -> Iterator[str]:
        guess, times = self.roles[role], self._times(role)
        if times is None:
            return
        self.guesses.append(self._guess(role, guess, times))
        yield str(self.guesses[-1])
        needs = "" if role is Role.START else ", on_empty: omit"
        if self._is_open(times):
            yield from (f"# {name}: {_value(guess.column, one.ways, needs)}" for one in (times, times.in_other_order()))
            none = WrittenTimes("dates" if times.ways[0].by else "date", (_NO_DAY,), by=times.ways[0].by)
            yield f"{name}: {_value(guess.column, (none,), needs)} # put one of the two lines above here"
        else:
            yield f"{name}: {_value(guess.column, times.ways, needs, prefix='range_start' if times.is_range else '')}"

    def _end_of(self, guess: RoleGuess, name: str, prefix: str) -> Iterator[str]:
        times = guess.column.times if guess.column.times is None or Role.START not in self.roles else self._ordered(guess)
        if times is not None and not self._is_open(times):
            yield f"{name}: {_value(guess.column, times.ways, ', on_empty: omit', prefix=prefix)}"

    def _guess(self, role: Role, guess: RoleGuess, times: TimesSeen) -> Guessed:
        about = {Role.START: "startAt", Role.CLOCK: "startAt", Role.END: "endAt"}.get(role, "endAt")
        why = f"{guess.why}; {times.fitting:,} of {times.filled:,} filled cells {_fitting(times)}"
        surety: Surety = guess.surety if times.fitting == times.filled else "likely"
        if times.order and times.proving:
            why = f"{why}; {times.proving:,} prove {times.order}-first"
        elif times.order:
            surety, told = self._told_order(times)
            why = f"{why}; {told}"
        if times.odd:
            why = f"{why}; not {', '.join(repr(text) for text in times.odd[:3])}"
        return Guessed(about, guess.column.name, surety, why)

    def _told_order(self, times: TimesSeen) -> tuple[Surety, str]:
        if self.order:
            return "likely", f"{self.order}-first, as you said"
        order, column = agreed_order(self.columns)
        if order:
            return "likely", f'"{column}" proves that this file is {order}-first'
        swap = ", ".join(spelling for way in times.in_other_order().ways for spelling in way.formats)
        return "unsure", f"as many fit {swap}, and nothing proves which: until you choose, every such row is rejected"

    def _is_open(self, times: TimesSeen) -> bool:
        return times.is_ambiguous and not self.order and not agreed_order(self.columns)[0]

    def _moment(self, day: str, clock: str, role: Role, zone: str, all_day: str) -> str:
        times = self._times(role)
        needs = "" if role is Role.START else ", on_empty: omit"
        if times is None:
            day = f"{{from: {column_text(self._any_column())}, do: [{{date: {scalar(_NO_DAY)}}}]}}"
            return f'{{at: {{day: {day}, zone: {zone}, all_day: "{all_day}"}}}}'
        if times.ways[0].kind == "moment":
            return f"{{in_zone: {{moment: {day}, zone: {zone}}}{needs}}}"
        clocked = f", clock: {clock}" if clock and times.ways[0].kind != "datetime" else ""
        return f'{{at: {{day: {day}{clocked}, zone: {zone}, all_day: "{all_day}"}}{needs}}}'

    def _any_column(self) -> str:
        guess = self.roles.get(Role.TITLE)
        return guess.column.name if guess is not None else self.columns[0].name


def _value(column: ColumnSeen, ways: Sequence[WrittenTimes], needs: str, *, prefix: str = "") -> str:
    """Write the value that reads a column: one step, or the first of several that fits."""
    ways = [way for way in ways if (way.kind == "moment") == (ways[0].kind == "moment")]
    if len(ways) == 1:
        return f"{{from: {column_text(column.name)}, do: [{_steps(ways[0], prefix)}]{needs}}}"
    others = [f"{{from: {column_text(column.name)}, do: [{_steps(way, prefix)}], on_error: omit}}" for way in ways[:-1]]
    last = f"{{from: {column_text(column.name)}, do: [{_steps(ways[-1], prefix)}]}}"
    return f"{{first_of: [{', '.join([*others, last])}]{needs}}}"


def _steps(way: WrittenTimes, prefix: str) -> str:
    locale = f", locale: {way.locale}" if way.locale else ""
    half = "end" if prefix == "range_end" else "start"
    match way.kind:
        case "clock":
            return "clock"
        case "clock_range":
            return f"{{clock_range: {half}}}"
        case "date_range":
            return f"{{date_range: {half}, formats: {one_or_list(way.formats)}{locale}}}"
        case "dates":
            return f"{{dates: {one_or_list(way.formats)}, by: {listed(way.by)}{locale}}}"
        case _:
            step = f"{{{_STEPS[way.kind]}: {one_or_list(way.formats)}{locale}}}"
            return f"{prefix}, {step}" if prefix else step


def _fitting(times: TimesSeen) -> str:
    formats = ", ".join(spelling for way in times.ways for spelling in way.formats if spelling)
    if not formats:
        return "are times as people write them"
    several = {"dates": ", several days in one", "date_range": ", the first and the last day in one"}
    return f"fit {formats}{several.get(times.ways[0].kind, '')}"


_MOST_MAPPED = 40
_CANCELLED = ("cancel", "annul", "abgesagt", "odwolan", "odwołan", "storn", "canceled", "中止", "취소", "取消")
_SURE_WORDS = {
    "sure": "its cells or its name leave no doubt",
    "likely": "they speak for it",
    "unsure": "look at it",
}


@dataclass(slots=True)
class FileDraft:
    """A mapping file being written. `guesses` are reported to the author besides."""

    feed: str
    title: str
    source: tuple[str, ...]
    key: KeyGuess
    roles: dict[Role, RoleGuess]
    moments: Moments
    zone: str = ""
    clocks: ZoneGuess = UNKNOWN
    guesses: list[Guessed] = field(default_factory=list)

    def text(self) -> str:
        """Return the file's text, without examples."""
        parts = (self._head(), self._source(), self._key(), self._let(), self._rows(), self._event())
        return "\n".join(line for part in parts for line in part) + "\n"

    def _head(self) -> Iterator[str]:
        yield f"# Drafted by `eventsync init` from {comment(self.title)}."
        meanings = "; ".join(f"{word}: {what}" for word, what in _SURE_WORDS.items())
        yield f"# Beside each guess stands its evidence: {meanings}."
        look = f"`eventsync preview {self.feed}`"
        yield f"# What nobody but you can know says {FILL_IN}; `eventsync check` lists it. Then look: {look}."
        yield f"feed: {self.feed}"

    def _source(self) -> Iterator[str]:
        yield "source:"
        yield from (f"  {line}" for line in self.source)
        needed = [*self.key.columns, *(guess.column for guess in self._needed())]
        yield f"  required: {listed(dict.fromkeys(column.name for column in needed))}"
        yield ""

    def _needed(self) -> Iterator[RoleGuess]:
        yield from (self.roles[role] for role in (Role.TITLE, Role.START) if role in self.roles)

    def _key(self) -> Iterator[str]:
        surety: Surety = "sure" if self.key.is_sure else "unsure"
        columns = ", ".join(part.name for part in self.key.columns)
        yield self._told(Guessed("key", columns, surety, self.key.why))
        yield f"key: [{', '.join(map(_key_part, self.key.columns))}]"

    def _let(self) -> Iterator[str]:
        lines = list(self.moments.let())
        if not self.zone and Role.ZONE not in self.roles:
            lines += self._clocks()
        for guess in self.moments.guesses:
            self.guesses.append(guess)
        if all(line.startswith("#") for line in lines):
            yield from lines
        else:
            yield "let:"
            yield from (f"  {line}" for line in lines)
        yield ""

    def _clocks(self) -> Iterator[str]:
        """Write the zone that the sample speaks for: as it is where that is likely, to be looked at otherwise."""
        guess = self.clocks
        yield self._told(Guessed("timezone", guess.column, guess.surety, guess.why))
        if guess.surety == "unsure":
            yield f"{FILL_IN_NAME}zone: {scalar(guess.zone or 'UTC')}"
        elif guess.zone:
            yield f"zone: {scalar(guess.zone)}"
        if guess.by_country:
            yield from self._zones_of_countries(guess)

    def _zones_of_countries(self, guess: ZoneGuess) -> Iterator[str]:
        is_open = guess.surety == "unsure"
        head = ["  first_of:", f"    - from: {column_text(guess.column)}", "      on_error: omit", "      do:"]
        yield "zone:"
        yield from head if is_open else [f"  from: {column_text(guess.column)}", "  do:"]
        indent = "        " if is_open else "    "
        yield f"{indent}- map:"
        yield from (f"{indent}    {scalar(text)}: {scalar(zone)}" for text, zone in guess.by_country.items())
        if is_open:
            yield f"    - ${FILL_IN_NAME}zone"

    def _rows(self) -> Iterator[str]:
        lines = [*self._cancelled(), *(f"  {line}" for line in self.moments.rows())]
        yield from self._without_a_day()
        if lines:
            yield "rows:"
            yield from lines
            yield ""

    def _cancelled(self) -> Iterator[str]:
        status = self.roles.get(Role.STATUS)
        gone = [text for text in status.column.counts if _is_cancelled(text)] if status else []
        if status and gone:
            yield f"  - skip: {{column: {scalar(status.column.name)}, in: {listed(gone)}, ignore: [case]}}"
            yield "    because: cancelled"

    def _without_a_day(self) -> Iterator[str]:
        start = self.roles.get(Role.START)
        if start is not None and not start.column.is_full:
            without = len(start.column.cells) - len(start.column.filled)
            yield f"# {without:,} of {len(start.column.cells):,} rows have no date and are rejected; to leave them out instead:"
            yield "# rows:"
            yield f"#   - skip: {{column: {scalar(start.column.name)}, is: missing}}"
            yield "#     because: no date yet"
            yield ""

    def _event(self) -> Iterator[str]:
        yield "event:"
        lines = (self._channel(), self._title(), self._when(), self._status(), self._kinds(), self._place(), self._links())
        yield from (f"  {line}" for part in lines for line in part)

    def _channel(self) -> Iterator[str]:
        yield f"channelId: {{channel: {FILL_IN}}} # the slug of one of your channels"

    def _title(self) -> Iterator[str]:
        guess = self.roles.get(Role.TITLE)
        if guess is None:
            yield self._told(Guessed("title", "", "unsure", "no column holds words: say which one is the title"))
            yield f"title: {FILL_IN}"
            return
        yield self._told(Guessed("title", guess.column.name, guess.surety, guess.why))
        steps = "[html_unescape, collapse]" if any("&" in text and ";" in text for text in guess.column.counts) else "[collapse]"
        yield f"title: {{from: {column_text(guess.column.name)}, do: {steps}}}"

    def _when(self) -> Iterator[str]:
        zone = self._zone()
        yield from self.moments.fields(zone)
        yield f"timezone: {zone}"

    def _zone(self) -> str:
        if self.zone:
            return scalar(self.zone)
        guess = self.roles.get(Role.ZONE)
        if guess is not None:
            return f"{{from: {column_text(guess.column.name)}, do: [zone]}}"
        is_named = self.clocks.surety == "likely" or self.clocks.by_country
        return "$zone" if is_named else f"${FILL_IN_NAME}zone"

    def _status(self) -> Iterator[str]:
        yield "status: draft # the safe default: somebody looks at each event; write published once you trust the mapping"

    def _kinds(self) -> Iterator[str]:
        guess = self.roles.get(Role.CATEGORY)
        if guess is None or len(guess.column.parts) > _MOST_MAPPED:
            yield f"classifications: [{FILL_IN}] # slugs of the service's list: `eventsync check {self.feed} --live` names them"
            return
        yield self._told(
            Guessed("classifications", guess.column.name, guess.surety, f"{guess.why}; put a slug beside each value")
        )
        yield "classifications:"
        yield f"  from: {column_text(guess.column.name)}"
        yield f"  on_empty: {{use: [{FILL_IN}], warn: true}}"
        yield "  do:"
        if guess.column.separator:
            yield f"    - split: {scalar(guess.column.separator)}"
        yield "    - map:"
        yield from _mapped(guess.column.parts)

    def _place(self) -> Iterator[str]:
        city = self.roles.get(Role.CITY)
        venue = self.roles.get(Role.VENUE)
        if city is None:
            yield "approxLocation.city: # no column names a city"
            yield f"  placeId: {FILL_IN}"
        else:
            yield self._told(
                Guessed("approxLocation.city", city.column.name, city.surety, f"{city.why}; put a placeId beside each")
            )
            yield "approxLocation.city:"
            yield from self._city(city.column)
            yield from self._country()
        if venue is not None:
            yield self._told(Guessed("locationName", venue.column.name, venue.surety, venue.why))
            yield f"locationName: {{from: {column_text(venue.column.name)}, do: [collapse], on_empty: omit}}"

    def _city(self, column: ColumnSeen) -> Iterator[str]:
        if len(column.counts) > _MOST_MAPPED:
            many = len(column.counts)
            yield f"  placeId: {FILL_IN} # {many} different cities: write a lookup file; see `eventsync vocabulary lookup`"
        else:
            yield "  placeId:"
            yield f"    from: {column_text(column.name)}"
            yield "    do:"
            yield "      - map:"
            yield from (f"  {line}" for line in _mapped(column.counts))
        yield f"  name: {{from: {column_text(column.name)}, do: [collapse], on_empty: omit}}"

    def _country(self) -> Iterator[str]:
        guess = self.roles.get(Role.COUNTRY)
        languages, unknown = ((), frozenset()) if guess is None else country_language(guess.column)
        if guess is not None and languages and len(unknown) * 2 < len(guess.column.counts):
            step = f"[{{country: {one_or_list(languages)}}}]"
            yield f"  countryCode: {{from: {column_text(guess.column.name)}, do: {step}, on_empty: omit, on_error: warn}}"

    def _links(self) -> Iterator[str]:
        link, price, image = (self.roles.get(role) for role in (Role.URL, Role.PRICE, Role.IMAGE))
        if link is not None:
            yield self._told(Guessed("offers", link.column.name, link.surety, link.why))
            yield "offers:"
            if price is not None:
                yield f"  - name: {{from: {column_text(price.column.name)}, do: [collapse], on_empty: omit}}"
            start = "    " if price is not None else "  - "
            yield f"{start}url: {{from: {column_text(link.column.name)}, do: [url], on_empty: omit, on_error: warn}}"
        if image is not None:
            yield "# pictures are uploaded, for which the key needs a scope of its own:"
            yield f"# coverImage: {{image: {{from: {column_text(image.column.name)}}}}}"

    def _told(self, guess: Guessed) -> str:
        self.guesses.append(guess)
        return str(guess)


def _key_part(column: ColumnSeen) -> str:
    return scalar(column.name) if column.is_full else f"{{column: {scalar(column.name)}, optional: true}}"


def _mapped(counts: Counter[str]) -> Iterator[str]:
    for text, count in counts.most_common(_MOST_MAPPED):
        yield f"        {scalar(text)}: {FILL_IN} # {count} row{'s' * (count != 1)}"


def _is_cancelled(text: str) -> bool:
    return any(word in text.casefold() for word in _CANCELLED)


_KEY = '"UID" is a calendar\'s own identifier; RECURRENCE-ID tells a single day that was changed from its series'
_NO_ZONE = "zone of events that name none: put the one whose clocks the partner means, such as Europe/Lisbon"
_ENDS = "an all-day DTEND is the first day after the event; an event of a series ends on its own day, or in the night after it"
_DAYS = '[{split: ";"}, {characters: 1, to: 10}, {iso: date}], on_empty: omit'
_ROWS = f"""\
rows:
  - cancelled: {{column: STATUS, equals: CANCELLED, ignore: [case]}}
  - skip: {{column: CLASS, in: [PRIVATE, CONFIDENTIAL], ignore: [case]}}
    because: private
  - recur:
      when: {{column: RRULE, is: present}}
      from: $first_day
      rrule: {{from: RRULE}}
      except: {{from: EXDATE, do: {_DAYS}}}
      extra: {{from: RDATE, do: {_DAYS}}}
      horizon: 365d
"""
_END_AT = """\
endAt:
  choose:
    - when: {all: [{column: RRULE, is: present}, {column: DTEND, contains: T}]}
      then: {at: {day: $day, clock: $end_clock, zone: $zone, start: $starts, before_start: next_day}}
    - when: {column: DTEND, contains: T}
      then: $ends_at
    - when: {all: [{column: RRULE, is: missing}, {column: DTEND, is: present}]}
      then: {at: {day: {from: DTEND, do: [{iso: date}]}, zone: $zone, all_day: "23:59", exclusive: true}}
"""


@dataclass(slots=True)
class CalendarDraft(FileDraft):
    """A calendar's mapping file being written."""

    def _key(self) -> Iterator[str]:
        yield self._told(Guessed("key", "UID", "sure", _KEY))
        yield "key: [UID, {column: RECURRENCE-ID, optional: true}]"

    def _let(self) -> Iterator[str]:
        yield "let:"
        zone = scalar(self.zone)
        if not self.zone:
            zone = f"${FILL_IN_NAME}zone"
            yield f"  {self._told(Guessed('timezone', '', 'unsure', _NO_ZONE))}"
            yield f"  {FILL_IN_NAME}zone: UTC"
        yield f"  zone: {{first_of: [{{from: DTSTART.TZID, do: [zone]}}, {{from: X-WR-TIMEZONE, do: [zone]}}, {zone}]}}"
        yield from self._moment("starts_at", "DTSTART", "$zone")
        yield "  first_day: {first_of: [{from: $starts_at, do: [day_of]}, {from: DTSTART, do: [{iso: date}]}]}"
        yield "  clock: {from: $starts_at, do: [clock_of], on_empty: omit}"
        yield '  starts: {at: {day: $day, clock: $clock, zone: $zone, all_day: "00:00"}}'
        yield "  end_zone: {first_of: [{from: DTEND.TZID, do: [zone]}, $zone]}"
        yield from self._moment("ends_at", "DTEND", "$end_zone")
        yield "  end_clock: {from: $ends_at, do: [clock_of], on_empty: omit}"
        yield ""

    def _moment(self, name: str, column: str, zone: str) -> Iterator[str]:
        """Write a moment that stands in UTC, or on the clocks of a zone; a day alone gives none."""
        utc = f"{{in_zone: {{moment: {{from: {column}, do: [{{iso: moment}}]}}, zone: {zone}}}}}"
        wall = f"{{at: {{day: {{from: {column}, do: [{{iso: wall}}]}}, zone: {zone}}}}}"
        yield f"  {name}:"
        yield "    choose:"
        yield f'      - {{when: {{column: {column}, matches: "Z$"}}, then: {utc}}}'
        yield f"      - {{when: {{column: {column}, contains: T}}, then: {wall}}}"

    def _rows(self) -> Iterator[str]:
        yield from _ROWS.splitlines()
        yield ""

    def _when(self) -> Iterator[str]:
        yield "startAt: $starts"
        yield self._told(Guessed("endAt", "DTEND", "sure", _ENDS))
        yield from _END_AT.splitlines()
        yield "timezone: $zone"


_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class SourceSample:
    """Rows of a source as they were read. `source` are the lines of the mapping's `source` block; `title` what people call it.

    `columns` stand in the source's order; `guesses` are what was guessed in order to read it; `joined` what stands
    between the items of columns whose lists were joined.
    """

    title: str
    source: tuple[str, ...]
    columns: tuple[str, ...]
    rows: Sequence[Mapping[str, str]]
    guesses: tuple[Guessed, ...] = ()
    joined: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_calendar(self) -> bool:
        """Whether the columns are those of RFC 5545, which says what each means."""
        return any(line.startswith("kind: ics") for line in self.source)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the author has said: the feed's name; the IANA zone and the order of day and month ("" where they have not)."""

    feed: str
    zone: str = ""
    order: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A mapping file's text, and every guess in it."""

    text: str
    guesses: tuple[Guessed, ...]


def draft_feed(sample: SourceSample, wishes: Wishes) -> Draft:
    """Write a first mapping for the sample, without examples."""
    columns = see_columns(sample.columns, sample.rows, sample.joined)
    roles = guess_roles(columns)
    key = guess_key(columns, {role: guess.column for role, guess in roles.items()})
    moments = Moments(roles, columns, wishes.order)
    draft = CalendarDraft if sample.is_calendar else FileDraft
    clocks = UNKNOWN if wishes.zone else guess_zone(columns, roles)
    file = draft(wishes.feed, sample.title, sample.source, key, roles, moments, wishes.zone, clocks)
    text = file.text()
    aside = () if sample.is_calendar else tuple(_left_aside(columns, file))
    return Draft(text, (*sample.guesses, *_overwritten(columns), *file.guesses, *aside))


def _overwritten(columns: Sequence[ColumnSeen]) -> Iterator[Guessed]:
    """Yield a doubt for each name in the header that is one of its own column's values: it may have been typed over."""
    for column in columns:
        times = column.counts[column.name]
        if times:
            why = f"the column's name is also its value in {times:,} rows: typed over? Then say header: {{row: 1, names: [...]}}"
            yield Guessed("source.header", column.name, "unsure", why)


def _left_aside(columns: Sequence[ColumnSeen], file: FileDraft) -> Iterator[Guessed]:
    """Yield the columns with something in them that the draft does not read, so that none is forgotten unseen."""
    told = {name for guess in file.guesses for name in (guess.column, *guess.column.split(", "))}
    silent = {Role.STATUS, Role.ZONE, *([Role.PRICE] if Role.URL in file.roles else [])}
    used = told | {guess.column.name for role, guess in file.roles.items() if role in silent}
    names = [column.name for column in columns if column.filled and column.name not in used]
    if names:
        why = "the draft does not read these columns: map those that matter"
        yield Guessed("left aside", ", ".join(names), "unsure", why)


def feed_name(title: str) -> str:
    """Return a feed's name made of a file's: lower-case words joined by `-`, at most 40 characters."""
    plain = unicodedata.normalize("NFKD", title.replace("ł", "l")).encode("ascii", "ignore").decode().casefold()
    words = _NOT_IN_NAMES.sub("-", plain).strip("-")[:40].strip("-")
    return words if words[:1].isalpha() else f"feed-{words}".strip("-")


_TOLD = ("title", "startAt", "endAt", "locationName")
_LONGEST_CELL = 200
_TRIED = 300
_ANY_DAY = "2026-01-01T00:00:00+00:00"
_Tried = tuple[Mapping[str, str], RowOutcome]


def with_examples(text: str, path: Path, rows: Sequence[Mapping[str, str]]) -> str:
    """Return the draft with an `examples` block; `path` is where the file will stand.

    Raises:
        MappingFileError: the draft is not a mapping that may run.
    """
    mapping = parse_feed(text, path, LookupShelf())
    mapper, _ = compile_with_problems(mapping, Directory())
    several = [(row, mapper.outcomes(_row(mapper, row))) for row in rows[:_TRIED]]
    outcomes = [(row, each[0]) for row, each in several if len(each) == 1]
    as_of = _moment(outcomes) if needs_the_moment(mapping.rows) else ()
    lines = [*_event(mapper, outcomes, as_of), *_rejections(mapping, mapper, outcomes, as_of)]
    return "\n".join([text.rstrip("\n"), "", "examples:", *lines]) + "\n" if lines else text


def _moment(outcomes: Iterable[_Tried]) -> tuple[str, ...]:
    """Write the moment of a run, for mappings that ask for it: an event's own start."""
    starts = (orjson.loads(outcome.body)["startAt"] for _, outcome in outcomes if isinstance(outcome, MappedRow))
    return (f'    as_of: "{next(starts, _ANY_DAY)}"',)


def _row(mapper: RowMapper, cells: Mapping[str, str]) -> SourceRow:
    """A row as an example gives it: only the columns that the mapping reads."""
    return SourceRow(RowLocation("sample"), {name: cells.get(name, "") for name in mapper.columns})


def _event(mapper: RowMapper, outcomes: Iterable[_Tried], as_of: Iterable[str]) -> Iterator[str]:
    events = [(row, outcome) for row, outcome in outcomes if isinstance(outcome, MappedRow) and _is_handy(mapper, row)]
    if not events:
        return
    row, outcome = max(events, key=lambda event: sum(bool(cell) for cell in event[0].values()))
    payload: dict[str, Any] = orjson.loads(outcome.body)
    yield from _shown(mapper, row)
    yield from as_of
    yield f"    event: {block({name: str(payload[name]) for name in _TOLD if name in payload})}"


def _rejections(mapping: FeedMapping, mapper: RowMapper, outcomes: Sequence[_Tried], as_of: Sequence[str]) -> Iterator[str]:
    for row, outcome in outcomes:
        if isinstance(outcome, Rejection) and _is_handy(mapper, row):
            yield from _rejection(mapper, row, outcome, as_of)
            return
    for row, _ in outcomes[:1]:
        spoilt = {**row, **dict.fromkeys((column.column for column in mapping.key_columns), "")}
        rejected = mapper(_row(mapper, spoilt))
        if isinstance(rejected, Rejection):
            yield "  # no row of the sample is rejected: this one has lost its key"
            yield from _rejection(mapper, spoilt, rejected, as_of)


def _rejection(mapper: RowMapper, row: Mapping[str, str], outcome: Rejection, as_of: Iterable[str]) -> Iterator[str]:
    yield from _shown(mapper, row)
    yield from as_of
    yield f"    rejected: {block({reason.field: reason.code.value for reason in outcome.reasons})}"


def _shown(mapper: RowMapper, row: Mapping[str, str]) -> Iterator[str]:
    yield "  - row:"
    used = [name for name in row if name in mapper.columns and row[name]]
    yield from (f"      {scalar(name)}: {scalar(row[name])}" for name in used)
    if not used:
        yield f'      {scalar(next(iter(sorted(mapper.columns))))}: "" # {comment("a row without a single cell")}'


def _is_handy(mapper: RowMapper, row: Mapping[str, str]) -> bool:
    """Whether a row is fit to be shown: no page of text, nothing that is no text."""
    cells = [row.get(name, "") for name in mapper.columns]
    return all(len(cell) <= _LONGEST_CELL and cell.isascii() | _is_unicode(cell) for cell in cells)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

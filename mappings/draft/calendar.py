"""The first mapping file of a calendar, whose columns mean what RFC 5545 says, so that little is guessed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mappings.draft.file import FileDraft
from mappings.draft.moments import Guessed
from mappings.draft.write_yaml import scalar
from mappings.lint.values import FILL_IN_NAME

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

"""Series of a calendar (RFC 5545): the occurrences of the events with one UID, expanded by recurring-ical-events over icalendar.

What the library cannot expand, or expands against the RFC, is a SeriesError. Added to it: a limit for rules with a time in each
second; the RECURRENCE-ID of each occurrence; zones that the file defines, without the library's cache, which all calendars of a
process share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

import recurring_ical_events
from dateutil.rrule import rrulestr
from icalendar import Calendar, Event, Timezone, vDDDLists, vDDDTypes, vRecur

from mappings.reasons import Refusal
from mappings.steps.zones import read_zone
from mappings.zones import find_zone

Moment = date | datetime
"""A day, a moment, or the wall time of a zone that nothing names."""
_MOST_TIMES = 100_000
"""The most times that a rule may go through from its start to the end of the span; dateutil looks at each."""
_MOST_OCCURRENCES = 10_000
_TOO_MANY = f"it has more than {_MOST_OCCURRENCES:,} occurrences: ask for a shorter `series` of the calendar"
_ONE_DAY = timedelta(days=1)
_NO_END = datetime(9999, 12, 31)  # noqa: DTZ001  # a wall time
_SECONDS = {"SECONDLY": 1, "MINUTELY": 60, "HOURLY": 3_600, "DAILY": 86_400, "WEEKLY": 604_800, "MONTHLY": 2_419_200}
_YEAR_S = 31_536_000
_LONGEST_ZONE = 256 * 1024
_MOST_CHANGES = 200
"""The most changes of the clocks per year that a definition may repeat, old ones and new ones together."""
_PARTS_OF_DAY = ("BYHOUR", "BYMINUTE", "BYSECOND")
_MOMENTS = frozenset({"DTSTART", "DTEND", "RECURRENCE-ID", "EXDATE", "RDATE"})
_LONGEST_NUMBER = 9


class SeriesError(ValueError):
    """The series cannot be expanded, or not as RFC 5545 says; the message says why."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The span in which occurrences of series are read, from `first` to before `end`: moments in UTC."""

    first: datetime
    end: datetime

    def is_before(self, moment: Moment) -> bool:
        """Return whether the reach begins before a moment."""
        return self.first < _sortable(moment)

    @property
    def last_day(self) -> str:
        """The last ISO day of which every occurrence is read, in whatever zone."""
        return (self.end - 2 * _ONE_DAY).date().isoformat()


@dataclass(frozen=True, slots=True)
class Property:
    """A property of an event as it stands in the file."""

    name: str
    parameters: Mapping[str, str]
    text: str


@dataclass(frozen=True, slots=True)
class Definition:
    """A time zone as a file defines it, from `first` to `last`: wall times of the first and the last change that it lists."""

    rules: tzinfo
    first: datetime
    last: datetime

    @classmethod
    def of(cls, text: str) -> Definition | None:
        """Return the zone that a VTIMEZONE defines, None if it cannot be read, or not quickly."""
        rules = [line.upper() for line in text.splitlines() if line[:5].upper() == "RRULE"]
        is_quick = all(
            "FREQ=YEARLY" in rule and ("BYMONTH=" in rule or "BY" not in rule) and not any(part in rule for part in _PARTS_OF_DAY)
            for rule in rules
        )
        if not text or not is_quick or len(text) > _LONGEST_ZONE or sum(1 + rule.count(",") for rule in rules) > _MOST_CHANGES:
            return None
        try:
            component: Any = Timezone.from_ical(text)
            zone: tzinfo = component.to_tz(lookup_tzid=False)
            parts = component.subcomponents
            changes = [_wall(part["DTSTART"].dt) for part in parts]
            changes += [_wall(change.dt) for part in parts for found in _as_list(part.get("RDATE")) for change in found.dts]
            rules_found = [rule for part in parts for rule in _as_list(part.get("RRULE"))]
            ends = [_wall(until) for rule in rules_found for until in rule.get("UNTIL", ())]
            datetime(2000, 1, 1, tzinfo=zone).utcoffset()
        except Exception:  # noqa: BLE001  # the library's errors are many; without a definition the name counts
            return None
        # One that lists single changes from and to summer time says nothing about the years after them.
        is_list = len(ends) == len(rules_found) and any(part.name == "DAYLIGHT" for part in parts)
        return cls(zone, min(changes), max(changes + ends) if is_list else _NO_END)


@dataclass(frozen=True, slots=True)
class TimeZone:
    """What a TZID means: `named`, the IANA zone of that name, and `own`, what the file defines under it; None for neither."""

    named: ZoneInfo | None = None
    own: Definition | None = None

    @property
    def rules(self) -> tzinfo | None:
        """The zone to calculate with."""
        return self.named or (None if self.own is None else self.own.rules)

    def contradiction(self, moment: Moment) -> str:
        """Return the two offsets of a moment of this zone, "" if the name and the file give the same one.

        By RFC 5545, section 3.2.19, the file's counts; other programs take the name's. So neither is taken.
        """
        if self.named is None or self.own is None or not isinstance(moment, datetime) or moment.tzinfo is not self.named:
            return ""
        wall = _wall(moment)
        of_file, of_name = wall.replace(tzinfo=self.own.rules).isoformat()[19:], moment.isoformat()[19:]
        is_defined = self.own.first <= wall <= self.own.last
        return f"{of_file} and {of_name}" if is_defined and of_file != of_name else ""


@dataclass(slots=True)
class TimeZones:
    """The time zones of a calendar; `definitions` are its VTIMEZONE components by TZID."""

    definitions: Mapping[str, str]
    _found: dict[str, TimeZone] = field(default_factory=dict)

    def find(self, tzid: str) -> TimeZone:
        """Return the zone of a TZID; the same without a TZID as for an unknown one."""
        if tzid not in self._found:
            self._found[tzid] = TimeZone(_named_zone(tzid), Definition.of(self.definitions.get(tzid.strip(), "")))
        return self._found[tzid]


def _named_zone(tzid: str) -> ZoneInfo | None:
    try:
        return find_zone(read_zone(tzid)) if tzid else None
    except Refusal:
        return None


def _as_list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else [] if found is None else [found]


def _wall(moment: Moment) -> datetime:
    return datetime(*moment.timetuple()[:6])  # noqa: DTZ001  # the wall time of a zone


@dataclass(frozen=True, slots=True)
class DatedEvent:
    """The properties of an event that say when it happens. `line`: where it begins."""

    line: int
    properties: Sequence[Property]
    zones: TimeZones

    def first(self, name: str) -> Property | None:
        """Return the property with this name, None if the event has none."""
        return next((one for one in self.properties if one.name == name), None)

    @property
    def repeats(self) -> bool:
        """Whether it begins a series, if only one with exceptions."""
        return any(one.name in {"RRULE", "RDATE", "EXRULE", "EXDATE"} for one in self.properties)

    @property
    def sequence(self) -> int:
        """The number of its version; later ones are higher."""
        found = self.first("SEQUENCE")
        number = "" if found is None else found.text.strip()
        return int(number) if number.isdecimal() and len(number) <= _LONGEST_NUMBER else 0

    def moment(self, name: str) -> Moment | None:
        """Return the time of a property with its zone; None if the event has none or different ones, or it cannot be read."""
        found = [one for one in self.properties if one.name == name]
        try:
            moment = self.values(found[0])[0] if found and found.count(found[0]) == len(found) else None
        except (ValueError, IndexError):
            return None
        return moment if isinstance(moment, date) else None

    def values(self, found: Property) -> list[Any]:
        """Return the values of a property, times with their zone.

        Raises:
            ValueError: one of them is neither a date nor a time, nor a period or duration, or in the first or last years.
        """
        zone = self.zones.find(found.parameters.get("TZID", "")).rules
        read: Callable[[str], Any] = vDDDTypes.from_ical
        values = [_in_zone(read(text.strip()), zone) for text in found.text.split(",") if text.strip()]
        if any(isinstance(value, date) and not _has_neighbours(value) for value in values):
            raise ValueError(found.text)
        return values

    @property
    def span(self) -> tuple[Moment, Moment] | None:
        """Its start and end, None if one of them cannot be read; the end is the start if it has no length.

        An event of whole days lasts at least one; the end of others is counted on the wall clock, as the library does.

        Raises:
            SeriesError: its length cannot be used, or its start and its end are of different kinds (RFC 5545, section 3.8.2.2).
        """
        start, end = self.moment("DTSTART"), self.moment("DTEND")
        if start is None:
            start = self.moment("RECURRENCE-ID") if self.first("DTSTART") is None else None
        if start is None or (end is None and self.first("DTEND") is not None):
            return None
        kinds = set()
        for name, moment in (("DTSTART", start), ("DTEND", end)):
            if (found := self.first(name)) is not None:
                self.check_zone(found, [moment])
                has_zone = isinstance(moment, datetime) and bool(moment.tzinfo or found.parameters.get("TZID"))
                kinds.add((isinstance(moment, datetime), has_zone))
        if len(kinds) > 1:
            raise SeriesError("its start and its end must both be days, times with a zone, or times without one")
        if end is None and (length := self.first("DURATION")) is not None:
            end = self._end_after(start, length)
        if not isinstance(start, datetime) and (end is None or end == start):
            end = start + _ONE_DAY
        return start, start if end is None else end

    def check_zone(self, found: Property, values: Sequence[object]) -> None:
        """Raise SeriesError if values of a property are written in UTC (Z) and in another zone."""
        tzid = found.parameters.get("TZID", "")
        zone = self.zones.find(tzid).rules
        moments = [value for value in values if isinstance(value, datetime) and value.tzname() == "UTC"]
        if zone is not None and any(moment.astimezone(zone).utcoffset() for moment in moments):
            raise SeriesError(f"{found.name} is in UTC (Z) and in the time zone {tzid[:100]}: only one of them can be meant")

    def _end_after(self, start: Moment, length: Property) -> Moment:
        try:
            (duration,) = self.values(length)
            end: Moment = start + duration
            if duration >= timedelta() and _has_neighbours(end) and (isinstance(start, datetime) or not duration % _ONE_DAY):
                return end
        except (ValueError, TypeError, OverflowError):
            pass
        raise SeriesError(f"its DURATION cannot be added to its start: {length.text[:100]}")


def _has_neighbours(moment: Moment) -> bool:
    """Return whether a time has an earlier and a later one in every zone."""
    return date.min.year < moment.year < date.max.year


def _in_zone(value: Any, zone: tzinfo | None) -> Any:
    if isinstance(value, tuple):
        return tuple(_in_zone(each, zone) for each in value)
    return value.replace(tzinfo=zone) if isinstance(value, datetime) and value.tzinfo is None else value


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An occurrence of a series. `event`: the event that describes it; `original`: the time that identifies it for ever."""

    event: DatedEvent
    start: Moment
    end: Moment
    original: Moment


@dataclass(frozen=True)
class Series:
    """The events with one UID, of which one repeats, each in its newest version. `zone`: the calendar's X-WR-TIMEZONE.

    Raises:
        SeriesError: they cannot be expanded.
    """

    events: Sequence[DatedEvent]
    reach: Reach
    zone: ZoneInfo | None = None

    def occurrences(self) -> list[Occurrence]:
        """Return the occurrences that overlap the reach."""
        same = [event for event in self.events if event.first("RECURRENCE-ID") is None]
        if len(same) > 1:
            lines = " and ".join(str(event.line) for event in same)
            raise SeriesError(f"the events of the lines {lines} have the same UID and SEQUENCE, and only one can begin a series")
        found = self._between(self._as_written)
        if len(found) > _MOST_OCCURRENCES:
            raise SeriesError(_TOO_MANY)
        # Programs that know X-WR-TIMEZONE repeat an event of that zone by its clocks, others by UTC: the days may differ.
        local = None if self.zone is None else _in_local_time(self._as_written, self.zone)
        if local is not None and _moments(self._between(local)) != _moments(found):
            raise SeriesError(
                f"its start is in UTC, and its rule gives other times in UTC than in {self.zone}, the calendar's X-WR-TIMEZONE: "
                "the start should be written with its TZID"
            )
        return sorted(found, key=lambda one: _sortable(one.start))

    @property
    def goes_on(self) -> bool:
        """Whether an occurrence begins after the reach."""
        if self._start is not None and _sortable(self._start) >= self.reach.end:
            return True
        try:
            later = recurring_ical_events.of(_calendar(self._as_written)).after(self.reach.end)
            return any(_sortable(one["DTSTART"].dt) >= _sortable(self.reach.end) for one in later)
        except Exception as error:
            raise SeriesError(_shown(error)) from error

    @cached_property
    def _as_written(self) -> list[Any]:
        return [self._event(place, event) for place, event in enumerate(self.events)]

    def _event(self, place: int, dated: DatedEvent) -> Any:
        """Return an event of the library with nothing but what the series depends on."""
        made = Event()
        made["UID"], made["X-PLACE"], made["SEQUENCE"] = "series", place, dated.sequence
        if (span := dated.span) is None:
            raise SeriesError("its start or its end cannot be read")
        start, end = span
        if _sortable(end) < _sortable(start):
            raise SeriesError("it ends before it begins")
        made["DTSTART"], made["DTEND"] = vDDDTypes(start), vDDDTypes(end)
        lists: dict[str, list[Any]] = {"EXDATE": [], "RDATE": [], "RRULE": []}
        for found in dated.properties:
            if found.name == "EXRULE":
                raise SeriesError("EXRULE is not read: write the dates as EXDATE")
            try:
                if found.name == "RRULE":
                    lists["RRULE"].append(self._rule(found.text, start))
                values = dated.values(found) if found.name in _MOMENTS else []
                if found.name in {"EXDATE", "RDATE"}:
                    lists[found.name] += values
                elif found.name == "RECURRENCE-ID":
                    (original,) = {*values, dated.moment("RECURRENCE-ID")}
                    made["RECURRENCE-ID"] = vDDDTypes(original, {"RANGE": found.parameters.get("RANGE", "").upper()})
            except SeriesError:
                raise
            except (ValueError, IndexError, TypeError, OverflowError) as error:
                raise SeriesError(f"{found.name} cannot be read: {found.text[:100]}") from error
            tzid = found.parameters.get("TZID", "")
            if tzid and dated.zones.find(tzid).rules is None:
                raise SeriesError(f'the time zone "{tzid[:100]}" of {found.name} is neither known nor defined once in the file')
            dated.check_zone(found, values)
        made.update({name: values if name == "RRULE" else vDDDLists(values) for name, values in lists.items() if values})
        return made

    def _rule(self, text: str, start: Moment) -> vRecur:
        rule: vRecur = vRecur.from_ical(text.strip())
        if "FREQ" not in rule or "RSCALE" in rule or int(rule.get("INTERVAL", [1])[0]) < 1:
            raise SeriesError(f"its rule is not one of RFC 5545: {text[:100]}")
        begin = _sortable(start)
        # It is followed to its first time after the reach.
        end = min([*map(_sortable, rule.get("UNTIL", ())), max(begin, self.reach.end) + timedelta(seconds=_YEAR_S)])
        seconds = _SECONDS.get(str(rule["FREQ"][0]).upper(), _YEAR_S) * int(rule.get("INTERVAL", [1])[0])
        times_of_day = math.prod(len(rule.get(part, ())) or 1 for part in _PARTS_OF_DAY)
        count = min([float(count) for count in rule.get("COUNT", ()) if count > 0], default=math.inf)
        if min((end - begin).total_seconds() / seconds * times_of_day, count) > _MOST_TIMES:
            raise SeriesError(f"its rule has more than {_MOST_TIMES:,} times until {end:%Y-%m-%d}: {text[:100]}")
        is_plain = not any(part.startswith("BY") for part in rule)
        within = (min(end, self.reach.end) - max(begin, self.reach.first)).total_seconds()
        if is_plain and min(within / seconds, count) > _MOST_OCCURRENCES:
            raise SeriesError(_TOO_MANY)
        if not _names_a_time(rule, start, is_daily=seconds >= _SECONDS["DAILY"]):
            raise SeriesError(f"its rule names no day: {text[:100]}")
        return rule

    def _between(self, events: Sequence[Any]) -> list[Occurrence]:
        try:
            found = recurring_ical_events.of(_calendar(events)).between(self.reach.first, self.reach.end)
            return [self._occurrence(one, events) for one in found]
        except Exception as error:  # the library's errors are many
            raise SeriesError(_shown(error)) from error

    def _occurrence(self, found: Any, events: Sequence[Any]) -> Occurrence:
        place: int = found["X-PLACE"]
        start, original = found["DTSTART"].dt, found["RECURRENCE-ID"].dt
        source = events[place]
        if "RECURRENCE-ID" in source and source["RECURRENCE-ID"].params.get("RANGE") == "THISANDFUTURE":
            # The library gives all later occurrences the RECURRENCE-ID of the first that moved.
            original = start - (source["DTSTART"].dt - source["RECURRENCE-ID"].dt)
        return Occurrence(self.events[place], start, found["DTEND"].dt, self._original(original))

    @cached_property
    def _start(self) -> Moment | None:
        return next((one.moment("DTSTART") for one in self.events if one.first("RECURRENCE-ID") is None), None)

    def _original(self, moment: Moment) -> Moment:
        """Return an occurrence's first time in the form of the series' start, so that it stays the same if written in another."""
        start = self._start
        if start is None:
            return moment
        if not isinstance(start, datetime):
            return moment.date() if isinstance(moment, datetime) else moment
        if not isinstance(moment, datetime):
            return datetime.combine(moment, start.timetz())
        return moment.astimezone(start.tzinfo) if moment.tzinfo and start.tzinfo else moment.replace(tzinfo=start.tzinfo)


def newest(events: Sequence[DatedEvent]) -> list[DatedEvent]:
    """Return the newest version of each event with one UID and RECURRENCE-ID; several where their SEQUENCE is the same."""
    versions: dict[object, list[DatedEvent]] = {}
    for event in events:
        original = event.moment("RECURRENCE-ID")
        known = versions.setdefault(None if original is None else _sortable(original), [])
        if known and known[0].sequence < event.sequence:
            known.clear()
        if not known or known[0].sequence == event.sequence:
            known.append(event)
    return [event for known in versions.values() for event in known]


def _calendar(events: Sequence[Any]) -> Calendar:
    calendar = Calendar()
    for event in events:
        calendar.add_component(event)
    return calendar


def _in_local_time(events: Sequence[Any], zone: ZoneInfo) -> list[Any] | None:
    """Return the events with starts in `zone`, None if no rule starts in UTC."""
    starts = [event["DTSTART"].dt for event in events]
    if not any(
        "RRULE" in event and getattr(start, "tzinfo", None) is not None and start.tzname() == "UTC"
        for event, start in zip(events, starts, strict=True)
    ):
        return None
    moved = []
    for event in events:
        made = event.copy()
        for name in ("DTSTART", "DTEND"):
            moment = event[name].dt
            if getattr(moment, "tzinfo", None) is not None:
                made[name] = vDDDTypes(moment.astimezone(zone))
        moved.append(made)
    return moved


def _moments(occurrences: Sequence[Occurrence]) -> set[tuple[datetime, datetime]]:
    return {(_sortable(one.start), _sortable(one.end)) for one in occurrences}


def _sortable(moment: Moment) -> datetime:
    """Return a moment that can be compared with others: days and wall times count as those of UTC."""
    if not isinstance(moment, datetime):
        return datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _names_a_time(rule: vRecur, start: Moment, *, is_daily: bool) -> bool:
    """Return whether a rule names a time in 28 years, in which the calendar recurs; in 4 years if not `is_daily`.

    dateutil follows a rule that names none to the year 9999. So its start is moved close to that.
    """
    years = range(9943, 9971) if is_daily else [9996]
    first_day = date(start.year, 1, 1).weekday()
    alike = (year for year in years if date(year, 1, 1).weekday() == first_day and (year - start.year) % 4 == 0)
    endless = vRecur({name: value for name, value in rule.items() if name not in {"COUNT", "UNTIL"}})
    text = endless.to_ical().decode()  # type: ignore[no-untyped-call]  # of icalendar
    return next(iter(rrulestr(text, dtstart=_wall(start).replace(year=next(alike, years[0])))), None) is not None


def _shown(error: Exception) -> str:
    return f"it cannot be expanded: {str(error)[:200] or type(error).__name__}"


def moment_text(moment: Moment, named: ZoneInfo | None = None) -> str:
    """Return a moment as ISO text: a day, the wall time of the zone `named`, or else of UTC with a final Z.

    A wall time that the clocks of the zone skip is a moment (RFC 5545, section 3.3.5).
    """
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        return moment.isoformat()
    in_utc, wall = moment.astimezone(UTC), moment.replace(tzinfo=None)
    if named is not None and in_utc.astimezone(named).replace(tzinfo=None) == wall:
        return wall.isoformat()
    return f"{in_utc.replace(tzinfo=None).isoformat()}Z"

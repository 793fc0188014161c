"""Recurrence: one row becomes one event for each day of a rule (RFC 5545, by dateutil) or of a range with exceptions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import islice
from typing import Any, Literal

from dateutil.rrule import DAILY, MONTHLY, WEEKLY, YEARLY, rrule, weekday, weekdays

from mappings.compiler.base import CompiledValue, Compiler, lenient
from mappings.compiler.evaluation import Getter, RowState, required
from mappings.compiler.expand import OVER, TOO_FAR, Expand, ExpandedRow, refused
from mappings.outcome import Silence
from mappings.positions import Loc, ValuePosition
from mappings.refusals import ReasonCode, Refusal
from mappings.row_key import event_key
from mappings.spec.rules import Recurrence
from mappings.spec.values import Value
from mappings.steps.step import Kind

WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
"""The days of the week, Monday first, as `date.weekday` counts them."""
NO_DAY_LEFT = "every day is excluded"
LONG_OVER = timedelta(days=31)
"""An event that began longer ago is over, of any length, where a feed leaves out events that are over."""
STAND_IN = date(2000, 1, 1)
"""The $day of a row whose days cannot be read: the row is rejected, and its other problems are reported as well."""
_FOLLOWED = timedelta(days=40_000)
"""So many days are looked at for one row, more than a century: a rule such as "31 February" would be followed for ever."""
_Frequency = Literal[0, 1, 2, 3]
_FREQUENCIES: dict[str, _Frequency] = {"DAILY": DAILY, "WEEKLY": WEEKLY, "MONTHLY": MONTHLY, "YEARLY": YEARLY}
_PARTS = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", "BYMONTH", "BYMONTHDAY", "BYSETPOS"})
_DAY = re.compile(r"([+-]?[1-9][0-9]?)?(MO|TU|WE|TH|FR|SA|SU)")
_NUMBER = re.compile(r"[+-]?[1-9][0-9]{0,4}")
_UNTIL = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:T[0-9]{6}Z?)?")
_EXAMPLE = "write it like FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE"
_DATES = (Kind.DATE, Kind.WALL, Kind.MOMENT, Kind.TEXT, Kind.ANY, Kind.UNKNOWN)
_ORDINALS: dict[str, int] = {str(number): number for number in (*range(1, 6), *range(-5, 0))}
FirstDay = Callable[[RowState], date]
"""Returns the first day of a row; raises Refusal where it cannot be read."""


@dataclass(frozen=True, slots=True)
class DayRule:
    """A rule of whole days in dateutil's terms; an empty tuple is any. `positions`: which days of a period, from either end."""

    frequency: _Frequency = DAILY
    interval: int = 1
    count: int | None = None
    until: date = date.max
    week_begins: int = 0
    weekdays: tuple[weekday, ...] = ()
    months: tuple[int, ...] = ()
    month_days: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DayRange:
    """The days that matter, both included: those before `first` are long over, those after `last` beyond the horizon."""

    first: date = date.min
    last: date = date.max


@dataclass(frozen=True, slots=True)
class RunDays:
    """The days that a run looks at: `today` is the run's own, `range` those that become events."""

    today: date | None
    range: DayRange

    @property
    def spoken_for(self) -> tuple[str, str]:
        """The first and the last ISO day whose absence from a read means something."""
        return (self.today or self.range.first).isoformat(), self.range.last.isoformat()


@dataclass(frozen=True, slots=True)
class DayPattern:
    """The days of one row. `last`: the last of the range, None where only the horizon ends it."""

    first: date
    last: date | None
    rule: DayRule
    excluded: frozenset[date]
    extra: frozenset[date]

    def days(self, within: DayRange, at_most: int) -> list[date]:
        """Return the days within a range in their order, and no more than one beyond `at_most`."""
        regular = (day for day in self.regular_days(within) if day not in self.excluded and day not in self.extra)
        extra = (day for day in self.extra if within.first <= day <= within.last)
        return sorted([*islice(regular, at_most + 1), *extra])[: at_most + 1]

    def regular_days(self, within: DayRange) -> Iterator[date]:
        """Yield the days of the rule, those that are excluded too."""
        last = min(within.last, self.last or date.max)
        return rule_days(self.rule, self.first, max(self.first, within.first), last)


def rule_days(rule: DayRule, begins: date, first: date, last: date) -> Iterator[date]:
    """Yield the days from `first` to `last` of a rule that begins on the day `begins`; its COUNT counts from there."""
    start, named = begins, rule.weekdays
    if rule.frequency == WEEKLY and rule.positions:  # dateutil counts positions from the day on which it starts
        named = named or (weekdays[begins.weekday()],)
        start = date.fromordinal(max(begins.toordinal() - (begins.weekday() - rule.week_begins) % 7, 1))
    elif rule.count is None and rule.interval == 1 and (rule.frequency == DAILY or named or rule.month_days):
        start = max(begins, first)  # no day depends on when the rule began
    followed = begins if rule.count else max(begins, first)
    end = min(last, rule.until, followed + min(_FOLLOWED, date.max - followed))
    found = rrule(
        rule.frequency,
        dtstart=datetime.combine(start, time()),
        interval=rule.interval,
        wkst=rule.week_begins,
        until=datetime.combine(end, time()),
        bysetpos=rule.positions or None,
        bymonth=rule.months or None,
        bymonthday=rule.month_days or None,
        byweekday=named or None,
    )
    days = (moment.date() for moment in found if moment.date() >= begins)
    return (day for day in islice(days, rule.count) if day >= first)


def read_rule(text: str) -> DayRule:
    """Read a rule such as FREQ=WEEKLY;BYDAY=MO, with or without `RRULE:` before it.

    Raises:
        Refusal: it is none, or it says something that is not of whole days.
    """
    try:
        return _read_parts(text.strip().upper().removeprefix("RRULE:"))
    except ValueError as error:
        raise Refusal(ReasonCode.NOT_A_DATE, f"{_EXAMPLE}: {error}", found=text) from error


def _read_parts(text: str) -> DayRule:
    parts = [part.partition("=") for part in text.split(";") if part.strip()]
    named = {name.strip(): value.strip() for name, _, value in parts}
    unknown = sorted(named.keys() - _PARTS)
    if unknown or len(named) < len(parts):
        raise ValueError(f"{', '.join(unknown)} is not understood" if unknown else "a part stands twice")
    frequency = _FREQUENCIES.get(named.get("FREQ", ""))
    if frequency is None:
        raise ValueError(f"it may repeat {', '.join(_FREQUENCIES)}")
    days = tuple(_read_weekday(part) for part in _items(named, "BYDAY"))
    if frequency in {DAILY, WEEKLY} and any(day.n for day in days):
        raise ValueError("a first or last weekday is one of a month or a year")
    return DayRule(
        frequency=frequency,
        interval=_read_number(named.get("INTERVAL", "1"), 1, 9_999),
        count=_read_number(named["COUNT"], 1, 99_999) if "COUNT" in named else None,
        until=_read_until(named["UNTIL"]) if "UNTIL" in named else date.max,
        week_begins=_read_weekday(named.get("WKST", "MO")).weekday,
        weekdays=days,
        months=tuple(_read_number(part, 1, 12) for part in _items(named, "BYMONTH")),
        month_days=tuple(_read_number(part, -31, 31) for part in _items(named, "BYMONTHDAY")),
        positions=tuple(_read_number(part, -366, 366) for part in _items(named, "BYSETPOS")),
    )


def _items(named: Mapping[str, str], name: str) -> list[str]:
    return [part.strip() for part in named[name].split(",")] if name in named else []


def _read_number(text: str, least: int, most: int) -> int:
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise ValueError(f"{text or 'nothing'} is no number from {least} to {most}")
    return int(text)


def _read_weekday(text: str) -> weekday:
    match = _DAY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text or 'nothing'} is none of {' '.join(WEEKDAYS)}")
    day = weekdays[WEEKDAYS.index(match[2])]
    return day(int(match[1])) if match[1] else day


def _read_until(text: str) -> date:
    match = _UNTIL.fullmatch(text)
    if match is None:
        raise ValueError("UNTIL is a day, such as 20261231")
    return date(*map(int, match.groups()))


def compile_first_day(compiler: Compiler, asked: Recurrence, loc: Loc) -> FirstDay:
    """Compile the first day of a recurrence: the row's own day, on which `$day` cannot bear."""
    spot = ValuePosition((*loc, "recur"))
    if asked.start is None:
        listed = _optional(compiler, asked.days, spot.inner("days"), _compile_date)
        return lambda row: _earliest(_read_days(listed, row))
    compiled = _compile_date(compiler, asked.start, spot.inner("from"))

    def first(row: RowState) -> date:
        found = compiled.get(row)
        if found is None:
            raise required(compiled.column, "a first day is needed")
        return _read_day(found)

    return first


def compile_recurrence(compiler: Compiler, asked: Recurrence, loc: Loc, days: RunDays, start: FirstDay) -> Expand:
    """Compile a recurrence, as seen from the start of the run."""
    spot = ValuePosition((*loc, "recur"))
    listed = _optional(compiler, asked.days, spot.inner("days"), _compile_date)
    when = None if asked.when is None else compiler.condition(asked.when, (*spot.loc, "when"))
    until = start if listed else _optional(compiler, asked.until, spot.inner("until", may_be_empty=True), _compile_date)
    rule = _compile_rule(compiler, asked, spot)
    excluded = _optional(compiler, asked.excluded, spot.inner("except", may_be_empty=True), _compile_date)
    extra = listed or _optional(compiler, asked.extra, spot.inner("extra", may_be_empty=True), _compile_date)

    def pattern_of(state: RowState, first: date) -> DayPattern:
        last = None if until is None else until(state)
        last = None if last is None else _read_day(last)
        if last is not None and last < first:
            hint = f"it begins {first}: a day after that would be accepted"
            raise Refusal(ReasonCode.END_BEFORE_START, hint, found=last.isoformat(), step="recur")
        if last is None and asked.horizon is None:
            raise Refusal(ReasonCode.REQUIRED, "a last day is needed, or a horizon in the mapping", step="recur")
        return DayPattern(first, last, rule(state), _read_days(excluded, state), _read_days(extra, state))

    def expand(row: ExpandedRow) -> list[ExpandedRow]:
        state = row.state
        state.day = STAND_IN
        try:
            state.day = start(state)
            if when is not None and not when(state):
                return [row]
            pattern = pattern_of(state, state.day)
            found = pattern.days(days.range, asked.at_most)
            if found:
                return _events(row, found, asked)
            row.label = _why_no_day(pattern, days.range)
        except Refusal as refusal:
            return refused(row, refusal)
        return [row]

    return expand


def _why_no_day(pattern: DayPattern, within: DayRange) -> str:
    """Return the label of a row none of whose days becomes an event."""
    if not pattern.extra and next(pattern.regular_days(DayRange()), None) is None:
        raise Refusal(ReasonCode.NO_DAY, f"no such day between {pattern.first} and {pattern.last}", step="recur")
    if pattern.first > within.last:
        return TOO_FAR
    if not pattern.days(DayRange(), 1):
        return NO_DAY_LEFT
    return TOO_FAR if pattern.days(DayRange(within.last), 1) else OVER


def _events(row: ExpandedRow, found: list[date], asked: Recurrence) -> list[ExpandedRow]:
    most, silence = asked.at_most, None
    if len(found) > most:
        more = Refusal(ReasonCode.TOO_MANY, f"at most {most} days would be accepted", found=f"more than {most}", step="recur")
        if asked.on_more == "reject":
            raise more
        if asked.on_more == "warn":
            row.state.warnings.append(more.reason(""))
        found = found[:most]
        silence = Silence(row.key, found[-1].isoformat())
    events = []
    for day in found:
        state = row.state.branch(row.state.cells)
        state.day = day
        events.append(ExpandedRow(event_key(row.key, day.isoformat()), state))
    events[0].silence = silence
    return events


def _compile_rule(compiler: Compiler, asked: Recurrence, spot: ValuePosition) -> Callable[[RowState], DayRule]:
    if asked.rrule is not None:
        text = compiler.value(asked.rrule, spot.inner("rrule")).get
        return lambda row: read_rule(str(text(row) or ""))
    named = _optional(compiler, asked.weekdays, spot.inner("weekdays"))
    nth = _optional(compiler, asked.nth, spot.inner("nth"))

    def rule(row: RowState) -> DayRule:
        days = [] if named is None else [_weekday_of(each) for each in _listed(named(row))]
        places = [] if nth is None else [_ordinal_of(each) for each in _listed(nth(row))]
        if places:
            return DayRule(MONTHLY, weekdays=tuple(day(place) for day in days for place in places))
        return DayRule(weekdays=tuple(days))

    return rule


def _optional(
    compiler: Compiler,
    value: Value | None,
    spot: ValuePosition,
    compile_one: Callable[[Compiler, Value, ValuePosition], CompiledValue] = Compiler.value,
) -> Getter | None:
    return None if value is None else lenient(compile_one(compiler, value, spot).get)


def _compile_date(compiler: Compiler, value: Value, spot: ValuePosition) -> CompiledValue:
    compiled = compiler.value(value, spot)
    is_text = compiled.flow.kind is Kind.TEXT and (compiled.is_cell or compiled.column)
    if compiled.flow.kind not in _DATES or is_text:
        return compiler.misfit(spot, f"a date is needed here, not a {compiled.flow.kind}", 'do: [{date: "%Y-%m-%d"}]')
    return compiled


def _read_day(value: Any) -> date:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value).strip())
    except ValueError:
        raise Refusal(ReasonCode.NOT_A_DATE, "a date is needed here", found=str(value), step="recur") from None


def _read_days(get: Getter | None, row: RowState) -> frozenset[date]:
    return frozenset() if get is None else frozenset(map(_read_day, _listed(get(row))))


def _earliest(days: frozenset[date]) -> date:
    if not days:
        raise required("", "a day at least is needed")
    return min(days)


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _weekday_of(value: Any) -> weekday:
    text = str(value).strip().upper()
    if text in WEEKDAYS:
        return weekdays[WEEKDAYS.index(text)]
    hint = f"one of {' '.join(WEEKDAYS)} is needed: split the cell, and map its words"
    raise Refusal(ReasonCode.NOT_ACCEPTED, hint, found=str(value), step="recur")


def _ordinal_of(value: Any) -> int:
    number = _ORDINALS.get(str(value).strip())
    if number is None:
        hint = "a number from 1 (the first) to 5 is needed, or from -1 (the last) to -5"
        raise Refusal(ReasonCode.NOT_ACCEPTED, hint, found=str(value), step="recur")
    return number

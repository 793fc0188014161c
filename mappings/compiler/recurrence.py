"""The days of a recurrence: rules of RFC 5545 and the days that a row names, in their order and bounded."""

from __future__ import annotations

import re
from calendar import isleap, monthrange
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from itertools import chain, groupby, islice
from typing import assert_never

from mappings.refusals import ReasonCode, Refusal

WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
FOLLOWED_DAYS = 40_000
ANY_PLACE = 0
_LONGEST_PERIOD = 366
_PARTS = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", "BYMONTH", "BYMONTHDAY", "BYSETPOS"})
_DAY = re.compile(r"([+-]?[1-9][0-9]?)?(MO|TU|WE|TH|FR|SA|SU)")
_NUMBER = re.compile(r"[+-]?[1-9][0-9]{0,4}")
_UNTIL = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:T[0-9]{6}Z?)?")
_EXAMPLE = "write it like FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE"


class Frequency(StrEnum):
    """What a rule repeats by."""

    DAILY = "DAILY"
    WEEKLY = "WEEKLY"
    MONTHLY = "MONTHLY"
    YEARLY = "YEARLY"


@dataclass(frozen=True, slots=True)
class DayRule:
    """A rule of whole days; an empty set means any.

    `weekdays`: places in the month (or year) with Monday as 0: (1, 0) is the first Monday, (-1, 4) the last Friday,
    (ANY_PLACE, 6) every Sunday. `positions`: which of a period's days, from either end.
    """

    frequency: Frequency = Frequency.DAILY
    interval: int = 1
    count: int | None = None
    until: date | None = None
    week_begins: int = 0
    weekdays: frozenset[tuple[int, int]] = frozenset()
    months: frozenset[int] = frozenset()
    month_days: frozenset[int] = frozenset()
    positions: frozenset[int] = frozenset()


def read_rule(text: str) -> DayRule:
    """Read a rule such as FREQ=WEEKLY;BYDAY=MO, with or without `RRULE:` before it.

    Raises:
        Refusal: it is none, or it says something that is not of whole days.
    """
    try:
        return _read(text.strip().upper().removeprefix("RRULE:"))
    except ValueError as error:
        raise Refusal(ReasonCode.NOT_A_DATE, f"{_EXAMPLE}: {error}", found=text) from error


def rule_days(rule: DayRule, begins: date, first: date, last: date) -> Iterator[date]:
    """Yield the days from `first` to `last` of a rule that begins on the day `begins`; its COUNT counts from there."""
    rule = _completed(rule, begins)
    start, end = begins if rule.count else first, min(last, rule.until or last)
    beyond = _LONGEST_PERIOD if rule.positions else 0  # the last place of a period is told by the whole of it
    ordinals = range(_period_begin(rule, start), min(end.toordinal() + beyond, date.max.toordinal()) + 1)[:FOLLOWED_DAYS]
    days = (date.fromordinal(ordinal) for ordinal in ordinals)
    fitting = (day for day in days if _fits(rule, day) and _period(rule, day, begins) % rule.interval == 0)
    placed = _placed(rule, fitting, begins) if rule.positions else fitting
    return (day for day in islice((day for day in placed if begins <= day <= end), rule.count) if day >= first)


def _read(text: str) -> DayRule:
    parts = [part.partition("=") for part in text.split(";") if part.strip()]
    named = {name.strip(): value.strip() for name, _, value in parts}
    unknown = sorted(named.keys() - _PARTS)
    if unknown or len(named) < len(parts):
        raise ValueError(f"{', '.join(unknown)} is not understood" if unknown else "a part stands twice")
    frequency = named.get("FREQ", "")
    if frequency not in Frequency.__members__:
        raise ValueError(f"it may repeat {', '.join(Frequency)}")
    return _rule(Frequency(frequency), named)


def _rule(frequency: Frequency, named: Mapping[str, str]) -> DayRule:
    weekdays = frozenset(_weekday(part) for part in _items(named.get("BYDAY")))
    if frequency in {Frequency.DAILY, Frequency.WEEKLY} and any(place for place, _ in weekdays):
        raise ValueError("a first or last weekday is one of a month or a year")
    return DayRule(
        frequency=frequency,
        interval=_number(named.get("INTERVAL", "1"), 1, 9_999),
        count=_number(named["COUNT"], 1, 99_999) if "COUNT" in named else None,
        until=_until(named["UNTIL"]) if "UNTIL" in named else None,
        week_begins=_weekday(named.get("WKST", "MO"))[1],
        weekdays=weekdays,
        months=frozenset(_number(part, 1, 12) for part in _items(named.get("BYMONTH"))),
        month_days=frozenset(_number(part, -31, 31) for part in _items(named.get("BYMONTHDAY"))),
        positions=frozenset(_number(part, -366, 366) for part in _items(named.get("BYSETPOS"))),
    )


def _items(text: str | None) -> list[str]:
    return [] if text is None else [part.strip() for part in text.split(",")]


def _number(text: str, least: int, most: int) -> int:
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise ValueError(f"{text or 'nothing'} is no number from {least} to {most}")
    return int(text)


def _weekday(text: str) -> tuple[int, int]:
    match = _DAY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text or 'nothing'} is none of {' '.join(WEEKDAYS)}")
    return int(match[1] or ANY_PLACE), WEEKDAYS.index(match[2])


def _until(text: str) -> date:
    match = _UNTIL.fullmatch(text)
    if match is None:
        raise ValueError("UNTIL is a day, such as 20261231")
    return date(*map(int, match.groups()))


def _completed(rule: DayRule, begins: date) -> DayRule:
    """Fill in what a rule leaves to the day on which it begins."""
    if rule.weekdays or rule.month_days:
        return rule
    match rule.frequency:
        case Frequency.DAILY:
            return rule
        case Frequency.WEEKLY:
            return replace(rule, weekdays=frozenset({(ANY_PLACE, begins.weekday())}))
        case Frequency.MONTHLY:
            return replace(rule, month_days=frozenset({begins.day}))
        case Frequency.YEARLY:
            return replace(rule, month_days=frozenset({begins.day}), months=rule.months or frozenset({begins.month}))
        case _:
            assert_never(rule.frequency)


def _fits(rule: DayRule, day: date) -> bool:
    if rule.months and day.month not in rule.months:
        return False
    if rule.month_days and rule.month_days.isdisjoint((day.day, day.day - monthrange(day.year, day.month)[1] - 1)):
        return False
    return not rule.weekdays or _is_weekday(rule, day)


def _is_weekday(rule: DayRule, day: date) -> bool:
    weekday = day.weekday()
    if (ANY_PLACE, weekday) in rule.weekdays:
        return True
    is_of_year = rule.frequency is Frequency.YEARLY and not rule.months
    number = day.timetuple().tm_yday if is_of_year else day.day
    length = 365 + isleap(day.year) if is_of_year else monthrange(day.year, day.month)[1]
    return not rule.weekdays.isdisjoint((((number - 1) // 7 + 1, weekday), (-((length - number) // 7 + 1), weekday)))


def _period(rule: DayRule, day: date, begins: date) -> int:
    """Return in which period of the rule a day is, counted from the one in which the rule begins."""
    match rule.frequency:
        case Frequency.DAILY:
            return day.toordinal() - begins.toordinal()
        case Frequency.WEEKLY:
            return (_week_begin(rule, day) - _week_begin(rule, begins)) // 7
        case Frequency.MONTHLY:
            return (day.year - begins.year) * 12 + day.month - begins.month
        case Frequency.YEARLY:
            return day.year - begins.year
        case _:
            assert_never(rule.frequency)


def _period_begin(rule: DayRule, day: date) -> int:
    """Return the ordinal of the day on which a day's period begins: positions count from there."""
    match rule.frequency:
        case Frequency.DAILY:
            return day.toordinal()
        case Frequency.WEEKLY:
            return max(_week_begin(rule, day), 1)
        case Frequency.MONTHLY:
            return day.replace(day=1).toordinal()
        case Frequency.YEARLY:
            return day.replace(month=1, day=1).toordinal()
        case _:
            assert_never(rule.frequency)


def _week_begin(rule: DayRule, day: date) -> int:
    return day.toordinal() - (day.weekday() - rule.week_begins) % 7


def _placed(rule: DayRule, days: Iterable[date], begins: date) -> Iterator[date]:
    periods = groupby(days, lambda day: _period(rule, day, begins))
    return chain.from_iterable(_at(rule.positions, list(period)) for _, period in periods)


def _at(positions: frozenset[int], days: list[date]) -> list[date]:
    return [day for place, day in enumerate(days) if not positions.isdisjoint((place + 1, place - len(days)))]


@dataclass(frozen=True, slots=True)
class Pattern:
    """The days of one row. `last`: the last of the range, None where only the horizon ends it."""

    first: date
    last: date | None
    rule: DayRule
    excluded: frozenset[date] = frozenset()
    extra: frozenset[date] = frozenset()


@dataclass(frozen=True, slots=True)
class Reach:
    """Which days matter, both included: those before `first` are long over, those after `last` beyond the horizon."""

    first: date = date.min
    last: date = date.max


def days_of(pattern: Pattern, reach: Reach, at_most: int) -> list[date]:
    """Return the days within reach in their order, and no more than one beyond `at_most`."""
    usual = (day for day in _usual_days(pattern, reach) if day not in pattern.excluded and day not in pattern.extra)
    extra = (day for day in pattern.extra if reach.first <= day <= reach.last)
    return sorted([*islice(usual, at_most + 1), *extra])[: at_most + 1]


def has_any_day(pattern: Pattern) -> bool:
    """Whether the range has a day that the pattern means at all, be it excluded or out of reach."""
    return bool(pattern.extra) or next(_usual_days(pattern, Reach()), None) is not None


def _usual_days(pattern: Pattern, reach: Reach) -> Iterator[date]:
    last = min(reach.last, pattern.last or date.max)
    return rule_days(pattern.rule, pattern.first, max(pattern.first, reach.first), last)

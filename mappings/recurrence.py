"""On which days something recurs: a pattern of days in a range, less some days, plus others. Pure arithmetic on days.

The patterns themselves are `day_rules`'; where a row says these things is `unfolding`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import islice

from mappings.day_rules import DayRule, rule_days


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

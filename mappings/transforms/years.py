"""The year that a text leaves out, as the author says it is to be found; without such a word it is never supplied.

Nothing here knows today's date: a row keeps its year, however often and whenever it is read.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from mappings.measures import mistake
from mappings.transforms.formats import EARLIEST_YEAR, WEEKDAYS, ChooseYear, NotRealError, real_day

_HINT = 'write a year, "2026", or the first day of a season, "2026-09-01"'


def _check_year(text: str) -> str:
    if re.fullmatch(r"[0-9]{4}", text) and int(text) >= EARLIEST_YEAR:
        return text
    try:
        day = date.fromisoformat(text) if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else None
    except ValueError:
        day = None
    if day is None or day.year < EARLIEST_YEAR:
        raise mistake(f'"{text}" says no year', _HINT)
    return text


YearRule = Annotated[
    str, AfterValidator(_check_year), WithJsonSchema({"type": ["string", "integer"], "examples": ["2026", "2026-09-01"]})
]
"""A year, or the first day of twelve months in which every day has its year."""


def year_chooser(rule: str | None) -> ChooseYear | None:
    """Compile the rule: a text without a year is in that year, or in the twelve months from that day on."""
    if rule is None:
        return None
    if "-" not in rule:
        year = int(rule)
        return lambda month, day, weekday: _agreeing(real_day(year, month, day), weekday)
    first = date.fromisoformat(rule)
    return lambda month, day, weekday: _agreeing(_in_season(first, month, day), weekday)


def _in_season(first: date, month: int, day: int) -> date:
    year = first.year if (month, day) >= (first.month, first.day) else first.year + 1
    try:
        return real_day(year, month, day)
    except NotRealError:
        raise NotRealError(f"there is no day {day} in month {month} in the year from {first.isoformat()} on") from None


def _agreeing(day: date, weekday: int | None) -> date:
    if weekday is not None and day.weekday() != weekday:
        raise NotRealError(f"{day.isoformat()} is a {WEEKDAYS[day.weekday()]}, and the text says {WEEKDAYS[weekday]}")
    return day

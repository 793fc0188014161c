"""ISO 8601 in all of its spellings: extended and basic, T or a space, any offset, days of the week and of the year.

Which of them a feed takes is the step `iso`'s.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Literal, assert_never

from mappings.day_end import DAY_END
from mappings.transforms.formats import EARLIEST_YEAR, NotRealError, real_day

IsoKind = Literal["moment", "wall", "date", "time"]
Forms = Literal["week", "ordinal"]
_DAY = (
    r"(?P<year>[0-9]{4})(?:-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})|(?P<bmonth>[0-9]{2})(?P<bday>[0-9]{2})"
    r"|-?W(?P<week>[0-9]{2})-?(?P<weekday>[1-7])|-?(?P<ordinal>[0-9]{3}))"
)
_CLOCK = (
    r"(?P<hour>[0-9]{2})(?::(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))?|(?P<bminute>[0-9]{2})(?P<bsecond>[0-9]{2})?)?"
    r"(?:[.,](?P<part>[0-9]{1,12}))?"
)
_OFFSET = r" ?(?P<offset>Z|UTC|[+\-−](?:0[0-9]|1[0-5])(?::?[0-5][0-9])?)"
_PATTERNS = {
    "date": re.compile(_DAY, re.IGNORECASE),
    "time": re.compile(_CLOCK),
    "wall": re.compile(rf"{_DAY}[T ]{_CLOCK}", re.IGNORECASE),
    "moment": re.compile(rf"{_DAY}[T ]{_CLOCK}{_OFFSET}", re.IGNORECASE),
}
_EXAMPLES: dict[IsoKind, str] = {
    "date": "2026-12-31",
    "time": "19:30",
    "wall": "2026-12-31T19:30:00",
    "moment": "2026-12-31T19:30:00+01:00",
}
_LAST_HOUR = 23


def iso_example(kind: IsoKind) -> str:
    """Return a text that is read as that kind."""
    return _EXAMPLES[kind]


def plain_moment(text: str) -> datetime | None:
    """Read `2026-07-01T18:00:00Z` or `2026-07-01T18:00:00+01:00` at once; any other spelling is for `read_iso`."""
    is_plain = text[10:11] == "T" and (
        text[19:22] <= "-15" and text[19] in "+-" if len(text) == len(_EXAMPLES["moment"]) else text[19:] == "Z"
    )
    if not is_plain or text[4] != "-" or text[7] != "-" or text[11:13] == "24":
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.year >= EARLIEST_YEAR and moment.tzinfo is not None else None


def read_iso(text: str, kind: IsoKind, forms: Collection[Forms], *, has_day_end: bool) -> date | time | datetime | None:
    """Return what the whole text writes, or None if it has another shape.

    Raises:
        NotRealError: it has the shape, and there is no such day or time, or its form is not agreed.
    """
    if kind == "time" and (found := _PATTERNS["time"].fullmatch(text.removeprefix("T"))):
        clock = _clock(found)
        return _day_end(has_day_end=has_day_end) if clock is None else clock
    if kind == "time":
        return None
    found = _PATTERNS[kind].fullmatch(text)
    if found is None:
        _refuse_other_kind(text, kind)
        return None
    day = _day(found, forms)
    if kind == "date":
        return day
    clock = _clock(found)
    wall = datetime.combine(day, time() if clock is None else clock)
    if clock is None:
        _day_end(has_day_end=has_day_end)
        wall = _next_day(wall)
    return wall.replace(tzinfo=_offset(found["offset"])) if kind == "moment" else wall


def _refuse_other_kind(text: str, kind: IsoKind) -> None:
    """Say what is too much or missing where the text is ISO 8601 of another kind."""
    match kind:
        case "moment" if _PATTERNS["wall"].fullmatch(text):
            raise NotRealError(f"it has no offset: write it like {_EXAMPLES['moment']}")
        case "wall" if _PATTERNS["moment"].fullmatch(text):
            raise NotRealError(f"it carries an offset: write it like {_EXAMPLES['wall']}, or let the feed read {{iso: moment}}")
        case "moment" | "wall" | "date" | "time":
            return
        case _:
            assert_never(kind)


def _day(found: re.Match[str], forms: Collection[Forms]) -> date:
    year = int(found["year"])
    if year < EARLIEST_YEAR:
        raise NotRealError(f"a year from {EARLIEST_YEAR} to 9999 would be accepted, and the text says {year}")
    if found["week"] is not None:
        return _day_of_week(found, year, forms)
    if found["ordinal"] is not None:
        return _day_of_year(found, year, forms)
    return real_day(year, int(found["month"] or found["bmonth"]), int(found["day"] or found["bday"]))


def _day_of_week(found: re.Match[str], year: int, forms: Collection[Forms]) -> date:
    if "week" not in forms:
        raise NotRealError(f"a day of a week is not agreed here: write it like {_EXAMPLES['date']}")
    try:
        return date.fromisocalendar(year, int(found["week"]), int(found["weekday"]))
    except ValueError:
        raise NotRealError(f"the year {year} has no week {found['week']}") from None


def _day_of_year(found: re.Match[str], year: int, forms: Collection[Forms]) -> date:
    if "ordinal" not in forms:
        raise NotRealError(f"a day of the year is not agreed here: write it like {_EXAMPLES['date']}")
    try:
        day = date(year, 1, 1) + timedelta(days=int(found["ordinal"]) - 1)
    except OverflowError:
        day = date.min
    if day.year != year:
        raise NotRealError(f"the year {year} has no day {found['ordinal']}")
    return day


def _clock(found: re.Match[str]) -> time | None:
    """Return the time of day, or None for 24:00."""
    hour = int(found["hour"])
    minute = int(found["minute"] or found["bminute"] or 0)
    second = int(found["second"] or found["bsecond"] or 0)
    part = found["part"]
    if part and not (found["second"] or found["bsecond"]):
        raise NotRealError("a fraction stands behind seconds only: write it like 19:30:00.5")
    microsecond = int((part or "0")[:6].ljust(6, "0"))
    if hour == _LAST_HOUR + 1 and not (minute or second or microsecond):
        return None
    try:
        return time(hour, minute, second, microsecond)
    except ValueError:
        raise NotRealError("hours go from 0 to 23, minutes and seconds from 0 to 59") from None


def _day_end(*, has_day_end: bool) -> time:
    if has_day_end:
        return DAY_END
    raise NotRealError("midnight is 00:00 of the day that begins: write that, with its date")


def _next_day(wall: datetime) -> datetime:
    try:
        return wall + timedelta(days=1)
    except OverflowError:
        raise NotRealError("a day up to 9999-12-31 would be accepted") from None


def _offset(text: str) -> timezone:
    if text.upper() in ("Z", "UTC"):
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] in "-−" else offset) if offset else UTC

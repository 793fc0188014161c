"""Times of day as people write them, in a closed list of ways: 19:30, 7.30pm, 18h, 14h30, 19 Uhr, kl. 19, noon.

Morning and afternoon are never guessed, and a bare number is no time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, assert_never

from pydantic import Field

from mappings.measures import OneOrMany
from mappings.refusals import ReasonCode
from mappings.steps.dates import EARLIEST_YEAR, MIDNIGHT, DayEnd, NotRealError, memoised, no_date_hint, no_time_hint, real_day
from mappings.steps.step import Kind, Run, Step, StepExample
from mappings.zones import DAY_END, EndOfDay, TimeOfDay

_LONGEST = 60
_BEFORE = r"(?:(?P<before>alle ore|a las|kl\.?|klo|um|at|à|às|as|alle|ore|om|godz\.?|ab|o)\s*)?"
_HOUR = r"(?P<hour>[0-9]{1,2})"
_COLON = r"(?::(?P<m1>[0-9]{2})(?::(?P<second>[0-9]{2}))?|\.(?P<m2>[0-9]{2}))"
_UNIT = r"(?P<unit>hrs|hs|h|uhr|uur|時|시|点)"
_AFTER_UNIT = r"(?:\s?(?P<m3>[0-9]{2})\s?(?:min|m|分|분)?)?"
_HALF = r"(?P<half>am|pm|a\.m\.|p\.m\.)"
_WRITTEN = re.compile(rf"{_BEFORE}{_HOUR}{_COLON}?\s?(?:{_UNIT}{_AFTER_UNIT})?\s?{_HALF}?", re.IGNORECASE)
_NOON = frozenset(("noon", "12 noon", "midday", "mittag", "midi", "mediodía", "meio-dia", "mezzogiorno", "południe", "正午"))
_MIDNIGHT = frozenset(("midnight", "12 midnight", "mitternacht", "minuit", "medianoche", "meia-noite", "mezzanotte", "północ"))
_BETWEEN = re.compile(
    r"\s*(?:-|–|—|−|~|〜|～|→)\s*|\s+(?:to|till|until|bis|a|à|às|as|au|al|alle|até|do|tot|til)\s+", re.IGNORECASE
)
_OPENING = re.compile(r"(?:from|between|von|vom|de|das|da|dalle|du|desde|van|od|fra)\s+(?=\S)", re.IGNORECASE)
_LAST_HOUR = 23
_NOON_HOUR = 12
BETWEEN_CLOCKS = "to, till, until, bis, a, à, às, as, au, al, alle, até, do, tot, til"
CLOCKS_SHOWN = ("19:30", "19.30", "7.30pm", "7 p.m.", "14h30", "18h", "19 Uhr", "19.30 Uhr", "kl. 19", "19時30分", "noon")


@dataclass(frozen=True, slots=True)
class WrittenTime:
    """A time of day as it is written: `half` adds 0 or 12 hours, None where the text says neither AM nor PM."""

    hour: int
    minute: int = 0
    second: int = 0
    half: int | None = None
    is_bare: bool = False
    """A number alone, which is an hour only beside a time in digits that says so."""
    is_word: bool = False


@dataclass(frozen=True, slots=True)
class TimeOptions:
    """What an author says about a feed's times: `needs_half` refuses 7:30 without AM or PM, `has_day_end` takes 24:00."""

    needs_half: bool = False
    has_day_end: bool = False


def read_clock_words(text: str, manner: TimeOptions) -> TimeOfDay | None:
    """Return the time of day that the whole text says, DAY_END for 24:00, or None if it says none.

    Raises:
        NotRealError: it has the shape of a time, and is none, or does not say which half of the day it means.
    """
    written = _written(text)
    return None if written is None or written.is_bare else _time(written, manner)


def read_clock_span(text: str, manner: TimeOptions) -> tuple[TimeOfDay, TimeOfDay | None] | None:
    """Return the two times of a range (None: the text says one), or None if it is no range.

    A start without AM or PM has that of the end if it is then the earlier one; a bare hour beside a time is an hour too.

    Raises:
        NotRealError: as for `read_clock_words`, or one of the two is left unclear.
    """
    alone = read_clock_words(text, manner)
    if alone is not None:
        return alone, None
    if len(text) > _LONGEST:
        return None
    parts = _BETWEEN.split(_OPENING.sub("", text, count=1) if _OPENING.match(text) else text)
    if len(parts) != 2:
        return None
    start, end = (_written(part) for part in parts)
    if start is None or end is None or (start.is_bare and end.is_bare):
        return None
    begins, ends = _completed(start, end)
    return _time(begins, manner), _time(ends, manner)


def _completed(start: WrittenTime, end: WrittenTime) -> tuple[WrittenTime, WrittenTime]:
    if start.is_bare and end.is_word:
        raise NotRealError("the start does not say AM or PM: write it like 8pm-midnight")
    if start.half is not None and end.half is None and end.hour <= _NOON_HOUR:
        raise NotRealError("the end does not say AM or PM: write it like 7pm-9pm")
    if start.half is None and end.half is not None and start.hour <= _NOON_HOUR:
        shared = replace(start, half=end.half, is_bare=False)
        if _minutes(shared) > _minutes(end):
            raise NotRealError("the start does not say AM or PM: write it like 11am-1pm")
        return shared, end
    return replace(start, is_bare=False), replace(end, is_bare=False)


def _minutes(written: WrittenTime) -> int:
    return (written.hour % _NOON_HOUR + (written.half or 0)) * 60 + written.minute


def _written(text: str) -> WrittenTime | None:
    if len(text) > _LONGEST:
        return None
    folded = " ".join(text.casefold().split())
    if folded in _NOON or folded in _MIDNIGHT:
        return WrittenTime(_NOON_HOUR, half=_NOON_HOUR, is_word=True) if folded in _NOON else WrittenTime(24, is_word=True)
    found = _WRITTEN.fullmatch(folded)
    if found is None or ((found["m1"] or found["m2"]) and found["m3"]):
        return None
    minute = found["m1"] or found["m2"] or found["m3"]
    half = {"a": 0, "p": _NOON_HOUR, "": None}[(found["half"] or "")[:1]]
    is_bare = not (minute or found["unit"] or found["before"] or found["half"])
    return WrittenTime(int(found["hour"]), int(minute or 0), int(found["second"] or 0), half, is_bare)


def _time(written: WrittenTime, manner: TimeOptions) -> TimeOfDay:
    if written.half is not None:
        return _of_half_a_day(written)
    if written.hour == _LAST_HOUR + 1 and not (written.minute or written.second):
        return _midnight(manner)
    if manner.needs_half and 0 < written.hour <= _NOON_HOUR:
        raise NotRealError("it does not say AM or PM: write it like 7:30pm, or 19:30")
    return _clock(written.hour, written)


def _of_half_a_day(written: WrittenTime) -> time:
    if not 1 <= written.hour <= _NOON_HOUR:
        raise NotRealError(f"an hour from 1 to 12 stands before AM and PM, not {written.hour}: write it like 7:30pm, or 19:30")
    return _clock(written.hour % _NOON_HOUR + (written.half or 0), written)


def _midnight(manner: TimeOptions) -> EndOfDay:
    if manner.has_day_end:
        return DAY_END
    raise NotRealError("midnight is 00:00 of the day that begins: write that, with its date")


def _clock(hour: int, written: WrittenTime) -> time:
    try:
        return time(hour, written.minute, written.second)
    except ValueError:
        raise NotRealError("hours go from 0 to 23, minutes and seconds from 0 to 59") from None


_HALVES = "any (the default): a time without AM or PM is one of 24 hours; am_pm: up to 12 o'clock it must say which."
Half = Literal["any", "am_pm"]


class Clock(Step, name="clock", gives=Kind.CLOCK):
    """Read a time of day as people write it, without formats: morning and afternoon are never guessed, nor a bare number."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("clock", "7.30pm", "19:30:00"),
        StepExample("clock", "14h30", "14:30:00"),
        StepExample("clock", "19 Uhr", "19:00:00"),
        StepExample("clock", "kl. 19", "19:00:00"),
        StepExample("clock", "noon", "12:00:00"),
        StepExample("{clock: any, day_end: next_day}", "midnight", "24:00:00"),
        StepExample("clock", "midnight", ReasonCode.NOT_A_TIME),
        StepExample("clock", "20:00 AM", ReasonCode.NOT_A_TIME),
        StepExample("clock", "19", ReasonCode.NOT_A_TIME),
        StepExample("{clock: am_pm}", "7:30", ReasonCode.NOT_A_TIME),
    )
    half: Half = Field(default="any", alias="clock", description=_HALVES)
    day_end: DayEnd = Field(default="refuse", description=MIDNIGHT)

    def function(self) -> Run:
        manner = TimeOptions(self.half == "am_pm", self.day_end == "next_day")
        return _memoised(lambda text: read_clock_words(text, manner), CLOCKS_SHOWN)


class ClockRange(Step, name="clock_range", gives=Kind.CLOCK):
    """Read the start or the end of a range of times such as 7-9pm or 19h-20h30; a single time has no end.

    A start without AM or PM has that of the end where it is then the earlier one (7-9pm; 11-1pm is refused).
    """

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{clock_range: start}", "7-9pm", "19:00:00"),
        StepExample("{clock_range: end}", "11am to 1pm", "13:00:00"),
        StepExample("{clock_range: start}", "19-21 Uhr", "19:00:00"),
        StepExample("{clock_range: start}", "20h30", "20:30:00"),
        StepExample("{clock_range: end}", "20h30", ""),
        StepExample("{clock_range: start}", "11-1pm", ReasonCode.NOT_A_TIME),
        StepExample("{clock_range: end}", "7pm-9", ReasonCode.NOT_A_TIME),
    )
    which: Literal["start", "end"] = Field(alias="clock_range", description="Which of the two to keep: start or end.")
    half: Half = Field(default="any", description=_HALVES)
    day_end: DayEnd = Field(default="refuse", description=MIDNIGHT)

    def function(self) -> Run:
        manner = TimeOptions(self.half == "am_pm", self.day_end == "next_day")
        place = 0 if self.which == "start" else 1

        def one(text: str) -> Any:
            span = read_clock_span(text, manner)
            return None if span is None else ("" if span[place] is None else span[place])

        return _memoised(one, ("19:00-20:30", "7-9pm", "11am-1pm"))


def _memoised(read: Callable[[str], Any], examples: tuple[str, ...]) -> Run:
    return memoised(read, ReasonCode.NOT_A_TIME, lambda text: no_time_hint(text, examples))


IsoKind = Literal["moment", "wall", "date", "time"]
Forms = Literal["week", "ordinal"]
_DAY = r"(?P<day>[0-9]{4}(?:-[0-9]{2}-[0-9]{2}|[0-9]{4}|-?W[0-9]{2}-?[1-7]|-?[0-9]{3}))"
_CLOCK = r"(?P<clock>[0-9]{2}(?::[0-9]{2}(?::[0-9]{2})?|[0-9]{2}(?:[0-9]{2})?)?)(?:[.,](?P<part>[0-9]{1,12}))?"
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


def read_iso(text: str, kind: IsoKind, forms: Collection[Forms], *, has_day_end: bool) -> date | TimeOfDay | None:
    """Return what the whole text writes, or None if it has another shape.

    Raises:
        NotRealError: it has the shape, and there is no such day or time, or its form is not agreed.
    """
    found = _PATTERNS[kind].fullmatch(text.removeprefix("T") if kind == "time" else text)
    if found is None:
        _refuse_other_kind(text, kind)
        return None
    day = date.min if kind == "time" else _read_day(found["day"], forms)
    if kind == "date":
        return day
    clock = _read_clock(found["clock"], found["part"])
    if isinstance(clock, EndOfDay) and not has_day_end:
        raise NotRealError("midnight is 00:00 of the day that begins: write that, with its date")
    if kind == "time":
        return clock
    wall = _combined(day, clock)
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


def _read_day(text: str, forms: Collection[Forms]) -> date:
    year, rest = int(text[:4]), text[4:].replace("-", "")
    if year < EARLIEST_YEAR:
        raise NotRealError(f"a year from {EARLIEST_YEAR} to 9999 would be accepted, and the text says {year}")
    if len(rest) == 4 and rest.isdigit():
        return real_day(year, int(rest[:2]), int(rest[2:]))
    is_week = not rest.isdigit()
    if ("week" if is_week else "ordinal") not in forms:
        what = "a day of a week" if is_week else "a day of the year"
        raise NotRealError(f"{what} is not agreed here: write it like {_EXAMPLES['date']}")
    try:
        day = date.fromisocalendar(year, int(rest[1:3]), int(rest[3])) if is_week else _day_of_year(year, int(rest))
    except ValueError:
        day = None
    if day is None or (not is_week and day.year != year):
        raise NotRealError(f"the year {year} has no {f'week {rest[1:3]}' if is_week else f'day {rest}'}")
    return day


def _day_of_year(year: int, number: int) -> date:
    return date.fromordinal(date(year, 1, 1).toordinal() + number - 1)


def _read_clock(text: str, part: str | None) -> TimeOfDay:
    numbers = [int(two) for two in re.findall("..", text.replace(":", ""))]
    if part and len(numbers) < 3:
        raise NotRealError("a fraction stands behind seconds only: write it like 19:30:00.5")
    hour, minute, second, microsecond = *numbers, *[0] * (3 - len(numbers)), int((part or "0")[:6].ljust(6, "0"))
    if hour == 24 and not (minute or second or microsecond):
        return DAY_END
    try:
        return time(hour, minute, second, microsecond)
    except ValueError:
        raise NotRealError("hours go from 0 to 23, minutes and seconds from 0 to 59") from None


def _combined(day: date, clock: TimeOfDay) -> datetime:
    try:
        if isinstance(clock, EndOfDay):
            return datetime.combine(day, time()) + timedelta(days=1)
    except OverflowError:
        raise NotRealError("a day up to 9999-12-31 would be accepted") from None
    return datetime.combine(day, clock)


def _offset(text: str) -> timezone:
    if text.upper() in ("Z", "UTC"):
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] in "-−" else offset) if offset else UTC


_NUMBER = re.compile(r"-?[0-9]{1,20}(?:[.,][0-9]{1,20})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_S, _LAST_S = 10**8, 253_402_300_799
_LAST_SECOND = timedelta(days=1) - timedelta(seconds=1)
_KINDS = {"moment": Kind.MOMENT, "wall": Kind.WALL, "date": Kind.DATE, "time": Kind.CLOCK}


class Iso(Step, name="iso", gives=Kind.MOMENT):
    """Read ISO 8601 as machines write it: any spelling of the offset, T or a space, fractions of a second.

    `moment` needs an offset, `wall`, `date` and `time` have none. Days of a week or of the year are read where `forms` says so.
    """

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{iso: moment}", "2026-07-01T18:00:00Z", "2026-07-01T18:00:00+00:00"),
        StepExample("{iso: moment}", "2026-07-01 18:00:00.250 +0100", "2026-07-01T18:00:00.250000+01:00"),
        StepExample("{iso: wall}", "20260701T1800", "2026-07-01T18:00:00"),
        StepExample("{iso: date, forms: [week, ordinal]}", "2026-W53-1", "2026-12-28"),
        StepExample("{iso: time, day_end: next_day}", "24:00", "24:00:00"),
        StepExample("{iso: moment}", "2026-07-01T18:00:00", ReasonCode.NOT_A_DATE),
        StepExample("{iso: date}", "2026-W53-1", ReasonCode.NOT_A_DATE),
    )
    kind: IsoKind = Field(alias="iso", description="What it is: moment (with its offset), wall (without), date, or time.")
    forms: Annotated[tuple[Forms, ...], OneOrMany()] = Field(
        default=(), description="Ways of writing the day to read beside 2026-07-01: week (2026-W27-3), ordinal (2026-182)."
    )
    day_end: DayEnd = Field(default="refuse", description=MIDNIGHT)

    @property
    def result(self) -> Kind:
        """What it is asked to read."""
        return _KINDS[self.kind]

    def function(self) -> Run:
        kind, forms, has_day_end = self.kind, frozenset(self.forms), self.day_end == "next_day"
        example = (_EXAMPLES[kind],)
        read = partial(read_iso, kind=kind, forms=forms, has_day_end=has_day_end)
        if kind == "time":
            return memoised(read, ReasonCode.NOT_A_TIME, lambda text: no_time_hint(text, example))
        return memoised(read, ReasonCode.NOT_A_DATE, lambda text: no_date_hint(text, example, "en"))


class Epoch(Step, name="epoch", gives=Kind.MOMENT):
    """Read a moment as the seconds (s) or milliseconds (ms) since 1970 in UTC; before March 1973 it is refused as no date."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{epoch: s}", "1782928800", "2026-07-01T18:00:00+00:00"),
        StepExample("{epoch: ms}", "1782928800250", "2026-07-01T18:00:00.250000+00:00"),
        StepExample("{epoch: s}", "1782928800250", ReasonCode.NOT_A_DATE),
        StepExample("{epoch: ms}", "1782928800", ReasonCode.NOT_A_DATE),
        StepExample("{epoch: s}", "0", ReasonCode.NOT_A_DATE),
    )
    unit: Literal["s", "ms"] = Field(alias="epoch", description="What is counted: s or ms.")

    def function(self) -> Run:
        per_second = 1 if self.unit == "s" else 1000
        example = str(1_782_928_800 * per_second)

        def moment(text: str) -> datetime | None:
            count = _number(text)
            if count is None:
                return None
            microseconds = int(count * 1_000_000 / per_second)
            if not _FIRST_S <= microseconds // 1_000_000 <= _LAST_S:
                raise NotRealError(_epoch_hint(abs(count), self.unit, example))
            return _EPOCH + timedelta(microseconds=microseconds)

        return memoised(moment, ReasonCode.NOT_A_DATE, lambda text: no_date_hint(text, [example], "en"))


class Serial(Step, name="serial", gives=Kind.WALL):
    """Read the number by which a spreadsheet keeps a day, with the time as its fraction, or a fraction alone as a time of day.

    `1900` counts as Excel and Sheets do, `1904` as old Excel for Mac; 29 February 1900, which Excel invented, is refused.
    """

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("{serial: 1900}", "46204.75", "2026-07-01T18:00:00"),
        StepExample("{serial: 1904}", "44742", "2026-07-01T00:00:00"),
        StepExample("{serial: time}", "0,8125", "19:30:00"),
        StepExample("{serial: 1900}", "60", ReasonCode.NOT_A_DATE),
        StepExample("{serial: 1900}", "0.75", ReasonCode.NOT_A_DATE),
        StepExample("{serial: time}", "1.5", ReasonCode.NOT_A_TIME),
    )
    system: Literal["1900", "1904", "time"] = Field(
        alias="serial", description="How days are counted: from 1900, from 1904; time: a part of a day."
    )

    @property
    def result(self) -> Kind:
        """A time of day, or a date with its time."""
        return Kind.CLOCK if self.system == "time" else Kind.WALL

    def function(self) -> Run:
        match self.system:
            case "time":
                return memoised(_part_of_a_day, ReasonCode.NOT_A_TIME, lambda text: no_time_hint(text, ["0.8125"]))
            case "1900":
                return memoised(_since_1900, ReasonCode.NOT_A_DATE, lambda text: no_date_hint(text, ["46204.75"], "en"))
            case "1904":
                return memoised(_since_1904, ReasonCode.NOT_A_DATE, lambda text: no_date_hint(text, ["44742.75"], "en"))
            case _:
                assert_never(self.system)


def _number(text: str) -> Decimal | None:
    return Decimal(text.replace(",", ".")) if _NUMBER.fullmatch(text) else None


def _epoch_hint(count: Decimal, unit: str, example: str) -> str:
    if unit == "s" and count > _LAST_S:
        return f"that many digits are milliseconds, and seconds are agreed: write it like {example}"
    if unit == "ms" and _FIRST_S <= count < _FIRST_S * 1000:
        return f"so few digits are seconds, and milliseconds are agreed: write it like {example}"
    return f"a number so small stands for no date: write it like {example}"


def _part_of_a_day(text: str) -> time | None:
    part = _number(text)
    if part is None:
        return None
    if not 0 <= part < 1:
        raise NotRealError("a part of one day, from 0 up to but not 1, would be accepted: 0.5 is 12:00")
    return (datetime(1904, 1, 1) + min(_rounded(part), _LAST_SECOND)).time()  # noqa: DTZ001 - a wall time


def _since_1900(text: str) -> datetime | None:
    count = _number(text)
    if count is None:
        return None
    if 60 <= count < 61:
        raise NotRealError("day 60 is 29 February 1900, which never was")
    return _counted(count, date(1899, 12, 31) if count < 60 else date(1899, 12, 30), first=1)


def _since_1904(text: str) -> datetime | None:
    count = _number(text)
    return None if count is None else _counted(count, date(1904, 1, 1), first=0)


def _counted(count: Decimal, zero: date, first: int) -> datetime:
    if count < first:
        raise NotRealError(f"days are counted from {first}: a part of a day is a time (serial: time)")
    try:
        return datetime.combine(zero, time()) + _rounded(count)
    except OverflowError:
        raise NotRealError("a day up to 9999-12-31 would be accepted") from None


def _rounded(days: Decimal) -> timedelta:
    """Spreadsheets keep times as binary fractions: the nearest second is what was typed."""
    return timedelta(seconds=round(days * 86_400))

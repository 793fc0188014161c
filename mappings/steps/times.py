"""Steps that parse times of day as people write them, from a closed list of forms, and machine formats of moments.

19:30, 7.30pm, 18h, 14h30, 19 Uhr, kl. 19, noon, 7-9pm: AM or PM is never guessed, and a bare number is not a time. ISO 8601 in
all its forms, seconds since 1970, serial numbers of spreadsheets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Literal

from pydantic import Field

from mappings.lookup_table import SPACES, plain
from mappings.reasons import Detail, ReasonCode, Refusal
from mappings.steps.formats import DASHES, DayEnd, NotRealError, check_year, day_end, names_of, read_first, real_day, zone_of
from mappings.steps.step import Family, Kind, Run, Step, plain_step
from mappings.zones import EndOfDay, TimeOfDay

_LONGEST = 60
EARLY_LANGUAGES = ("ja", "ko", "zh")
"""The languages that write AM or PM before the hour."""
_EARLY = {name: hours for language in EARLY_LANGUAGES for name, hours in names_of("p", language).items()}
"""Their words for AM and PM, with the hours to add."""
_WRITTEN = re.compile(
    r"(?:(?:from|von|vanaf|fra|od|desde|dalle|[àa] partir d[ea]s?)\s+)?"
    r"(?:(?P<before>alle ore|a las|las|kl\.?|klo|um|at|à|às|as|alle|ore|om|godz\.?|ab|o)\s*)?"
    rf"(?:(?P<early>{'|'.join(map(re.escape, _EARLY))})\s?)?(?P<hour>[0-9]{{1,2}})"
    r"(?::(?P<m1>[0-9]{2})(?::(?P<second>[0-9]{2}))?|\.(?P<m2>[0-9]{2}))?\s?"
    r"(?:(?P<unit>(?:hrs|hs|horas?|heures?|h|น)\.?|uhr|uur|時|시|点|點)(?:\s?(?P<m3>[0-9]{2})\s?(?:min|m|分|분)?)?)?\s?"
    rf"(?P<half>am|pm|a\.\s?m\.|p\.\s?m\.)?(?P<open>\s?[{DASHES}](?:\s?open[ -]end)?)?",
    re.IGNORECASE,
)
_NOON = frozenset(("noon", "12 noon", "midday", "mittag", "midi", "mediodía", "meio-dia", "mezzogiorno", "południe", "正午"))
_MIDNIGHT = frozenset(("midnight", "12 midnight", "mitternacht", "minuit", "medianoche", "meia-noite", "mezzanotte", "północ"))
BETWEEN_CLOCKS = "to, till, until, bis, a, à, às, as, au, al, alle, até, do, tot, til"
_BETWEEN = re.compile(rf"\s*[{DASHES}→]\s*|\s+(?:{BETWEEN_CLOCKS.replace(', ', '|')})\s+", re.IGNORECASE)
_OPENING = re.compile(r"\A(?:from|between|von|vom|de|das|da|dalle|du|desde|van|od|fra)\s+(?=\S)", re.IGNORECASE)
_NO_SUCH_CLOCK = "hours go from 0 to 23, minutes and seconds from 0 to 59, and a fraction follows seconds only"


@dataclass(frozen=True, slots=True)
class _Written:
    """A time of day as written. `half`: 0 or 12 hours to add, None without AM or PM.

    `is_early`: AM or PM precedes the hour. `is_bare`: a number alone, which is an hour only in a range with a time.
    """

    hour: int
    minute: int = 0
    second: int = 0
    half: int | None = None
    is_early: bool = False
    is_bare: bool = False
    is_word: bool = False


def read_clock_words(text: str, *, needs_half: bool = False, has_day_end: bool = False) -> TimeOfDay | None:
    """Parse a time of day in words or digits; DAY_END for 24:00, None if it is not one.

    `needs_half` refuses 7:30 without AM or PM, `has_day_end` accepts 24:00.

    Raises:
        NotRealError: it looks like a time but is not one, or lacks AM or PM.
    """
    written = _parse(text)
    return None if written is None or written.is_bare else _time_of(written, needs_half, has_day_end)


def read_clock_span(
    text: str, *, needs_half: bool = False, has_day_end: bool = False
) -> tuple[TimeOfDay, TimeOfDay | None] | None:
    """Parse a range of two times (None: a single time); return None if it is not a range.

    A start without AM or PM takes that of the end if it is then the earlier one; likewise an end after AM or PM before the start.
    A bare hour beside a time is an hour. A start may stand before a dash alone.

    Raises:
        NotRealError: as for `read_clock_words`, or one of the two times is ambiguous.
    """
    alone = read_clock_words(text, needs_half=needs_half, has_day_end=has_day_end)
    if alone is not None:
        return alone, None
    parts = _BETWEEN.split(_OPENING.sub("", text, count=1)) if len(text) <= _LONGEST else ()
    if len(parts) != 2:
        return None
    start, end = map(_parse, parts)
    if start is None or end is None or (start.is_bare and end.is_bare):
        return None
    if start.is_early and end.half is None and end.hour <= 12 and _minutes(replace(end, half=start.half)) > _minutes(start):
        end = replace(end, half=start.half)
    is_unclear = (start.is_bare and end.is_word) or (start.half is not None and end.half is None and end.hour <= 12)
    if start.half is None and end.half is not None and start.hour <= 12:
        start = replace(start, half=end.half)
        is_unclear |= _minutes(start) > _minutes(end)
    if is_unclear:
        raise NotRealError("one of the two does not say AM or PM: write it like 11am-1pm", Detail.NO_HALF)
    return _time_of(start, needs_half, has_day_end), _time_of(end, needs_half, has_day_end)


def _minutes(written: _Written) -> int:
    return (written.hour % 12 + (written.half or 0)) * 60 + written.minute


def _parse(text: str) -> _Written | None:
    folded = " ".join(text.casefold().split())
    if folded in _NOON or folded in _MIDNIGHT:
        return _Written(12, half=12, is_word=True) if folded in _NOON else _Written(24, is_word=True)
    found = _WRITTEN.fullmatch(folded) if len(text) <= _LONGEST else None
    if found is None or ((found["m1"] or found["m2"]) and found["m3"]) or (found["early"] and found["half"]):
        return None
    minute = found["m1"] or found["m2"] or found["m3"]
    half = {**_EARLY, "a": 0, "p": 12, "": None}[found["early"] or (found["half"] or "")[:1]]
    is_bare = not (minute or found["unit"] or found["before"] or half is not None)
    return _Written(int(found["hour"]), int(minute or 0), int(found["second"] or 0), half, bool(found["early"]), is_bare)


def _time_of(written: _Written, needs_half: bool, has_day_end: bool) -> TimeOfDay:
    hour = written.hour
    if written.half is not None:
        if not (1 <= hour <= 12 or (written.is_early and not hour)):  # 午前0時 is midnight, 午後0時 noon
            raise NotRealError(f"AM and PM follow an hour from 1 to 12, not {hour}: write it like 7:30pm, or 19:30")
        hour = hour % 12 + written.half
    elif hour == 24 and not (written.minute or written.second):
        return day_end(is_agreed=has_day_end)
    elif needs_half and 0 < hour <= 12:
        raise NotRealError("it does not say AM or PM: write it like 7:30pm, or 19:30", Detail.NO_HALF)
    try:
        return time(hour, written.minute, written.second)
    except ValueError:
        raise NotRealError(_NO_SUCH_CLOCK) from None


_HALVES = "any (the default): a time without AM or PM is one of 24 hours; am_pm: up to 12 o'clock it must say which."


class Clock(Step, name="clock", family=Family.TIMES, gives=Kind.CLOCK):
    """Parse a time of day as people write it, without formats. AM or PM is never guessed, and a bare number is refused.

    Examples:
        clock: "7.30pm" -> "19:30:00"
        clock: "14h30" -> "14:30:00"
        clock: "19 Uhr" -> "19:00:00"
        clock: "kl. 19" -> "19:00:00"
        clock: "오후 7:30" -> "19:30:00"
        clock: "8:00~" -> "08:00:00"
        clock: "12/30/1899 19:30:00" -> "19:30:00"
        clock: "noon" -> "12:00:00"
        {clock: any, day_end: next_day}: "midnight" -> "24:00:00"
        clock: "midnight" -> not_a_time
        clock: "20:00 AM" -> not_a_time
        clock: "19" -> not_a_time
        {clock: am_pm}: "7:30" -> not_a_time
    """

    half: Literal["any", "am_pm"] = Field(default="any", alias="clock", description=_HALVES)
    day_end: DayEnd = "refuse"

    def function(self) -> Run:
        read = partial(read_clock_words, needs_half=self.half == "am_pm", has_day_end=self.day_end == "next_day")
        return read_first([read], ReasonCode.NOT_A_TIME, ("19:30", "19.30", "7.30pm"))


class ClockRange(Step, name="clock_range", family=Family.RANGES, gives=Kind.CLOCK):
    """Parse the start or the end of a range of times such as 7-9pm or 19h-20h30; a single time has no end.

    A start without AM or PM takes that of the end if it is then the earlier one (7-9pm; 11-1pm is refused).

    Examples:
        {clock_range: start}: "7-9pm" -> "19:00:00"
        {clock_range: end}: "11am to 1pm" -> "13:00:00"
        {clock_range: start}: "19-21 Uhr" -> "19:00:00"
        {clock_range: start}: "20h30" -> "20:30:00"
        {clock_range: end}: "20h30" -> ""
        {clock_range: start}: "11-1pm" -> not_a_time
        {clock_range: end}: "7pm-9" -> not_a_time
    """

    which: Literal["start", "end"] = Field(alias="clock_range", description="Which of the two to keep: start or end.")
    half: Literal["any", "am_pm"] = Field(default="any", description=_HALVES)
    day_end: DayEnd = "refuse"

    def function(self) -> Run:
        place = ("start", "end").index(self.which)
        needs_half, has_day_end = self.half == "am_pm", self.day_end == "next_day"

        def read(text: str) -> Any:
            span = read_clock_span(text, needs_half=needs_half, has_day_end=has_day_end)
            return None if span is None else "" if span[place] is None else span[place]

        return read_first([read], ReasonCode.NOT_A_TIME, ("19:00-20:30", "7-9pm", "11am-1pm"))


def _split_range(text: str) -> tuple[str, str]:
    start, *ends = (part.strip(SPACES) for part in re.split(f"[{DASHES}]", plain(text)))
    if len(ends) > 1:
        raise Refusal(ReasonCode.NOT_A_TIME, "expected one start and one end, such as 19:00-20:30")
    return start, ends[0] if ends else ""


@plain_step("range_start", Family.RANGES)
def range_start(text: str) -> str:
    """Keep the text before the dash of a range such as 19:00-20:00; a text without a dash is kept whole.

    Examples:
        range_start: "19:00-20:00" -> "19:00"
        range_start: "19:10" -> "19:10"
        range_start: "19:00-20:00-21:00" -> not_a_time
    """
    return _split_range(text)[0]


@plain_step("range_end", Family.RANGES)
def range_end(text: str) -> str:
    """Keep the text after the dash of a range such as 19:00-20:00; a text without a dash gives an empty value.

    Examples:
        range_end: "19:30 – 20:50" -> "20:50"
        range_end: "19:10" -> ""
    """
    return _split_range(text)[1]


IsoKind = Literal["moment", "wall", "date", "time"]
_DAY = r"(?P<day>[0-9]{4}(?:-[0-9]{2}-[0-9]{2}|[0-9]{4}))"
_CLOCK = r"(?P<clock>[0-9]{2}(?::[0-9]{2}(?::[0-9]{2})?|[0-9]{2}(?:[0-9]{2})?)?)(?:[.,](?P<part>[0-9]{1,12}))?"
_OFFSET = r" ?(?P<offset>Z|UTC|[+\-−](?:0[0-9]|1[0-5])(?::?[0-5][0-9])?)"
_ISO: dict[IsoKind, tuple[re.Pattern[str], str, Kind]] = {
    "date": (re.compile(_DAY, re.IGNORECASE), "2026-12-31", Kind.DATE),
    "time": (re.compile(f"T?{_CLOCK}"), "19:30", Kind.CLOCK),
    "wall": (re.compile(rf"{_DAY}[T ]{_CLOCK}", re.IGNORECASE), "2026-12-31T19:30:00", Kind.WALL),
    "moment": (re.compile(rf"{_DAY}[T ]{_CLOCK}{_OFFSET}", re.IGNORECASE), "2026-12-31T19:30:00+01:00", Kind.MOMENT),
}
"""The pattern, an example and the resulting kind of each ISO form."""


def read_iso(text: str, kind: IsoKind, *, has_day_end: bool) -> date | TimeOfDay | None:
    """Parse the whole text as one kind of ISO 8601; return None if it does not match.

    Raises:
        NotRealError: there is no such day or time.
    """
    found = _ISO[kind][0].fullmatch(text)
    if found is None:
        if kind == "moment" and _ISO["wall"][0].fullmatch(text):
            raise NotRealError(f"it has no offset: write it like {_ISO['moment'][1]}")
        if kind == "wall" and _ISO["moment"][0].fullmatch(text):
            raise NotRealError(f"it carries an offset: write it like {_ISO['wall'][1]}, or use {{iso: moment}} in the mapping")
        return None
    if kind == "time":
        return _read_clock(found["clock"], found["part"], has_day_end=has_day_end)
    day = _read_day(found["day"])
    if kind == "date":
        return day
    clock = _read_clock(found["clock"], found["part"], has_day_end=has_day_end)
    wall = _add_days(datetime.combine(day, time()), 1) if isinstance(clock, EndOfDay) else datetime.combine(day, clock)
    return wall.replace(tzinfo=zone_of(found["offset"])) if kind == "moment" else wall


def _read_day(text: str) -> date:
    digits = text.replace("-", "")
    check_year(int(digits[:4]))
    return real_day(int(digits[:4]), int(digits[4:6]), int(digits[6:]))


def _read_clock(text: str, part: str | None, *, has_day_end: bool) -> TimeOfDay:
    if re.fullmatch("24[0:]*", text) and not int(part or 0):
        return day_end(is_agreed=has_day_end)
    try:
        clock = time.fromisoformat(f"{text}.{part}" if part else text)
    except ValueError:
        raise NotRealError(_NO_SUCH_CLOCK) from None
    if part and len(text) < len("193000"):
        raise NotRealError(_NO_SUCH_CLOCK)
    return clock


def _add_days(wall: datetime, days: Decimal | int) -> datetime:
    """Add days and fractions of days, rounded to the second: spreadsheets store times as binary fractions."""
    try:
        return wall + timedelta(seconds=round(days * 86_400))
    except OverflowError:
        raise NotRealError("expected a day up to 9999-12-31") from None


class Iso(Step, name="iso", family=Family.TIMES, gives=Kind.MOMENT):
    """Parse ISO 8601: any form of the offset, T or a space, fractions of a second.

    `moment` needs an offset, `wall`, `date` and `time` have none. Week dates and ordinal dates are refused.

    Examples:
        {iso: moment}: "2026-07-01T18:00:00Z" -> "2026-07-01T18:00:00+00:00"
        {iso: moment}: "2026-07-01 18:00:00.250 +0100" -> "2026-07-01T18:00:00.250000+01:00"
        {iso: wall}: "20260701T1800" -> "2026-07-01T18:00:00"
        {iso: time, day_end: next_day}: "24:00" -> "24:00:00"
        {iso: moment}: "2026-07-01T18:00:00" -> not_a_date
        {iso: date}: "2026-W53-1" -> not_a_date
        {iso: date}: "2027-13-05" -> not_a_date
    """

    kind: IsoKind = Field(alias="iso", description="What it is: moment (with its offset), wall (without), date, or time.")
    day_end: DayEnd = "refuse"

    @property
    def result(self) -> Kind:
        """The kind that the step parses."""
        return _ISO[self.kind][2]

    def function(self) -> Run:
        read = partial(read_iso, kind=self.kind, has_day_end=self.day_end == "next_day")
        code = ReasonCode.NOT_A_TIME if self.kind == "time" else ReasonCode.NOT_A_DATE
        return read_first([read], code, [_ISO[self.kind][1]])


_NUMBER = re.compile(r"-?[0-9]{1,20}(?:[.,][0-9]{1,20})?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_S, _LAST_S = 10**8, 253_402_300_799
_LAST_SECOND = Decimal(86_399) / 86_400


class Epoch(Step, name="epoch", family=Family.TIMES, gives=Kind.MOMENT):
    """Convert seconds (s) or milliseconds (ms) since 1970 in UTC to a moment; a time before March 1973 is refused.

    Examples:
        {epoch: s}: "1782928800" -> "2026-07-01T18:00:00+00:00"
        {epoch: ms}: "1782928800250" -> "2026-07-01T18:00:00.250000+00:00"
        {epoch: s}: "1782928800250" -> not_a_date
        {epoch: ms}: "1782928800" -> not_a_date
        {epoch: s}: "0" -> not_a_date
    """

    unit: Literal["s", "ms"] = Field(alias="epoch", description="What is counted: s or ms.")

    def function(self) -> Run:
        per_second, unit = (1, "seconds") if self.unit == "s" else (1000, "milliseconds")
        example = str(1_782_928_800 * per_second)

        def moment(text: str) -> datetime | None:
            count = _number(text)
            if count is None:
                return None
            microseconds = int(count * 1_000_000 / per_second)
            if not _FIRST_S <= microseconds // 1_000_000 <= _LAST_S:
                raise NotRealError(f"this number of {unit} after 1970 is not a date from 1973 to 9999: write it like {example}")
            return _EPOCH + timedelta(microseconds=microseconds)

        return read_first([moment], ReasonCode.NOT_A_DATE, [example])


class Serial(Step, name="serial", family=Family.TIMES, gives=Kind.WALL):
    """Convert a spreadsheet's serial number to a day, with the time as its fraction, or a fraction alone to a time of day.

    `1900` counts as Excel and Sheets do, `1904` as old Excel for Mac; 29 February 1900, which Excel invented, is refused.

    Examples:
        {serial: 1900}: "46204.75" -> "2026-07-01T18:00:00"
        {serial: 1904}: "44742" -> "2026-07-01T00:00:00"
        {serial: time}: "0,8125" -> "19:30:00"
        {serial: 1900}: "60" -> not_a_date
        {serial: 1900}: "0.75" -> not_a_date
        {serial: time}: "1.5" -> not_a_time
    """

    system: Literal["1900", "1904", "time"] = Field(
        alias="serial", description="How days are counted: from 1900, from 1904; time: a part of a day."
    )

    @property
    def result(self) -> Kind:
        """A time of day, or a date and time."""
        return Kind.CLOCK if self.system == "time" else Kind.WALL

    def function(self) -> Run:
        if self.system == "time":
            return read_first([_part_of_a_day], ReasonCode.NOT_A_TIME, ["0.8125"])
        example = "46204.75" if self.system == "1900" else "44742.75"
        return read_first([partial(_counted_day, system=self.system)], ReasonCode.NOT_A_DATE, [example])


def _number(text: str) -> Decimal | None:
    return Decimal(text.replace(",", ".")) if _NUMBER.fullmatch(text) else None


def _part_of_a_day(text: str) -> time | None:
    part = _number(text)
    if part is None:
        return None
    if not 0 <= part < 1:
        raise NotRealError("expected a part of one day, from 0 to less than 1: 0.5 is 12:00")
    return _add_days(datetime.combine(date.min, time()), min(part, _LAST_SECOND)).time()


def _counted_day(text: str, system: Literal["1900", "1904"]) -> datetime | None:
    count = _number(text)
    if count is None:
        return None
    zero, first = (date(1904, 1, 1), 0) if system == "1904" else (date(1899, 12, 31 if count < 60 else 30), 1)
    if system == "1900" and 60 <= count < 61:
        raise NotRealError("day 60 is 29 February 1900, which did not exist")
    if count < first:
        raise NotRealError(f"days are counted from {first}: a part of a day is a time (serial: time)")
    return _add_days(datetime.combine(zero, time()), count)

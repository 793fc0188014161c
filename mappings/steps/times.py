"""Times of day as people write them, in a closed list of ways: 19:30, 7.30pm, 18h, 14h30, 19 Uhr, kl. 19, noon.

Morning and afternoon are never guessed, and a bare number is no time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import time
from typing import Any, ClassVar, Literal

from pydantic import Field

from mappings.refusals import ReasonCode
from mappings.steps.dates import MIDNIGHT, DayEnd, no_time_hint
from mappings.steps.formats import NotRealError, memoised
from mappings.steps.step import Kind, Run, Shown, Step
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

    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("clock", "7.30pm", "19:30:00"),
        Shown("clock", "14h30", "14:30:00"),
        Shown("clock", "19 Uhr", "19:00:00"),
        Shown("clock", "kl. 19", "19:00:00"),
        Shown("clock", "noon", "12:00:00"),
        Shown("{clock: any, day_end: next_day}", "midnight", "24:00:00"),
        Shown("clock", "midnight", ReasonCode.NOT_A_TIME),
        Shown("clock", "20:00 AM", ReasonCode.NOT_A_TIME),
        Shown("clock", "19", ReasonCode.NOT_A_TIME),
        Shown("{clock: am_pm}", "7:30", ReasonCode.NOT_A_TIME),
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

    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("{clock_range: start}", "7-9pm", "19:00:00"),
        Shown("{clock_range: end}", "11am to 1pm", "13:00:00"),
        Shown("{clock_range: start}", "19-21 Uhr", "19:00:00"),
        Shown("{clock_range: start}", "20h30", "20:30:00"),
        Shown("{clock_range: end}", "20h30", ""),
        Shown("{clock_range: start}", "11-1pm", ReasonCode.NOT_A_TIME),
        Shown("{clock_range: end}", "7pm-9", ReasonCode.NOT_A_TIME),
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

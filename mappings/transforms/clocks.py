"""Steps that read times of day as people write them, alone or as a range. The ways of writing are `clock_words`'s."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, Literal

from pydantic import Field

from mappings.refusals import Refusal
from mappings.transforms.clock_words import CLOCKS_SHOWN, Manner, read_clock_span, read_clock_words
from mappings.transforms.formats import NotRealError
from mappings.transforms.step import Kind, Run, Shown, Step
from mappings.transforms.text import SPACES
from mappings.transforms.times import MIDNIGHT, DayEnd
from mappings.transforms.unsaid import no_time_hint
from mappings.vocabulary import ReasonCode

_MEMO = 4096
_HALVES = "any (the default): a time without AM or PM is one of 24 hours; am_pm: up to 12 o'clock it must say which."
Half = Literal["any", "am_pm"]


class Clock(Step):
    """Read a time of day as people write it, without formats: morning and afternoon are never guessed, nor a bare number."""

    name: ClassVar[str] = "clock"
    gives: ClassVar[Kind] = Kind.CLOCK
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
        """Return the step's function."""
        manner = Manner(self.half == "am_pm", self.day_end == "next_day")
        return _remembering(lambda text: read_clock_words(text, manner), CLOCKS_SHOWN)


class ClockRange(Step):
    """Read the start or the end of a range of times such as 7-9pm or 19h-20h30; a single time has no end.

    A start without AM or PM has that of the end where it is then the earlier one (7-9pm; 11-1pm is refused).
    """

    name: ClassVar[str] = "clock_range"
    gives: ClassVar[Kind] = Kind.CLOCK
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
        """Return the step's function."""
        manner = Manner(self.half == "am_pm", self.day_end == "next_day")
        place = 0 if self.which == "start" else 1

        def one(text: str) -> Any:
            span = read_clock_span(text, manner)
            return None if span is None else ("" if span[place] is None else span[place])

        return _remembering(one, ("19:00-20:30", "7-9pm", "11am-1pm"))


def _remembering(read: Callable[[str], Any], examples: tuple[str, ...]) -> Run:
    """Partners repeat their times: the last few thousand are remembered."""

    @lru_cache(maxsize=_MEMO)
    def clock(text: str) -> Any:
        text = text.strip(SPACES)
        try:
            found = read(text)
        except NotRealError as error:
            raise Refusal(ReasonCode.NOT_A_TIME, str(error)) from error
        if found is None:
            raise Refusal(ReasonCode.NOT_A_TIME, no_time_hint(text, examples))
        return found

    return clock

"""Steps that read dates and times, strictly, in the formats an author lists. Moving them between zones is `moments`'s."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time
from functools import lru_cache
from typing import ClassVar, Self, TypeVar

from pydantic import Field, model_validator

from mappings.measures import Switch, Text, Texts, mistake
from mappings.refusals import Refusal
from mappings.transforms.formats import Format, FormatError, NotRealError, compile_format, read_clock, read_date, read_datetime
from mappings.transforms.step import Kind, Run, Shown, Step
from mappings.transforms.text import SPACES
from mappings.vocabulary import ReasonCode

_MEMO = 4096
_MIDNIGHT_24 = re.compile(r"24(?:[:.h]00)?(?:[:.]00)?")
_DASHES = ("–", "—", "〜", "～", "~", "-")
_LANGUAGE = "The language of month, weekday and AM/PM names, such as pt or pl_PL (default: en)."
_READ = TypeVar("_READ", date, time, datetime)


class _Formatted(Step):
    """What the reading steps share: ordered formats, and the language of their names."""

    formats: Texts
    locale: Text = Field(default="en", description=_LANGUAGE)

    @model_validator(mode="after")
    def _check_formats(self) -> Self:
        for form in _compiled(self.formats, self.locale):
            self._check(form)
        return self

    def _check(self, form: Format) -> None:
        raise NotImplementedError


class Date(_Formatted):
    """Read a calendar day in the first of these formats that fits the whole text; nothing is guessed."""

    name: ClassVar[str] = "date"
    gives: ClassVar[Kind] = Kind.DATE
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown('{date: ["%Y-%m-%d", "%d/%m/%Y"]}', "3/4/2026", "2026-04-03"),
        Shown('{date: "%d de %B de %Y", locale: pt}', "28 de agosto de 2025", "2025-08-28"),
        Shown('{date: "%d/%m/%Y"}', "30/02/2026", ReasonCode.NOT_A_DATE),
        Shown('{date: "%d/%m/%Y"}', "TBA", ReasonCode.NOT_A_DATE),
    )
    formats: Texts = Field(alias="date", min_length=1, description="Formats in strptime notation, tried in order.")

    def function(self) -> Run:
        """Return the step's function."""
        return _reader(_compiled(self.formats, self.locale), read_date, ReasonCode.NOT_A_DATE)

    def _check(self, form: Format) -> None:
        if not form.has_date:
            raise mistake(f'the format "{form.spelling}" does not give a whole date', "it needs year, month and day")
        if form.parts & set("HIMSfpz"):
            raise mistake(f'the format "{form.spelling}" also reads a time', "use the step datetime")


class Time(_Formatted):
    """Read a time of day in the first of these formats that fits the whole text. 24:00 is refused."""

    name: ClassVar[str] = "time"
    gives: ClassVar[Kind] = Kind.CLOCK
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown('{time: ["%H:%M", "%Hh%M", "%Hh"]}', "14h30", "14:30:00"),
        Shown('{time: "%I.%M%p"}', "7.00pm", "19:00:00"),
        Shown('{time: "%p %I시 %M분", locale: ko}', "오후 7시 30분", "19:30:00"),
        Shown('{time: "%I:%M %p"}', "20:00 AM", ReasonCode.NOT_A_TIME),
        Shown('{time: "%H:%M"}', "24:00", ReasonCode.NOT_A_TIME),
    )
    formats: Texts = Field(alias="time", min_length=1, description="Formats in strptime notation, tried in order.")

    def function(self) -> Run:
        """Return the step's function."""
        return _reader(_compiled(self.formats, self.locale), read_clock, ReasonCode.NOT_A_TIME)

    def _check(self, form: Format) -> None:
        _check_clock(form)
        if form.parts & set("YymdBbjAaz"):
            raise mistake(f'the format "{form.spelling}" also reads a date or a zone', "use the step datetime")


class Datetime(_Formatted):
    """Read a date with its time. With `%z` in the format the result is a moment; without, `at` says in which zone it is."""

    name: ClassVar[str] = "datetime"
    gives: ClassVar[Kind] = Kind.WALL
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown('{datetime: "%m/%d/%Y %H:%M"}', "3/15/2016 18:00", "2016-03-15T18:00:00"),
        Shown('{datetime: "%Y-%m-%dT%H:%M:%S%z"}', "2026-07-01T18:00:00Z", "2026-07-01T18:00:00+00:00"),
        Shown('{datetime: "%d/%m/%Y %H:%M"}', "3/15/2016 18:00", ReasonCode.NOT_A_DATE),
    )
    formats: Texts = Field(alias="datetime", min_length=1, description="Formats in strptime notation, tried in order.")

    def function(self) -> Run:
        """Return the step's function."""
        return _reader(_compiled(self.formats, self.locale), read_datetime, ReasonCode.NOT_A_DATE)

    @property
    def result(self) -> Kind:
        """A moment where the formats read an offset."""
        return Kind.MOMENT if self.has_offset else Kind.WALL

    @property
    def has_offset(self) -> bool:
        """True if every format reads an offset, so that the result is a moment."""
        return all("z" in form.parts for form in _compiled(self.formats, self.locale))

    def _check(self, form: Format) -> None:
        _check_clock(form)
        if not form.has_date:
            raise mistake(f'the format "{form.spelling}" does not give a whole date', "it needs year, month and day")
        if ("z" in form.parts) != self.has_offset:
            raise mistake("some of these formats read an offset and some do not", "use two values and first_of")


class RangeStart(Step):
    """Keep what stands before the dash of a range such as 19:00-20:00; a text without a dash is kept whole."""

    name: ClassVar[str] = "range_start"
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown("range_start", "19:00-20:00", "19:00"),
        Shown("range_start", "19:10", "19:10"),
        Shown("range_start", "19:00-20:00-21:00", ReasonCode.NOT_A_TIME),
    )
    switch: Switch = Field(default=True, alias="range_start")

    def function(self) -> Run:
        """Return the step's function."""
        return lambda text: _range(text)[0]


class RangeEnd(Step):
    """Keep what stands after the dash of a range such as 19:00-20:00; a text without a dash gives an empty value."""

    name: ClassVar[str] = "range_end"
    shown: ClassVar[tuple[Shown, ...]] = (Shown("range_end", "19:30 – 20:50", "20:50"), Shown("range_end", "19:10", ""))
    switch: Switch = Field(default=True, alias="range_end")

    def function(self) -> Run:
        """Return the step's function."""
        return lambda text: _range(text)[1]


def _range(text: str) -> tuple[str, str]:
    for dash in _DASHES[1:]:
        text = text.replace(dash, _DASHES[0])
    start, *ends = (part.strip(SPACES) for part in text.split(_DASHES[0]))
    if len(ends) > 1:
        raise Refusal(ReasonCode.NOT_A_TIME, "one start and one end, such as 19:00-20:30, would be accepted")
    return start, ends[0] if ends else ""


def _compiled(formats: tuple[str, ...], language: str) -> tuple[Format, ...]:
    try:
        return tuple(compile_format(spelling, language) for spelling in formats)
    except FormatError as error:
        raise mistake(str(error)) from error


def _check_clock(form: Format) -> None:
    if form.has_clock:
        return
    hint = "%I needs %p beside it" if "I" in form.parts else "it needs %H, or %I with %p"
    raise mistake(f'the format "{form.spelling}" does not give a time of day', hint)


def _reader(formats: tuple[Format, ...], read: Callable[[Format, str], _READ | None], code: ReasonCode) -> Run:
    """Try the formats in order. Partners repeat their dates, so that the last few thousand are remembered."""

    @lru_cache(maxsize=_MEMO)
    def parse(text: str) -> _READ:
        text = text.strip(SPACES)
        for form in formats:
            try:
                value = read(form, text)
            except NotRealError as error:
                raise Refusal(code, str(error)) from error
            if value is not None:
                return value
        raise Refusal(code, _hint(formats, text))

    return parse


def _hint(formats: tuple[Format, ...], text: str) -> str:
    if _MIDNIGHT_24.search(text):
        return "midnight is 00:00 of the day that begins"
    shown = " or ".join(f'"{form.example}" ({form.spelling})' for form in formats[:4])
    return f"a text written like {shown} would be accepted"

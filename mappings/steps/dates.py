"""Steps that parse days and times by ordered formats: `date`, `time`, `datetime`, `date_range` and `dates`.

In a range or list, a day may omit what a neighbour has: 3-5 May 2026; 28 Feb - 2 Mar 2026; 3, 5 and 7 May 2026. Refusals carry
examples for the partner's editor.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable
from datetime import date, time
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from mappings.lookup_table import SPACES, plain
from mappings.reasons import ReasonCode, Refusal
from mappings.steps.formats import (
    EARLIEST_YEAR,
    DayEnd,
    Format,
    FormatError,
    NotRealError,
    SpanFormat,
    compile_format,
    day_end,
    misread,
    read_first,
    read_format,
    read_listed,
    read_span,
    span_format,
)
from mappings.steps.step import Family, Kind, Run, Step
from mappings.strict import Text, Texts, mistake
from mappings.zones import EndOfDay

_FORMATS = "Formats in strptime notation, tried in order."
_SPAN_FORMATS = "Formats of one whole day, in strptime notation, tried in order; a neighbour may leave out the month or the year."
_MOST = 1000


def _parse_season(text: object) -> date:
    """Parse a year to its first day, or an ISO date."""
    try:
        day = date.fromisoformat(f"{text}-01-01" if re.fullmatch("[0-9]{4}", str(text)) else str(text))
    except ValueError:
        day = date.min
    if day.year < EARLIEST_YEAR:
        raise mistake(f'"{text}" has no year', 'write a year, "2026", or the first day of a season, "2026-09-01"')
    return day


Season = Annotated[
    Annotated[
        date,
        PlainValidator(_parse_season),
        WithJsonSchema({"type": ["string", "integer"], "examples": ["2026", "2026-09-01"]}),
    ]
    | None,
    Field(
        description="What year a text without one is in: that year (2026), or the twelve months from a day on (2026-09-01)."
        " Without it, a format needs the year."
    ),
]
"""The first day of the twelve months that determine a missing year."""


class Formatted(Step):
    """A step with ordered formats, and names in one language."""

    formats: Texts
    locale: Text = Field(
        default="en", description="The language of month, weekday and AM/PM names, such as pt or pl_PL (default: en)."
    )

    @property
    def forms(self) -> tuple[Format, ...]:
        """The compiled formats; a wrong one is a mistake of the author."""
        try:
            return tuple(compile_format(spelling, self.locale) for spelling in self.formats)
        except FormatError as error:
            raise mistake(str(error)) from error

    def check(self) -> None:
        for form in self.forms:
            self._check(form)

    @abstractmethod
    def _check(self, form: Format) -> None:
        """Raise a mistake for a format that this step cannot use."""

    def _read_first(self, reads: Iterable[Callable[[str], Any]], code: ReasonCode = ReasonCode.NOT_A_DATE) -> Run:
        return read_first(reads, code, [form.example for form in self.forms])


def _check_clock(form: Format) -> None:
    if not form.has_clock:
        hint = "%I needs %p beside it" if "I" in form.parts else "it needs %H, or %I with %p"
        raise mistake(f'the format "{form.spelling}" does not give a time of day', hint)


class _Days(Formatted):
    year: Season = None

    def _check(self, form: Format) -> None:
        self._check_day(form)
        if not form.parts.isdisjoint("HIMSfpz"):
            raise mistake(f'the format "{form.spelling}" also reads a time', "use the step datetime")

    def _check_day(self, form: Format) -> None:
        is_whole = form.has_day or ("j" in form.parts and form.has_year)
        if not (is_whole and (form.has_year or self.year)):
            missing = "it needs year, month and day; year says which year is meant where the text leaves it out"
            raise mistake(f'the format "{form.spelling}" does not give a whole date', missing)


class Date(_Days, name="date", family=Family.TIMES, gives=Kind.DATE):
    """Parse a calendar day by the first of these formats that fits the whole text; nothing is guessed.

    Examples:
        {date: ["%Y-%m-%d", "%d/%m/%Y"]}: "3/4/2026" -> "2026-04-03"
        {date: "%d de %B de %Y", locale: pt}: "28 de agosto de 2025" -> "2025-08-28"
        {date: "%d %b", year: 2026-09-01}: "5 Feb" -> "2027-02-05"
        {date: "%d/%m/%Y"}: "30/02/2026" -> not_a_date
        {date: "%d/%m/%Y"}: "TBA" -> not_a_date
    """

    formats: Texts = Field(alias="date", min_length=1, description=_FORMATS)

    def function(self) -> Run:
        return self._read_first(partial(read_format, form, season=self.year) for form in self.forms)


class Time(Formatted, name="time", family=Family.TIMES, gives=Kind.CLOCK):
    """Parse a time of day by the first of these formats that fits the whole text (`clock` needs no formats).

    Examples:
        {time: ["%H:%M", "%Hh%M", "%Hh"]}: "14h30" -> "14:30:00"
        {time: "%I.%M%p"}: "7.00pm" -> "19:00:00"
        {time: "%p %I시 %M분", locale: ko}: "오후 7시 30분" -> "19:30:00"
        {time: "%H:%M", day_end: next_day}: "24:00" -> "24:00:00"
        {time: "%I:%M %p"}: "20:00 AM" -> not_a_time
        {time: "%H:%M"}: "24:00" -> not_a_time
    """

    formats: Texts = Field(alias="time", min_length=1, description=_FORMATS)
    day_end: DayEnd = "refuse"

    def function(self) -> Run:
        is_agreed = self.day_end == "next_day"
        return self._read_first((partial(_read_clock, form, is_agreed) for form in self.forms), ReasonCode.NOT_A_TIME)

    def _check(self, form: Format) -> None:
        _check_clock(form)
        if not form.parts.isdisjoint("YymdBbjAaz"):
            raise mistake(f'the format "{form.spelling}" also reads a date or a zone', "use the step datetime")


def _read_clock(form: Format, is_agreed: bool, text: str) -> date | time | EndOfDay | None:
    """Parse a time of day, including 24:00 for formats that parse 00:00."""
    clock = read_format(form, text)
    if clock is None and "24" in text and "H" in form.parts and read_format(form, text.replace("24", "00", 1)) == time():
        return day_end(is_agreed=is_agreed)
    return clock


class Datetime(_Days, name="datetime", family=Family.TIMES, gives=Kind.WALL):
    """Parse a date and time. With `%z` in the format the result is a moment; otherwise use `at` to give its zone.

    Examples:
        {datetime: "%m/%d/%Y %H:%M"}: "3/15/2016 18:00" -> "2016-03-15T18:00:00"
        {datetime: "%Y-%m-%dT%H:%M:%S%z"}: "2026-07-01T18:00:00Z" -> "2026-07-01T18:00:00+00:00"
        {datetime: "%d/%m/%Y %H:%M"}: "3/15/2016 18:00" -> not_a_date
    """

    formats: Texts = Field(alias="datetime", min_length=1, description=_FORMATS)

    def function(self) -> Run:
        return self._read_first(partial(read_format, form, season=self.year) for form in self.forms)

    @property
    def result(self) -> Kind:
        """A moment if every format has an offset, else a wall time."""
        return Kind.MOMENT if all("z" in form.parts for form in self.forms) else Kind.WALL

    def _check(self, form: Format) -> None:
        _check_clock(form)
        self._check_day(form)
        if ("z" in form.parts) != (self.result is Kind.MOMENT):
            raise mistake("some of these formats read an offset and some do not", "use two values and first_of")


class _SeveralDays(_Days):
    def _check(self, form: Format) -> None:
        super()._check(form)
        if "j" in form.parts:
            raise mistake(f'the format "{form.spelling}" has no month to share', "write the day with %d and the month")

    def _spans(self) -> list[SpanFormat]:
        return [span_format(form, self.locale) for form in self.forms]


class DateRange(_SeveralDays, name="date_range", family=Family.RANGES, gives=Kind.DATE):
    """Parse the first or last day of a range such as 3-5 May 2026 or 28 Feb - 2 Mar 2026; a single day has no end.

    The last day may omit what the format has before the day, the first day what it has after the day.

    Examples:
        {date_range: start, formats: "%d %B %Y"}: "3-5 May 2026" -> "2026-05-03"
        {date_range: start, formats: "%d %b %Y"}: "28 Feb - 2 Mar 2026" -> "2026-02-28"
        {date_range: end, formats: "%B %d, %Y"}: "May 3-5, 2026" -> "2026-05-05"
        {date_range: start, formats: "%d.%m.%Y"}: "12.-14.06.2026" -> "2026-06-12"
        {date_range: end, formats: "%d %B %Y", locale: fr}: "du 3 au 5 mai 2026" -> "2026-05-05"
        {date_range: end, formats: "%d/%m/%Y"}: "3/5/2026" -> ""
        {date_range: start, formats: "%d %b %Y"}: "28 Dec - 2 Jan 2027" -> not_a_date
        {date_range: start, formats: "%d %B %Y"}: "May 2026" -> not_a_date
    """

    which: Literal["start", "end"] = Field(alias="date_range", description="Which of the two to keep: start or end.")
    formats: Texts = Field(min_length=1, description=_SPAN_FORMATS)

    def function(self) -> Run:
        place = ("start", "end").index(self.which)

        def read(form: SpanFormat, text: str) -> date | str | None:
            span = read_span(form, text, self.year)
            return None if span is None else span[place] or ""

        return self._read_first(partial(read, form) for form in self._spans())


class Dates(_SeveralDays, name="dates", family=Family.RANGES, gives=Kind.LIST, lists=Kind.DATE):
    """Parse a list of days by the first of these formats that fits them all; one wrong day refuses the whole text.

    A day may omit the month or the year if the next day has it.

    Examples:
        {dates: "%d/%m/%Y"}: "3/5/2026; 10/5/2026" -> ["2026-05-03", "2026-05-10"]
        {dates: "%d de %B de %Y", by: [",", " e "], locale: pt}:
            "3, 5 e 7 de maio de 2026" -> ["2026-05-03", "2026-05-05", "2026-05-07"]
        {dates: "%d/%m/%Y"}: "3/5/2026; 31/4/2026; TBA" -> not_a_date
    """

    formats: Texts = Field(alias="dates", min_length=1, description=_SPAN_FORMATS)
    by: Texts = Field(
        default=(",", ";", "\n"), min_length=1, description="The separators between the days (default: , ; and line ends)."
    )

    def _check(self, form: Format) -> None:
        super()._check(form)
        inside = next((separator for separator in self.by if separator in form.example), None)
        if inside is not None:
            hint = "name another separator with by"
            raise mistake(f'the format "{form.spelling}" has "{inside}" within a day', hint)

    def function(self) -> Run:
        forms = self._spans()
        cut = re.compile("|".join(re.escape(separator) for separator in sorted(map(plain, self.by), key=len, reverse=True)))

        def dates(text: str) -> list[Any]:
            texts = [part for part in (part.strip(SPACES) for part in cut.split(plain(text))) if part]
            if len(texts) > _MOST:
                raise Refusal(ReasonCode.NOT_A_DATE, f"at most {_MOST} days are allowed in one cell")
            tried: list[list[Any]] = []
            for form in forms:
                try:
                    tried.append(read_listed(form, texts, self.year))
                except NotRealError as error:
                    raise Refusal(
                        ReasonCode.NOT_A_DATE, str(error), detail=error.detail, particulars=error.particulars
                    ) from error
                if None not in tried[-1]:
                    return tried[-1]
            closest = min(tried, key=lambda days: days.count(None))
            place = closest.index(None)
            why = misread(texts[place], ReasonCode.NOT_A_DATE, [form.whole.example for form in forms])
            hint = (
                why.hint if len(texts) == 1 else f'item {place + 1} of {len(texts)}, "{texts[place]}", is not a date: {why.hint}'
            )
            particulars = {"found": texts[place], **why.particulars}
            raise Refusal(ReasonCode.NOT_A_DATE, hint, detail=why.detail, particulars=particulars)

        return dates

"""Steps that read several days from one text: the start or the end of a range, or a list of days. How is `spans`'s."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from mappings.measures import Switch, Text, Texts, mistake
from mappings.refusals import Refusal
from mappings.transforms.formats import NotRealError
from mappings.transforms.spans import SpanFormat, read_listed, read_span, span_format
from mappings.transforms.step import Kind, Run, Shown, Step
from mappings.transforms.text import SPACES
from mappings.transforms.times import LANGUAGE, YEAR, compile_formats
from mappings.transforms.unsaid import no_date_hint
from mappings.transforms.years import YearRule, year_chooser
from mappings.vocabulary import ReasonCode

_MEMO = 4096
_MOST = 1000
_DASH = "-"
_DASHES = ("–", "—", "〜", "～", "~")
_FORMATS = "Formats of one whole day, in strptime notation, tried in order; a neighbour may leave out the month or the year."


class RangeStart(Step):
    """Keep the text before the dash of a range such as 19:00-20:00; a text without a dash is kept whole."""

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
    """Keep the text after the dash of a range such as 19:00-20:00; a text without a dash gives an empty value."""

    name: ClassVar[str] = "range_end"
    shown: ClassVar[tuple[Shown, ...]] = (Shown("range_end", "19:30 – 20:50", "20:50"), Shown("range_end", "19:10", ""))
    switch: Switch = Field(default=True, alias="range_end")

    def function(self) -> Run:
        """Return the step's function."""
        return lambda text: _range(text)[1]


class _Days(Step):
    """What both readers of several days share: the formats of one, their language, the year that is left out."""

    formats: Texts
    locale: Text = Field(default="en", description=LANGUAGE)
    year: YearRule | None = Field(default=None, description=YEAR)

    @model_validator(mode="after")
    def _check_formats(self) -> Self:
        for form in compile_formats(self.formats, self.locale):
            if not form.has_day_of_year or not (form.has_year or self.year) or form.parts & set("HIMSfpzj"):
                hint = "it needs year, month and day, and no time"
                raise mistake(f'the format "{form.spelling}" does not give a whole date', hint)
        return self

    def _spans(self) -> tuple[SpanFormat, ...]:
        return tuple(span_format(form, self.locale) for form in compile_formats(self.formats, self.locale))

    def _refusal(self, text: str) -> Refusal:
        examples = [form.example for form in compile_formats(self.formats, self.locale)]
        return Refusal(ReasonCode.NOT_A_DATE, no_date_hint(text, examples, self.locale))


class DateRange(_Days):
    """Read the first or the last day of a range such as 3-5 May 2026 or 28 Feb - 2 Mar 2026; a single day has no end.

    What a format writes before the day may be missing in the last day, what it writes after it in the first.
    """

    name: ClassVar[str] = "date_range"
    gives: ClassVar[Kind] = Kind.DATE
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown('{date_range: start, formats: "%d %B %Y"}', "3-5 May 2026", "2026-05-03"),
        Shown('{date_range: start, formats: "%d %b %Y"}', "28 Feb - 2 Mar 2026", "2026-02-28"),
        Shown('{date_range: end, formats: "%B %d, %Y"}', "May 3-5, 2026", "2026-05-05"),
        Shown('{date_range: start, formats: "%d.%m.%Y"}', "12.-14.06.2026", "2026-06-12"),
        Shown('{date_range: end, formats: "%d %B %Y", locale: fr}', "du 3 au 5 mai 2026", "2026-05-05"),
        Shown('{date_range: end, formats: "%d/%m/%Y"}', "3/5/2026", ""),
        Shown('{date_range: start, formats: "%d %b %Y"}', "28 Dec - 2 Jan 2027", ReasonCode.NOT_A_DATE),
        Shown('{date_range: start, formats: "%d %B %Y"}', "May 2026", ReasonCode.NOT_A_DATE),
    )
    which: Literal["start", "end"] = Field(alias="date_range", description="Which of the two to keep: start or end.")
    formats: Texts = Field(min_length=1, description=_FORMATS)

    def function(self) -> Run:
        """Return the step's function."""
        forms, choose_year = self._spans(), year_chooser(self.year)
        place = 0 if self.which == "start" else 1

        @lru_cache(maxsize=_MEMO)
        def read(text: str) -> Any:
            text = text.strip(SPACES)
            for form in forms:
                try:
                    span = read_span(form, text, choose_year)
                except NotRealError as error:
                    raise Refusal(ReasonCode.NOT_A_DATE, str(error)) from error
                if span is not None:
                    return "" if span[place] is None else span[place]
            raise self._refusal(text)

        return read


class Dates(_Days):
    """Read a list of days, all in the first of these formats that fits them all; one that is none refuses the whole text.

    A day may leave out the month or the year if the next one writes it.
    """

    name: ClassVar[str] = "dates"
    gives: ClassVar[Kind] = Kind.LIST
    lists: ClassVar[Kind] = Kind.DATE
    shown: ClassVar[tuple[Shown, ...]] = (
        Shown('{dates: "%d/%m/%Y"}', "3/5/2026; 10/5/2026", ("2026-05-03", "2026-05-10")),
        Shown(
            '{dates: "%d de %B de %Y", by: [",", " e "], locale: pt}',
            "3, 5 e 7 de maio de 2026",
            ("2026-05-03", "2026-05-05", "2026-05-07"),
        ),
        Shown('{dates: "%d/%m/%Y"}', "3/5/2026; 31/4/2026; TBA", ReasonCode.NOT_A_DATE),
    )
    formats: Texts = Field(alias="dates", min_length=1, description=_FORMATS)
    by: Texts = Field(
        default=(",", ";", "\n"), min_length=1, description="What stands between the days (default: , ; and line ends)."
    )

    @model_validator(mode="after")
    def _check_separators(self) -> Self:
        for form in compile_formats(self.formats, self.locale):
            inside = next((separator for separator in self.by if separator in form.example), None)
            if inside is not None:
                hint = "say what else stands between the days, with by"
                raise mistake(f'the format "{form.spelling}" has "{inside}" within a day', hint)
        return self

    def function(self) -> Run:
        """Return the step's function."""
        forms, choose_year = self._spans(), year_chooser(self.year)
        cut = re.compile("|".join(re.escape(separator) for separator in sorted(self.by, key=len, reverse=True)))

        def dates(text: str) -> list[Any]:
            texts = [part for part in (part.strip(SPACES) for part in cut.split(text)) if part]
            if len(texts) > _MOST:
                raise Refusal(ReasonCode.NOT_A_DATE, f"at most {_MOST} days in one cell would be accepted")
            tried: list[list[Any]] = []
            for form in forms:
                try:
                    tried.append(read_listed(form, texts, choose_year))
                except NotRealError as error:
                    raise Refusal(ReasonCode.NOT_A_DATE, str(error)) from error
                if None not in tried[-1]:
                    return tried[-1]
            raise self._item_refusal(texts, min(tried, key=lambda days: days.count(None)))

        return dates

    def _item_refusal(self, texts: list[str], days: list[Any]) -> Refusal:
        place = days.index(None)
        refusal = self._refusal(texts[place])
        return Refusal(refusal.code, f'item {place + 1} of {len(texts)}, "{texts[place]}", is no date: {refusal.hint}')


def _range(text: str) -> tuple[str, str]:
    for dash in _DASHES:
        text = text.replace(dash, _DASH)
    start, *ends = (part.strip(SPACES) for part in text.split(_DASH))
    if len(ends) > 1:
        raise Refusal(ReasonCode.NOT_A_TIME, "one start and one end, such as 19:00-20:30, would be accepted")
    return start, ends[0] if ends else ""

"""Ranges of days and of times, and lists of days, of which one leaves out what the other says.

3-5 May 2026; 28 Feb - 2 Mar 2026; 3, 5 and 7 May 2026; 7-9pm.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from itertools import product
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from mappings.lookup_table import SPACES
from mappings.reasons import ReasonCode, Refusal
from mappings.steps.dates import (
    YEAR,
    ChooseYear,
    Format,
    Formatted,
    NotRealError,
    YearRule,
    compile_format,
    date_of,
    explain,
    reader,
    values_of,
    year_chooser,
)
from mappings.steps.step import Family, Kind, Run, plain_step
from mappings.strict import Texts, mistake

_Values = dict[str, int]
_LONGEST = 200
_MOST = 1000
BETWEEN_WORDS = "to, till, until, bis, a, à, au, al, até, ao, do, tot, t/m, til, и, до, and, und, et, y, e, i"
OPENING_WORDS = "from, between, vom, von, du, de, del, dal, van, od, desde, entre, fra, с, от"
_BETWEEN = re.compile(rf"\s*(?:-|–|—|−|~|〜|～|→)\s*|\s+(?:{BETWEEN_WORDS.replace(', ', '|')})\s+", re.IGNORECASE)
_OPENING = re.compile(rf"(?:{OPENING_WORDS.replace(', ', '|')})\s+(?=\S)", re.IGNORECASE)
_MONTHS = frozenset("mBb")
_YEARS = frozenset("Yy")
_FORMATS = "Formats of one whole day, in strptime notation, tried in order; a neighbour may leave out the month or the year."
_DASHES = re.compile("[–—〜～~-]")


@dataclass(frozen=True, slots=True)
class SpanFormat:
    """A format, with its forms for a day whose month or year stands with a later day, or with an earlier one."""

    whole: Format
    earlier: tuple[Format, ...]
    """What may stand before the text that ends the span: the beginning of the format, up to the day at least."""
    later: tuple[Format, ...]
    """What may stand after the text that begins it: the end of the format, from the day at the latest."""


def span_format(whole: Format, language: str) -> SpanFormat:
    """Work out the shorter forms of a format."""
    tokens = re.findall(r"%.?|\s+|[^%\s]+", whole.spelling)
    places = [place for place, piece in enumerate(tokens) if re.fullmatch("%[A-Za-z]", piece)]
    day = tokens.index("%d")
    begun: set[str] = set()
    for end in (end for end in places if end >= day):
        begun.add("".join(tokens[: end + 1]))
        if end + 1 < len(tokens) and not tokens[end + 1].isspace() and not tokens[end + 1].startswith("%"):
            begun.add("".join(tokens[: end + 2]))
    ended = {"".join(tokens[start:]) for start in places if start <= day}
    earlier, later = (
        tuple(compile_format(spelling, language) for spelling in sorted(spellings, key=lambda each: (-len(each), each)))
        for spellings in (begun, ended)
    )
    return SpanFormat(whole, earlier, later)


def read_span(form: SpanFormat, text: str, choose_year: ChooseYear | None = None) -> tuple[date, date | None] | None:
    """Return the first and the last day that the whole text writes (None: it writes one day), or None.

    Raises:
        NotRealError: there is no such day, the range can be cut in two places, or it ends before it begins.
    """
    if len(text) > _LONGEST:
        return None
    alone = values_of(form.whole, text)
    if alone is not None:
        return date_of(alone, choose_year), None
    text = text[opening.end() :] if (opening := _OPENING.match(text)) else text
    halves = [(text[: cut.start()], text[cut.end() :]) for cut in _BETWEEN.finditer(text)]
    found: set[tuple[date, date | None]] = set()
    for start, end in halves:
        for first, last in product(_readings(form.earlier, start), _readings(form.later, end)):
            if completed := _complete(first, last, needs_year=choose_year is None):
                begins, ends = (date_of(values, choose_year) for values in completed)
                if ends < begins:
                    problem = f"it ends on {ends.isoformat()}, before it begins on {begins.isoformat()}: write both years"
                    raise NotRealError(problem)
                found.add((begins, ends))
    if len(found) > 1:
        raise NotRealError("it can be read as more than one range: write both days in full")
    return next(iter(found), None)


def read_listed(form: SpanFormat, texts: list[str], choose_year: ChooseYear | None = None) -> list[date | None]:
    """Return the day that each text writes, None where it writes none; what it leaves out stands with the next.

    Raises:
        NotRealError: there is no such day; it names the text.
    """
    days: list[date | None] = []
    following: _Values = {}
    for text in reversed(texts):
        values = values_of(form.whole, text)
        if values is None and (short := next(iter(_readings(form.earlier, text)), None)) is not None:
            completed = _complete(short, following, needs_year=choose_year is None)
            values = completed and completed[0]
        try:
            days.append(None if values is None else date_of(values, choose_year))
        except NotRealError as error:
            raise NotRealError(f'"{text}": {error}') from error
        following = values or {}
    return days[::-1]


def _readings(forms: tuple[Format, ...], text: str) -> list[_Values]:
    return [values for values in (values_of(form, text) for form in forms) if values is not None]


def _complete(first: _Values, last: _Values, *, needs_year: bool) -> tuple[_Values, _Values] | None:
    """Complete each from the other, or return None where both leave the same thing out."""
    for letters in (_MONTHS, _YEARS):
        said = {letter: value for values in (last, first) for letter, value in values.items() if letter in letters}
        if not said and (letters is _MONTHS or needs_year):
            return None
        first = first if first.keys() & letters else first | said
        last = last if last.keys() & letters else last | said
    return first, last


def _split_range(text: str) -> tuple[str, str]:
    start, *ends = (part.strip(SPACES) for part in _DASHES.split(text))
    if len(ends) > 1:
        raise Refusal(ReasonCode.NOT_A_TIME, "one start and one end, such as 19:00-20:30, would be accepted")
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


class _Days(Formatted):
    year: YearRule | None = Field(default=None, description=YEAR)

    def _check(self, form: Format) -> None:
        if not form.has_day_of_year or not (form.has_year or self.year) or form.parts & set("HIMSfpzj"):
            hint = "it needs year, month and day, and no time"
            raise mistake(f'the format "{form.spelling}" does not give a whole date', hint)

    def _spans(self) -> list[SpanFormat]:
        return [span_format(form, self.locale) for form in self.forms]


class DateRange(_Days, name="date_range", family=Family.RANGES, gives=Kind.DATE):
    """Read the first or the last day of a range such as 3-5 May 2026 or 28 Feb - 2 Mar 2026; a single day has no end.

    What a format writes before the day may be missing in the last day, what it writes after it in the first.

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
    formats: Texts = Field(min_length=1, description=_FORMATS)

    def function(self) -> Run:
        forms, choose_year, place = self._spans(), year_chooser(self.year), ("start", "end").index(self.which)

        def read(text: str) -> Any:
            span = next((span for span in (read_span(form, text, choose_year) for form in forms) if span is not None), None)
            return None if span is None else span[place] or ""

        return reader(read, ReasonCode.NOT_A_DATE, [form.whole.example for form in forms], self.locale)


class Dates(_Days, name="dates", family=Family.RANGES, gives=Kind.LIST, lists=Kind.DATE):
    """Read a list of days, all in the first of these formats that fits them all; one that is none refuses the whole text.

    A day may leave out the month or the year if the next one writes it.

    Examples:
        {dates: "%d/%m/%Y"}: "3/5/2026; 10/5/2026" -> ["2026-05-03", "2026-05-10"]
        {dates: "%d de %B de %Y", by: [",", " e "], locale: pt}:
            "3, 5 e 7 de maio de 2026" -> ["2026-05-03", "2026-05-05", "2026-05-07"]
        {dates: "%d/%m/%Y"}: "3/5/2026; 31/4/2026; TBA" -> not_a_date
    """

    formats: Texts = Field(alias="dates", min_length=1, description=_FORMATS)
    by: Texts = Field(
        default=(",", ";", "\n"), min_length=1, description="What stands between the days (default: , ; and line ends)."
    )

    @model_validator(mode="after")
    def _check_separators(self) -> Self:
        for form in self.forms:
            inside = next((separator for separator in self.by if separator in form.example), None)
            if inside is not None:
                hint = "say what else stands between the days, with by"
                raise mistake(f'the format "{form.spelling}" has "{inside}" within a day', hint)
        return self

    def function(self) -> Run:
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
            closest = min(tried, key=lambda days: days.count(None))
            place = closest.index(None)
            why = explain(texts[place], ReasonCode.NOT_A_DATE, [form.whole.example for form in forms], self.locale)
            raise Refusal(ReasonCode.NOT_A_DATE, f'item {place + 1} of {len(texts)}, "{texts[place]}", is no date: {why}')

        return dates

"""Days written together, of which one leaves out what the other says: 3-5 May 2026, 28 Feb - 2 Mar 2026, 3, 5 and 7 May 2026."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from itertools import product
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from mappings.measures import Switch, Text, Texts, mistake
from mappings.refusals import ReasonCode, Refusal
from mappings.steps.dates import (
    LANGUAGE,
    YEAR,
    ChooseYear,
    Format,
    NotRealError,
    YearRule,
    compile_format,
    compile_formats,
    date_of,
    memoised,
    no_date_hint,
    values_of,
    year_chooser,
)
from mappings.steps.step import Kind, Run, Step, StepExample
from mappings.steps.text import SPACES

Values = dict[str, int]
_LONGEST = 200
_BETWEEN = re.compile(
    r"\s*(?:-|–|—|−|~|〜|～|→)\s*|\s+(?:to|till|until|bis|a|à|au|al|até|ao|do|tot|t/m|til|till|и|до|and|und|et|y|e|i)\s+",
    re.IGNORECASE,
)
_OPENING = re.compile(r"(?:from|between|vom|von|du|de|del|dal|van|od|desde|entre|fra|с|от)\s+(?=\S)", re.IGNORECASE)
BETWEEN_WORDS = "to, till, until, bis, a, à, au, al, até, ao, do, tot, t/m, til, и, до, and, und, et, y, e, i"
OPENING_WORDS = "from, between, vom, von, du, de, del, dal, van, od, desde, entre, fra, с, от"
_MONTHS = frozenset("mBb")
_YEARS = frozenset("Yy")


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
    begun = {"".join(tokens[: end + 1]) for end in places if end >= day}
    begun |= {"".join(tokens[: end + 2]) for end in places if end >= day and _is_attached(tokens, end + 1)}
    ended = {"".join(tokens[start:]) for start in places if start <= day}
    return SpanFormat(whole, _longest_first(begun, language), _longest_first(ended, language))


def _longest_first(spellings: set[str], language: str) -> tuple[Format, ...]:
    return tuple(compile_format(spelling, language) for spelling in sorted(spellings, key=lambda each: (-len(each), each)))


def _is_attached(tokens: list[str], place: int) -> bool:
    return place < len(tokens) and not tokens[place].isspace() and not tokens[place].startswith("%")


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
    text = _OPENING.sub("", text, count=1) if _OPENING.match(text) else text
    halves = [(text[: cut.start()], text[cut.end() :]) for cut in _BETWEEN.finditer(text)]
    found = {days for start, end in halves for days in _days(form, start, end, choose_year)}
    if len(found) > 1:
        raise NotRealError("it can be read as more than one range: write both days in full")
    return next(iter(found), None)


def _days(form: SpanFormat, start: str, end: str, choose_year: ChooseYear | None) -> set[tuple[date, date | None]]:
    found: set[tuple[date, date | None]] = set()
    for first, last in product(_readings(form.earlier, start), _readings(form.later, end)):
        filled = _filled(first, last, needs_year=choose_year is None)
        if filled is not None:
            found.add(_in_order(date_of(filled[0], choose_year), date_of(filled[1], choose_year)))
    return found


def read_listed(form: SpanFormat, texts: list[str], choose_year: ChooseYear | None = None) -> list[date | None]:
    """Return the day that each text writes, None where it writes none; what it leaves out stands with the next.

    Raises:
        NotRealError: there is no such day; it names the text.
    """
    days: list[date | None] = []
    following: Values = {}
    for text in reversed(texts):
        values = _with_following(form, text, following, needs_year=choose_year is None)
        try:
            days.append(None if values is None else date_of(values, choose_year))
        except NotRealError as error:
            raise NotRealError(f'"{text}": {error}') from error
        following = values or {}
    return days[::-1]


def _with_following(form: SpanFormat, text: str, following: Values, *, needs_year: bool) -> Values | None:
    values = values_of(form.whole, text)
    if values is not None:
        return values
    short = next(iter(_readings(form.earlier, text)), None)
    filled = None if short is None else _filled(short, following, needs_year=needs_year)
    return None if filled is None else filled[0]


def _readings(forms: tuple[Format, ...], text: str) -> list[Values]:
    return [values for values in (values_of(form, text) for form in forms) if values is not None]


def _filled(first: Values, last: Values, *, needs_year: bool) -> tuple[Values, Values] | None:
    """Complete each from the other, or return None where both leave the same thing out."""
    for letters in (_MONTHS, _YEARS):
        said = {letter: value for values in (last, first) for letter, value in values.items() if letter in letters}
        if not said and (letters is _MONTHS or needs_year):
            return None
        first = first if first.keys() & letters else first | said
        last = last if last.keys() & letters else last | said
    return first, last


def _in_order(first: date, last: date) -> tuple[date, date]:
    if last < first:
        raise NotRealError(f"it ends on {last.isoformat()}, before it begins on {first.isoformat()}: write both years")
    return first, last


_MOST = 1000
_DASH = "-"
_DASHES = ("–", "—", "〜", "～", "~")
_FORMATS = "Formats of one whole day, in strptime notation, tried in order; a neighbour may leave out the month or the year."


class RangeStart(Step, name="range_start"):
    """Keep the text before the dash of a range such as 19:00-20:00; a text without a dash is kept whole."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("range_start", "19:00-20:00", "19:00"),
        StepExample("range_start", "19:10", "19:10"),
        StepExample("range_start", "19:00-20:00-21:00", ReasonCode.NOT_A_TIME),
    )
    switch: Switch = Field(default=True, alias="range_start")

    def function(self) -> Run:
        return lambda text: _range(text)[0]


class RangeEnd(Step, name="range_end"):
    """Keep the text after the dash of a range such as 19:00-20:00; a text without a dash gives an empty value."""

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample("range_end", "19:30 – 20:50", "20:50"),
        StepExample("range_end", "19:10", ""),
    )
    switch: Switch = Field(default=True, alias="range_end")

    def function(self) -> Run:
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

    def _hint(self, text: str) -> str:
        examples = [form.example for form in compile_formats(self.formats, self.locale)]
        return no_date_hint(text, examples, self.locale)


class DateRange(_Days, name="date_range", gives=Kind.DATE):
    """Read the first or the last day of a range such as 3-5 May 2026 or 28 Feb - 2 Mar 2026; a single day has no end.

    What a format writes before the day may be missing in the last day, what it writes after it in the first.
    """

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample('{date_range: start, formats: "%d %B %Y"}', "3-5 May 2026", "2026-05-03"),
        StepExample('{date_range: start, formats: "%d %b %Y"}', "28 Feb - 2 Mar 2026", "2026-02-28"),
        StepExample('{date_range: end, formats: "%B %d, %Y"}', "May 3-5, 2026", "2026-05-05"),
        StepExample('{date_range: start, formats: "%d.%m.%Y"}', "12.-14.06.2026", "2026-06-12"),
        StepExample('{date_range: end, formats: "%d %B %Y", locale: fr}', "du 3 au 5 mai 2026", "2026-05-05"),
        StepExample('{date_range: end, formats: "%d/%m/%Y"}', "3/5/2026", ""),
        StepExample('{date_range: start, formats: "%d %b %Y"}', "28 Dec - 2 Jan 2027", ReasonCode.NOT_A_DATE),
        StepExample('{date_range: start, formats: "%d %B %Y"}', "May 2026", ReasonCode.NOT_A_DATE),
    )
    which: Literal["start", "end"] = Field(alias="date_range", description="Which of the two to keep: start or end.")
    formats: Texts = Field(min_length=1, description=_FORMATS)

    def function(self) -> Run:
        forms, choose_year = self._spans(), year_chooser(self.year)
        place = 0 if self.which == "start" else 1

        def read(text: str) -> Any:
            span = next((span for span in (read_span(form, text, choose_year) for form in forms) if span is not None), None)
            return None if span is None else ("" if span[place] is None else span[place])

        return memoised(read, ReasonCode.NOT_A_DATE, self._hint)


class Dates(_Days, name="dates", gives=Kind.LIST, lists=Kind.DATE):
    """Read a list of days, all in the first of these formats that fits them all; one that is none refuses the whole text.

    A day may leave out the month or the year if the next one writes it.
    """

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample('{dates: "%d/%m/%Y"}', "3/5/2026; 10/5/2026", ("2026-05-03", "2026-05-10")),
        StepExample(
            '{dates: "%d de %B de %Y", by: [",", " e "], locale: pt}',
            "3, 5 e 7 de maio de 2026",
            ("2026-05-03", "2026-05-05", "2026-05-07"),
        ),
        StepExample('{dates: "%d/%m/%Y"}', "3/5/2026; 31/4/2026; TBA", ReasonCode.NOT_A_DATE),
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
        hint = f'item {place + 1} of {len(texts)}, "{texts[place]}", is no date: {self._hint(texts[place])}'
        return Refusal(ReasonCode.NOT_A_DATE, hint)


def _range(text: str) -> tuple[str, str]:
    for dash in _DASHES:
        text = text.replace(dash, _DASH)
    start, *ends = (part.strip(SPACES) for part in text.split(_DASH))
    if len(ends) > 1:
        raise Refusal(ReasonCode.NOT_A_TIME, "one start and one end, such as 19:00-20:30, would be accepted")
    return start, ends[0] if ends else ""

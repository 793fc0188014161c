"""The steps `date`, `time` and `datetime`: ordered formats in strptime notation, never a guess.

A refusal shows the partner's editor how to write it, in plain words; words such as "TBA" get an answer of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from mappings.measures import Text, Texts, mistake
from mappings.refusals import ReasonCode
from mappings.steps.formats import (
    EARLIEST_YEAR,
    WEEKDAYS,
    ChooseYear,
    Format,
    FormatError,
    NotRealError,
    compile_format,
    memoised,
    names_of,
    read_clock,
    read_date,
    read_datetime,
    real_day,
)
from mappings.steps.step import Kind, Run, Shown, Step
from mappings.zones import DAY_END

_OPEN_WORDS = (
    "tba", "tbc", "tbd", "to be announced", "to be confirmed", "to be determined", "n/a",
    "ongoing", "on going", "permanent", "always", "all year", "year round", "daily", "weekly", "various", "varies", "soon",
    "a definir", "a confirmar", "por confirmar", "por determinar", "permanente", "diario", "todo el año", "todo o ano",
    "à confirmer", "à définir", "en cours", "offen", "laufend", "ganzjährig", "dauerausstellung", "wird noch bekannt gegeben",
    "da definire", "da confermare", "w trakcie", "未定", "常設", "通年", "상설", "미정", "待定",
)  # fmt: skip
"""How people write that there is no date, or no end of it."""
_LASTING = frozenset(
    ("tba", "tbc", "tbd", "ongoing", "permanent", "permanente", "permanentny", "stałe", "stały", "stała", "laufend", "dauernd")
)
"""Words that say so wherever they stand in a text without digits: permanent exhibition, wydarzenie stałe."""
_POLICY = "or let the feed say what becomes of such rows, with on_error or a skip rule"
_YEAR = re.compile(r"(?:(?:19|20)[0-9]{2})")
_SHOWN = 3
_LONGEST = 80


def written_like(examples: Iterable[str]) -> str:
    """Say how to write it: `write it like "31/12/2026" or "2026-12-31"`."""
    return "write it like " + " or ".join(f'"{example}"' for example in list(dict.fromkeys(examples))[:_SHOWN])


def no_date_hint(text: str, examples: Iterable[str], language: str) -> str:
    """Say why a text is no date, as far as can be seen, and how one is written."""
    wanted = written_like(examples)
    if _is_open(text):
        return f'"{text}" says that there is no date yet: {wanted}, {_POLICY}'
    if _is_month(text, language):
        return f"the day of the month is missing: {wanted}, {_POLICY}"
    return wanted


def no_time_hint(text: str, examples: Iterable[str]) -> str:
    """Say why a text is no time of day, as far as can be seen, and how one is written."""
    wanted = written_like(examples)
    return f'"{text}" says that there is no time yet: {wanted}, {_POLICY}' if _is_open(text) else wanted


def _is_open(text: str) -> bool:
    folded = text.casefold().strip(" .!?()")
    if any(folded == word or folded.startswith(word + " ") for word in _OPEN_WORDS):
        return True
    words = re.findall(r"\w+", folded[:_LONGEST])
    return not _LASTING.isdisjoint(words) and not any(word.isdigit() for word in words)


def _is_month(text: str, language: str) -> bool:
    """True for `May`, `maio de 2026`, `2026`: with nothing that could be a day."""
    words = re.findall(r"[^\W\d_]+|[0-9]+", text.casefold()[:_LONGEST])
    if not words or len(words) > 3:
        return False
    numbers = [word for word in words if word.isdigit()]
    if any(not _YEAR.fullmatch(number) for number in numbers):
        return False
    months = {name for letter in "Bb" for tongue in (language, "en") for name in names_of(letter, tongue)}
    names = [word for word in words if not word.isdigit() and word not in ("de", "del")]
    return all(name in months for name in names) and bool(names or numbers)


_HINT = 'write a year, "2026", or the first day of a season, "2026-09-01"'


def _check_year(text: str) -> str:
    if re.fullmatch(r"[0-9]{4}", text) and int(text) >= EARLIEST_YEAR:
        return text
    try:
        day = date.fromisoformat(text) if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else None
    except ValueError:
        day = None
    if day is None or day.year < EARLIEST_YEAR:
        raise mistake(f'"{text}" says no year', _HINT)
    return text


YearRule = Annotated[
    str, AfterValidator(_check_year), WithJsonSchema({"type": ["string", "integer"], "examples": ["2026", "2026-09-01"]})
]
"""A year, or the first day of twelve months in which every day has its year."""


def year_chooser(rule: str | None) -> ChooseYear | None:
    """Compile the rule: a text without a year is in that year, or in the twelve months from that day on."""
    if rule is None:
        return None
    if "-" not in rule:
        year = int(rule)
        return lambda month, day, weekday: _agreeing(real_day(year, month, day), weekday)
    first = date.fromisoformat(rule)
    return lambda month, day, weekday: _agreeing(_in_season(first, month, day), weekday)


def _in_season(first: date, month: int, day: int) -> date:
    year = first.year if (month, day) >= (first.month, first.day) else first.year + 1
    try:
        return real_day(year, month, day)
    except NotRealError:
        raise NotRealError(f"there is no day {day} in month {month} in the year from {first.isoformat()} on") from None


def _agreeing(day: date, weekday: int | None) -> date:
    if weekday is not None and day.weekday() != weekday:
        raise NotRealError(f"{day.isoformat()} is a {WEEKDAYS[day.weekday()]}, and the text says {WEEKDAYS[weekday]}")
    return day


_FORMATS = "Formats in strptime notation, tried in order."
_MIDNIGHT_24 = re.compile(r"(?<![0-9])24[:.h]?00(?![0-9])|(?<![0-9])24(?:h| ?uhr)", re.IGNORECASE)
LANGUAGE = "The language of month, weekday and AM/PM names, such as pt or pl_PL (default: en)."
YEAR = (
    "What year a text without one is in: that year (2026), or the twelve months from a day on (2026-09-01). Without it,"
    " a format needs the year."
)
MIDNIGHT = "24:00 is refuse (the default), or next_day: the midnight at which this day ends."
DayEnd = Literal["refuse", "next_day"]


class _Formatted(Step):
    """What the reading steps share: ordered formats, and the language of their names."""

    formats: Texts
    locale: Text = Field(default="en", description=LANGUAGE)

    @model_validator(mode="after")
    def _check_formats(self) -> Self:
        for form in compile_formats(self.formats, self.locale):
            self._check(form)
        return self

    def _check(self, form: Format) -> None:
        raise NotImplementedError


class _Dated(_Formatted):
    """A step whose formats read a year, or whose `year` says it."""

    year: YearRule | None = Field(default=None, description=YEAR)

    def _check_day(self, form: Format) -> None:
        if not form.has_date and not (form.has_day_of_year and self.year):
            missing = "it needs year, month and day; year says which year is meant where the text leaves it out"
            raise mistake(f'the format "{form.spelling}" does not give a whole date', missing)


class Date(_Dated, name="date", gives=Kind.DATE):
    """Read a calendar day in the first of these formats that fits the whole text; nothing is guessed."""

    shown: ClassVar[tuple[Shown, ...]] = (
        Shown('{date: ["%Y-%m-%d", "%d/%m/%Y"]}', "3/4/2026", "2026-04-03"),
        Shown('{date: "%d de %B de %Y", locale: pt}', "28 de agosto de 2025", "2025-08-28"),
        Shown('{date: "%d %b", year: 2026-09-01}', "5 Feb", "2027-02-05"),
        Shown('{date: "%d/%m/%Y"}', "30/02/2026", ReasonCode.NOT_A_DATE),
        Shown('{date: "%d/%m/%Y"}', "TBA", ReasonCode.NOT_A_DATE),
    )
    formats: Texts = Field(alias="date", min_length=1, description=_FORMATS)

    def function(self) -> Run:
        choose_year = year_chooser(self.year)
        forms = compile_formats(self.formats, self.locale)
        return _reader(forms, lambda form, text: read_date(form, text, choose_year), ReasonCode.NOT_A_DATE, self.locale)

    def _check(self, form: Format) -> None:
        self._check_day(form)
        if form.parts & set("HIMSfpz"):
            raise mistake(f'the format "{form.spelling}" also reads a time', "use the step datetime")


class Time(_Formatted, name="time", gives=Kind.CLOCK):
    """Read a time of day in the first of these formats that fits the whole text (`clock` needs no formats)."""

    shown: ClassVar[tuple[Shown, ...]] = (
        Shown('{time: ["%H:%M", "%Hh%M", "%Hh"]}', "14h30", "14:30:00"),
        Shown('{time: "%I.%M%p"}', "7.00pm", "19:00:00"),
        Shown('{time: "%p %I시 %M분", locale: ko}', "오후 7시 30분", "19:30:00"),
        Shown('{time: "%H:%M", day_end: next_day}', "24:00", "24:00:00"),
        Shown('{time: "%I:%M %p"}', "20:00 AM", ReasonCode.NOT_A_TIME),
        Shown('{time: "%H:%M"}', "24:00", ReasonCode.NOT_A_TIME),
    )
    formats: Texts = Field(alias="time", min_length=1, description=_FORMATS)
    day_end: DayEnd = Field(default="refuse", description=MIDNIGHT)

    def function(self) -> Run:
        forms = compile_formats(self.formats, self.locale)
        read = _read_to_day_end if self.day_end == "next_day" else read_clock
        return _reader(forms, read, ReasonCode.NOT_A_TIME, self.locale)

    def _check(self, form: Format) -> None:
        _check_clock(form)
        if form.parts & set("YymdBbjAaz"):
            raise mistake(f'the format "{form.spelling}" also reads a date or a zone', "use the step datetime")


class Datetime(_Dated, name="datetime", gives=Kind.WALL):
    """Read a date with its time. With `%z` in the format the result is a moment; without, `at` says in which zone it is."""

    shown: ClassVar[tuple[Shown, ...]] = (
        Shown('{datetime: "%m/%d/%Y %H:%M"}', "3/15/2016 18:00", "2016-03-15T18:00:00"),
        Shown('{datetime: "%Y-%m-%dT%H:%M:%S%z"}', "2026-07-01T18:00:00Z", "2026-07-01T18:00:00+00:00"),
        Shown('{datetime: "%d/%m/%Y %H:%M"}', "3/15/2016 18:00", ReasonCode.NOT_A_DATE),
    )
    formats: Texts = Field(alias="datetime", min_length=1, description=_FORMATS)

    def function(self) -> Run:
        choose_year = year_chooser(self.year)
        forms = compile_formats(self.formats, self.locale)
        return _reader(forms, lambda form, text: read_datetime(form, text, choose_year), ReasonCode.NOT_A_DATE, self.locale)

    @property
    def result(self) -> Kind:
        """A moment where the formats read an offset."""
        return Kind.MOMENT if self.has_offset else Kind.WALL

    @property
    def has_offset(self) -> bool:
        """True if every format reads an offset, so that the result is a moment."""
        return all("z" in form.parts for form in compile_formats(self.formats, self.locale))

    def _check(self, form: Format) -> None:
        _check_clock(form)
        self._check_day(form)
        if ("z" in form.parts) != self.has_offset:
            raise mistake("some of these formats read an offset and some do not", "use two values and first_of")


def compile_formats(formats: tuple[str, ...], language: str) -> tuple[Format, ...]:
    """Compile an author's formats; a wrong one is the author's mistake."""
    try:
        return tuple(compile_format(spelling, language) for spelling in formats)
    except FormatError as error:
        raise mistake(str(error)) from error


def _check_clock(form: Format) -> None:
    if form.has_clock:
        return
    hint = "%I needs %p beside it" if "I" in form.parts else "it needs %H, or %I with %p"
    raise mistake(f'the format "{form.spelling}" does not give a time of day', hint)


def _reader(forms: tuple[Format, ...], read: Callable[[Format, str], Any], code: ReasonCode, language: str) -> Run:
    """Return the step that reads a text in the first of these formats that fits it."""
    examples = [form.example for form in forms]

    def first(text: str) -> Any:
        return next((value for value in (read(form, text) for form in forms) if value is not None), None)

    def hint(text: str) -> str:
        if _MIDNIGHT_24.search(text) and any(form.has_clock for form in forms):
            return "midnight is 00:00 of the day that begins"
        return no_time_hint(text, examples) if code is ReasonCode.NOT_A_TIME else no_date_hint(text, examples, language)

    return memoised(first, code, hint)


def _read_to_day_end(form: Format, text: str) -> Any:
    """Read a time of day where 24:00 is the end of the day: it is written where the format writes 00:00."""
    clock = read_clock(form, text)
    if clock is not None or "24" not in text or "H" not in form.parts:
        return clock
    begins = read_clock(form, text.replace("24", "00", 1))
    return DAY_END if begins is not None and not (begins.hour or begins.minute or begins.second) else None

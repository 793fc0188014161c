"""Date formats in strptime notation, compiled to regular expressions; names of months and days come from Unicode's CLDR (babel).

`datetime.strptime` knows the names of the machine's locale only, and takes 4 us a date, which budget 3 does not have.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, Self

from babel import Locale, UnknownLocaleError
from babel.dates import get_day_names, get_month_names, get_period_names
from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from mappings.measures import Text, Texts, mistake
from mappings.refusals import ReasonCode, Refusal
from mappings.steps.step import Kind, Run, Step, StepExample
from mappings.steps.text import SPACES
from mappings.zones import DAY_END

_Context = Literal["stand-alone", "format"]
_CONTEXTS: tuple[_Context, ...] = ("stand-alone", "format")


class UnknownLanguageError(ValueError):
    """A name that is no language's."""


@lru_cache(maxsize=64)
def known_language(language: str) -> Locale:
    """Return the locale of that name, such as `pt` or `pl_PL`.

    Raises:
        UnknownLanguageError: there is none.
    """
    try:
        return Locale.parse(language.replace("-", "_"))
    except (UnknownLocaleError, ValueError) as error:
        raise UnknownLanguageError(f'"{language}" is not a language that names months and days') from error


@lru_cache(maxsize=256)
def names_of(letter: str, language: str) -> dict[str, int]:
    """Return what the words of a directive (`B`, `b`, `A`, `a` or `p`) mean: the month, the weekday from 0, the hours to add."""
    locale = known_language(language)
    if letter == "p":
        return _periods(locale)
    wide = letter in "BA"
    spellings = [pair for context in _CONTEXTS for pair in _calendar_names(locale, context, months=letter in "Bb", wide=wide)]
    return {form: number for name, number in spellings for form in _spellings(name)}


def example_of(letter: str, language: str, number: int) -> str:
    """Write the month or weekday of that number, or the afternoon (`p`), as the language does."""
    locale = known_language(language)
    if letter == "p":
        return next((name for name, hours in _periods(locale).items() if hours and not name.isascii()), "PM")
    names = get_month_names if letter in "Bb" else get_day_names
    return str(names("wide" if letter.isupper() else "abbreviated", "format", locale)[number])


def _calendar_names(locale: Locale, context: _Context, *, months: bool, wide: bool) -> list[tuple[str, int]]:
    names = get_month_names if months else get_day_names
    return [(name, number) for number, name in names("wide" if wide else "abbreviated", context, locale).items()]


def _periods(locale: Locale) -> dict[str, int]:
    known = {"am": 0, "pm": 12, "a.m.": 0, "p.m.": 12}
    widths: tuple[Literal["abbreviated", "wide"], ...] = ("abbreviated", "wide")
    local = [get_period_names(width, "format", locale) for width in widths]
    halves = (("am", 0), ("pm", 12))
    return known | {fold(names[period]): hours for names in local for period, hours in halves if period in names}


def fold(word: str) -> str:
    """Return a word as words are compared: capitals do not count, nor does the dot of the Turkish i, which they change."""
    return unicodedata.normalize("NFC", word).casefold().replace("i\u0307", "i").replace("ı", "i")


def _spellings(name: str) -> tuple[str, str]:
    """An abbreviation counts with and without its dot."""
    folded = fold(name)
    return folded, folded.rstrip(".")


_NUMBERS = {
    "Y": r"(?P<Y>[0-9]{4})",
    "m": r"(?P<m>1[0-2]|0[1-9]|[1-9])",
    "d": r"(?P<d>3[01]|[12][0-9]|0[1-9]|[1-9])",
    "H": r"(?P<H>2[0-3]|[01][0-9]|[0-9])",
    "I": r"(?P<I>1[0-2]|0[1-9]|[1-9])",
    "M": r"(?P<M>[0-5][0-9]|[0-9])",
    "S": r"(?P<S>[0-5][0-9]|[0-9])",
    "f": r"(?P<f>[0-9]{1,6})",
    "y": r"(?P<y>[0-9]{2})",
    "j": r"(?P<j>36[0-6]|3[0-5][0-9]|[12][0-9]{2}|0?[1-9][0-9]|0{0,2}[1-9])",
    "z": r"(?P<z>[Zz]|[+-](?:0[0-9]|1[0-5]):?[0-5][0-9])",
}
_NAMES = frozenset("BbAap")
EARLIEST_YEAR = 1900
"""Before it a year is a slip of the pen (0026), and zones have no offsets of whole minutes."""
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ChooseYear = Callable[[int, int, int | None], date]
"""Returns the day meant by a month, a day and, where the text says it, a weekday (0 is Monday); raises NotRealError."""
DIRECTIVES = "%Y %m %d %H %M %S %y %b %B %A %a %p %I %z %j %f %%"


class FormatError(ValueError):
    """A format that the language does not have, said to the author."""


class NotRealError(ValueError):
    """The text has the right shape, and still is no date: said to the partner's editor."""


@dataclass(frozen=True, slots=True)
class Format:
    """One compiled format: `pattern` matches the whole text, `names` turns words into numbers, `parts` are its directives.

    `example` shows people a text that it reads.
    """

    spelling: str
    pattern: re.Pattern[str]
    names: Mapping[str, Mapping[str, int]]
    parts: frozenset[str]
    example: str

    @property
    def has_date(self) -> bool:
        """True if a whole date can be read: a year and a day, never a missing year."""
        return self.has_year and ("j" in self.parts or self.has_day_of_year)

    @property
    def has_year(self) -> bool:
        """True if the year can be read, in four digits or in two."""
        return bool(self.parts & {"Y", "y"})

    @property
    def has_day_of_year(self) -> bool:
        """True if a day and its month can be read."""
        return "d" in self.parts and bool(self.parts & set("mBb"))

    @property
    def has_clock(self) -> bool:
        """True if a time of day can be read: the hour of 24, or that of 12 with AM or PM."""
        return "H" in self.parts or {"I", "p"} <= self.parts


@lru_cache(maxsize=2048)
def compile_format(spelling: str, language: str = "en") -> Format:
    """Compile one format; month, weekday and AM/PM names come from `language` (any locale name, such as `pt` or `pl_PL`).

    Raises:
        FormatError: an unknown directive, or one that stands twice or cannot go with another.
    """
    try:
        known_language(language)
    except UnknownLanguageError as error:
        raise FormatError(str(error)) from error
    parts: list[str] = []
    names: dict[str, Mapping[str, int]] = {}
    tokens = re.findall(r"%.?|\s+|[^%\s]+", spelling)
    pattern = "".join(_piece(token, parts, names, language) for token in tokens)
    if len(parts) != len(set(parts)):
        raise FormatError(f'the format "{spelling}" has a directive twice')
    for both in ({"H", "I"}, {"H", "p"}, {"Y", "y"}, {"B", "b"}, {"m", "B"}, {"m", "b"}):
        if both <= set(parts):
            raise FormatError(f'the format "{spelling}" has {" and ".join("%" + part for part in sorted(both))} at once')
    example = "".join(_shown(token, language) for token in tokens)
    return Format(spelling, re.compile(pattern, re.IGNORECASE), names, frozenset(parts), example)


def read_date(form: Format, text: str, choose_year: ChooseYear | None = None) -> date | None:
    """Return the date that the whole text writes in this format, or None if it has another shape.

    `choose_year` says the year where the format has none.

    Raises:
        NotRealError: the shape is right and there is no such day, or it falls on another weekday.
    """
    values = values_of(form, text)
    return None if values is None else date_of(values, choose_year)


def read_clock(form: Format, text: str) -> time | None:
    """Return the time of day that the whole text writes in this format, or None."""
    values = values_of(form, text)
    return None if values is None else _clock(values)


def read_datetime(form: Format, text: str, choose_year: ChooseYear | None = None) -> datetime | None:
    """Return the date and time that the whole text writes in this format (aware where it has `%z`), or None.

    Raises:
        NotRealError: as for `read_date`.
    """
    values = values_of(form, text)
    if values is None:
        return None
    offset = values.get("z")
    return datetime.combine(date_of(values, choose_year), _clock(values), None if offset is None else _zone(offset))


def _piece(token: str, parts: list[str], names: dict[str, Mapping[str, int]], language: str) -> str:
    if token.isspace():
        return r"\s+"
    if not token.startswith("%"):
        return re.escape(unicodedata.normalize("NFC", token))
    letter = token[1:]
    if letter == "%":
        return "%"
    if letter not in _NUMBERS and letter not in _NAMES:
        what = "zone names such as EST are ambiguous" if letter == "Z" else f"the directives are {DIRECTIVES}"
        raise FormatError(f'there is no "{token}" in a format: {what}')
    parts.append(letter)
    if letter in _NUMBERS:
        return _NUMBERS[letter]
    names[letter] = names_of(letter, language)
    longest_first = sorted(names[letter], key=len, reverse=True)
    return f"(?P<{letter}>{'|'.join(map(re.escape, longest_first))})"


def _shown(token: str, language: str) -> str:
    """Write one piece of a format as a text would show it."""
    match token:
        case "%B" | "%b" | "%p":
            return example_of(token[1], language, _EXAMPLE.month)
        case "%A" | "%a":
            return example_of(token[1], language, _EXAMPLE.weekday())
        case "%z":
            return "+01:00"
        case _:
            return _EXAMPLE.strftime(token) if token.startswith("%") else token


_EXAMPLE = datetime(2026, 3, 31, 19, 30)  # noqa: DTZ001 - shows people how a format looks, in no zone


def values_of(form: Format, text: str) -> dict[str, int] | None:
    """Return what each directive of the format reads in the whole text, or None if it has another shape."""
    found = form.pattern.fullmatch(text)
    if found is None:
        return None
    values: dict[str, int] = {}
    for part, value in found.groupdict().items():
        if part in form.names:
            number = form.names[part].get(fold(value))
            if number is None:
                return None
            values[part] = number
        elif part == "z":
            values[part] = _offset_s(value)
        else:
            values[part] = int(value.ljust(6, "0")) if part == "f" else int(value)
    return values


def date_of(values: Mapping[str, int], choose_year: ChooseYear | None = None) -> date:
    """Return the day that these directives say.

    Raises:
        NotRealError: there is no such day, or it falls on another weekday.
    """
    weekday = values.get("A", values.get("a"))
    month = next((values[part] for part in "mBb" if part in values), 0)
    if choose_year is not None and not values.keys() & {"Y", "y"}:
        return choose_year(month, values["d"], weekday)
    year = values["Y"] if "Y" in values else values["y"] + (1900 if values["y"] >= 69 else 2000)
    if year < EARLIEST_YEAR:
        raise NotRealError(f"a year from {EARLIEST_YEAR} to 9999 would be accepted, and the text says {year}")
    day = date(year, 1, 1) + timedelta(days=values["j"] - 1) if "j" in values else real_day(year, month, values["d"])
    if day.year != year:
        raise NotRealError(f"the year {year} has no day {values['j']}")
    if weekday is not None and day.weekday() != weekday:
        raise NotRealError(f"{day.isoformat()} is a {WEEKDAYS[day.weekday()]}, and the text says another day")
    return day


def real_day(year: int, month: int, day: int) -> date:
    """Return a day of the calendar.

    Raises:
        NotRealError: there is no such day.
    """
    try:
        return date(year, month, day)
    except ValueError:
        raise NotRealError(f"there is no day {day} in month {month} of {year}") from None


def _clock(values: Mapping[str, int]) -> time:
    hour = values["H"] if "H" in values else values["I"] % 12 + values["p"]
    return time(hour, values.get("M", 0), values.get("S", 0), values.get("f", 0))


def _offset_s(text: str) -> int:
    if text in "Zz":
        return 0
    digits = text[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if text.startswith("-") else seconds


def _zone(offset_s: int) -> timezone:
    return timezone(timedelta(seconds=offset_s)) if offset_s else UTC


def memoised(read: Callable[[str], Any], code: ReasonCode, hint: Callable[[str], str]) -> Run:
    """Return the step of a reader that gives None for a text of another shape; feeds repeat their days and times (budget 3)."""

    @lru_cache(maxsize=4096)
    def value(text: str) -> Any:
        text = text.strip(SPACES)
        try:
            found = read(text)
        except NotRealError as error:
            raise Refusal(code, str(error)) from error
        if found is None:
            raise Refusal(code, hint(text))
        return found

    return value


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

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample('{date: ["%Y-%m-%d", "%d/%m/%Y"]}', "3/4/2026", "2026-04-03"),
        StepExample('{date: "%d de %B de %Y", locale: pt}', "28 de agosto de 2025", "2025-08-28"),
        StepExample('{date: "%d %b", year: 2026-09-01}', "5 Feb", "2027-02-05"),
        StepExample('{date: "%d/%m/%Y"}', "30/02/2026", ReasonCode.NOT_A_DATE),
        StepExample('{date: "%d/%m/%Y"}', "TBA", ReasonCode.NOT_A_DATE),
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

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample('{time: ["%H:%M", "%Hh%M", "%Hh"]}', "14h30", "14:30:00"),
        StepExample('{time: "%I.%M%p"}', "7.00pm", "19:00:00"),
        StepExample('{time: "%p %I시 %M분", locale: ko}', "오후 7시 30분", "19:30:00"),
        StepExample('{time: "%H:%M", day_end: next_day}', "24:00", "24:00:00"),
        StepExample('{time: "%I:%M %p"}', "20:00 AM", ReasonCode.NOT_A_TIME),
        StepExample('{time: "%H:%M"}', "24:00", ReasonCode.NOT_A_TIME),
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

    shown: ClassVar[tuple[StepExample, ...]] = (
        StepExample('{datetime: "%m/%d/%Y %H:%M"}', "3/15/2016 18:00", "2016-03-15T18:00:00"),
        StepExample('{datetime: "%Y-%m-%dT%H:%M:%S%z"}', "2026-07-01T18:00:00Z", "2026-07-01T18:00:00+00:00"),
        StepExample('{datetime: "%d/%m/%Y %H:%M"}', "3/15/2016 18:00", ReasonCode.NOT_A_DATE),
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

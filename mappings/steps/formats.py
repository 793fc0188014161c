"""Date formats in strptime notation, compiled to regular expressions; names of months and days come from Unicode's CLDR (babel).

`datetime.strptime` knows the names of the machine's locale only, and takes 4 us a date, which budget 3 does not have.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import lru_cache
from typing import Any, Literal

from babel import Locale, UnknownLocaleError
from babel.dates import get_day_names, get_month_names, get_period_names

from mappings.refusals import ReasonCode, Refusal
from mappings.steps.step import Run
from mappings.steps.text import SPACES

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

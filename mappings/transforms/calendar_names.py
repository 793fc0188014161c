"""The names of months, weekdays and halves of the day in many languages, as numbers (from Unicode's CLDR, by babel).

How a format uses them is `formats`'s.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Literal

from babel import Locale, UnknownLocaleError
from babel.dates import get_day_names, get_month_names, get_period_names

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

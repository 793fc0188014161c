"""The steps `date`, `time` and `datetime`: ordered formats in strptime notation, compiled to regular expressions, never a guess.

Names of months and days come from Unicode's CLDR (babel). `datetime.strptime` knows the names of the machine's locale only, and
takes 4 us a date, which budget 3 does not have. A refusal shows the partner's editor how to write it, in plain words.
"""

from __future__ import annotations

import re
import unicodedata
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from babel import Locale, UnknownLocaleError
from babel.dates import get_day_names, get_month_names, get_period_names
from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from mappings.lookup_table import SPACES
from mappings.reasons import ReasonCode, Refusal
from mappings.steps.step import Family, Kind, PureStep, Run
from mappings.strict import Text, Texts, mistake
from mappings.zones import DAY_END

_Context = Literal["stand-alone", "format"]
_CONTEXTS: tuple[_Context, ...] = ("stand-alone", "format")
_WIDTHS: tuple[Literal["abbreviated", "wide"], ...] = ("abbreviated", "wide")
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
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ChooseYear = Callable[[int, int, int | None], date]
"""Returns the day meant by a month, a day and, where the text says it, a weekday (0 is Monday); raises NotRealError."""
_DIRECTIVES = "%Y %m %d %H %M %S %y %b %B %A %a %p %I %z %j %f %%"
_EXAMPLE = datetime(2026, 3, 31, 19, 30)  # noqa: DTZ001 - shows people how a format looks, in no zone
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
_MIDNIGHT_24 = re.compile(r"(?<![0-9])24[:.h]?00(?![0-9])|(?<![0-9])24(?:h| ?uhr)", re.IGNORECASE)
_EXAMPLES_SHOWN = 3
_LONGEST = 80


class FormatError(ValueError):
    """A format that the language does not have, said to the author."""


class NotRealError(ValueError):
    """The text has the right shape, and still is no date: said to the partner's editor."""


@lru_cache(maxsize=64)
def _locale(language: str) -> Locale:
    try:
        return Locale.parse(language.replace("-", "_"))
    except (UnknownLocaleError, ValueError) as error:
        raise FormatError(f'"{language}" is not a language that names months and days') from error


def _calendar_names(letter: str, context: _Context, language: str) -> Mapping[int, str]:
    names = get_month_names if letter in "Bb" else get_day_names
    return names("wide" if letter.isupper() else "abbreviated", context, _locale(language))


@lru_cache(maxsize=256)
def _names_of(letter: str, language: str) -> dict[str, int]:
    """Return what the words of a directive (`B`, `b`, `A`, `a` or `p`) mean: the month, the weekday from 0, the hours to add."""
    found: dict[str, int] = {}
    if letter == "p":
        found |= {"am": 0, "pm": 12, "a.m.": 0, "p.m.": 12}
        for width in _WIDTHS:
            periods = get_period_names(width, "format", _locale(language))
            found |= {_fold(periods[half]): hours for half, hours in (("am", 0), ("pm", 12)) if half in periods}
        return found
    for context in _CONTEXTS:
        for number, name in _calendar_names(letter, context, language).items():
            found |= dict.fromkeys((_fold(name), _fold(name).rstrip(".")), number)  # an abbreviation counts without its dot, too
    return found


def _fold(word: str) -> str:
    """Return a word as words are compared: capitals do not count, nor does the dot of the Turkish i, which they change."""
    return unicodedata.normalize("NFC", word).casefold().replace("i\u0307", "i").replace("ı", "i")


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
    _locale(language)
    parts: list[str] = []
    names: dict[str, Mapping[str, int]] = {}
    tokens = re.findall(r"%.?|\s+|[^%\s]+", spelling)
    pattern = "".join(_piece(token, parts, names, language) for token in tokens)
    if len(parts) != len(set(parts)):
        raise FormatError(f'the format "{spelling}" has a directive twice')
    for both in ({"H", "I"}, {"H", "p"}, {"Y", "y"}, {"B", "b"}, {"m", "B"}, {"m", "b"}):
        if both <= set(parts):
            raise FormatError(f'the format "{spelling}" has {" and ".join("%" + part for part in sorted(both))} at once')
    example = "".join(_example(token, language) for token in tokens)
    return Format(spelling, re.compile(pattern, re.IGNORECASE), names, frozenset(parts), example)


def _piece(token: str, parts: list[str], names: dict[str, Mapping[str, int]], language: str) -> str:
    if token.isspace():
        return r"\s+"
    if not token.startswith("%"):
        return re.escape(unicodedata.normalize("NFC", token))
    letter = token[1:]
    if letter == "%":
        return "%"
    if letter not in _NUMBERS and letter not in _NAMES:
        what = "zone names such as EST are ambiguous" if letter == "Z" else f"the directives are {_DIRECTIVES}"
        raise FormatError(f'there is no "{token}" in a format: {what}')
    parts.append(letter)
    if letter in _NUMBERS:
        return _NUMBERS[letter]
    names[letter] = _names_of(letter, language)
    longest_first = sorted(names[letter], key=len, reverse=True)
    return f"(?P<{letter}>{'|'.join(map(re.escape, longest_first))})"


def _example(token: str, language: str) -> str:
    """Write one piece of a format as a text would show it."""
    match token:
        case "%B" | "%b":
            return _calendar_names(token[1], "format", language)[_EXAMPLE.month]
        case "%A" | "%a":
            return _calendar_names(token[1], "format", language)[_EXAMPLE.weekday()]
        case "%p":
            return next((name for name, hours in _names_of("p", language).items() if hours and not name.isascii()), "PM")
        case "%z":
            return "+01:00"
        case _:
            return _EXAMPLE.strftime(token) if token.startswith("%") else token


def values_of(form: Format, text: str) -> dict[str, int] | None:
    """Return what each directive of the format reads in the whole text, or None if it has another shape."""
    found = form.pattern.fullmatch(text)
    if found is None:
        return None
    values: dict[str, int] = {}
    for part, value in found.groupdict().items():
        if part in form.names:
            number = form.names[part].get(_fold(value))
            if number is None:
                return None
            values[part] = number
        elif part == "z":
            values[part] = _offset_s(value)
        else:
            values[part] = int(value.ljust(6, "0")) if part == "f" else int(value)
    return values


def _offset_s(text: str) -> int:
    if text.upper() in ("Z", "UTC"):
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if text[0] in "-−" else seconds


def zone_of(offset: str | int) -> timezone:
    """Return the zone of an offset, as a text writes it or in seconds."""
    seconds = _offset_s(offset) if isinstance(offset, str) else offset
    return timezone(timedelta(seconds=seconds)) if seconds else UTC


def date_of(values: Mapping[str, int], choose_year: ChooseYear | None = None) -> date:
    """Return the day that these directives say; `choose_year` says the year where they do not.

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
    return _check_weekday(day, weekday)


def real_day(year: int, month: int, day: int) -> date:
    """Return a day of the calendar.

    Raises:
        NotRealError: there is no such day.
    """
    try:
        return date(year, month, day)
    except ValueError:
        raise NotRealError(f"there is no day {day} in month {month} of {year}") from None


def _check_weekday(day: date, weekday: int | None) -> date:
    if weekday is not None and day.weekday() != weekday:
        raise NotRealError(f"{day.isoformat()} is a {_WEEKDAYS[day.weekday()]}, and the text says {_WEEKDAYS[weekday]}")
    return day


def _clock_of(values: Mapping[str, int]) -> time:
    hour = values["H"] if "H" in values else values["I"] % 12 + values["p"]
    return time(hour, values.get("M", 0), values.get("S", 0), values.get("f", 0))


def read_date(form: Format, text: str, choose_year: ChooseYear | None = None) -> date | None:
    """Return the date that the whole text writes in this format, or None if it has another shape; raises as `date_of`."""
    values = values_of(form, text)
    return None if values is None else date_of(values, choose_year)


def read_clock(form: Format, text: str) -> time | None:
    """Return the time of day that the whole text writes in this format, or None."""
    values = values_of(form, text)
    return None if values is None else _clock_of(values)


def read_datetime(form: Format, text: str, choose_year: ChooseYear | None = None) -> datetime | None:
    """Return the date and time that the whole text writes (aware where the format has `%z`), or None; raises as `date_of`."""
    values = values_of(form, text)
    if values is None:
        return None
    zone = zone_of(values["z"]) if "z" in values else None
    return datetime.combine(date_of(values, choose_year), _clock_of(values), zone)


def reader(
    read: Callable[[str], Any], code: ReasonCode, examples: Iterable[str], language: str = "en", *, has_clock: bool = False
) -> Run:
    """Return the step of a function that gives None for a text of another shape; feeds repeat their days and times (budget 3)."""
    shown = tuple(examples)

    @lru_cache(maxsize=4096)
    def value(text: str) -> Any:
        text = text.strip(SPACES)
        try:
            found = read(text)
        except NotRealError as error:
            raise Refusal(code, str(error)) from error
        if found is not None:
            return found
        if has_clock and _MIDNIGHT_24.search(text):
            raise Refusal(code, "midnight is 00:00 of the day that begins")
        raise Refusal(code, explain(text, code, shown, language))

    return value


def explain(text: str, code: ReasonCode, examples: Iterable[str], language: str = "en") -> str:
    """Say why a text is no date or no time of day, as far as can be seen, and how one is written."""
    wanted = "write it like " + " or ".join(f'"{example}"' for example in list(dict.fromkeys(examples))[:_EXAMPLES_SHOWN])
    if _is_open(text):
        what = "time" if code is ReasonCode.NOT_A_TIME else "date"
        return f'"{text}" says that there is no {what} yet: {wanted}, {_POLICY}'
    if code is ReasonCode.NOT_A_DATE and _is_month(text, language):
        return f"the day of the month is missing: {wanted}, {_POLICY}"
    return wanted


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
    months = {name for letter in "Bb" for tongue in (language, "en") for name in _names_of(letter, tongue)}
    names = [word for word in words if not word.isdigit() and word not in ("de", "del")]
    return all(name in months for name in names) and bool(names or numbers)


def _check_year(text: str) -> str:
    if re.fullmatch(r"[0-9]{4}", text) and int(text) >= EARLIEST_YEAR:
        return text
    try:
        day = date.fromisoformat(text) if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else None
    except ValueError:
        day = None
    if day is None or day.year < EARLIEST_YEAR:
        raise mistake(f'"{text}" says no year', 'write a year, "2026", or the first day of a season, "2026-09-01"')
    return text


YearRule = Annotated[
    str, AfterValidator(_check_year), WithJsonSchema({"type": ["string", "integer"], "examples": ["2026", "2026-09-01"]})
]
"""A year, or the first day of twelve months in which every day has its year."""


def year_chooser(rule: str | None) -> ChooseYear | None:
    """Compile the rule: a text without a year is in that year, or in the twelve months from that day on."""
    if rule is None:
        return None
    first = date.fromisoformat(rule if "-" in rule else f"{rule}-01-01")

    def choose_year(month: int, day: int, weekday: int | None) -> date:
        year = first.year if (month, day) >= (first.month, first.day) else first.year + 1
        return _check_weekday(real_day(year, month, day), weekday)

    return choose_year


_FORMATS = "Formats in strptime notation, tried in order."
LANGUAGE = "The language of month, weekday and AM/PM names, such as pt or pl_PL (default: en)."
YEAR = (
    "What year a text without one is in: that year (2026), or the twelve months from a day on (2026-09-01). Without it,"
    " a format needs the year."
)
MIDNIGHT = "24:00 is refuse (the default), or next_day: the midnight at which this day ends."
DayEnd = Literal["refuse", "next_day"]


class Formatted(PureStep):
    """A step that reads in ordered formats, with names in one language."""

    formats: Texts
    locale: Text = Field(default="en", description=LANGUAGE)

    @property
    def forms(self) -> tuple[Format, ...]:
        """The compiled formats; a wrong one is the author's mistake."""
        try:
            return tuple(compile_format(spelling, self.locale) for spelling in self.formats)
        except FormatError as error:
            raise mistake(str(error)) from error

    @model_validator(mode="after")
    def _check_formats(self) -> Self:
        for form in self.forms:
            self._check(form)
        return self

    @abstractmethod
    def _check(self, form: Format) -> None:
        """Refuse a format that this step cannot use."""

    def _reader(self, read: Callable[[Format, str], Any], code: ReasonCode) -> Run:
        """Return the step that reads a text in the first of the formats that fits it."""
        forms = self.forms

        def first(text: str) -> Any:
            return next((value for value in (read(form, text) for form in forms) if value is not None), None)

        has_clock = any(form.has_clock for form in forms)
        return reader(first, code, [form.example for form in forms], self.locale, has_clock=has_clock)


class _Dated(Formatted):
    year: YearRule | None = Field(default=None, description=YEAR)

    def _check_day(self, form: Format) -> None:
        if not form.has_date and not (form.has_day_of_year and self.year):
            missing = "it needs year, month and day; year says which year is meant where the text leaves it out"
            raise mistake(f'the format "{form.spelling}" does not give a whole date', missing)


class Date(_Dated, name="date", family=Family.TIMES, gives=Kind.DATE):
    """Read a calendar day in the first of these formats that fits the whole text; nothing is guessed.

    Examples:
        {date: ["%Y-%m-%d", "%d/%m/%Y"]}: "3/4/2026" -> "2026-04-03"
        {date: "%d de %B de %Y", locale: pt}: "28 de agosto de 2025" -> "2025-08-28"
        {date: "%d %b", year: 2026-09-01}: "5 Feb" -> "2027-02-05"
        {date: "%d/%m/%Y"}: "30/02/2026" -> not_a_date
        {date: "%d/%m/%Y"}: "TBA" -> not_a_date
    """

    formats: Texts = Field(alias="date", min_length=1, description=_FORMATS)

    def function(self) -> Run:
        choose_year = year_chooser(self.year)
        return self._reader(lambda form, text: read_date(form, text, choose_year), ReasonCode.NOT_A_DATE)

    def _check(self, form: Format) -> None:
        self._check_day(form)
        if form.parts & set("HIMSfpz"):
            raise mistake(f'the format "{form.spelling}" also reads a time', "use the step datetime")


class Time(Formatted, name="time", family=Family.TIMES, gives=Kind.CLOCK):
    """Read a time of day in the first of these formats that fits the whole text (`clock` needs no formats).

    Examples:
        {time: ["%H:%M", "%Hh%M", "%Hh"]}: "14h30" -> "14:30:00"
        {time: "%I.%M%p"}: "7.00pm" -> "19:00:00"
        {time: "%p %I시 %M분", locale: ko}: "오후 7시 30분" -> "19:30:00"
        {time: "%H:%M", day_end: next_day}: "24:00" -> "24:00:00"
        {time: "%I:%M %p"}: "20:00 AM" -> not_a_time
        {time: "%H:%M"}: "24:00" -> not_a_time
    """

    formats: Texts = Field(alias="time", min_length=1, description=_FORMATS)
    day_end: DayEnd = Field(default="refuse", description=MIDNIGHT)

    def function(self) -> Run:
        return self._reader(_read_to_day_end if self.day_end == "next_day" else read_clock, ReasonCode.NOT_A_TIME)

    def _check(self, form: Format) -> None:
        _check_clock(form)
        if form.parts & set("YymdBbjAaz"):
            raise mistake(f'the format "{form.spelling}" also reads a date or a zone', "use the step datetime")


class Datetime(_Dated, name="datetime", family=Family.TIMES, gives=Kind.WALL):
    """Read a date with its time. With `%z` in the format the result is a moment; without, `at` says in which zone it is.

    Examples:
        {datetime: "%m/%d/%Y %H:%M"}: "3/15/2016 18:00" -> "2016-03-15T18:00:00"
        {datetime: "%Y-%m-%dT%H:%M:%S%z"}: "2026-07-01T18:00:00Z" -> "2026-07-01T18:00:00+00:00"
        {datetime: "%d/%m/%Y %H:%M"}: "3/15/2016 18:00" -> not_a_date
    """

    formats: Texts = Field(alias="datetime", min_length=1, description=_FORMATS)

    def function(self) -> Run:
        choose_year = year_chooser(self.year)
        return self._reader(lambda form, text: read_datetime(form, text, choose_year), ReasonCode.NOT_A_DATE)

    @property
    def result(self) -> Kind:
        """A moment where every format reads an offset."""
        return Kind.MOMENT if all("z" in form.parts for form in self.forms) else Kind.WALL

    def _check(self, form: Format) -> None:
        _check_clock(form)
        self._check_day(form)
        if ("z" in form.parts) != (self.result is Kind.MOMENT):
            raise mistake("some of these formats read an offset and some do not", "use two values and first_of")


def _check_clock(form: Format) -> None:
    if form.has_clock:
        return
    hint = "%I needs %p beside it" if "I" in form.parts else "it needs %H, or %I with %p"
    raise mistake(f'the format "{form.spelling}" does not give a time of day', hint)


def _read_to_day_end(form: Format, text: str) -> Any:
    """Read a time of day where 24:00 is the end of the day: it is written where the format writes 00:00."""
    clock = read_clock(form, text)
    if clock is not None or "24" not in text or "H" not in form.parts:
        return clock
    begins = read_clock(form, text.replace("24", "00", 1))
    return DAY_END if begins is not None and not (begins.hour or begins.minute or begins.second) else None

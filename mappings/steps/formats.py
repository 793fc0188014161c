"""Formats of days and times in strptime notation, for single values, ranges and lists.

Formats are compiled to regular expressions, with the names of months and days from Unicode's CLDR (babel). `datetime.strptime`
knows only the names of the machine's locale, and takes 4 us a date, more than budget 3 allows.
"""

from __future__ import annotations

import re
import unicodedata
from calendar import monthrange
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import lru_cache
from itertools import product
from typing import Annotated, Any, Literal

from babel import Locale, UnknownLocaleError
from babel.dates import get_day_names, get_month_names, get_period_names
from pydantic import Field

from mappings.lookup_table import SPACES, plain
from mappings.reasons import Detail, Particular, ReasonCode, Refusal
from mappings.zones import DAY_END, EndOfDay

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
_DIRECTIVES = "%Y %m %d %H %M %S %y %b %B %A %a %p %I %z %j %f %%"
_WIDTHS: tuple[Literal["abbreviated", "wide"], ...] = ("abbreviated", "wide")
_PIECE = re.compile(r"%.?|\s+|[^%\s]+")
_EXAMPLE = datetime(2026, 3, 31, 19, 30, tzinfo=UTC)
EARLIEST_YEAR = 1900
"""Earlier years are typing errors (0026), and zones had no offsets of whole minutes."""
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_EXAMPLES_SHOWN = 3
ZERO_DAY = re.compile(
    r"(?:1899-12-3[01]|(?:12[-/.]3[01]|3[01][-/.]12)[-/.]1899|1900-01-0[01]|0?[01][-/.]0?[01][-/.]1900"
    r"|(?:0001|1970|2000)-01-01)[T ]\s*(?=\d)"
)
"""The day that Access, Excel, SQL Server, .NET and others write before a time of day alone."""
DASHES = "-‒–—―−~∼〜"
"""Signs of a range: between its start and end, or behind a start without an end. `plain` converts other hyphens to these."""
_Values = dict[str, Any]
"""The parsed value of each directive: a number, or the zone for `z`."""
DayEnd = Annotated[
    Literal["refuse", "next_day"],
    Field(description="24:00 is refuse (the default), or next_day: the midnight at which this day ends."),
]


class FormatError(ValueError):
    """A format that is not valid, with a message for the author."""


class NotRealError(ValueError):
    """A text in the right shape that is not a real date or time; `detail` and `particulars` are for the partner's editor."""

    def __init__(self, message: str, detail: Detail | None = None, particulars: Mapping[str, Particular] | None = None) -> None:
        super().__init__(message)
        self.detail = detail
        self.particulars: Mapping[str, Particular] = particulars or {}


@lru_cache(maxsize=64)
def _locale(language: str) -> Locale:
    try:
        return Locale.parse(language.replace("-", "_"))
    except (UnknownLocaleError, ValueError) as error:
        raise FormatError(f'"{language}" is not a language that names months and days') from error


def _calendar_names(letter: str, context: Literal["stand-alone", "format"], language: str) -> Mapping[int, str]:
    names = get_month_names if letter in "Bb" else get_day_names
    return names("wide" if letter.isupper() else "abbreviated", context, _locale(language))


@lru_cache(maxsize=256)
def names_of(letter: str, language: str) -> dict[str, int]:
    """Return the meaning of a directive's words (`B`, `b`, `A`, `a` or `p`): the month, the weekday from 0, the hours to add."""
    found: dict[str, int] = {}
    if letter == "p":
        found |= {"am": 0, "pm": 12, "a.m.": 0, "p.m.": 12}
        for periods in (get_period_names(width, "format", _locale(language)) for width in _WIDTHS):
            found |= {_fold(periods[half]): hours for half, hours in (("am", 0), ("pm", 12)) if half in periods}
        return found
    for names in (_calendar_names(letter, "stand-alone", language), _calendar_names(letter, "format", language)):
        for number, name in names.items():
            found |= dict.fromkeys((_fold(name), _fold(name).rstrip(".")), number)  # an abbreviation may omit its dot
    return found


def _fold(word: str) -> str:
    """Return a word folded for comparison: without case, and without the dot of the Turkish i, which changes with case."""
    return unicodedata.normalize("NFC", plain(word)).casefold().replace("i\u0307", "i").replace("ı", "i")


@dataclass(frozen=True, slots=True)
class Format:
    """One compiled format: `pattern` matches the whole text, `names` maps words to numbers, `parts` are its directives.

    `example`: a text in this format.
    """

    spelling: str
    pattern: re.Pattern[str]
    names: Mapping[str, Mapping[str, int]]
    parts: frozenset[str]
    example: str

    @property
    def has_day(self) -> bool:
        """Whether the format has a day and a month."""
        return "d" in self.parts and not self.parts.isdisjoint("mBb")

    @property
    def has_year(self) -> bool:
        """Whether the format has a year, of four digits or two."""
        return not self.parts.isdisjoint("Yy")

    @property
    def has_clock(self) -> bool:
        """Whether the format has a time of day: an hour of 24, or one of 12 with AM or PM."""
        return "H" in self.parts or {"I", "p"} <= self.parts


@lru_cache(maxsize=2048)
def compile_format(spelling: str, language: str = "en") -> Format:
    """Compile one format; month, weekday and AM/PM names come from `language` (any locale name, such as `pt` or `pl_PL`).

    Raises:
        FormatError: a directive is unknown, repeated or cannot be combined with another, or there is none.
    """
    _locale(language)
    pieces = _PIECE.findall(spelling)
    parts = [piece[1:] for piece in pieces if piece.startswith("%") and piece != "%%"]
    for part in parts:
        if part not in _NUMBERS and part not in _NAMES:
            what = "zone names such as EST are ambiguous" if part == "Z" else f"the directives are {_DIRECTIVES}"
            raise FormatError(f'there is no "%{part}" in a format: {what}')
    if not parts:
        raise FormatError(f'the format "{spelling}" has no directive such as %d, %m or %Y; the step iso reads ISO 8601')
    if len(parts) != len(set(parts)):
        raise FormatError(f'the format "{spelling}" has a directive twice')
    for both in ({"H", "I"}, {"H", "p"}, {"Y", "y"}, {"B", "b"}, {"m", "B"}, {"m", "b"}):
        if both <= set(parts):
            raise FormatError(f'the format "{spelling}" has {" and ".join("%" + part for part in sorted(both))} at once')
    names = {part: names_of(part, language) for part in parts if part in _NAMES}
    pattern = re.compile("".join(_pattern(piece, names) for piece in pieces), re.IGNORECASE)
    return Format(spelling, pattern, names, frozenset(parts), "".join(_example(piece, language) for piece in pieces))


def _pattern(piece: str, names: Mapping[str, Mapping[str, int]]) -> str:
    letter = piece[1:]
    if piece.isspace():
        return r"\s+"
    if not piece.startswith("%"):
        return re.escape(unicodedata.normalize("NFC", plain(piece)))
    if letter in names:
        longest_first = sorted(names[letter], key=len, reverse=True)
        return f"(?P<{letter}>{'|'.join(map(re.escape, longest_first))})"
    return _NUMBERS.get(letter, "%")


def _example(piece: str, language: str) -> str:
    """Return the example text for one piece of a format."""
    match piece:
        case "%B" | "%b":
            return _calendar_names(piece[1], "format", language)[_EXAMPLE.month]
        case "%A" | "%a":
            return _calendar_names(piece[1], "format", language)[_EXAMPLE.weekday()]
        case "%p":
            return next((name for name, hours in names_of("p", language).items() if hours and not name.isascii()), "PM")
        case "%z":
            return "+01:00"
        case _:
            return _EXAMPLE.strftime(piece) if piece.startswith("%") else piece


def read_format(form: Format, text: str, season: date | None = None) -> date | time | None:
    """Parse the whole text to a date, a time or both; return None if it does not match the format.

    With `%z` the result is aware. `season`: the first of the twelve months that determine a missing year.

    Raises:
        NotRealError: there is no such day, or it falls on another weekday.
    """
    values = _values_of(form, text)
    if values is None:
        return None
    clock = None
    if form.has_clock:
        hour = values["H"] if "H" in values else values["I"] % 12 + values["p"]
        clock = time(hour, values.get("M", 0), values.get("S", 0), values.get("f", 0), values.get("z"))
    if form.parts.isdisjoint("dj"):
        return clock
    day = _day_of(values, season)
    return day if clock is None else datetime.combine(day, clock)


def _values_of(form: Format, text: str) -> _Values | None:
    """Return the value of each directive in the whole text, None if it does not match the format."""
    found = form.pattern.fullmatch(text)
    if found is None:
        return None
    values: _Values = {}
    for part, value in found.groupdict().items():
        if part in form.names:
            number = form.names[part].get(_fold(value))
            if number is None:
                return None
            values[part] = number
        elif part == "z":
            values[part] = zone_of(value)
        else:
            values[part] = int(value.ljust(6, "0")) if part == "f" else int(value)
    return values


def zone_of(offset: str) -> timezone:
    """Return the time zone of an offset such as +01:00 or Z."""
    if offset.upper() in ("Z", "UTC"):
        return UTC
    digits = offset[1:].replace(":", "").ljust(4, "0")
    length = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-length if offset[0] in "-−" else length)


def _day_of(values: _Values, season: date | None) -> date:
    """Return the day of these directive values; raises as `read_format`."""
    month = next((values[part] for part in "mBb" if part in values), 0)
    if "Y" in values:
        year = values["Y"]
    elif "y" in values or season is None:
        year = values["y"] + (1900 if values["y"] >= 69 else 2000)
    else:
        year = season.year + ((month, values["d"]) < (season.month, season.day))
    check_year(year)
    day = date(year, 1, 1) + timedelta(days=values["j"] - 1) if "j" in values else real_day(year, month, values["d"])
    if day.year != year:
        raise NotRealError(f"the year {year} has no day {values['j']}")
    weekday = values.get("A", values.get("a"))
    if weekday is not None and day.weekday() != weekday:
        message = f"{day.isoformat()} is a {_WEEKDAYS[day.weekday()]}, and the text says {_WEEKDAYS[weekday]}"
        raise NotRealError(message, Detail.WRONG_WEEKDAY, {"day": day.isoformat(), "named": weekday})
    return day


def check_year(year: int) -> None:
    """Raise NotRealError for a year before 1900."""
    if year < EARLIEST_YEAR:
        message = f"expected a year from {EARLIEST_YEAR} to 9999, not {year}"
        raise NotRealError(message, Detail.WRONG_YEAR, {"year": str(year), "earliest": str(EARLIEST_YEAR)})


def real_day(year: int, month: int, day: int) -> date:
    """Return a day of the calendar; raise NotRealError if there is none."""
    try:
        return date(year, month, day)
    except ValueError:
        if not 1 <= month <= 12:
            raise NotRealError(f"there is no month {month}") from None
        particulars: Mapping[str, Particular] = {"month": f"{year:04}-{month:02}-01", "days": monthrange(year, month)[1]}
        message = f"there is no day {day} in month {month} of {year}"
        raise NotRealError(message, Detail.NO_SUCH_DAY, particulars) from None


def day_end(*, is_agreed: bool) -> EndOfDay:
    """Return the value of 24:00; raise NotRealError unless the feed accepts it as the end of the day."""
    if is_agreed:
        return DAY_END
    raise NotRealError("midnight is 00:00 of the day that begins: write that, with its date", Detail.MIDNIGHT)


def read_first(reads: Iterable[Callable[[str], Any]], code: ReasonCode, examples: Iterable[str]) -> Callable[[str], Any]:
    """Return a function that tries the parsers in order and caches the result (budget 3: days and times recur in a feed).

    It raises Refusal if all return None, or one raises NotRealError.
    """
    readers, shown = tuple(reads), tuple(examples)

    @lru_cache(maxsize=4096)
    def value(text: str) -> Any:
        text = plain(text).strip(SPACES)
        text = text if code is not ReasonCode.NOT_A_TIME else ZERO_DAY.sub("", text)
        try:
            for read in readers:
                if (found := read(text)) is not None:
                    return found
        except NotRealError as error:
            particulars = {"examples": shown[:_EXAMPLES_SHOWN], **error.particulars}
            raise Refusal(code, str(error), detail=error.detail, particulars=particulars) from error
        raise misread(text, code, shown)

    return value


def misread(text: str, code: ReasonCode, examples: Iterable[str]) -> Refusal:
    """Return the refusal of a text that no format matches; a text without a digit (TBA) counts as not yet known."""
    shown = tuple(dict.fromkeys(examples))[:_EXAMPLES_SHOWN]
    wanted = "write it like " + " or ".join(f'"{example}"' for example in shown)
    if any(map(str.isdigit, text)) or code is ReasonCode.NOT_A_DURATION:
        return Refusal(code, wanted, particulars={"examples": shown})
    detail = Detail.NO_TIME if code is ReasonCode.NOT_A_TIME else Detail.NO_DATE
    hint = f"{wanted}, or handle such rows in the mapping, with on_error or a skip rule"
    return Refusal(code, hint, detail=detail, particulars={"examples": shown})


_LONGEST = 200
BETWEEN_WORDS = "to, till, until, bis, a, à, au, al, até, ao, do, tot, t/m, til, и, до, and, und, et, y, e, i"
OPENING_WORDS = "from, between, vom, von, du, de, del, dal, van, od, desde, entre, fra, с, от"
_BETWEEN = re.compile(rf"\s*[{DASHES}→]\s*|\s+(?:{BETWEEN_WORDS.replace(', ', '|')})\s+", re.IGNORECASE)
_OPENING = re.compile(rf"(?:{OPENING_WORDS.replace(', ', '|')})\s+(?=\S)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SpanFormat:
    """A format, with shortened forms for days that share their month or year with a neighbour."""

    whole: Format
    earlier: tuple[Format, ...]
    """Forms before the last day: the beginning of the format, at least up to the day."""
    later: tuple[Format, ...]
    """Forms after the first day: the end of the format, from the day or earlier."""


def span_format(whole: Format, language: str) -> SpanFormat:
    """Return the shortened forms of a format."""
    tokens = _PIECE.findall(whole.spelling)
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


def read_span(form: SpanFormat, text: str, season: date | None = None) -> tuple[date, date | None] | None:
    """Parse a range to its first and last day (None: a single day); return None if the text is neither.

    Raises:
        NotRealError: there is no such day, the range can be split in two places, or it ends before it begins.
    """
    if len(text) > _LONGEST:
        return None
    alone = _values_of(form.whole, text)
    if alone is not None:
        return _day_of(alone, season), None
    text = text[opening.end() :] if (opening := _OPENING.match(text)) else text
    found: set[tuple[date, date]] = set()
    for cut in _BETWEEN.finditer(text):
        starts, ends = _readings(form.earlier, text[: cut.start()]), _readings(form.later, text[cut.end() :])
        for pair in product(starts, ends):
            if completed := _complete(*pair, needs_year=season is None):
                first, last = (_day_of(values, season) for values in completed)
                if last < first:
                    message = f"it ends on {last}, before it begins on {first}: write both years"
                    raise NotRealError(message, Detail.ENDS_FIRST, {"first": first.isoformat(), "last": last.isoformat()})
                found.add((first, last))
    if len(found) > 1:
        raise NotRealError("it can be read as more than one range: write both days in full", Detail.SEVERAL_RANGES)
    return next(iter(found), None)


def read_listed(form: SpanFormat, texts: list[str], season: date | None = None) -> list[date | None]:
    """Parse each text to a day, None if it is not one; a shortened day is completed from the next.

    Raises:
        NotRealError: there is no such day; the message names the text.
    """
    days: list[date | None] = []
    following: _Values = {}
    for text in reversed(texts):
        values = _values_of(form.whole, text)
        if values is None and (short := next(iter(_readings(form.earlier, text)), None)) is not None:
            completed = _complete(short, following, needs_year=season is None)
            values = completed and completed[0]
        try:
            days.append(None if values is None else _day_of(values, season))
        except NotRealError as error:
            raise NotRealError(f'"{text}": {error}', error.detail, {"found": text, **error.particulars}) from error
        following = values or {}
    return days[::-1]


def _readings(forms: tuple[Format, ...], text: str) -> list[_Values]:
    return [values for values in (_values_of(form, text) for form in forms) if values is not None]


def _complete(first: _Values, last: _Values, *, needs_year: bool) -> tuple[_Values, _Values] | None:
    """Complete the values of each day from the other; return None if both lack the same part."""
    for letters, is_needed in ((set("mBb"), True), (set("Yy"), needs_year)):
        said = {letter: value for values in (last, first) for letter, value in values.items() if letter in letters}
        if not said and is_needed:
            return None
        first = first if first.keys() & letters else first | said
        last = last if last.keys() & letters else last | said
    return first, last

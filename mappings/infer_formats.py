"""The formats that partners' dates and times are tried against, and the quick look at which of them can fit at all.

What a fit proves is `infer_times`'s.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

from mappings.steps.formats import Format, NotRealError, compile_format, read_clock, read_date, read_datetime

LANGUAGES = ("en", "pt", "es", "fr", "de", "it", "pl", "nl", "cs", "sv", "da", "fi", "ja", "ko", "zh", "ru", "tr")
_ISO = ("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y年%m月%d日", "%Y년 %m월 %d일", "%Y. %m. %d.")
_COMPACT = "%Y%m%d"
_DAY_FIRST = tuple(f"%d{mark}%m{mark}{year}" for mark in "/.-" for year in ("%Y", "%y"))
_MONTH_FIRST = tuple(f"%m{mark}%d{mark}{year}" for mark in "/.-" for year in ("%Y", "%y"))
_NAMED = (
    *("%d %B %Y", "%d. %B %Y", "%d de %B de %Y", "%B %d, %Y", "%d %b %Y", "%b %d, %Y", "%d-%b-%Y", "%d-%b-%y", "%d. %b %Y"),
    *("%A, %d %B %Y", "%A, %B %d, %Y", "%A, %d. %B %Y", "%a, %d %b %Y", "%a %d %b %Y", "%A %d %B %Y", "%a, %b %d, %Y"),
    *("%A, %d de %B de %Y", "%a, %d.%m.%Y", "%a %d.%m.%Y", "%A, %d.%m.%Y", "%A %d.%m.%Y", "%a, %d/%m/%Y", "%a %d/%m/%Y"),
)
_CLOCKS = (
    *("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M%p", "%I:%M:%S %p", "%I %p", "%I%p", "%I.%M%p", "%I.%M %p"),
    *("%Hh%M", "%Hh", "%H h", "%H h %M", "%H時%M分", "%H:%M Uhr", "%H.%M Uhr", "%H Uhr", "%H.%M"),
)
_USUAL_CLOCKS = frozenset(_CLOCKS[:8])
_OFFSETS = ("", "%z", " %z")
_BETWEEN = (" ", "T", ", ", " - ")
_PROBED = 60
_EIGHT_DIGITS = re.compile(r"\d{8}(?!\d)")


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """One format in one language. `kind`: `date`, `datetime`, `moment` (with an offset) or `time`."""

    kind: str
    format: Format
    locale: str
    read: Callable[[Format, str], Any]

    @property
    def by(self) -> tuple[str, ...]:
        """It reads one day or time, and nothing stands between several."""
        return ()

    @property
    def spelling(self) -> str:
        """The format in strptime notation."""
        return self.format.spelling

    @property
    def order(self) -> str:
        """`day` or `month`, whichever of two numbers comes first; "" where nothing can be confused."""
        return order_of(self.spelling)

    def fits(self, text: str) -> bool:
        """Whether the whole text is a real date or time in this format."""
        if self.format.pattern.fullmatch(text) is None:
            return False
        try:
            return self.read(self.format, text) is not None
        except NotRealError:
            return False


def order_of(spelling: str) -> str:
    """Return `day` or `month` for a format of two numbers that could change places, "" for any other."""
    day, month, year = (spelling.find(part) for part in ("%d", "%m", "%Y"))
    if day < 0 or month < 0 or -1 < year < min(day, month):
        return ""
    return "day" if day < month else "month"


def swapped(spelling: str) -> str:
    """Return a format with its day and month exchanged."""
    return spelling.replace("%d", "\0").replace("%m", "%d").replace("\0", "%m")


def likely_forms(texts: Sequence[str]) -> Iterator[Form]:
    """Yield the formats that fit at least one of these texts."""
    probed = texts[:_PROBED]
    for form in _candidates(probed):
        if any(map(form.fits, texts)):
            yield form


def _candidates(probed: Sequence[str]) -> Iterator[Form]:
    for clock in _CLOCKS:
        yield _form("time", clock)
    days = [*_ISO, *_DAY_FIRST, *_MONTH_FIRST]
    if all(map(_EIGHT_DIGITS.match, probed)):
        days.append(_COMPACT)
    yield from _with_clocks(days, "en", probed)
    if any(char.isalpha() for text in probed for char in text if char not in "TZ"):
        for locale in LANGUAGES:
            yield from _with_clocks(_NAMED, locale, probed)


def _with_clocks(days: Sequence[str], locale: str, probed: Sequence[str]) -> Iterator[Form]:
    begun = [day for day in days if any(map(compile_format(day, locale).pattern.match, probed))]
    for day in begun:
        yield _form("date", day, locale)
    for day, between, clock, offset in product(begun, _BETWEEN, _clocks_in(probed), _OFFSETS):
        yield _form("moment" if offset else "datetime", f"{day}{between}{clock}{offset}", locale)


def _clocks_in(probed: Sequence[str]) -> Iterator[str]:
    """Yield the clocks that may stand behind a day in these texts: the usual ones, and those with a word that is there."""
    for clock in _CLOCKS:
        word = clock.rpartition("%")[2][1:].strip() or clock.partition("%H")[2][:1].strip(":. ")
        if clock in _USUAL_CLOCKS or (word and any(word in text for text in probed)):
            yield clock


_READ: dict[str, Callable[[Format, str], Any]] = {
    "date": read_date,
    "time": read_clock,
    "datetime": read_datetime,
    "moment": read_datetime,
}


@lru_cache(maxsize=8192)
def _form(kind: str, spelling: str, locale: str = "en") -> Form:
    return Form(kind, compile_format(spelling, locale), "" if locale == "en" else locale, _READ[kind])

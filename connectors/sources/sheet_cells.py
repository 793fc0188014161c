"""What a number in a spreadsheet's cell says, as text: plain, or the date, time or padded number that its format makes of it.

How a cell is stored is `xlsx_cells`'s and `google_cells`'s: what both call a cell is read alike, by the rules here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

_ELAPSED = re.compile(r"\[(?:h+|m+|s+)\]", re.IGNORECASE)
_NO_FORMAT = re.compile(r'"[^"]*"|\\.|_.|\*.|\[[^\]]*\]')
_LONGEST_CODE = 255
"""Characters of a format code that count; Excel takes no longer ones, and each cell would get as many leading zeros."""

_LONG = "a spreadsheet keeps 15 digits of a number: format the column as text, and put the original numbers back"


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """What a cell's format makes of its number: a date, a time, both, a length of time, or digits with leading zeros."""

    has_date: bool = False
    has_time: bool = False
    is_elapsed: bool = False
    digits: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether the number stays a number."""
        return not (self.has_date or self.has_time or self.digits)


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a cell's value cannot be trusted: what a person sees there, and what would help."""

    found: str
    hint: str


def number_format(code: str) -> NumberFormat:
    """Read a format code such as `dd/mm/yyyy hh:mm`, `[h]:mm` or `00000`."""
    first = code[:_LONGEST_CODE].split(";", 1)[0]
    is_elapsed = _ELAPSED.search(first) is not None
    plain = _NO_FORMAT.sub("", first).lower()
    if plain == "general":
        return NumberFormat()
    has_time = is_elapsed or "h" in plain or "s" in plain
    has_date = "y" in plain or "d" in plain or ("m" in plain and not has_time)
    return NumberFormat(has_date, has_time, is_elapsed, len(plain) if plain and not plain.strip("0") else 0)


Day = Callable[[int], "str | Fault"]
"""Makes an ISO date of a number of days, counted as one program's calendar counts them."""


def number_text(raw: str, known: NumberFormat, day: Day) -> str | Fault:
    """Return what a cell with the number `raw` says in its format, or why it says nothing."""
    if known.is_plain:
        return plain_number(raw)
    if known.digits:
        number = plain_number(raw)
        return number.zfill(known.digits) if isinstance(number, str) and number.isdecimal() else number
    try:
        seconds = round(float(raw) * 86_400)
    except (ValueError, OverflowError):
        return raw
    if seconds < 0:
        return Fault(raw, "a date or time before the beginning of the calendar")
    return _moment(raw, seconds, known, day)


def _moment(raw: str, seconds: int, known: NumberFormat, day: Day) -> str | Fault:
    days, of_day = divmod(seconds, 86_400)
    if known.is_elapsed or not known.has_date:
        return _clock(seconds if known.is_elapsed else of_day)
    found = day(days)
    if isinstance(found, Fault):
        return Fault(raw, found.hint)
    return f"{found}T{_clock(of_day, is_full=True)}" if known.has_time else found


def _clock(seconds: int, *, is_full: bool = False) -> str:
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
    return f"{clock}:{seconds % 60:02}" if is_full or seconds % 60 else clock


def plain_number(raw: str) -> str | Fault:
    """Return a number as a person sees it: `5`, `12.5`, never `5.0` or `1E+20`; whole numbers of 16 digits are not trusted."""
    if len(raw) <= 15 and raw.isascii() and raw.isdecimal() and (raw[0] != "0" or raw == "0"):
        return raw
    try:
        shown = format(float(raw), ".15g")
    except ValueError:
        return raw
    plain = format(Decimal(shown), "f") if "e" in shown else shown
    return Fault(plain, _LONG) if len(plain.lstrip("-")) > 15 and "." not in plain else plain

"""Formats of digits alone, such as %d/%m/%Y, read without ceremony: most of a feed's dates and times look like that.

A text that is not read here may still be one: `formats` then reads it with care, or says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Any

from mappings.transforms.formats import EARLIEST_YEAR, Format

Quick = Callable[[str], Any]
"""Returns the value that a text plainly writes, or None; the same value that `formats` would read."""
_DAY = frozenset("Ymd")
_MINUTES = _DAY | set("HM")
_SECONDS = _MINUTES | {"S"}


def quick_date(form: Format) -> Quick | None:
    """Return the quick reader of a format that writes a day in digits, or None."""
    return _digits_of_day(form) if form.parts == _DAY else None


def quick_datetime(form: Format) -> Quick | None:
    """Return the quick reader of a format that writes a day and a time in digits, or None."""
    if form.parts not in (_MINUTES, _SECONDS):
        return None
    letters = tuple("YmdHMS"[: len(form.parts)])
    match = form.pattern.fullmatch

    def read(text: str) -> datetime | None:
        found = match(text)
        if found is None:
            return None
        try:
            value = datetime(*map(int, found.group(*letters)))  # type: ignore[arg-type] # noqa: DTZ001 - a wall time
        except ValueError:
            return None
        return value if value.year >= EARLIEST_YEAR else None

    return read


def iso_day(text: str) -> date | None:
    """Read ISO 8601's calendar day, quicker than a memory would find it; its week dates have their hyphens elsewhere."""
    if len(text) != 10 or text[4] != "-" or text[7] != "-":
        return None
    try:
        value = date.fromisoformat(text)
    except ValueError:
        return None
    return value if value.year >= EARLIEST_YEAR else None


def _digits_of_day(form: Format) -> Quick:
    match = form.pattern.fullmatch

    def read(text: str) -> date | None:
        found = match(text)
        if found is None:
            return None
        year, month, day = found.group("Y", "m", "d")
        try:
            value = date(int(year), int(month), int(day))
        except ValueError:
            return None
        return value if value.year >= EARLIEST_YEAR else None

    return read

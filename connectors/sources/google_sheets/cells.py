"""What a cell of a Google sheet says, as text: what the same cell of a workbook would give, decimals as the sheet writes them.

What a number says in its format is `sheet_cells`'s; the words are the Sheets API's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from babel.core import Locale, UnknownLocaleError
from babel.numbers import get_decimal_symbol

from connectors.sources.formats.sheet_grid import CellFault, NumberFormat, number_format, number_text

CELL_FIELDS = "effectiveValue,formattedValue,effectiveFormat.numberFormat"
"""The parts of a cell that its text is made of: its typed value, what people see of it, and the format that they see it in."""

LOADING = "Loading..."
_ERRORS = {
    "DIVIDE_BY_ZERO": "#DIV/0!",
    "LOADING": LOADING,
    "N_A": "#N/A",
    "NAME": "#NAME?",
    "NULL_VALUE": "#NULL!",
    "NUM": "#NUM!",
    "REF": "#REF!",
    "VALUE": "#VALUE!",
}
_MEND = "mend the formula, or put its value there"
_WAIT = "the sheet was still working this out: the row is read again in the next run"
_SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}'\N{RIGHT SINGLE QUOTATION MARK}"
_FIRST_DAY = date(1899, 12, 30)
_MOMENTS = {
    "DATE": NumberFormat(has_date=True),
    "TIME": NumberFormat(has_time=True),
    "DATE_TIME": NumberFormat(has_date=True, has_time=True),
}
_PLAIN = NumberFormat()


class GoogleCells:
    """Makes text of the cells of a spreadsheet whose locale is `locale` (`pt_PT`); formats are read once each."""

    def __init__(self, locale: str = "") -> None:
        self._formats: dict[tuple[str, str], NumberFormat] = {}
        self._mark = decimal_mark(locale)
        self._grouping = str.maketrans("", "", _SPACES + ("." if self._mark == "," else ","))

    def text(self, cell: Mapping[str, Any]) -> str | CellFault:
        """Return the text of a cell, or why it says nothing."""
        value = cell.get("effectiveValue")
        if not value:
            return ""
        if "stringValue" in value:
            text: str = value["stringValue"]
            return text if text != LOADING else CellFault(text, _WAIT)
        if "numberValue" in value:
            known = self._format(cell["effectiveFormat"]["numberFormat"]) if cell.get("effectiveFormat") else _PLAIN
            number = number_text(str(value["numberValue"]), known, _day)
            return number if isinstance(number, CellFault) or "." not in number else self._fraction(number, cell)
        if "boolValue" in value:
            return "TRUE" if value["boolValue"] else "FALSE"
        kind = str(value.get("errorValue", {}).get("type", ""))
        return CellFault(_ERRORS.get(kind, "#ERROR!"), _WAIT if kind == "LOADING" else _MEND)

    def _fraction(self, number: str, cell: Mapping[str, Any]) -> str:
        """Write a number as the sheet does: all its digits, its mark, and the zeros that its format adds behind them."""
        plain = number.replace(".", self._mark)
        shown = str(cell.get("formattedValue", "")).translate(self._grouping)
        return shown if shown.startswith(plain) and not shown[len(plain) :].strip("0") else plain

    def _format(self, told: Mapping[str, str]) -> NumberFormat:
        words = told.get("type", ""), told.get("pattern", "")
        if words not in self._formats:
            self._formats[words] = _format_of(*words)
        return self._formats[words]


def decimal_mark(locale: str) -> str:
    """Return what stands before the decimals in a spreadsheet of that locale: a comma in `pt_PT`, a point where none is known."""
    for name in (locale, locale.partition("_")[0]):
        try:
            return get_decimal_symbol(Locale.parse(name))
        except (UnknownLocaleError, ValueError):
            continue
    return "."


def plain_value(cell: Mapping[str, Any]) -> object:
    """Return a cell's value as the API gives it where only values are asked for; an error is what it shows."""
    value = cell.get("effectiveValue") or {}
    if "errorValue" in value:
        return _ERRORS.get(str(value["errorValue"].get("type", "")), "#ERROR!")
    return next(iter(value.values()), None)


def _format_of(kind: str, pattern: str) -> NumberFormat:
    """Read a format: Sheets itself says whether it is of a moment, and the pattern of which parts of one."""
    found = number_format(pattern)
    if kind in _MOMENTS:
        return found if found.has_date or found.has_time else _MOMENTS[kind]
    return NumberFormat(digits=found.digits)


def _day(days: int) -> str | CellFault:
    try:
        return (_FIRST_DAY + timedelta(days=days)).isoformat()
    except OverflowError:
        return CellFault("", "a date after the year 9999")

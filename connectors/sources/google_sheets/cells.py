"""The text of a Google sheet's cell: that of the same cell in a workbook, with decimals as the sheet writes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from babel.core import Locale, UnknownLocaleError
from babel.numbers import get_decimal_symbol

from connectors.sources.formats.sheet_grid import CellFault, NumberFormat, number_format, number_text

CELL_FIELDS = "effectiveValue,formattedValue,effectiveFormat.numberFormat"
"""The parts of a cell that its text depends on: its typed value, its displayed text, and its number format."""

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
_FORMULA_HINT = "mend the formula, or put its value there"
_LOADING_HINT = "the sheet was still working this out: the row is read again in the next run"
_SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}'\N{RIGHT SINGLE QUOTATION MARK}"
_FIRST_DAY = date(1899, 12, 30)
_MOMENTS = {
    "DATE": NumberFormat(has_date=True),
    "TIME": NumberFormat(has_time=True),
    "DATE_TIME": NumberFormat(has_date=True, has_time=True),
}
_PLAIN = NumberFormat()


class GoogleCells:
    """Converts cells to text for a spreadsheet's `locale` (`pt_PT`); parses each number format once."""

    def __init__(self, locale: str = "") -> None:
        self._formats: dict[tuple[str, str], NumberFormat] = {}
        self._mark = _decimal_mark(locale)
        self._grouping = str.maketrans("", "", _SPACES + ("." if self._mark == "," else ","))

    def text(self, cell: Mapping[str, Any]) -> str | CellFault:
        """Return the text of a cell, or why it has none."""
        value = cell.get("effectiveValue")
        if not value:
            return ""
        if "stringValue" in value:
            text: str = value["stringValue"]
            return CellFault(text, _LOADING_HINT) if text == LOADING else text
        if "numberValue" in value:
            described = self._format(cell["effectiveFormat"]["numberFormat"]) if cell.get("effectiveFormat") else _PLAIN
            number = number_text(str(value["numberValue"]), described, _day)
            return number if isinstance(number, CellFault) or "." not in number else self._fraction(number, cell)
        if "boolValue" in value:
            return "TRUE" if value["boolValue"] else "FALSE"
        kind = str(value.get("errorValue", {}).get("type", ""))
        return CellFault(_ERRORS.get(kind, "#ERROR!"), _LOADING_HINT if kind == "LOADING" else _FORMULA_HINT)

    def _fraction(self, number: str, cell: Mapping[str, Any]) -> str:
        """Return a number as the sheet displays it: all its digits, its decimal mark, and the zeros that its format adds."""
        plain = number.replace(".", self._mark)
        shown = str(cell.get("formattedValue", "")).translate(self._grouping)
        return shown if shown.startswith(plain) and not shown[len(plain) :].strip("0") else plain

    def _format(self, described: Mapping[str, str]) -> NumberFormat:
        key = described.get("type", ""), described.get("pattern", "")
        if key not in self._formats:
            self._formats[key] = _parse_format(*key)
        return self._formats[key]


def _decimal_mark(locale: str) -> str:
    """Return the decimal mark of a locale: a comma in `pt_PT`, a point where the locale is unknown."""
    for name in (locale, locale.partition("_")[0]):
        try:
            return get_decimal_symbol(Locale.parse(name))
        except (UnknownLocaleError, ValueError):
            continue
    return "."


def plain_value(cell: Mapping[str, Any]) -> object:
    """Return a cell's value as the API gives it in a request for values only; an error as its displayed text."""
    value = cell.get("effectiveValue") or {}
    if "errorValue" in value:
        return _ERRORS.get(str(value["errorValue"].get("type", "")), "#ERROR!")
    return next(iter(value.values()), None)


def _parse_format(kind: str, pattern: str) -> NumberFormat:
    """Parse a number format: its `kind` decides whether it is a date or time, its pattern which parts of one it has."""
    found = number_format(pattern)
    if kind in _MOMENTS:
        return found if found.has_date or found.has_time else _MOMENTS[kind]
    return NumberFormat(digits=found.digits)


def _day(days: int) -> str | CellFault:
    try:
        return (_FIRST_DAY + timedelta(days=days)).isoformat()
    except OverflowError:
        return CellFault("", "a date after the year 9999")

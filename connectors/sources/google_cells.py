"""What a cell of a Google sheet says, as text: the text that the same cell of a workbook would give.

What a number says in its format is `sheet_cells`'s; the words are the Sheets API's.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from connectors.sources.sheet_cells import Fault, NumberFormat, number_format, number_text

CELL_FIELDS = "effectiveValue,effectiveFormat.numberFormat"
"""The parts of a cell that its text is made of: its typed value, and the format that people see it in."""

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
_FIRST_DAY = date(1899, 12, 30)
_MOMENTS = {
    "DATE": NumberFormat(has_date=True),
    "TIME": NumberFormat(has_time=True),
    "DATE_TIME": NumberFormat(has_date=True, has_time=True),
}
_PLAIN = NumberFormat()


class GoogleCells:
    """Makes text of cells; formats are read once each."""

    def __init__(self) -> None:
        self._formats: dict[tuple[str, str], NumberFormat] = {}

    def text(self, cell: Mapping[str, Any]) -> str | Fault:
        """Return the text of a cell, or why it says nothing."""
        value = cell.get("effectiveValue")
        if not value:
            return ""
        if "stringValue" in value:
            text: str = value["stringValue"]
            return text if text != LOADING else Fault(text, _WAIT)
        if "numberValue" in value:
            known = self._format(cell["effectiveFormat"]["numberFormat"]) if cell.get("effectiveFormat") else _PLAIN
            return number_text(str(value["numberValue"]), known, _day)
        if "boolValue" in value:
            return "TRUE" if value["boolValue"] else "FALSE"
        kind = str(value.get("errorValue", {}).get("type", ""))
        return Fault(_ERRORS.get(kind, "#ERROR!"), _WAIT if kind == "LOADING" else _MEND)

    def _format(self, told: Mapping[str, str]) -> NumberFormat:
        words = told.get("type", ""), told.get("pattern", "")
        if words not in self._formats:
            self._formats[words] = _format_of(*words)
        return self._formats[words]


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


def _day(days: int) -> str | Fault:
    try:
        return (_FIRST_DAY + timedelta(days=days)).isoformat()
    except OverflowError:
        return Fault("", "a date after the year 9999")

"""What a workbook's cell says, as text: its type and format, and the table of shared strings.

Formats and types are those of ECMA-376, part 1, sections 18.8.30 and 18.18.11.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from connectors.sources.formats.sheet_grid import CellFault, NumberFormat, number_text

_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
_UNCALCULATED = "the formula was never calculated: open the workbook in a spreadsheet program and save it"

_DATE, _TIME, _BOTH = NumberFormat(has_date=True), NumberFormat(has_time=True), NumberFormat(has_date=True, has_time=True)
BUILT_IN_FORMATS = {
    **dict.fromkeys((14, 15, 16, 17, 27, 28, 29, 30, 31, 36, 50, 51, 52, 53, 54, 57, 58), _DATE),
    **dict.fromkeys((18, 19, 20, 21, 32, 33, 34, 35, 45, 47, 55, 56), _TIME),
    22: _BOTH,
    46: NumberFormat(has_time=True, is_elapsed=True),
}


@dataclass(frozen=True, slots=True)
class CellTexts:
    """Makes text of the cells of one workbook."""

    strings: Sequence[str]
    formats: Sequence[NumberFormat]
    is_1904: bool

    def text(self, kind: str, style: int, raw: str, *, is_formula: bool = False) -> str | CellFault:
        """Return the text of a cell of type `kind` (`n`, `s`, `str`, `inlineStr`, `b`, `e`, `d`), or why there is none."""
        if not raw:
            return CellFault("", _UNCALCULATED) if is_formula and kind == "n" else ""
        match kind:
            case "s":
                place = as_number(raw)
                return (
                    self.strings[place] if place < len(self.strings) else CellFault("", "the workbook is damaged: save it anew")
                )
            case "n":
                known = self.formats[style] if style < len(self.formats) else NumberFormat()
                return number_text(raw, known, self._day)
            case "b":
                return "TRUE" if raw == "1" else "FALSE"
            case "e":
                return CellFault(raw, "mend the formula, or put its value there")
            case _:
                return unescaped(raw)

    def _day(self, days: int) -> str | CellFault:
        if not self.is_1904 and days == 60:
            return CellFault("", "29 February 1900 is a day that only spreadsheets know")
        start = date(1904, 1, 1) if self.is_1904 else date(1899, 12, 31) if days < 60 else date(1899, 12, 30)
        try:
            return (start + timedelta(days=days)).isoformat()
        except OverflowError:
            return CellFault("", "a date after the year 9999")


def as_number(text: str | None) -> int:
    """Return a small number that stands in an attribute, 0 where none does."""
    return int(text) if text and len(text) < 10 and text.isascii() and text.isdecimal() else 0


def unescaped(text: str) -> str:
    """Return a text without the escapes by which workbooks write characters that XML cannot (`_x000D_`)."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "_x" in text else text


class SharedStrings(Sequence[str]):
    """The shared strings, read as a listener of their part, without the phonetic readings beside them (`rPh`).

    Kept as UTF-8 in one buffer: a string object for each would take 50 bytes besides (budget 8). `held`: the characters of the
    string that is being read; `size`: bytes of all.
    """

    def __init__(self) -> None:
        self.held = 0
        self._bytes = bytearray()
        self._ends = array("I", [0])
        self._parts: list[str] = []
        self._is_text = self._is_reading = False

    @property
    def size(self) -> int:
        return len(self._bytes) + len(self._ends) * self._ends.itemsize

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, place: int) -> str:  # type: ignore[override] # slices are not needed
        return self._bytes[self._ends[place] : self._ends[place + 1]].decode("utf-8", "surrogatepass")

    def start(self, name: str, attributes: dict[str, str]) -> None:  # noqa: ARG002  # the protocol's
        name = name.rpartition(":")[2]
        if name == "si":
            self._parts, self.held = [], 0
        elif name == "rPh":
            self._is_reading = True
        self._is_text = name == "t" and not self._is_reading

    def end(self, name: str) -> None:
        name = name.rpartition(":")[2]
        self._is_text = False
        if name == "si":
            self._bytes += unescaped("".join(self._parts)).encode("utf-8", "surrogatepass")
            self._ends.append(len(self._bytes))
            self._parts, self.held = [], 0
        elif name == "rPh":
            self._is_reading = False

    def text(self, text: str) -> None:
        if self._is_text:
            self._parts.append(text)
            self.held += len(text)

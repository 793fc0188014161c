"""What a workbook's cell says, as text: its type and format, and the strings of their table.

Where the cells stand is `xlsx_sheet`'s, what a number says `sheet_cells`'s.
Formats and types are those of ECMA-376, part 1, sections 18.8.30 and 18.18.11.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from connectors.sources.errors import BadSourceError
from connectors.sources.formats.sheet_grid import Fault, NumberFormat, number_format, number_text
from connectors.sources.formats.xlsx_package import XlsxPackage
from connectors.sources.formats.xml import XmlParser
from connectors.sources.row_checks import LARGEST_CELL

_MOST_TEXT = 256 * 1024 * 1024
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
_UNCALCULATED = "the formula was never calculated: open the workbook in a spreadsheet program and save it"
_DATE, _TIME, _BOTH = NumberFormat(has_date=True), NumberFormat(has_time=True), NumberFormat(has_date=True, has_time=True)
_BUILT_IN = {
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

    def text(self, kind: str, style: int, raw: str, *, is_formula: bool = False) -> str | Fault:
        """Return the text of a cell of type `kind` (`n`, `s`, `str`, `inlineStr`, `b`, `e`, `d`), or why there is none."""
        if not raw:
            return Fault("", _UNCALCULATED) if is_formula and kind == "n" else ""
        match kind:
            case "s":
                place = _number(raw)
                return self.strings[place] if place < len(self.strings) else Fault("", "the workbook is damaged: save it anew")
            case "n":
                known = self.formats[style] if style < len(self.formats) else NumberFormat()
                return number_text(raw, known, self._day)
            case "b":
                return "TRUE" if raw == "1" else "FALSE"
            case "e":
                return Fault(raw, "mend the formula, or put its value there")
            case _:
                return unescaped(raw)

    def _day(self, days: int) -> str | Fault:
        if not self.is_1904 and days == 60:
            return Fault("", "29 February 1900 is a day that only spreadsheets know")
        start = date(1904, 1, 1) if self.is_1904 else date(1899, 12, 31) if days < 60 else date(1899, 12, 30)
        try:
            return (start + timedelta(days=days)).isoformat()
        except OverflowError:
            return Fault("", "a date after the year 9999")


def unescaped(text: str) -> str:
    """Return a text without the escapes by which workbooks write characters that XML cannot (`_x000D_`)."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "_x" in text else text


def cell_texts(package: XlsxPackage) -> CellTexts:
    """Read the tables that every sheet of a workbook shares.

    Raises:
        BadSourceError: they are damaged, or hold more text than fits into memory.
    """
    is_1904 = any(
        element.attributes.get("date1904", "0") in {"1", "true"}
        for element in package.elements(package.workbook_part, "workbookPr")
    )
    styles, strings = package.part_of_kind("styles"), package.part_of_kind("sharedStrings")
    return CellTexts(_strings(package, strings) if strings else (), _formats(package, styles) if styles else (), is_1904)


def _formats(package: XlsxPackage, part: str) -> list[NumberFormat]:
    codes: dict[int, NumberFormat] = dict(_BUILT_IN)
    formats: list[NumberFormat] = []
    group = ""
    for element in package.elements(part, "cellStyleXfs", "cellXfs", "dxfs", "numFmt", "xf"):
        if element.name in {"cellStyleXfs", "cellXfs", "dxfs"}:
            group = element.name
        elif element.name == "numFmt" and group != "dxfs":
            codes[_number(element.attributes.get("numFmtId"))] = number_format(element.attributes.get("formatCode", ""))
        elif element.name == "xf" and group == "cellXfs":
            formats.append(codes.get(_number(element.attributes.get("numFmtId")), NumberFormat()))
    return formats


def _number(text: str | None) -> int:
    return int(text) if text and len(text) < 10 and text.isascii() and text.isdecimal() else 0


def _strings(package: XlsxPackage, part: str) -> Sequence[str]:
    listener = _Strings()
    for _ in XmlParser(f"{package.name} ({part})", listener).feed(package.chunks(part)):
        if listener.held > LARGEST_CELL:
            message = f"text {len(listener.found) + 1} of the workbook is larger than {LARGEST_CELL // 2**20} million characters"
            raise BadSourceError(package.name, message, hint="no spreadsheet program writes such: is it the right file?")
        if listener.found.size > _MOST_TEXT:
            message = f"the workbook's texts take more than {_MOST_TEXT // 2**20} million bytes"
            raise BadSourceError(package.name, message, hint="save the sheet as CSV, which is read row by row")
    return listener.found


class _Texts(Sequence[str]):
    """Texts in little more memory than their bytes: an object for each would take 50 bytes besides."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("I", [0])

    @property
    def size(self) -> int:
        """The bytes that they take."""
        return len(self._bytes) + len(self._ends) * self._ends.itemsize

    def append(self, text: str) -> None:
        self._bytes += text.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, place: int) -> str:  # type: ignore[override] # nobody asks for a slice
        ends = self._ends
        return self._bytes[ends[place] : ends[place + 1]].decode("utf-8", "surrogatepass")


class _Strings:
    """Collects the shared strings; the phonetic readings beside them (`rPh`) are left out."""

    def __init__(self) -> None:
        self.found = _Texts()
        self.held = 0
        self._parts: list[str] = []
        self._is_text = self._is_reading = False

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
            self.found.append(unescaped("".join(self._parts)))
            self._parts, self.held = [], 0
        elif name == "rPh":
            self._is_reading = False

    def text(self, text: str) -> None:
        if self._is_text:
            self._parts.append(text)
            self.held += len(text)

"""The rows of one sheet, streamed: every row by its true number, blank ones in between too, merged cells if asked.

What a cell says is `xlsx_cells`'s; which column it belongs to `workbook`'s.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from connectors.sources.names import column_number
from connectors.sources.safe_xml import XmlPieces
from connectors.sources.xlsx_cells import CellTexts, Fault
from connectors.sources.xlsx_package import XlsxPackage

_CORNER = re.compile(r"([A-Z]*)([0-9]*)")
_LAST_COLUMN, _LAST_ROW = 16_384, 1_048_576
_LARGEST_MERGED = 100_000
"""Cells; what is merged over more is decoration, or an attempt to exhaust us."""


@dataclass(frozen=True, slots=True)
class SheetRow:
    """A row's cells from the first column on, as far as there are any; `faults` by their place in `cells`."""

    number: int
    cells: list[str]
    faults: dict[int, Fault] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Area:
    """A part of a sheet: columns and rows from 1, both ends included."""

    left: int = 1
    top: int = 1
    right: int = _LAST_COLUMN
    bottom: int = _LAST_ROW

    @property
    def size(self) -> int:
        """How many cells it has."""
        return (self.right - self.left + 1) * (self.bottom - self.top + 1)

    @classmethod
    def of(cls, text: str) -> Area:
        """Read `B3:H200`, `A:F`, `A5` (from there on); "" is the whole sheet."""
        first, colon, last = text.partition(":")
        (left, top), (right, bottom) = _corner(first), _corner(last if colon else "")
        return cls(left or 1, top or 1, right or _LAST_COLUMN, bottom or _LAST_ROW)


def sheet_rows(package: XlsxPackage, part: str, texts: CellTexts, area: Area, *, spreads: bool = False) -> Iterator[SheetRow]:
    """Give the rows of the area down to the last that is not blank. `spreads`: merged cells all hold their value.

    Raises:
        BadSourceError: the sheet is damaged, or unpacks without end.
    """
    rows = _with_gaps(_stored(package, part, texts, area), area.top)
    if spreads:
        rows = _spread(rows, _merged(package, part), area)
    # Numbers only: a sheet may have a million blank rows before its last one.
    blank = array("L")
    for row in rows:
        if not any(row.cells) and not row.faults:
            blank.append(row.number)
            continue
        yield from (SheetRow(number, []) for number in blank)
        del blank[:]
        yield row


def _with_gaps(rows: Iterator[SheetRow], top: int) -> Iterator[SheetRow]:
    due = top
    for row in rows:
        for number in range(due, row.number):
            yield SheetRow(number, [])
        yield row
        due = max(due, row.number + 1)


def _stored(package: XlsxPackage, part: str, texts: CellTexts, area: Area) -> Iterator[SheetRow]:
    listener = _Rows(texts, area)
    for _ in XmlPieces(f"{package.name} ({part})", listener).told(package.chunks(part)):
        yield from listener.ready
        listener.ready.clear()


def _merged(package: XlsxPackage, part: str) -> list[Area]:
    return [
        Area.of(element.attributes.get("ref", "").upper())
        for element in package.elements(part)
        if element.name == "mergeCell" and ":" in element.attributes.get("ref", "")
    ]


def _spread(rows: Iterator[SheetRow], merged: list[Area], area: Area) -> Iterator[SheetRow]:
    by_top: defaultdict[int, list[Area]] = defaultdict(list)
    for one in merged:
        if one.size <= _LARGEST_MERGED:
            by_top[one.top].append(one)
    active: list[tuple[Area, str]] = []
    for row in rows:
        active = [(one, value) for one, value in active if one.bottom >= row.number]
        active += [(one, _cell(row, one.left - area.left)) for one in by_top.pop(row.number, ())]
        for one, value in active:
            first, last = max(one.left - area.left, 0), min(one.right, area.right) - area.left
            row.cells.extend([""] * (last + 1 - len(row.cells)))
            row.cells[first : last + 1] = [value] * (last + 1 - first)
        yield row


def _cell(row: SheetRow, place: int) -> str:
    return row.cells[place] if 0 <= place < len(row.cells) else ""


def _corner(text: str) -> tuple[int, int]:
    match = _CORNER.fullmatch(text)
    return (column_number(match[1]), int(match[2] or 0)) if match else (0, 0)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 8


class _Rows:
    """Hears a sheet's XML and makes rows of it."""

    def __init__(self, texts: CellTexts, area: Area) -> None:
        self.ready: list[SheetRow] = []
        self._texts = texts
        self._area = area
        self._columns: dict[str, int] = {}
        self._row = SheetRow(0, [])
        self._column = self._style = 0
        self._kind = "n"
        self._parts: list[str] = []
        self._is_value = self._is_formula = self._is_reading = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        match name.rpartition(":")[2] if ":" in name else name:
            case "c":
                self._begin_cell(attributes)
            case "v" | "t":
                self._is_value = not self._is_reading
            case "f":
                self._is_formula = True
            case "rPh":
                self._is_reading = True
            case "row":
                number = attributes.get("r", "")
                self._row = SheetRow(int(number) if _is_number(number) else self._row.number + 1, [])
                self._column = 0
            case _:
                pass

    def end(self, name: str) -> None:
        match name.rpartition(":")[2] if ":" in name else name:
            case "c":
                self._end_cell()
            case "v" | "t":
                self._is_value = False
            case "rPh":
                self._is_reading = False
            case "row":
                if self._area.top <= self._row.number <= self._area.bottom:
                    self.ready.append(self._row)
            case _:
                pass

    def text(self, text: str) -> None:
        if self._is_value:
            self._parts.append(text)

    def _begin_cell(self, attributes: dict[str, str]) -> None:
        place = attributes.get("r", "").rstrip("0123456789")
        if place not in self._columns:
            self._columns[place] = column_number(place.upper()) if place.isascii() and place.isalpha() else 0
        self._column = self._columns[place] or self._column + 1
        self._kind = attributes.get("t", "n")
        style = attributes.get("s", "0")
        self._style = int(style) if _is_number(style) else 0
        self._parts = []
        self._is_formula = False

    def _end_cell(self) -> None:
        if not self._area.left <= self._column <= min(self._area.right, _LAST_COLUMN) or self._row.number > _LAST_ROW:
            return
        text = self._texts.text(self._kind, self._style, "".join(self._parts), is_formula=self._is_formula)
        place, cells = self._column - self._area.left, self._row.cells
        if isinstance(text, Fault):
            self._row.faults[place] = text
            text = text.found
        if text:
            if place >= len(cells):
                cells.extend([""] * (place + 1 - len(cells)))
            cells[place] = text

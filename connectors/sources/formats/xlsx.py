"""The rows of one sheet of a workbook, streamed: every row by its true number, blank ones in between too.

What a cell says is `xlsx_cells`'s; what is done with the rows of any sheet `sheet_grid`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from connectors.sources.contract import Reading
from connectors.sources.errors import BadSourceError
from connectors.sources.files.opened_file import FileAt, OpenedFile, detect_change, opened, whole
from connectors.sources.formats.sheet_grid import (
    LAST_COLUMN,
    LAST_ROW,
    Area,
    Fault,
    SheetRow,
    cells_of,
    source_rows,
    spread,
    to_last_filled,
    with_gaps,
)
from connectors.sources.formats.xlsx_cells import CellTexts, cell_texts
from connectors.sources.formats.xlsx_package import XlsxPackage
from connectors.sources.formats.xml import XmlParser
from connectors.sources.header import Asked, column_letters, column_number, read_header, wanted_columns
from connectors.sources.row_checks import LARGEST_CELL, MOST_VALUES, CellChecks, RowChecks, within_limits
from mappings.spec.source import WorkbookSource


def sheet_rows(package: XlsxPackage, part: str, texts: CellTexts, area: Area, *, spreads: bool = False) -> Iterator[SheetRow]:
    """Give the rows of the area down to the last that is not blank. `spreads`: merged cells all hold their value.

    Raises:
        BadSourceError: the sheet is damaged, or unpacks without end.
    """
    rows = with_gaps(_stored(package, part, texts, area), area.top)
    if spreads:
        rows = spread(rows, _merged(package, part), area)
    return to_last_filled(rows)


def _stored(package: XlsxPackage, part: str, texts: CellTexts, area: Area) -> Iterator[SheetRow]:
    listener = _Rows(texts, area)
    for _ in XmlParser(f"{package.name} ({part})", listener).feed(package.chunks(part)):
        if listener.count > MOST_VALUES:
            message = f"more than {MOST_VALUES} rows have the number of an earlier one, or a lower one"
            raise BadSourceError(f"{package.name} ({part})", message, hint="open it in a spreadsheet program and save it again")
        if listener.size > LARGEST_CELL:
            place = f"{package.name} ({part}), row {listener.number}"
            message = f"a cell is larger than {LARGEST_CELL // 2**20} million characters"
            raise BadSourceError(place, message, hint="no spreadsheet program writes such: is it the right file?")
        yield from listener.ready
        listener.ready.clear()


def _merged(package: XlsxPackage, part: str) -> list[Area]:
    return [
        Area.of(element.attributes.get("ref", "").upper())
        for element in package.elements(part, "mergeCell")
        if ":" in element.attributes.get("ref", "")
    ]


_BEYOND = "ZZZ"
"""A column to the right of all that a sheet can have."""


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

        self.count = self.size = self._last = 0

    @property
    def number(self) -> int:
        """The number of the row that is being read."""
        return self._row.number

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
                self.count += self._row.number <= self._last
                self._last = max(self._last, self._row.number)
                if self._area.top <= self._row.number <= self._area.bottom:
                    self.ready.append(self._row)
            case _:
                pass

    def text(self, text: str) -> None:
        if self._is_value:
            self._parts.append(text)
            self.size += len(text)

    def _begin_cell(self, attributes: dict[str, str]) -> None:
        place = attributes.get("r", "").rstrip("0123456789")
        if place not in self._columns:
            if len(place) > 3:
                place = _BEYOND
            self._columns[place] = column_number(place.upper()) if place.isascii() and place.isalpha() else 0
        self._column = self._columns[place] or self._column + 1
        self._kind = attributes.get("t", "n")
        style = attributes.get("s", "0")
        self._style = int(style) if _is_number(style) else 0
        self._parts = []
        self.size = 0
        self._is_formula = False

    def _end_cell(self) -> None:
        if not self._area.left <= self._column <= min(self._area.right, LAST_COLUMN) or self._row.number > LAST_ROW:
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


@dataclass(frozen=True, slots=True)
class Workbook:
    """A sheet of a workbook, as one feed reads it."""

    spec: WorkbookSource
    file: FileAt
    asked: Asked

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`. A row's number is the sheet's own; its place is `Programme!A17`."""
        with opened(self.file, unpacks=False) as file:
            with detect_change(file):
                reading = self._opened(file)
            yield Reading(reading.columns, whole(file, reading.rows), file.stamp)

    def _opened(self, file: OpenedFile) -> Reading:
        package = XlsxPackage(file.stream, file.name, file.stored_bytes)
        sheet, part = package.part_of(self.spec.sheet)
        name, area = f"{file.name} ({sheet})", Area.of(self.spec.range or "")
        stored = sheet_rows(package, part, cell_texts(package), area, spreads=self.spec.merged == "spread")
        present = read_header(self.spec.header, name, lambda: cells_of(next(stored, None)), hint="check `source.range`")
        columns = wanted_columns(present, self.asked, name)
        rows = source_rows(
            stored,
            f"{sheet}!{column_letters(area.left)}",
            RowChecks(self.spec, columns.names, CellChecks(self.asked.columns, ())),
        )
        return Reading(columns.names, within_limits(rows, self.spec)).with_empty(columns.absent)

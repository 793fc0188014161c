"""A sheet of an Excel workbook as a source: its header found, its columns matched, its rows streamed.

What stands in the sheet is `xlsx_sheet`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from connectors.sources.cell_faults import CellFaults
from connectors.sources.contract import Reading
from connectors.sources.header import read_header, wanted_columns
from connectors.sources.names import Asked, column_letters
from connectors.sources.odd_rows import OddRows
from connectors.sources.opened_file import FileAt, OpenedFile, opened, told_of_change, whole
from connectors.sources.row_limits import within_limits
from connectors.sources.sheet_grid import Area, cells_of, source_rows
from connectors.sources.xlsx_cells import cell_texts
from connectors.sources.xlsx_package import XlsxPackage
from connectors.sources.xlsx_sheet import sheet_rows
from mappings.spec.source import WorkbookSource


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
            with told_of_change(file):
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
            stored, f"{sheet}!{column_letters(area.left)}", OddRows(self.spec, columns.names, CellFaults(self.asked.columns, ()))
        )
        return Reading(columns.names, within_limits(rows, self.spec)).with_empty(columns.absent)

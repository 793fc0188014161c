"""A sheet of an Excel workbook as a source: its header found, its columns matched, its rows streamed.

What stands in the sheet is `xlsx_sheet`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from connectors.sources.cell_faults import CellFaults
from connectors.sources.contract import Reading
from connectors.sources.header import read_header, wanted_columns
from connectors.sources.names import Asked, column_letters
from connectors.sources.odd_rows import OddRows
from connectors.sources.opened_file import OpenedFile, opened, told_of_change, whole
from connectors.sources.row_limits import within_limits
from connectors.sources.xlsx_cells import cell_texts
from connectors.sources.xlsx_package import XlsxPackage
from connectors.sources.xlsx_sheet import Area, SheetRow, sheet_rows
from mappings.source_specs import WorkbookSource
from mappings.vocabulary import Origin, Reason, ReasonCode, SourceRow


@dataclass(frozen=True, slots=True)
class Workbook:
    """A sheet of the workbook at `path` (beside the folder `base`), as one feed reads it."""

    spec: WorkbookSource
    path: str
    base: Path
    asked: Asked

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`. A row's number is the sheet's own; its place is `Programme!A17`."""
        with opened(self.path, self.base, unpacks=False) as file:
            with told_of_change(file):
                reading = self._opened(file)
            yield Reading(reading.columns, whole(file, reading.rows), file.stamp)

    def _opened(self, file: OpenedFile) -> Reading:
        package = XlsxPackage(file.stream, file.name)
        sheet, part = package.part_of(self.spec.sheet)
        name, area = f"{file.name} ({sheet})", Area.of(self.spec.range or "")
        stored = sheet_rows(package, part, cell_texts(package), area, spreads=self.spec.merged == "spread")
        present = read_header(self.spec.header, name, lambda: _cells(next(stored, None)), hint="check `source.range`")
        columns = wanted_columns(present, self.asked, name)
        odd = OddRows(self.spec, columns.names, CellFaults(self.asked.columns, ()))
        rows = _SheetRows(f"{sheet}!{column_letters(area.left)}", odd).of(stored)
        return Reading(columns.names, within_limits(rows, self.spec)).with_empty(columns.absent)


def _cells(row: SheetRow | None) -> list[str] | None:
    return None if row is None else row.cells


@dataclass(frozen=True, slots=True)
class _SheetRows:
    """Makes source rows of a sheet's rows; `place` is what a row's number is put behind."""

    place: str
    odd: OddRows

    def of(self, stored: Iterator[SheetRow]) -> Iterator[SourceRow]:
        columns = self.odd.columns
        width, blanks = len(columns), [""] * len(columns)
        for row in stored:
            origin = Origin(f"{self.place}{row.number}", row.number)
            if row.faults or len(row.cells) > width:
                yield self.odd.row(origin, row.cells, tuple(self._problems(row)))
            else:
                yield SourceRow(origin, dict(zip(columns, row.cells + blanks[len(row.cells) :], strict=True)))

    def _problems(self, row: SheetRow) -> Iterator[Reason]:
        for place, fault in row.faults.items():
            column = self.odd.columns[place] if place < len(self.odd.columns) else ""
            if column in self.odd.faults.wanted:
                yield Reason(ReasonCode.BAD_TEXT, "", column, fault.found, fault.hint)

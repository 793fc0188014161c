"""Status columns of a Google sheet: read anew each time, and written only where no row has moved.

Google has no "write if unchanged": between the check in `write` and the write itself lies one request. The caller reads the
sheet again afterwards, and corrects what moved in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

from connectors.sources.environment import REAL_CLOCK, Access, Clock
from connectors.sources.feed_source import masked_errors
from connectors.sources.google_sheets.source import GoogleSheet, part_of
from connectors.sources.google_sheets.spreadsheet import GoogleSpreadsheet, open_spreadsheet, quoted
from connectors.sources.header import ColumnRequest, column_letters
from connectors.sources.write_back import StatusCell, StatusRow
from mappings.spec.source import GoogleSheetsSource


@dataclass(slots=True)
class GoogleStatusSheet:
    """The tab that `source` reads, written through `spreadsheet`; `keys` are the columns that identify a row."""

    source: GoogleSheet
    spreadsheet: GoogleSpreadsheet
    keys: frozenset[str]
    _last: tuple[tuple[str, ...], Sequence[StatusRow]] = ((), ())

    def read(self) -> Sequence[StatusRow]:
        """Return all rows as they are now: two requests if the tab is small."""
        self._last = self._read()
        return self._last[1]

    def write(self, cells: Sequence[StatusCell]) -> bool:
        """Write the cells in one request, if reading the tab again finds its rows and columns where they were."""
        columns, rows = self._read()
        if columns != self._last[0] or self._places(rows) != self._places(self._last[1]):
            return False
        part = part_of(self.source.spec, self.spreadsheet.parts())
        letters = {name: column_letters(part.area.left + place) for place, name in enumerate(columns)}
        texts = {}
        for run in _column_runs(cells):
            letter = letters[run[0].column]
            place = f"{quoted(part.tab.title)}!{letter}{run[0].number}:{letter}{run[-1].number}"
            texts[place] = [[cell.text] for cell in run]
        self.spreadsheet.write(texts)
        return True

    def _read(self) -> tuple[tuple[str, ...], Sequence[StatusRow]]:
        with self.source.read() as reading:
            return reading.columns, [
                StatusRow(row.location.number, {column: row.cells.get(column, "") for column in self.source.asked.columns})
                for row in reading.rows
            ]

    def _places(self, rows: Sequence[StatusRow]) -> object:
        return [(row.number, [row.cells[column] for column in sorted(self.keys)]) for row in rows]


@contextmanager
def open_google_status_sheet(
    spec: GoogleSheetsSource, keys: frozenset[str], access: Access, clock: Clock = REAL_CLOCK
) -> Iterator[GoogleStatusSheet]:
    """Open a sheet with `write_back`; its connections are closed at the end.

    Raises:
        ConfigError: there are no credentials.
        SyncError: the spreadsheet cannot be found by its title.
    """
    columns = keys.union(spec.write_back.names if spec.write_back else ())
    source = GoogleSheet(spec, ColumnRequest(columns, aliases=spec.columns), access, clock, asks_version=False)
    with masked_errors(access.mask), open_spreadsheet(spec, access, writes=True, clock=clock) as spreadsheet:
        yield GoogleStatusSheet(source, spreadsheet, keys)


def _column_runs(cells: Sequence[StatusCell]) -> Iterator[list[StatusCell]]:
    """Group the cells into runs of one column without gaps: each is one range of the request."""
    ordered = sorted(cells, key=lambda cell: (cell.column, cell.number))
    for _, run in groupby(enumerate(ordered), key=lambda pair: (pair[1].column, pair[1].number - pair[0])):
        yield [cell for _, cell in run]

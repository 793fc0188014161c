"""A Google sheet whose owner has given us columns to write into: read anew each time, and written only where nothing has moved.

What is written is the caller's; how a tab is read `google_sheet`'s. Google knows no "write if unchanged": between the look that
`write` takes and the write itself lies one request, and whatever moves in it is for the caller to see, and to mend, afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby

from connectors.sources.environment import REAL_CLOCK, Access, Clock
from connectors.sources.feed_source import masked_errors
from connectors.sources.google_sheets.source import GoogleSheet, part_of
from connectors.sources.google_sheets.spreadsheet import GoogleSpreadsheet, opened_spreadsheet, quoted
from connectors.sources.header import ColumnRequest, column_letters
from connectors.sources.write_back import Mark, MarkedRow
from mappings.spec.source import GoogleSheetsSource


@dataclass(frozen=True, slots=True)
class _Seen:
    """The tab as a look has found it."""

    columns: tuple[str, ...] = ()
    rows: tuple[MarkedRow, ...] = ()

    def has_moved_since(self, before: _Seen, keys: Iterable[str]) -> bool:
        """Whether a column or a row stands elsewhere than it did; what else the cells say does not count."""
        own = tuple(keys)
        return self.columns != before.columns or _places(self.rows, own) != _places(before.rows, own)


@dataclass(slots=True)
class GoogleBoard:
    """The tab that `source` reads, written through `sheet`; `keys` are the columns that tell its rows apart."""

    source: GoogleSheet
    sheet: GoogleSpreadsheet
    keys: frozenset[str]
    _last: _Seen = field(default_factory=_Seen)

    def look(self) -> Sequence[MarkedRow]:
        """Keep the promises of `MarkBoard.look`: all in two requests if the tab is small."""
        self._last = self._seen()
        return self._last.rows

    def write(self, marks: Sequence[Mark]) -> bool:
        """Keep the promises of `MarkBoard.write`: one look more, and one request for all cells."""
        now = self._seen()
        if now.has_moved_since(self._last, self.keys):
            return False
        part = part_of(self.source.spec, self.sheet.look())
        letters = {name: column_letters(part.area.left + place) for place, name in enumerate(now.columns)}
        self.sheet.write(
            {
                f"{quoted(part.tab)}!{letters[run[0].column]}{run[0].number}:{letters[run[0].column]}{run[-1].number}": [
                    [mark.text] for mark in run
                ]
                for run in _runs(marks)
            }
        )
        return True

    def _seen(self) -> _Seen:
        with self.source.read() as reading:
            rows = tuple(MarkedRow(row.origin.number, _picked(row.cells, self.source.asked.columns)) for row in reading.rows)
            return _Seen(reading.columns, rows)


@contextmanager
def opened_board(
    spec: GoogleSheetsSource, keys: frozenset[str], access: Access, clockwork: Clock = REAL_CLOCK
) -> Iterator[GoogleBoard]:
    """Give the board of a sheet with `write_back`; its connections are closed at the end.

    Raises:
        ConfigError: there are no credentials.
        SyncError: the spreadsheet cannot be found by its title.
    """
    columns = keys.union(spec.write_back.names if spec.write_back else ())
    source = GoogleSheet(spec, ColumnRequest(columns, aliases=spec.columns), access, clockwork, asks_version=False)
    with masked_errors(access.mask), opened_spreadsheet(spec, access, writes=True, clockwork=clockwork) as sheet:
        yield GoogleBoard(source, sheet, keys)


def _picked(cells: Mapping[str, str], columns: Iterable[str]) -> Mapping[str, str]:
    return {column: cells.get(column, "") for column in columns}


def _places(rows: Iterable[MarkedRow], keys: Iterable[str]) -> list[tuple[int, tuple[str, ...]]]:
    own = tuple(keys)
    return [(row.number, tuple(row.cells[column] for column in own)) for row in rows]


def _runs(marks: Iterable[Mark]) -> Iterator[list[Mark]]:
    """Part the marks into runs of one column without gaps: each is one range of the request."""
    ordered = sorted(marks, key=lambda mark: (mark.column, mark.number))
    for _, run in groupby(enumerate(ordered), key=lambda pair: (pair[1].column, pair[1].number - pair[0])):
        yield [mark for _, mark in run]

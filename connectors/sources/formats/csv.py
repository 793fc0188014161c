"""Lines become records of cells: the dialect, the header's rows, and what to make of broken quoting.

Which column a cell belongs to is `csv_file`'s.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from connectors.sources.contract import Reading
from connectors.sources.errors import BadSourceError, CutOffError, EmptySourceError
from connectors.sources.files.opened_file import FileAt, detect_change, opened, whole
from connectors.sources.files.text import Lines, chosen_encoding
from connectors.sources.header import Asked, read_header, wanted_columns
from connectors.sources.row_checks import LARGEST_CELL, CellChecks, RowChecks, replaced_bytes, within_limits
from mappings.outcome import RowLocation, SourceRow
from mappings.spec.source import DelimitedSource


class CsvRecords:
    """The records of one file, once: `reader` gives them, `lines` holds the lines of the one it has just given.

    Quoting is taken strictly: read leniently, a quote in the wrong place glues rows together without a word.
    """

    def __init__(self, lines: Lines, name: str, spec: DelimitedSource) -> None:
        # The csv module knows one limit for the whole process; its own default refuses long descriptions.
        csv.field_size_limit(LARGEST_CELL)
        self.name = name
        self.quote = spec.quote
        self.lines = lines
        self._dialect = _dialect(spec)
        self.reader = csv.reader(self.lines, strict=True, **self._dialect)

    @property
    def next_line(self) -> int:
        """The line of the file on which the next record begins."""
        return self.lines.before + self.reader.line_num + 1

    def next_row(self) -> list[str] | None:
        """Return the cells of the next record of the header, None at the end.

        Raises:
            BadSourceError: its quoting is broken.
        """
        start = self.next_line
        self.lines.clear()
        try:
            return list(map(replaced_bytes, next(self.reader)))
        except StopIteration:
            return None
        except csv.Error as error:
            raise self._unreadable(start, self._leniently(self.lines.held)) from error
        finally:
            self.lines.clear()

    def misquoted(self, start: int, width: int) -> list[str]:
        """Return the cells, as far as they can be told, of the record on line `start` that the reader gave up on.

        The reader goes on with the next line. That is safe if the record ends on its own line and has at least `width`
        cells even so; if not, nobody can tell where the next row begins.

        Raises:
            BadSourceError: it is not safe, or a quote is never closed, or a cell is endless.
        """
        cells = self._leniently(self.lines.held)
        if self.lines.is_exhausted or len(self.lines.held) > 1 or len(cells) < width or _largest(cells) > LARGEST_CELL:
            raise self._unreadable(start, cells)
        return cells

    def _unreadable(self, start: int, cells: Sequence[str]) -> BadSourceError:
        column = len(cells)
        doubled = "a quote inside a quoted cell must be written twice"
        if _largest(cells) > LARGEST_CELL:
            column = next(place for place, cell in enumerate(cells, start=1) if len(cell) > LARGEST_CELL)
            message = f"the cell in column {column} is larger than {LARGEST_CELL // 2**20} million characters"
            return self._bad(start, message, hint="a quote that opens this cell is probably never closed")
        if self.lines.is_exhausted:
            message = f"the quote that opens the cell in column {column} is never closed"
            return CutOffError(f"{self.name}:{start}", message, hint=doubled)
        end = self.next_line - 1
        message = f"the quoting of the row that begins here breaks on line {end}, so we cannot tell where the next row begins"
        return self._bad(start, message, hint=doubled)

    def _leniently(self, lines: Sequence[str]) -> list[str]:
        csv.field_size_limit(sys.maxsize)
        try:
            return next(csv.reader(lines, strict=False, **self._dialect), [])
        finally:
            csv.field_size_limit(LARGEST_CELL)

    def _bad(self, line: int, message: str, *, hint: str = "") -> BadSourceError:
        return BadSourceError(f"{self.name}:{line}", message, hint=hint)


def _largest(cells: Sequence[str]) -> int:
    return max(map(len, cells), default=0)


def _dialect(spec: DelimitedSource) -> dict[str, Any]:
    return {
        "delimiter": spec.delimiter,
        "quotechar": spec.quote,
        "quoting": csv.QUOTE_NONE if spec.quote is None else csv.QUOTE_MINIMAL,
        "escapechar": spec.escape,
        "doublequote": spec.escape is None,
    }


_DELIMITERS = ";,\t|"


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A delimited text file as one feed reads it."""

    spec: DelimitedSource
    file: FileAt
    asked: Asked

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`. A row's number is the physical line of the file on which it begins."""
        with opened(self.file) as file:
            with detect_change(file):
                encoding = chosen_encoding(file.stream, self.spec.encoding)
                lines = Lines(file.stream, encoding, file.name, needs_end=not file.has_known_end, delimiter=self.spec.delimiter)
                records = CsvRecords(lines, file.name, self.spec)
                present = read_header(self.spec.header, file.name, records.next_row, hint="check `source.delimiter`")
                columns = wanted_columns(present, self.asked, file.name, _advice(present, self.spec))
            faults = CellChecks(self.asked.columns, self.spec.encoding)
            is_strict = self.spec.short_rows == "reject"
            odd = RowChecks(self.spec, columns.names, faults, self.spec.delimiter, rejects_short=is_strict)
            rows = within_limits(whole(file, _rows(records, odd)), self.spec)
            reading = Reading(columns.names, rows, file.stamp, has_known_end=file.has_known_end)
            yield reading.with_empty(columns.absent)


def _rows(records: CsvRecords, odd: RowChecks) -> Iterator[SourceRow]:
    name, reader, lines, columns = records.name, records.reader, records.lines, odd.columns
    width, before = len(columns), lines.before + 1
    start = records.next_line
    while not lines.is_exhausted:
        try:
            for cells in reader:
                origin = RowLocation(f"{name}:{start}", start)
                if len(cells) == width and not lines.is_tainted:
                    yield SourceRow(origin, dict(zip(columns, cells, strict=True)))
                else:
                    yield odd.row(origin, cells)
                start = reader.line_num + before
                lines.clear()
        except csv.Error:
            cells = records.misquoted(start, width)
            yield odd.misquoted(RowLocation(f"{name}:{start}", start), cells, lines.held[0], records.quote)
            start = reader.line_num + before
            lines.clear()
    if not reader.line_num:
        raise EmptySourceError(name, "the file is empty", hint="ask the partner for the whole file")


def _advice(present: Sequence[str], spec: DelimitedSource) -> str:
    others = [mark for mark in _DELIMITERS if mark != spec.delimiter and any(mark in name for name in present)]
    if len(present) == 1 and others:
        return f"all names stand in one column: set `source.delimiter` to {others[0]!r}"
    return ""

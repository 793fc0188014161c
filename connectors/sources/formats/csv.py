"""A delimited text file as a source: lines become records of cells by Python's csv module, read strictly, and records rows."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from connectors.sources.contract import BadSourceError, CutOffError, EmptySourceError, Reading
from connectors.sources.files.opened_file import OpenedFile, OpenStored, opened
from connectors.sources.files.text import TextLines, chosen_encoding
from connectors.sources.rows import (
    LARGEST_CELL,
    ColumnRequest,
    RowChecks,
    read_header,
    replaced_bytes,
    short,
    wanted_columns,
    within_limits,
)
from mappings.outcome import RowLocation, SourceRow
from mappings.reasons import Reason, ReasonCode
from mappings.spec.source import DelimitedSource

_DELIMITERS = ";,\t|"
_DOUBLED = "a quote inside a quoted cell must be written twice"
PlainRecord = tuple[int, list[str]] | SourceRow
"""A record of a file: the number of its line and its cells, or a row where something is wrong with it."""


class PlainRows(Iterator[SourceRow]):
    """Rows that are made as they are asked for, of `records`: a line's number and its cells in the order of `columns`, or a row.

    A reader that knows most records from earlier takes these instead, and makes rows of the others (budget 2).
    """

    def __init__(self, records: Iterator[PlainRecord], columns: tuple[str, ...], name: str) -> None:
        self.records = records
        self.columns = columns
        self._name = name

    def __next__(self) -> SourceRow:
        return self.row(next(self.records))

    def row(self, record: PlainRecord) -> SourceRow:
        """Make the row of a record."""
        if isinstance(record, SourceRow):
            return record
        number, cells = record
        return SourceRow(RowLocation(f"{self._name}:{number}", number), dict(zip(self.columns, cells, strict=True)))


@contextmanager
def read_csv(spec: DelimitedSource, open_stored: OpenStored, asked: ColumnRequest) -> Iterator[Reading]:
    """Keep the promises of `Source.read`. A row's number is the physical line of the file on which it begins."""
    with opened(open_stored, spec.member) as file:
        with file.detect_change():
            encoding = chosen_encoding(file.stream, spec.encoding)
            lines = TextLines(file.stream, encoding, file.name, needs_end=not file.has_known_end, delimiter=spec.delimiter)
            records = _CsvRecords(lines, file.name, spec)
            present = read_header(spec.header, file.name, records.next_row, hint="check `source.delimiter`")
            columns = wanted_columns(present, asked, file.name, _advice(present, spec))
        rejects_short = spec.short_rows == "reject"
        checks = RowChecks(spec, columns.names, asked.columns, spec.encoding, spec.delimiter, rejects_short)
        rows = within_limits(PlainRows(records.rows(checks, file), columns.names, file.name), spec)
        yield Reading(columns.names, rows, file.stamp, has_known_end=file.has_known_end).with_empty(columns.absent)


def _advice(present: Sequence[str], spec: DelimitedSource) -> str:
    others = [mark for mark in _DELIMITERS if mark != spec.delimiter and any(mark in name for name in present)]
    return f"all names stand in one column: set `source.delimiter` to {others[0]!r}" if len(present) == 1 and others else ""


class _CsvRecords:
    """The records of one file, once.

    Quoting is taken strictly: read leniently, a quote in the wrong place glues rows together without a word.
    """

    def __init__(self, lines: TextLines, name: str, spec: DelimitedSource) -> None:
        # The csv module knows one limit for the whole process; its own default refuses long descriptions.
        csv.field_size_limit(LARGEST_CELL)
        self._name = name
        self._lines = lines
        self._dialect: dict[str, Any] = {
            "delimiter": spec.delimiter,
            "quotechar": spec.quote,
            "quoting": csv.QUOTE_NONE if spec.quote is None else csv.QUOTE_MINIMAL,
            "escapechar": spec.escape,
            "doublequote": spec.escape is None,
        }
        self._reader = csv.reader(lines, strict=True, **self._dialect)

    def next_row(self) -> list[str] | None:
        """Return the cells of the next record of the header, None at the end.

        Raises:
            BadSourceError: its quoting is broken.
        """
        try:
            return list(map(replaced_bytes, next(self._reader)))
        except StopIteration:
            return None
        except csv.Error as error:
            raise self._unreadable(self._read_leniently(self._lines.record(self._reader.line_num))) from error
        finally:
            self._lines.start = self._reader.line_num + 1

    def rows(self, checks: RowChecks, file: OpenedFile) -> Iterator[PlainRecord]:
        """Yield the rows behind the header.

        Raises:
            EmptySourceError: the file is empty.
            BadSourceError: the quoting of a row is broken so that the next one cannot be found.
            SourceUnavailableError: the file changes meanwhile.
        """
        name, reader, lines, width = self._name, self._reader, self._lines, len(checks.columns)
        start = reader.line_num + 1
        with file.detect_change():
            while not lines.is_exhausted:
                try:
                    for cells in reader:
                        if len(cells) == width and not lines.is_tainted:
                            yield start, cells
                        else:
                            yield checks.row(RowLocation(f"{name}:{start}", start), cells)
                        lines.start = start = reader.line_num + 1
                except csv.Error:
                    yield self._misquoted_row(start, checks)
                    lines.start = start = reader.line_num + 1
            if not reader.line_num:
                raise EmptySourceError(name, "the file is empty", hint="ask the partner for the whole file")

    def _misquoted_row(self, start: int, checks: RowChecks) -> SourceRow:
        held, width = self._lines.record(self._reader.line_num), len(checks.columns)
        cells = self._read_leniently(held)
        # The reader goes on with the next line: safe if the record ends on its own line and has all its cells even so.
        if self._lines.is_exhausted or len(held) > 1 or len(cells) < width or _largest(cells) > LARGEST_CELL:
            raise self._unreadable(cells) from None
        hint = f"inside a quoted cell write each {self._dialect['quotechar']} twice"
        problem = Reason(ReasonCode.BAD_TEXT, "", "", short(held[0].rstrip("\r\n")), hint)
        return checks.row(RowLocation(f"{self._name}:{start}", start), cells[:width], (problem,))

    def _unreadable(self, cells: Sequence[str]) -> BadSourceError:
        """Return the error for a record behind which the next one's beginning is unknown; `cells` are those read leniently."""
        place = f"{self._name}:{self._lines.start}"
        if _largest(cells) > LARGEST_CELL:
            column = next(number for number, cell in enumerate(cells, start=1) if len(cell) > LARGEST_CELL)
            message = f"the cell in column {column} is larger than {LARGEST_CELL // 2**20} million characters"
            return BadSourceError(place, message, hint="a quote that opens this cell is probably never closed")
        if self._lines.is_exhausted:
            return CutOffError(place, f"the quote that opens the cell in column {len(cells)} is never closed", hint=_DOUBLED)
        end = self._reader.line_num
        message = f"the quoting of the row that begins here breaks on line {end}, so we cannot tell where the next row begins"
        return BadSourceError(place, message, hint=_DOUBLED)

    def _read_leniently(self, lines: Sequence[str]) -> list[str]:
        csv.field_size_limit(sys.maxsize)
        try:
            return next(csv.reader(lines, strict=False, **self._dialect), [])
        finally:
            csv.field_size_limit(LARGEST_CELL)


def _largest(cells: Sequence[str]) -> int:
    return max(map(len, cells), default=0)

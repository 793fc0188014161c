"""Delimited text files as a source: Python's csv module in strict mode splits lines into records."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

from connectors.sources.contract import BadSourceError, CutOffError, EmptySourceError, Ending, Reading
from connectors.sources.files.opened_file import OpenedFile, OpenStored, opened
from connectors.sources.files.text import TextLines, chosen_encoding
from connectors.sources.rows import (
    DELIMITERS,
    LARGEST_CELL,
    RowChecks,
    read_header,
    replaced_bytes,
    short,
    table_columns,
    within_limits,
)
from mappings.columns import ColumnRequest
from mappings.outcome import RowLocation, SourceRow
from mappings.reasons import Detail, Reason, ReasonCode
from mappings.spec.source import DelimitedSource

_DOUBLED = "a quote inside a quoted cell must be written twice"
PlainRecord = tuple[int, list[str], int] | SourceRow
"""A record: its line number, its cells, and its number among the records, as a spreadsheet counts rows; or a finished row if
something is wrong with it.
"""


class PlainRows(Iterator[SourceRow]):
    """Rows produced on request from `records`, whose cells are in the order of `columns`.

    A caller that knows most records from an earlier read uses `records` directly, and makes rows of the others only (budget 2).
    """

    def __init__(self, records: Iterator[PlainRecord], columns: tuple[str, ...], name: str) -> None:
        self.records = records
        self.columns = columns
        self._name = name

    def __next__(self) -> SourceRow:
        return self.row(next(self.records))

    def row(self, record: PlainRecord) -> SourceRow:
        """Return the row of a record."""
        if isinstance(record, SourceRow):
            return record
        line, cells, number = record
        return SourceRow(_location(self._name, line, number), dict(zip(self.columns, cells, strict=True)))


def _location(name: str, line: int, row: int) -> RowLocation:
    """Return the location of a record; its row is named if it differs from its line, after records of several lines."""
    return RowLocation(f"{name}:{line}" if line == row else f"{name}:{line} (row {row})", line)


@contextmanager
def read_csv(spec: DelimitedSource, open_stored: OpenStored, asked: ColumnRequest) -> Iterator[Reading]:
    """Read a delimited file under the contract of `Source.read`. A row's number is the line of the file on which it begins."""
    with opened(open_stored, spec.member) as file:
        with file.detect_change():
            encoding = chosen_encoding(file.stream, spec.encoding, file.name)
            lines = TextLines(file.stream, encoding, file.name, needs_end=not file.has_known_end, delimiter=spec.delimiter)
            records = _CsvRecords(lines, file.name, spec)
            texts = read_header(spec.header, file.name, records.next_row, hint="check `source.delimiter`")
            columns = table_columns(texts, asked, file.name, delimiter=spec.delimiter)
        rejects_short = spec.short_rows == "reject"
        checks = RowChecks(spec, columns.names, asked.columns, spec.encoding, spec.delimiter, rejects_short)
        rows = within_limits(PlainRows(records.rows(checks, file), columns.names, file.name), spec)
        reading = Reading(
            columns.names, rows, file.stamp, ending=records.ending, has_known_end=file.has_known_end, headers=columns.headers
        )
        yield reading.with_empty(columns.absent)


class _CsvRecords:
    """The records of one file, to be read once.

    Quoting is parsed strictly: in lenient mode a misplaced quote joins rows without an error.
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
            "skipinitialspace": spec.skip_blanks,
        }
        self._reader = csv.reader(lines, strict=True, **self._dialect)
        self._rows_of_header = 0
        self._is_cut_off = False

    def next_row(self) -> list[str] | None:
        """Return the cells of the header's next record, None at the end.

        Raises:
            BadSourceError: its quoting is wrong.
        """
        try:
            return list(map(replaced_bytes, next(self._reader)))
        except StopIteration:
            return None
        except csv.Error as error:
            record = self._lines.record(self._reader.line_num)
            if delimiter := self._other_delimiter(record):
                place, hint = f"{self._name}:{self._lines.start}", f"set `source.delimiter` to {delimiter!r}"
                raise BadSourceError(place, f"{delimiter!r} separates the cells", hint=hint, delimiter=delimiter) from error
            raise self._unreadable(self._read_leniently(record)) from error
        finally:
            self._lines.start = self._reader.line_num + 1
            self._rows_of_header += 1

    def _other_delimiter(self, record: Sequence[str]) -> str:
        """Return a delimiter for which the header's quoting is correct, "" if there is none."""
        for mark in DELIMITERS.replace(self._dialect["delimiter"], ""):
            with suppress(csv.Error):
                if len(next(csv.reader(record, strict=True, **{**self._dialect, "delimiter": mark}))) > 1:
                    return mark
        return ""

    def rows(self, checks: RowChecks, file: OpenedFile) -> Iterator[PlainRecord]:
        """Yield the rows after the header.

        Raises:
            EmptySourceError: the file is empty.
            BadSourceError: the quoting of a row is wrong, so that the next row cannot be found.
            SourceUnavailableError: the file changes meanwhile.
        """
        name, reader, lines, width = self._name, self._reader, self._lines, len(checks.columns)
        start, rows, has_short = reader.line_num + 1, count(self._rows_of_header + 1), False
        with file.detect_change():
            while not lines.is_exhausted:
                try:
                    for cells, row in zip(reader, rows, strict=False):
                        if len(cells) == width and not lines.is_tainted:
                            yield start, cells, row
                        else:
                            problems: tuple[Reason, ...] = ()
                            if not has_short and checks.is_short(cells):
                                has_short = True
                                self._is_cut_off = lines.is_unended
                                problems = (_cut_off(checks, cells),) if lines.is_unended else ()
                            yield checks.row(_location(name, start, row), cells, problems)
                        lines.start = start = reader.line_num + 1
                except csv.Error:
                    yield self._misquoted_row(_location(name, start, next(rows)), checks)
                    lines.start = start = reader.line_num + 1
            if not reader.line_num:
                raise EmptySourceError(name, "the file is empty", hint="ask the partner for the whole file")

    def ending(self) -> Ending:
        """Return how the reading ended: short if the last row was cut off."""
        return Ending(notices=(_CUT_OFF,), is_short=True) if self._is_cut_off else Ending()

    def _misquoted_row(self, location: RowLocation, checks: RowChecks) -> SourceRow:
        held, width = self._lines.record(self._reader.line_num), len(checks.columns)
        cells = self._read_leniently(held)
        # The reader goes on with the next line: safe if the record ends on its own line and has all its cells even so.
        if self._lines.is_exhausted or len(held) > 1 or len(cells) < width or _largest(cells) > LARGEST_CELL:
            raise self._unreadable(cells) from None
        hint = f"inside a quoted cell write each {self._dialect['quotechar']} twice"
        problem = Reason(ReasonCode.BAD_TEXT, "", "", short(held[0].rstrip("\r\n")), hint)
        return checks.row(location, cells[:width], (problem,))

    def _unreadable(self, cells: Sequence[str]) -> BadSourceError:
        """Return the error for a record after which the next one cannot be found; `cells`: the record parsed leniently."""
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


_CUT_OFF = "the file is cut off in its last row: rows may be missing, so none counts as gone"


def _cut_off(checks: RowChecks, cells: Sequence[str]) -> Reason:
    """Return the problem of a last row that alone lacks cells, and has no line end."""
    counts = f"the last row has {len(cells)} of {len(checks.columns)} cells and no line end"
    hint = f"{counts}; fetch the file again, or ask the partner for the whole one"
    return Reason(ReasonCode.RAGGED, "", "", short(checks.delimiter.join(cells)), hint, detail=Detail.CUT_OFF)


def _largest(cells: Sequence[str]) -> int:
    return max(map(len, cells), default=0)

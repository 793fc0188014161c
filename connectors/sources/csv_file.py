"""A delimited text file as a source: its columns matched with the mapping's, its records streamed as rows.

How records are told apart is `csv_records`'s, what becomes of odd ones `odd_rows`'s.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from connectors.sources.cell_faults import CellFaults
from connectors.sources.contract import Reading
from connectors.sources.csv_records import CsvRecords
from connectors.sources.errors import EmptySourceError
from connectors.sources.header import read_header, wanted_columns
from connectors.sources.names import Asked
from connectors.sources.odd_rows import OddRows
from connectors.sources.opened_file import FileAt, opened, told_of_change, whole
from connectors.sources.row_limits import within_limits
from connectors.sources.text_file import Lines, chosen_encoding
from mappings.outcome import RowLocation, SourceRow
from mappings.source_bases import DelimitedSource

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
            with told_of_change(file):
                encoding = chosen_encoding(file.stream, self.spec.encoding)
                lines = Lines(file.stream, encoding, file.name, needs_end=not file.has_known_end, mark=self.spec.delimiter)
                records = CsvRecords(lines, file.name, self.spec)
                present = read_header(self.spec.header, file.name, records.next_row, hint="check `source.delimiter`")
                columns = wanted_columns(present, self.asked, file.name, _advice(present, self.spec))
            faults = CellFaults(self.asked.columns, self.spec.encoding)
            is_strict = self.spec.short_rows == "reject"
            odd = OddRows(self.spec, columns.names, faults, self.spec.delimiter, rejects_short=is_strict)
            rows = within_limits(whole(file, _rows(records, odd)), self.spec)
            reading = Reading(columns.names, rows, file.stamp, has_known_end=file.has_known_end)
            yield reading.with_empty(columns.absent)


def _rows(records: CsvRecords, odd: OddRows) -> Iterator[SourceRow]:
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

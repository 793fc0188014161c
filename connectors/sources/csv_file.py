"""A delimited text file as a source: its columns matched with the mapping's, its records streamed as rows.

How records are told apart is `csv_records`'s, what becomes of odd ones `odd_rows`'s.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b

from connectors.sources.cell_faults import CellFaults
from connectors.sources.contract import Reading
from connectors.sources.csv_records import CsvRecords
from connectors.sources.errors import EmptySourceError
from connectors.sources.header import read_header, wanted_columns
from connectors.sources.names import Asked
from connectors.sources.odd_rows import OddRows
from connectors.sources.opened_file import FileAt, OpenedFile, opened, told_of_change, whole
from connectors.sources.raw_records import RawRecords, is_told_by_bytes, sealed
from connectors.sources.row_limits import within_limits
from connectors.sources.text_file import Lines, chosen_encoding
from mappings.outcome import RowLocation, SourceRow
from mappings.spec.source import DelimitedSource

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
            raw = _raw(file, self.spec, records, columns.names)
            rows = within_limits(whole(file, _asked_rows(self.spec, records, odd, raw)), self.spec)
            reading = Reading(columns.names, rows, file.stamp, records=raw, has_known_end=file.has_known_end)
            yield reading.with_empty(columns.absent)


def _raw(file: OpenedFile, spec: DelimitedSource, records: CsvRecords, columns: Sequence[str]) -> RawRecords | None:
    """Return the file's records as bytes; None where these do not tell what is a record, or a row depends on those around it."""
    encoding = records.lines.encoding
    if not is_told_by_bytes(encoding) or spec.escape or spec.until is not None or spec.footer:
        return None
    quote = (spec.quote or "").encode(encoding, "replace")
    return RawRecords(file.name, file.stream, quote, records.next_line - 1, _layout(encoding, columns))


def _layout(encoding: str, columns: Sequence[str]) -> str:
    return blake2b(json.dumps([encoding, *columns]).encode(), digest_size=16).hexdigest()


def _asked_rows(spec: DelimitedSource, records: CsvRecords, odd: OddRows, raw: RawRecords | None) -> Iterator[SourceRow]:
    """Give the rows of the file, or of the pieces of it that were asked for."""
    if raw is None or raw.chosen is None:
        yield from _rows(records, odd, is_sealing=raw is not None and raw.is_sealing)
        return
    for piece in raw.chosen:
        lines = Lines(raw.opened(piece), records.lines.encoding, raw.name, piece.line - 1, mark=spec.delimiter)
        yield from _rows(CsvRecords(lines, raw.name, spec), odd, is_sealing=raw.is_sealing)


def _rows(records: CsvRecords, odd: OddRows, *, is_sealing: bool) -> Iterator[SourceRow]:
    name, reader, lines, columns = records.name, records.reader, records.lines, odd.columns
    width, before = len(columns), lines.before + 1
    seal = sealed(lines) if is_sealing else bytes
    start = records.next_line
    while not lines.is_exhausted:
        try:
            for cells in reader:
                origin = RowLocation(f"{name}:{start}", start)
                if len(cells) == width and not lines.is_tainted:
                    yield SourceRow(origin, dict(zip(columns, cells, strict=True)), record=seal())
                elif lines.is_tainted:
                    yield odd.row(origin, cells)
                else:
                    yield replace(odd.row(origin, cells), record=seal())
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

"""A delimited text file as a source: its columns matched with the mapping's, its records streamed as rows.

How records are told apart is `csv_records`'s, what becomes of odd ones `odd_rows`'s.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from connectors.sources.contract import Reading
from connectors.sources.csv_records import CsvRecords
from connectors.sources.errors import BadSourceError, EmptySourceError, MissingColumnsError, SourceUnavailableError
from connectors.sources.names import column_names, matched
from connectors.sources.odd_rows import OddRows
from connectors.sources.opened_file import OpenedFile, opened
from mappings.source_specs import CsvSource
from mappings.vocabulary import Origin, SourceRow

_DELIMITERS = ";,\t|"


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A delimited text file as one feed reads it: `columns` are those that its mapping uses, `base` its folder."""

    spec: CsvSource
    base: Path
    columns: frozenset[str]

    @property
    def is_whole(self) -> bool:
        """A file is always read from its first row to its last."""
        return True

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`. A row's number is the physical line of the file on which it begins."""
        with opened(self.spec.path, self.base) as file:
            with _told_of_change(file):
                records = CsvRecords(file, self.spec)
                columns = self._columns(records)
            odd = OddRows(file.name, self.spec, columns, self.columns)
            yield Reading(columns, _whole(file, _rows(records, odd)), file.stamp)

    def _columns(self, records: CsvRecords) -> tuple[str, ...]:
        in_file = records.header(self.spec.header.row)
        present = column_names(self.spec.header.names or in_file)
        wanted = self.columns.union(self.spec.required)
        columns, missing = matched(present, wanted)
        if missing:
            taken = [name for name, matched_name in zip(present, columns, strict=True) if matched_name in wanted]
            raise MissingColumnsError(records.name, missing, present, taken=taken, advice=_advice(present, self.spec))
        return columns


def _rows(records: CsvRecords, odd: OddRows) -> Iterator[SourceRow]:
    name, reader, lines, columns = records.name, records.reader, records.lines, odd.columns
    width = len(columns)
    start = reader.line_num + 1
    while not lines.is_exhausted:
        try:
            for cells in reader:
                if len(cells) == width and not lines.is_tainted:
                    yield SourceRow(Origin(f"{name}:{start}", start), dict(zip(columns, cells, strict=True)))
                else:
                    yield odd.row(start, cells)
                start = reader.line_num + 1
                lines.clear()
        except csv.Error:
            yield odd.misquoted(start, records.misquoted(start, width), lines.held[0])
            start = reader.line_num + 1
            lines.clear()
    if not reader.line_num:
        raise EmptySourceError(name, "the file is empty", hint="ask the partner for the whole file")


def _whole(file: OpenedFile, rows: Iterator[SourceRow]) -> Iterator[SourceRow]:
    with _told_of_change(file):
        yield from rows
    if file.has_changed():
        raise _changed(file)


@contextmanager
def _told_of_change(file: OpenedFile) -> Iterator[None]:
    """A file that somebody is writing looks broken: say that it is being written instead."""
    try:
        yield
    except (BadSourceError, MissingColumnsError) as error:
        if file.has_changed():
            raise _changed(file) from error
        raise


def _changed(file: OpenedFile) -> SourceUnavailableError:
    hint = "run again; if it happens often, ask for the file to be written elsewhere and moved here"
    return SourceUnavailableError(f"{file.name} changed while we read it", hint=hint)


def _advice(present: Sequence[str], spec: CsvSource) -> str:
    others = [mark for mark in _DELIMITERS if mark != spec.delimiter and any(mark in name for name in present)]
    if len(present) == 1 and others:
        return f"all names stand in one column: set `source.delimiter` to {others[0]!r}"
    return ""

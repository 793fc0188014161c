"""A file of records (JSON, NDJSON, XML, iCalendar) as a source: its columns gathered from the records, then a row for each."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from connectors.sources.contract import Reading
from connectors.sources.errors import BadSourceError
from connectors.sources.files.opened_file import FileAt, OpenedFile, detect_change, opened, whole
from connectors.sources.formats.nested import Flattener, RepeatedName, TooDeepError, TooWideError, picks_among
from connectors.sources.header import ColumnRequest, MatchedColumns, matched, wanted_columns
from connectors.sources.row_checks import MOST_COLUMNS, CellChecks, has_undecodable, short
from mappings.outcome import RowLocation, SourceRow
from mappings.refusals import Reason, ReasonCode
from mappings.spec.source import NdjsonSource, RecordSource

_SAMPLE = 1000
"""Records from which the columns are gathered; more are read only while a wanted column has not been met."""

_HINT = "correct `source.records`: it should lead to the single events"
_MOST_REPEATS = 100


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it stands in its file; `problem` is why it cannot be used, `found` what stands there then.

    `repeats` are the names that stand twice in one of its objects and say different things.
    """

    origin: RowLocation
    value: Mapping[str, Any]
    problem: str = ""
    found: str = ""
    repeats: tuple[RepeatedName, ...] = ()


ReadRecords = Callable[[OpenedFile], Generator[Record]]
"""Reads the records of an open file, from where it stands."""


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file of records, as one feed reads it."""

    spec: RecordSource
    file: FileAt
    asked: ColumnRequest
    read_records: ReadRecords

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`. A column that no record has is missing, unless there are no records."""
        with opened(self.file) as file:
            flattening = Flattener(picks_among(self.asked.columns), self.spec.join_lists)
            with detect_change(file):
                present = self._present(file, flattening)
                missing = MatchedColumns((), (), tuple(self.asked.columns))
                columns = wanted_columns(present, self.asked, file.name) if present else missing
            file.stream.seek(0)
            pairs = tuple(zip(columns.names, present, strict=True))
            with closing(self.read_records(file)) as records:
                rows = self._rows(records, flattening, pairs)
                # The other formats have an end of their own.
                has_known_end = file.has_known_end or not isinstance(self.spec, NdjsonSource)
                reading = Reading(columns.names, whole(file, rows), file.stamp, has_known_end=has_known_end)
                yield reading.with_empty(columns.absent)

    def _present(self, file: OpenedFile, flattening: Flattener) -> Sequence[str]:
        present: dict[str, None] = {}
        with closing(self.read_records(file)) as records:
            for number, record in enumerate(records, start=1):
                try:
                    present.update(dict.fromkeys(flattening.cells(record.value)))
                except TooWideError as error:
                    raise BadSourceError(str(record.origin), f"the record cannot be read: {error}", hint=_HINT) from error
                except TooDeepError:
                    continue
                if len(present) > MOST_COLUMNS:
                    message = f"the records have more than {MOST_COLUMNS} different names; so many columns are never meant"
                    raise BadSourceError(str(record.origin), message, hint=_HINT)
                if number % _SAMPLE == 0 and not matched(tuple(present), self.asked).missing:
                    break
        return tuple(present)

    def _rows(self, records: Iterator[Record], flattening: Flattener, pairs: Sequence[tuple[str, str]]) -> Iterator[SourceRow]:
        """Make a row of each record. `pairs`: each column as the mapping spells it and as the records do."""
        checks = CellChecks(self.asked.columns, self.spec.encoding or ("utf-8",))
        for record in records:
            problem = record.problem
            try:
                flat = flattening.cells(record.value)
            except (TooDeepError, TooWideError) as error:
                flat, problem = {}, f"the record cannot be read: {error}"
            cells = {name: flat.get(key, "") for name, key in pairs}
            text = "".join(cells.values())
            if problem or record.repeats or "\0" in text or has_undecodable(text):
                reasons = (Reason(ReasonCode.BAD_TEXT, "", "", short(record.found), problem),) if problem else ()
                yield _with_repeats(checks.row(record.origin, cells, reasons), record.repeats, pairs, self.asked.columns)
            else:
                yield SourceRow(record.origin, cells)


def _with_repeats(
    row: SourceRow, repeats: Sequence[RepeatedName], pairs: Sequence[tuple[str, str]], wanted: frozenset[str]
) -> SourceRow:
    """Add what is wrong with the columns that are made of names that stand twice."""
    problems, warnings = list(row.problems), list(row.warnings)
    if len(repeats) > _MOST_REPEATS:
        hint = f"more than {_MOST_REPEATS} names stand twice in its objects and say different things"
        return replace(row, problems=(*problems, Reason(ReasonCode.BAD_TEXT, "", "", "", hint)))
    for repeat in repeats:
        columns = [name for name, key in pairs if repeat.is_in(key)]
        used = [name for name in columns if name in wanted]
        (problems if used else warnings).extend(map(repeat.reason, used or columns[:1]))
    return replace(row, problems=tuple(problems), warnings=tuple(warnings))

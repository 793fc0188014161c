"""A file of records as a source: its columns gathered from the records themselves, then a row for each.

How a file is cut into records is the business of its kind (`json_records`, `xml_records`, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from connectors.sources.contract import Reading
from connectors.sources.errors import BadSourceError
from connectors.sources.files.opened_file import FileAt, OpenedFile, opened, told_of_change, whole
from connectors.sources.formats.nested import Flattening, Repeat, TooDeepError, TooWideError, picks_among, repeated
from connectors.sources.header import Asked, Matched, matched, wanted_columns
from connectors.sources.row_checks import MOST_COLUMNS, CellFaults, has_undecodable, short
from mappings.outcome import RowLocation, SourceRow
from mappings.refusals import Reason, ReasonCode
from mappings.spec.source import NdjsonSource, RecordSource

SAMPLE = 1000
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
    repeats: tuple[Repeat, ...] = ()


Cut = Callable[[OpenedFile], Generator[Record]]
"""Cuts an open file, from where it stands, into its records."""


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file of records, as one feed reads it."""

    spec: RecordSource
    file: FileAt
    asked: Asked
    cut: Cut

    @contextmanager
    def read(self) -> Iterator[Reading]:
        """Keep the promises of `Source.read`. A column that no record has is missing, unless there are no records."""
        with opened(self.file) as file:
            flattening = Flattening(picks_among(self.asked.columns), self.spec.join_lists)
            with told_of_change(file):
                present = self._present(file, flattening)
                columns = (
                    wanted_columns(present, self.asked, file.name) if present else Matched((), (), tuple(self.asked.columns))
                )
            file.stream.seek(0)
            pairs = tuple(zip(columns.names, present, strict=True))
            with closing(self.cut(file)) as records:
                rows = _Rows(flattening, pairs, CellFaults(self.asked.columns, self.spec.encoding or ("utf-8",))).of(records)
                # The other formats say themselves where they end.
                has_known_end = file.has_known_end or not isinstance(self.spec, NdjsonSource)
                reading = Reading(columns.names, whole(file, rows), file.stamp, has_known_end=has_known_end)
                yield reading.with_empty(columns.absent)

    def _present(self, file: OpenedFile, flattening: Flattening) -> Sequence[str]:
        present: dict[str, None] = {}
        with closing(self.cut(file)) as records:
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
                if number % SAMPLE == 0 and not matched(tuple(present), self.asked).missing:
                    break
        return tuple(present)


@dataclass(frozen=True, slots=True)
class _Rows:
    flattening: Flattening
    pairs: tuple[tuple[str, str], ...]
    faults: CellFaults

    def of(self, records: Iterator[Record]) -> Iterator[SourceRow]:
        for record in records:
            flat, problem = _flat(record, self.flattening)
            cells = {name: flat.get(key, "") for name, key in self.pairs}
            text = "".join(cells.values())
            if problem or record.repeats or "\0" in text or has_undecodable(text):
                reason = Reason(ReasonCode.BAD_TEXT, "", "", short(record.found), problem)
                yield self._repeating(record, self.faults.row(record.origin, cells, (reason,) if problem else ()))
            else:
                yield SourceRow(record.origin, cells)

    def _repeating(self, record: Record, row: SourceRow) -> SourceRow:
        """Tell the names that stand twice, by the columns that are made of what they say."""
        problems, warnings = list(row.problems), list(row.warnings)
        if len(record.repeats) > _MOST_REPEATS:
            hint = f"more than {_MOST_REPEATS} names stand twice in its objects and say different things"
            return replace(row, problems=(*problems, Reason(ReasonCode.BAD_TEXT, "", "", "", hint)))
        for repeat in record.repeats:
            columns = [name for name, key in self.pairs if repeat.is_in(key)]
            used = [name for name in columns if name in self.faults.wanted]
            reasons = problems if used else warnings
            reasons.extend(repeated(repeat, name) for name in used or columns[:1])
        return replace(row, problems=tuple(problems), warnings=tuple(warnings))


def _flat(record: Record, flattening: Flattening) -> tuple[dict[str, str], str]:
    """Return a record's cells, and why it cannot be used if it cannot."""
    try:
        return flattening.cells(record.value), record.problem
    except (TooDeepError, TooWideError) as error:
        return {}, f"the record cannot be read: {error}"

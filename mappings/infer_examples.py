"""Examples for a drafted mapping, taken from real rows and carried out by the mapping itself: one event and one rejection.

The draft without them is `infer`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from mappings.compiler.mapper import Directory, RowMapper, compile_with_problems
from mappings.compiler.rows import needs_the_moment
from mappings.infer_yaml import block, comment, scalar
from mappings.loader import parse_feed
from mappings.lookup_files import LookupShelf
from mappings.outcome import MappedRow, Rejection, RowLocation, RowOutcome, SourceRow
from mappings.schema import FeedMapping

_TOLD = ("title", "startAt", "endAt", "locationName")
_LONGEST_CELL = 200
_TRIED = 300
_ANY_DAY = "2026-01-01T00:00:00+00:00"
_Tried = tuple[Mapping[str, str], RowOutcome]


def with_examples(text: str, path: Path, rows: Sequence[Mapping[str, str]]) -> str:
    """Return the draft with an `examples` block; `path` is where the file will stand.

    Raises:
        MappingFileError: the draft is not a mapping that may run.
    """
    mapping = parse_feed(text, path, LookupShelf())
    mapper, _ = compile_with_problems(mapping, Directory())
    several = [(row, mapper.outcomes(_row(mapper, row))) for row in rows[:_TRIED]]
    outcomes = [(row, each[0]) for row, each in several if len(each) == 1]
    as_of = _moment(outcomes) if needs_the_moment(mapping.rows) else ()
    lines = [*_event(mapper, outcomes, as_of), *_rejections(mapping, mapper, outcomes, as_of)]
    return "\n".join([text.rstrip("\n"), "", "examples:", *lines]) + "\n" if lines else text


def _moment(outcomes: Iterable[_Tried]) -> tuple[str, ...]:
    """Write the moment of a run, for mappings that ask for it: an event's own start."""
    starts = (orjson.loads(outcome.body)["startAt"] for _, outcome in outcomes if isinstance(outcome, MappedRow))
    return (f'    as_of: "{next(starts, _ANY_DAY)}"',)


def _row(mapper: RowMapper, cells: Mapping[str, str]) -> SourceRow:
    """A row as an example gives it: only the columns that the mapping reads."""
    return SourceRow(RowLocation("sample"), {name: cells.get(name, "") for name in mapper.columns})


def _event(mapper: RowMapper, outcomes: Iterable[_Tried], as_of: Iterable[str]) -> Iterator[str]:
    events = [(row, outcome) for row, outcome in outcomes if isinstance(outcome, MappedRow) and _is_handy(mapper, row)]
    if not events:
        return
    row, outcome = max(events, key=lambda event: sum(bool(cell) for cell in event[0].values()))
    payload: dict[str, Any] = orjson.loads(outcome.body)
    yield from _shown(mapper, row)
    yield from as_of
    yield f"    event: {block({name: str(payload[name]) for name in _TOLD if name in payload})}"


def _rejections(mapping: FeedMapping, mapper: RowMapper, outcomes: Sequence[_Tried], as_of: Sequence[str]) -> Iterator[str]:
    for row, outcome in outcomes:
        if isinstance(outcome, Rejection) and _is_handy(mapper, row):
            yield from _rejection(mapper, row, outcome, as_of)
            return
    for row, _ in outcomes[:1]:
        spoilt = {**row, **dict.fromkeys((column.column for column in mapping.key_columns), "")}
        rejected = mapper(_row(mapper, spoilt))
        if isinstance(rejected, Rejection):
            yield "  # no row of the sample is rejected: this one has lost its key"
            yield from _rejection(mapper, spoilt, rejected, as_of)


def _rejection(mapper: RowMapper, row: Mapping[str, str], outcome: Rejection, as_of: Iterable[str]) -> Iterator[str]:
    yield from _shown(mapper, row)
    yield from as_of
    yield f"    rejected: {block({reason.field: reason.code.value for reason in outcome.reasons})}"


def _shown(mapper: RowMapper, row: Mapping[str, str]) -> Iterator[str]:
    yield "  - row:"
    used = [name for name in row if name in mapper.columns and row[name]]
    yield from (f"      {scalar(name)}: {scalar(row[name])}" for name in used)
    if not used:
        yield f'      {scalar(next(iter(sorted(mapper.columns))))}: "" # {comment("a row without a single cell")}'


def _is_handy(mapper: RowMapper, row: Mapping[str, str]) -> bool:
    """Whether a row is fit to be shown: no page of text, nothing that is no text."""
    cells = [row.get(name, "") for name in mapper.columns]
    return all(len(cell) <= _LONGEST_CELL and cell.isascii() | _is_unicode(cell) for cell in cells)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
